"""The edge for values from outside: what of them can be kept, and what is wrong with the rest.

A value is *plain* when every part of the project can keep it: it can be encoded as MessagePack and
as JSON, journaled, sent to a client and read back, by C code and by recursive Python alike. So it
is made of None, booleans, integers of 64 bits, finite floats, text that is valid UTF-8, bytes,
lists, tuples, sets and dicts with text as keys, and nests ``DEPTH_MAX`` levels at most.

Every way in asks here before it keeps anything: options and commands of clients, tool arguments and
results, what providers stream, plugins' payloads and states, imported files, frames of workers. Who
asks turns the problem into its own error, for whoever sent the value. The limits are the same
everywhere; a bound on size belongs to each way in and is passed along. Nothing here recurses, since
the values it looks at may be made to exhaust the stack.
"""

import math
import re
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Any, Final

import msgspec

DEPTH_MAX: Final = 64
"""Levels of lists and dicts, the outermost counted; far below what any decoder's stack takes."""
VALUES_MAX: Final = 4_000_000
"""Of one value, the parts of its parts included: what holds itself has no end."""
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**64 - 1
"""What MessagePack has a form for."""
PACKED_DEPTH_MAX: Final = DEPTH_MAX + 32
"""Of a value that is packed into a command, a record or a definition, whose own levels it is in."""
SHOWN_CHARS_MAX: Final = 80
"""Of a place in a value, in the text of a problem."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_MANY: Final = (list, tuple, set, frozenset)
_HOLDERS: Final = (dict, *_MANY)
_DATA: Final = (dict, list, tuple, msgspec.Struct)
"""What data has its parts in that keep their kind, but for a tuple and a Struct."""


def problem_of(value: object, holders: tuple[type, ...] = _HOLDERS) -> str | None:
    """Return what of ``value`` cannot be kept, with its place, or None where all of it can.

    A place reads as Python would: ``['rows'][3]: inf is not a finite number``. ``holders`` are the
    types that may have parts.
    """
    if (wrong := _own_problem(value, holders)) is not None or not isinstance(value, holders):
        return wrong
    keys: list[object] = []
    count = 0
    open_ = [(value, _parts_of(value))]
    while open_:
        for key, part in open_[-1][1]:
            kind = type(part)
            if kind is str and part.isascii():  # most are: nothing else is asked of them
                continue
            wrong = _own_problem(part, holders)
            is_holder = wrong is None and isinstance(part, holders)
            count += is_holder
            if is_holder and (excess := _excess(len(open_), count)) is not None:
                return excess
            if wrong is not None:
                around = (holder for holder, _ in open_)
                return f"{_place(zip(around, (*keys, key), strict=True))}: {wrong}"
            if is_holder:
                keys.append(key)
                open_.append((part, _parts_of(part)))
                break
        else:
            open_.pop()
            if keys:
                keys.pop()
    return None


def nests_deeper(value: object, levels: int) -> bool:
    """Say whether ``value`` nests more than ``levels`` levels deep, the outermost counted."""
    left: list[tuple[object, int]] = [(value, 1)]
    while left:
        holder, level = left.pop()
        if isinstance(holder, _HOLDERS):
            if level > levels:
                return True
            parts = holder.values() if isinstance(holder, dict) else holder
            left += [(part, level + 1) for part in parts if isinstance(part, _HOLDERS)]
    return False


def _excess(levels: int, holders: int) -> str | None:
    if levels >= DEPTH_MAX:
        return f"it nests more than {DEPTH_MAX} levels deep"
    return f"it has more than {VALUES_MAX:,} lists and dicts" if holders > VALUES_MAX else None


def text_problem(text: object, *, chars_max: int, one_line: bool = False) -> str | None:
    """Return what is wrong with a text, or None; ``one_line`` refuses control characters, too."""
    if not isinstance(text, str):
        return f"expected a str, got {type(text).__name__}"
    if len(text) > chars_max:
        return f"it has {len(text):,} characters, at most {chars_max:,} are taken"
    if (found := _SURROGATE.search(text)) is not None:
        return _surrogate(found)
    if one_line and (found := _CONTROL.search(text)) is not None:
        return f"it has the control character U+{ord(found[0]):04X} at {found.start()}"
    return None


def whole_problem(value: object, low: int, high: int) -> str | None:
    """Return why ``value`` is no integer from ``low`` to ``high``, or None."""
    if isinstance(value, bool) or not isinstance(value, int):
        return f"expected an int, got {type(value).__name__}"
    return number_problem(value, low, high)


def number_problem(value: object, low: float, high: float) -> str | None:
    """Return why ``value`` is no number from ``low`` to ``high``, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"expected a number, got {type(value).__name__}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a finite number"
    if not low <= value <= high:
        shown = value if isinstance(value, float) or INT_MIN <= value <= INT_MAX else "the integer"
        return f"{shown} is not between {_number(low)} and {_number(high)}"
    return None


def packed_problem(data: bytes | memoryview | msgspec.Raw, *, values_max: int) -> str | None:
    """Return why ``data`` is not one value in MessagePack that may be kept, or None where it is.

    Nothing is decoded: it is for who passes a value on to somebody else. It nests
    ``PACKED_DEPTH_MAX`` levels at most, has ``values_max`` values, keys included, and its text is
    UTF-8. A value costs below 1 us, whatever its size.
    """
    packed = bytes(data)
    open_ = [1]  # values still to come, of each container that is open, the outermost first
    at = count = 0
    while open_:
        if not open_[-1]:
            open_.pop()
            continue
        open_[-1] -= 1
        if at >= len(packed):
            return "it is no MessagePack: it is cut"
        kind, size, own = _HEADS[packed[at]]
        length = int.from_bytes(packed[at + 1 : at + 1 + size]) if size else own
        at += 1 + size
        count += 1
        if kind is _Head.CONTAINER:
            open_.append(length * own if size else length)
            if len(open_) > PACKED_DEPTH_MAX + 1:
                return f"it nests more than {PACKED_DEPTH_MAX} levels deep"
        elif kind is _Head.TEXT and not _is_utf8(packed[at : at + length]):
            return f"text in it, at byte {at}, is no valid UTF-8"
        elif kind is _Head.UNUSED:
            return f"it is no MessagePack: byte {at - 1} begins no value"
        if kind is not _Head.CONTAINER:
            at += length + (kind is _Head.EXTENSION)
        if count > values_max:
            return f"it has more than {values_max:,} values"
    return (
        None if at == len(packed) else "it is no MessagePack: it does not end where its value does"
    )


def copied(value: object, bytes_max: int) -> Any:  # Any: what was given, as data
    """Return ``value`` as it is read back: a Struct as a dict, a tuple as a list.

    What would arrive as something else, as a set or a date would, is refused by name.

    Raises:
        ValueError: it can't be kept, or takes more than ``bytes_max``; the text says what of it.
    """
    if (problem := problem_of(value, _DATA)) is not None:
        raise ValueError(problem)
    try:
        body = msgspec.msgpack.encode(value)
    except Exception as error:
        raise ValueError(f"it is no plain data: {error}") from error
    if len(body) > bytes_max:
        raise ValueError(f"it takes {len(body):,} bytes, more than {bytes_max:,}")
    copy = msgspec.msgpack.decode(body)
    if (problem := problem_of(copy)) is not None:
        raise ValueError(problem)
    return copy


def shown(value: object, chars_max: int) -> str:
    """Return a plain value as text for people: a str as it is, None as "", the rest as JSON."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=repr).decode()
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def short(value: object) -> str:
    """Return ``value`` as an error message shows it: cut, and without running into its own code."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - it is the value's, or there is no end to it
        text = f"<a {type(value).__name__}>"
    return _short(text if text.isprintable() else ascii(text))


def mended(text: str) -> str:
    """Return ``text`` with U+FFFD for each half of a surrogate pair that stands alone.

    For text whose sender can't be told: what a program printed, what a model streams.
    """
    return text if _SURROGATE.search(text) is None else _SURROGATE.sub("�", text)


class _Head(Enum):
    """What the first byte of a value says that follows."""

    SCALAR = auto()
    TEXT = auto()
    EXTENSION = auto()
    CONTAINER = auto()
    UNUSED = auto()


def _heads() -> Iterator[tuple[_Head, int, int]]:
    """Yield for each first byte: what it begins, the bytes of its length, and the rest.

    The rest is the length itself where none follows, and else the values of one of its items.
    https://github.com/msgpack/msgpack/blob/master/spec.md has the table.
    """
    scalar, text, extension, container = _Head.SCALAR, _Head.TEXT, _Head.EXTENSION, _Head.CONTAINER
    yield from [(scalar, 0, 0)] * 0x80
    yield from ((container, 0, 2 * count) for count in range(16))
    yield from ((container, 0, count) for count in range(16))
    yield from ((text, 0, length) for length in range(32))
    yield from ((scalar, 0, 0), (_Head.UNUSED, 0, 0), (scalar, 0, 0), (scalar, 0, 0))
    for kind in (scalar, extension):  # bytes and extensions with a length before them
        yield from ((kind, size, 0) for size in (1, 2, 4))
    yield from ((scalar, 0, length) for length in (4, 8))
    yield from [(scalar, 0, length) for length in (1, 2, 4, 8)] * 2
    yield from ((extension, 0, length) for length in (1, 2, 4, 8, 16))
    yield from ((text, size, 0) for size in (1, 2, 4))
    yield from ((container, size, 1) for size in (2, 4))
    yield from ((container, size, 2) for size in (2, 4))
    yield from [(scalar, 0, 0)] * 0x20


_HEADS: Final = tuple(_heads())


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def one_line(text: str) -> str:
    """Return ``text`` mended, with U+FFFD for each control character, too."""
    return _CONTROL.sub("�", mended(text))


def _own_problem(value: object, holders: tuple[type, ...]) -> str | None:
    """Return what is wrong with a value but for its parts."""
    if isinstance(value, str):
        found = _SURROGATE.search(value)
        return None if found is None else _surrogate(found)
    if isinstance(value, int):
        return None if INT_MIN <= value <= INT_MAX else "it is an integer beyond 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value} is not a finite number"
    if isinstance(value, dict):
        return next(filter(None, map(_key_problem, value)), None)
    if value is None or isinstance(value, (*holders, bytes, bytearray, msgspec.Raw)):
        return None
    return f"a {type(value).__name__} is no plain value"


def _key_problem(key: object) -> str | None:
    if not isinstance(key, str):
        return f"a key is of type {type(key).__name__}, and only str can be kept"
    found = _SURROGATE.search(key)
    return None if found is None else f"a key of it: {_surrogate(found)}"


def _parts_of(value: Any) -> Iterator[tuple[object, Any]]:  # Any: a value with parts
    if isinstance(value, msgspec.Struct):
        return iter(msgspec.structs.asdict(value).items())
    return iter(value.items()) if isinstance(value, dict) else enumerate(value)


def _place(steps: Iterable[tuple[object, object]]) -> str:
    """Return what leads to a part: each holder with the key in it, cut as it grows."""
    place = ""
    for holder, key in steps:
        is_named = isinstance(holder, dict | msgspec.Struct)
        place = _short(f"{place}[{key!r}]" if is_named else f"{place}[{key}]")
    return place


def _surrogate(found: re.Match[str]) -> str:
    return f"it is no valid UTF-8: half a surrogate pair (U+{ord(found[0]):04X}) at {found.start()}"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[: SHOWN_CHARS_MAX - 1]}…"
