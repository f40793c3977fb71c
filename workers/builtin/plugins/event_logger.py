"""Writes what the session does into a file of JSON lines.

It observes, so the session waits for it only at the three hooks that nothing published tells of.
What is written at which level stands on the class of an event, and for hooks in ``eventlog.table``.
Events are written when they are observed, a little after subscribers see them, and ``turn`` is that
of the session by then. Lines are handed to the system and not forced to disk: they outlive the
process, not the machine.
"""

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from cmdc_runtime import plugins
from cmdc_runtime.events.base import LEVELS
from cmdc_runtime.extensions.hooks import Hook, OnToolError, SessionEnd, SessionStart
from cmdc_runtime.extensions.plugin import Observed, Plugin
from cmdc_runtime.extensions.plugin_context import PluginContext
from cmdc_runtime.ids import is_session_id
from cmdc_runtime.plugins.event_logger import SESSION_PLACEHOLDER
from cmdc_runtime.reasons import snake
from workers.builtin.eventlog.file import LineFile
from workers.builtin.eventlog.line import line_of
from workers.builtin.eventlog.table import HOOKS_HEARD, Row

log = structlog.get_logger()

DEFAULT_DIR: Final = ".cmdc/logs"
"""In the session's working folder."""


class EventLogger(Plugin):
    """Logs every event, and the hooks that no event tells of."""

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
        told = {"incarnation": context.incarnation, "model": context.model}
        self._write(event, HOOKS_HEARD[SessionStart], context, told)

    def on_tool_error(self, event: OnToolError, context: PluginContext) -> None:
        """Write down each failure: only the last one of a call shows in its result."""
        self._write(event, HOOKS_HEARD[OnToolError], context)

    def session_end(self, event: SessionEnd, context: PluginContext) -> None:
        """Write down that the session ends, and close the file."""
        self._write(event, HOOKS_HEARD[SessionEnd], context)
        with self._lock:
            if self._file is not None:
                self._file.close()

    def _write(
        self,
        event: Observed | Hook,
        row: Row,
        context: PluginContext,
        told: dict[str, Any] | None = None,  # Any: beside the fields of the event
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
        data = {**_fields(event, hidden), **(told or {})}
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
            # Tools can write to the default folder: a link there could lead the log anywhere.
            follows_links=config.log_file is not None,
        )


def _path(config: plugins.EventLogger, context: PluginContext) -> Path:
    """Return the session's file.

    Raises:
        ValueError: the session's id is not fit for a file's name.
        RuntimeError: there is no home for ``~``.
    """
    if not is_session_id(context.session_id):
        raise ValueError(f"{context.session_id!r} is no session id, so it names no file")
    given = config.log_file or f"{config.log_dir or DEFAULT_DIR}/{SESSION_PLACEHOLDER}.jsonl"
    named = Path(given.replace(SESSION_PLACEHOLDER, context.session_id)).expanduser()
    return Path(context.working_dir).absolute() / named


def _fields(event: Observed | Hook, hidden: tuple[str, ...]) -> dict[str, Any]:  # Any: fields
    fields = msgspec.structs.asdict(event)
    return {name: value for name, value in fields.items() if name not in hidden}


def _now() -> str:
    """Return the time: ISO 8601 with milliseconds, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


create = EventLogger
