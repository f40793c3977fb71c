"""Logins at MCP servers, kept in files: whose tokens a session shows a server that wants some.

A login belongs to a name and the address of a server. ``cmdc mcp login`` makes it, sessions whose
servers name it (``McpServer.oauth``) use and renew it. It is a file of its own in a folder of the
daemon's state that is closed to other users, and is replaced as a whole. A renewal is made under a
lock, since a server may take a refresh token once only.

What is in it nobody logs, journals or shows. The module knows neither the network nor the SDK.
"""

import fcntl
import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

FOLDER: Final = "mcp-logins"
"""Below the daemon's state."""
FILE_BYTES_MAX: Final = 256 * 1024
"""Of one login; a token has some KB."""
_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_DIGEST_BYTES: Final = 16


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one login; the dicts are as the protocol has them (RFC 6749, 7591, 8414)."""

    url: str
    user: str
    tokens: dict[str, Any]  # Any, three times: as a server of others says it
    expires_at_s: float | None = None
    """When the access token is of no use any more, of the wall clock; None: nobody knows."""
    client: dict[str, Any] | None = None
    """How the authorization server has registered us."""
    server: dict[str, Any] | None = None
    """What it says about itself: where a token is renewed."""


class LoginUnreadable(Exception):
    """A login's file is damaged, or not this user's alone."""


class LoginFile:
    """Where one login is kept."""

    def __init__(self, state_dir: Path, url: str, user: str) -> None:
        """Name it; nothing is read or made."""
        self.url, self.user = url, user
        name = hashlib.blake2b(f"{user}\0{url}".encode(), digest_size=_DIGEST_BYTES).hexdigest()
        self.path = state_dir / FOLDER / f"{name}.json"

    def stamp(self) -> tuple[int, int] | None:
        """Return what differs where the file was replaced; None: there is none."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    def read(self) -> Login | None:
        """Return what is kept, None where nobody has logged in.

        Raises:
            LoginUnreadable: it can't be read, or others could.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LoginUnreadable(f"{self.path}: {error.strerror}") from error
        with os.fdopen(descriptor, "rb") as file:
            facts = os.fstat(file.fileno())
            if stat.S_IMODE(facts.st_mode) & 0o077 or facts.st_uid != os.geteuid():
                raise LoginUnreadable(f"{self.path} is not this user's alone: remove it")
            text = file.read(FILE_BYTES_MAX + 1)
        try:
            login = msgspec.json.decode(text, type=Login)
        except msgspec.DecodeError:  # its text may show a token
            raise LoginUnreadable(f"{self.path} is damaged: log in again") from None
        return login

    def write(self, login: Login) -> None:
        """Keep a login in the place of the former one; raises OSError."""
        self._make_folder()
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(fresh, flags, _FILE_MODE), "wb") as file:
                file.write(msgspec.json.encode(login))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise

    def remove(self) -> bool:
        """Forget the login; say whether there was one."""
        was_there = self.path.exists()
        for path in (self.path, self._lock_path):
            path.unlink(missing_ok=True)
        return was_there

    def lock(self) -> BinaryIO | None:
        """Return what makes the caller the one who renews until it is closed; None: another is."""
        self._make_folder()
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.fdopen(os.open(self._lock_path, flags, _FILE_MODE), "r+b", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    def _make_folder(self) -> None:
        self.path.parent.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)

    @property
    def _lock_path(self) -> Path:
        return self.path.with_suffix(".lock")


def secrets_of(login: Login | None) -> Mapping[str, Any]:
    """Return what nobody may be shown, under the names of secrets."""
    if login is None:
        return {}
    tokens = {name: login.tokens.get(name) for name in ("access_token", "refresh_token")}
    return {**tokens, "client_secret": (login.client or {}).get("client_secret")}
