"""One line of the event log: a JSON object of bounded size, whatever an event holds."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from cmdc_runtime.plugins.event_logger import LINE_BYTES_MAX

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
