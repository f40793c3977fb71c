"""Writes what the session does into a file of JSON lines.

It observes, so the session waits for it only at the three hooks that no published event covers.
What is written at which level, and what of it is content, stands on the class of an event. Of hooks
``HOOKS_LOGGED`` has a row for each that no event follows from; a test names the events that follow
from the others. Events are written when they are observed, a little after subscribers see them, and
``turn`` is that of the session by then. Lines are handed to the system and not forced to disk: they
outlive the process, not the machine.

A line is a JSON object of bounded size, whatever an event holds. Several processes may append to
one file; older files are of bounded size: see ``LineFile``.
"""

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from cmdc_runtime import plugins
from cmdc_runtime.beneath import NamedPath, named_path
from cmdc_runtime.events.base import LEVELS, Level
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import Hook, OnToolError, SessionEnd, SessionStart
from cmdc_runtime.extensions.plugin import Observed, Plugin
from cmdc_runtime.ids import is_session_id
from cmdc_runtime.plugins.observers import LINE_BYTES_MAX, SESSION_PLACEHOLDER
from cmdc_runtime.reasons import snake

# --- hooks ----------------------------------------------------------------------------------------


class Row(NamedTuple):
    """How one thing is written."""

    level: Level
    content_fields: tuple[str, ...] = ()
    """Fields that hold what people, the model, tools or plugins say."""


HOOKS_LOGGED: Final[Mapping[type[Hook], Row]] = MappingProxyType(
    {
        OnToolError: Row("warning", ("error",)),
        SessionEnd: Row("info"),
        SessionStart: Row("info"),
    }
)
"""Hooks that the log has itself; no session waits for it at the others."""


# --- one line -------------------------------------------------------------------------------------

CUT_KEY: Final = "cut_from_bytes"
"""In the data of a line that was cut: how long the line would have been."""
DEPTH_MAX: Final = 8
"""Of what is left of data that is cut."""
_STEPS: Final = ((8_192, 256), (1_024, 64), (128, 16), (32, 4))
"""The longest text, in characters, and the most entries: the first step with which a line fits."""

Data = dict[str, Any]  # Any: the fields of an event, as JSON takes them


def line_of(record: Mapping[str, Any], data: Data) -> bytes:  # Any: numbers and words
    """Return ``record`` with ``data`` as its key ``data``, up to ``LINE_BYTES_MAX``, newline too.

    Data that is too long is cut, longest things first to go; what JSON does not take is left out,
    and the line says why.
    """
    try:
        line = _encoded(record, data)
        if len(line) <= LINE_BYTES_MAX:
            return line
        return next(
            shorter
            for shorter in _shorter(record, data, len(line))
            if len(shorter) <= LINE_BYTES_MAX
        )
    except (TypeError, ValueError, RecursionError) as error:
        return _encoded(record, {"unwritable": f"{type(error).__name__}: {error}"[: _STEPS[1][0]]})


def _shorter(record: Mapping[str, Any], data: Data, size: int) -> Iterator[bytes]:
    """Yield the line ever shorter, in the end without data."""
    plain = msgspec.to_builtins(data)
    for chars, entries in _STEPS:
        yield _encoded(record, {**_cut(plain, chars, entries, 0), CUT_KEY: size})
    yield _encoded(record, {CUT_KEY: size})


def _encoded(record: Mapping[str, Any], data: Data) -> bytes:
    return msgspec.json.encode({**record, "data": data}) + b"\n"


def _cut(thing: Any, chars: int, entries: int, depth: int) -> Any:  # Any: what JSON takes
    """Return ``thing`` with marks in the place of what is too much of it."""
    if isinstance(thing, str):
        left = len(thing) - chars
        return thing if left <= 0 else f"{thing[:chars]}… ({left} more characters)"
    if not isinstance(thing, list | tuple | dict):
        return thing
    if depth == DEPTH_MAX:
        return f"… ({len(thing)} entries)"
    left = len(thing) - entries
    if isinstance(thing, dict):
        kept = {
            _cut(key, chars, entries, depth): _cut(value, chars, entries, depth + 1)
            for key, value in islice(thing.items(), entries)
        }
        return kept if left <= 0 else {**kept, "…": f"{left} more"}
    some = [_cut(entry, chars, entries, depth + 1) for entry in thing[:entries]]
    return some if left <= 0 else [*some, f"… ({left} more)"]


# --- the file -------------------------------------------------------------------------------------

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT


class LineFile:
    """Appends lines to one path; whatever fails is an ``OSError``.

    Each line is one write in append mode, so that lines of different processes do not mix and a
    process that dies leaves whole lines behind. A full file is renamed by whoever has its lock; the
    others notice before their next line that the path is another file now. It may so be a few lines
    larger than its bound.
    """

    def __init__(self, path: NamedPath, *, max_bytes: int, backups: int) -> None:
        """Touch nothing yet."""
        self._path = path
        self._max_bytes = max_bytes
        self._backups = backups
        self._fd: int | None = None

    def append(self, line: bytes) -> None:
        """Write ``line``, which ends in a newline, behind all others.

        Raises:
            OSError: it could not be written, or not as a whole.
            ValueError: a link leads out of the working folder.
        """
        fd = self._current()
        size = os.fstat(fd).st_size
        if size and size + len(line) > self._max_bytes:
            self._rotate(fd)
            fd = self._current()
        written = os.write(fd, line)
        if written != len(line):
            raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes were written")

    def close(self) -> None:
        """Give the file back; the next line opens it again."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def __del__(self) -> None:
        """Give the file back: a plugin may be detached while its session lives."""
        self.close()

    def _current(self) -> int:
        """Return the file that the path is now: it may have been renamed or removed meanwhile."""
        if self._fd is not None and self._is_at_path(self._fd):
            return self._fd
        self.close()
        fd = self._path.open_in_folder(_FLAGS, FILE_MODE)
        try:
            _end_line(fd)
        except OSError:
            os.close(fd)
            raise
        self._fd = fd
        return fd

    def _is_at_path(self, fd: int) -> bool:
        try:
            # Of what a path leads to this asks one thing alone: whether it is what is open.
            return os.path.samestat(os.stat(self._path.whole), os.fstat(fd))  # noqa: PTH116
        except FileNotFoundError:
            return False

    def _rotate(self, fd: int) -> None:
        """Rename the file and the older ones, unless another process is doing so."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        try:
            if self._is_at_path(fd):
                self._rename()
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)

    def _rename(self) -> None:
        with self._path.folder() as (folder, name):
            names = [name, *(f"{name}.{number}" for number in range(1, self._backups + 1))]
            if self._backups == 0:
                os.unlink(name, dir_fd=folder)
            for newer, older in reversed(list(pairwise(names))):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(newer, older, src_dir_fd=folder, dst_dir_fd=folder)


def _end_line(fd: int) -> None:
    """End a line that was cut when a disk was full."""
    status = os.fstat(fd)
    if status.st_size and os.pread(fd, 1, status.st_size - 1) != b"\n":
        os.write(fd, b"\n")


# --- the plugin -----------------------------------------------------------------------------------

log = structlog.get_logger()

DEFAULT_DIR: Final = ".cmdc/logs"
"""In the session's working folder."""


class EventLogger(Plugin):
    """Logs every event, and the hooks that no event covers."""

    name = "event_logger"
    priority = 990
    fail = "open"
    Config = plugins.EventLogger

    def __init__(self, **config: Any) -> None:  # Any: options as they come
        """Check the options; the file is made for its first line.

        Raises:
            InvalidOptions: options are unknown or wrong; it names each.
        """
        super().__init__(**config)
        least = "warning" if self.config.level == "warn" else self.config.level
        self._written: Final = frozenset(LEVELS[LEVELS.index(least) :])
        self._lock = threading.Lock()  # a hook that took too long may still be writing
        self._file: LineFile | None = None
        self._is_off = False

    def observe(self, event: Observed, context: PluginContext) -> None:
        """Write down what the session has published."""
        self._write(event, Row(event.level, event.content_fields), context)

    def session_start(self, event: SessionStart, context: PluginContext) -> None:
        """Write down which process of the session this is, and its model."""
        more = {"incarnation": context.incarnation, "model": context.model}
        self._write(event, HOOKS_LOGGED[SessionStart], context, more)

    def on_tool_error(self, event: OnToolError, context: PluginContext) -> None:
        """Write down each failure: only the last one of a call shows in its result."""
        self._write(event, HOOKS_LOGGED[OnToolError], context)

    def session_end(self, event: SessionEnd, context: PluginContext) -> None:
        """Write down that the session ends, and close the file."""
        self._write(event, HOOKS_LOGGED[SessionEnd], context)
        with self._lock:
            if self._file is not None:
                self._file.close()

    def _write(
        self,
        event: Observed | Hook,
        row: Row,
        context: PluginContext,
        more: dict[str, Any] | None = None,  # Any: beside the fields of the event
    ) -> None:
        if self._is_off or row.level not in self._written:
            return
        record = {
            "ts": _now(),
            "session": context.session_id,
            "event": snake(type(event).__name__),
            "data": None,
            "level": row.level,
            "turn": context.turn,
        }
        hidden = () if self.config.include_args else row.content_fields
        data = {**_fields(event, hidden), **(more or {})}
        with self._lock:
            self._append(line_of(record, data), context)

    def _append(self, line: bytes, context: PluginContext) -> None:
        try:
            if self._file is None:
                self._file = self._open(context)
            self._file.append(line)
        except (OSError, ValueError, RuntimeError) as error:  # a full disk, a path that can't be
            self._is_off = True
            log.warning("event_log.stopped", session=context.session_id, error=str(error))

    def _open(self, context: PluginContext) -> LineFile:
        config = self.config
        return LineFile(
            _path(config, context),
            max_bytes=config.max_bytes,
            backups=config.backups,
        )


def _path(config: plugins.EventLogger, context: PluginContext) -> NamedPath:
    """Return the session's file.

    Raises:
        ValueError: the session's id is not fit for a file's name, or nothing can have the path.
        RuntimeError: there is no home for ``~``.
    """
    if not is_session_id(context.session_id):
        raise ValueError(f"{context.session_id!r} is no session id, so it names no file")
    given = config.log_file or f"{config.log_dir or DEFAULT_DIR}/{SESSION_PLACEHOLDER}.jsonl"
    name = Path(given.replace(SESSION_PLACEHOLDER, context.session_id)).expanduser()
    return named_path(str(name), context.working_dir, folder_mode=FOLDER_MODE)


def _fields(event: Observed | Hook, hidden: tuple[str, ...]) -> dict[str, Any]:  # Any: fields
    fields = msgspec.structs.asdict(event)
    return {name: value for name, value in fields.items() if name not in hidden}


def _now() -> str:
    """Return the time: ISO 8601 with milliseconds, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


create = EventLogger
