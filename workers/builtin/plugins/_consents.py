"""What people have agreed to, kept beyond the session: texts, each named by its digest.

A consent is a file of the daemon's state that nobody else can write, and whose name is the digest:
another text has another name, and is asked for anew. Whoever takes a consent back deletes the file.
What can't be kept holds in its session alone.
"""

import json
import os
import re
import secrets
import stat
from pathlib import Path
from typing import Final

import structlog

from cmdc_runtime.clock import now_ms

FOLDER: Final = "consents"
CONSENTS_MAX: Final = 10_000
"""Files of the folder; the oldest one makes room."""

_DIGEST: Final = re.compile(r"[0-9a-f]{16,128}")
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH

log = structlog.get_logger()


class Consents:
    """The consents below the folder of a daemon's state, or none without one."""

    def __init__(self, state_dir: str | None) -> None:
        """Take the folder; nothing is made before there is something to keep."""
        self._folder = None if state_dir is None else Path(state_dir, FOLDER)

    def has(self, digest: str) -> bool:
        """Say whether a person has agreed to a text, on the word of this user alone."""
        if self._folder is None or not _DIGEST.fullmatch(digest):
            return False
        return _is_own(self._folder, stat.S_IFDIR) and _is_own(self._folder / digest, stat.S_IFREG)

    def keep(self, digest: str, *, name: str, folder: str) -> None:
        """Keep that a person has agreed; the name and folder are for people who look."""
        if self._folder is None or not _DIGEST.fullmatch(digest) or self.has(digest):
            return
        facts = {"name": name, "folder": folder, "agreed_at_ms": now_ms()}
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._make_room()
            _write(self._folder, digest, json.dumps(facts).encode())
        except OSError as error:
            log.warning("consent.not_kept", folder=str(self._folder), problem=str(error))

    def _make_room(self) -> None:
        with os.scandir(self._folder) as entries:
            found = [(one.stat(follow_symlinks=False).st_mtime_ns, one.path) for one in entries]
        for _, path in sorted(found)[: max(0, len(found) - CONSENTS_MAX + 1)]:
            Path(path).unlink(missing_ok=True)


def _is_own(path: Path, kind: int) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    is_kind = stat.S_IFMT(status.st_mode) == kind
    return is_kind and status.st_uid == os.geteuid() and not status.st_mode & _WRITABLE_BY_OTHERS


def _write(folder: Path, name: str, content: bytes) -> None:
    """Put a file in place in one piece, readable by this user alone."""
    part = folder / f".{secrets.token_hex(8)}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(part, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        part.rename(folder / name)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
