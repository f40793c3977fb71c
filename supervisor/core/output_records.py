"""Log records that a worker writes as lines of JSON, with nothing in them that is not its to say.

Any code of a session can write such a line. So the session, the process and the time are the
daemon's to bind, whatever the line says of them, and text stays within its line. A line that is no
proper record is text.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cmdc_runtime.lines import RECORD_MARK, VISIBLE, VISIBLE_LINES

FIELDS_MAX: Final = 32
"""Of one record."""
DEPTH_MAX: Final = 4
"""Of lists and objects in a record's fields; what lies deeper is left out."""

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
UNNAMED: Final = "worker.logged"
"""The event of a record whose own is a sentence and not a name."""

_EVENT: Final = re.compile(r"[a-z_]{1,40}(?:\.[a-z_]{1,40}){1,3}")
_FIELD: Final = re.compile(r"[A-Za-z][\w-]{0,63}")
# What the daemon binds, and what its own log processors would act on.
_BOUND: Final = frozenset({"session_id", "incarnation", "pid", "stream", "worker_id"})
_PROCESSED: Final = frozenset(
    {"event", "level", "timestamp", "exception", "exc_info", "stack", "stack_info", "logger"}
)
_INT_MAX: Final = 2**63 - 1
"""Beyond it a log format may have no number for it."""
_LEFT_OUT: Final = "…"


@dataclass(frozen=True, slots=True)
class Record:
    """A log record that a worker wrote, with nothing in it that is not a worker's to say."""

    level: int
    event: str
    fields: dict[str, object]


def read_record(piece: bytes) -> Record | None:
    """Return the record that ``piece`` is, or None where it is text."""
    if not piece.startswith(RECORD_MARK):
        return None
    try:
        given = msgspec.json.decode(piece[len(RECORD_MARK) :], type=dict[str, Any])  # Any: JSON
    except (ValueError, RecursionError):
        return None
    event, level = given.get("event"), given.get("level")
    if not isinstance(event, str) or not isinstance(level, str) or level not in LEVELS:
        return None
    names = [name for name in given if _FIELD.fullmatch(name) and name not in _BOUND | _PROCESSED]
    fields = {name: _neutral(given[name], 1) for name in names[:FIELDS_MAX]}
    if isinstance(text := given.get("exception"), str):
        # Indented, so that no line of it can pose as a line of the log.
        fields["exception"] = "  " + text.translate(VISIBLE_LINES).replace("\n", "\n  ")
    if _EVENT.fullmatch(event) is None:
        fields["text"], event = event.translate(VISIBLE), UNNAMED
    return Record(LEVELS[level], event, fields)


def _neutral(value: Any, depth: int) -> object:  # Any: JSON
    match value:
        case str():
            return value.translate(VISIBLE)
        case bool() | float() | None:
            return value
        case int():
            return value if abs(value) <= _INT_MAX else _LEFT_OUT
        case _ if depth > DEPTH_MAX:
            return _LEFT_OUT
        case dict():
            return {str(_neutral(key, depth)): _neutral(value[key], depth + 1) for key in value}
        case _:
            return [_neutral(inner, depth + 1) for inner in value]
