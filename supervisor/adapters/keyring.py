"""Keeps the providers' keys of sessions, which are not journaled, for their next processes.

They are in memory, and in a folder of the runtime directory that is closed to other users: a file
for each session, so that the next daemon has them, too. With the runtime directory they go when the
machine is booted. What a session is started with counts until it ends; of one that is parked they
stay, for who resumes it may have none.
"""

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from cmdc_runtime.ids import SessionId, is_session_id
from cmdc_runtime.provider_keys import KEY_CHARS_MAX, KEYS_MAX, keys_problem
from cmdc_runtime.runtime_dir import KEYS, PRIVATE_MODE

FILE_BYTES_MAX: Final = KEYS_MAX * (KEY_CHARS_MAX + 128)
_FILE_MODE: Final = 0o600
_MARK: Final = "."
"""How a file begins that is not whole yet; no session can be called so."""

log = structlog.get_logger()


class Keyring:
    """The keys of all sessions; without a folder, as in a test, they are in memory alone."""

    def __init__(self, runtime_dir: Path | None = None) -> None:
        """Take over what an earlier daemon has left there."""
        self._folder = None if runtime_dir is None else runtime_dir / KEYS
        self._keys: dict[SessionId, dict[str, str]] = {}
        if self._folder is not None and self._folder.is_dir():
            self._keys = dict(_read_all(self._folder))

    def keys_of(self, session_id: SessionId) -> dict[str, str]:
        """Return the keys of a session by their provider."""
        return self._keys.get(session_id, {})

    def put(self, session_id: SessionId, keys: Mapping[str, str]) -> None:
        """Keep the keys of a session in the place of those that it had; none leaves them.

        Where they can't be written the next daemon will not have them, which is logged. It is done
        at once, as ``drop`` is: of two that overlap the later one could be undone by the first.
        """
        if not keys:
            return
        self._keys[session_id] = dict(keys)
        if self._folder is not None:
            try:
                _write(self._folder, session_id, dict(keys))
            except OSError as error:
                log.error("keys.not_kept", session_id=session_id, problem=str(error))

    def drop(self, session_id: SessionId) -> None:
        """Forget the keys of a session."""
        if self._keys.pop(session_id, None) is not None and self._folder is not None:
            with suppress(OSError):
                (self._folder / session_id).unlink(missing_ok=True)

    def keep_only(self, session_ids: Collection[SessionId]) -> None:
        """Forget the keys of all other sessions."""
        for one in self._keys.keys() - set(session_ids):
            self.drop(one)


def _write(folder: Path, session_id: SessionId, keys: dict[str, str]) -> None:
    folder.mkdir(mode=PRIVATE_MODE, exist_ok=True)
    fresh = folder / f"{_MARK}{session_id}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(fresh, flags, _FILE_MODE), "wb") as file:
        file.write(msgspec.json.encode(keys))
    fresh.replace(folder / session_id)


def _read_all(folder: Path) -> list[tuple[SessionId, dict[str, str]]]:
    """Return what each file says; one that can't be read, or is not whole, is removed."""
    found = []
    for path in folder.iterdir():
        try:
            with path.open("rb") as file:
                keys = msgspec.json.decode(file.read(FILE_BYTES_MAX), type=dict[str, str])
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            keys = {}
        if keys and keys_problem(keys) is None and is_session_id(path.name):
            found.append((SessionId(path.name), keys))
            continue
        with suppress(OSError):
            path.unlink(missing_ok=True)
    return found
