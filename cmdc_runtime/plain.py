"""The edge for values from outside: what of them can be kept, and what is wrong with the rest.

A value is *plain* when every part of the project can keep it: it can be encoded as MessagePack and
as JSON, journaled, sent to a client and read back, by C code and by recursive Python alike. So it
is made of None, booleans, integers of 64 bits, finite floats, text that is valid UTF-8, bytes,
lists, tuples, sets and dicts with text as keys, and nests ``DEPTH_MAX`` levels at most.

Every way in asks here before it keeps anything: options and commands of clients, tool arguments and
results, what providers stream, plugins' payloads and states, imported files, frames of workers. Who
asks turns the problem into its own error, for whoever sent the value. The limits are the same
everywhere; a bound on size belongs to each way in and is passed along. Nothing here recurses, since
the values it looks at may be made to exhaust the stack; and nothing here runs a method of a value's
own class, since that may be a stranger's: a subclass of ``dict`` is looked at as the dict it holds,
which is what its bytes are made of, too.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum, auto
from pathlib import PosixPath, PurePosixPath
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

import msgspec

from cmdc_runtime.redaction import SECRET_CHARS_MAX, text_shown

DEPTH_MAX: Final = 64
"""Levels of lists and dicts, the outermost counted; far below what any decoder's stack takes."""
LIKENESS: Final = 0.6
MISTYPED_CHARS_MAX: Final = 64
"""Of a name that is compared with those there are: it takes time by the square of its length."""
TOO_DEEP: Final = f"it nests more than {DEPTH_MAX} levels deep"
VALUES_MAX: Final = 4_000_000
"""Of one value, the parts of its parts included: what holds itself has no end."""
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**64 - 1
"""What MessagePack has a form for."""
PACKED_DEPTH_MAX: Final = DEPTH_MAX + 32
"""Of a value that is packed into a command, a record or a definition, whose own levels it is in."""
PACKED_TOO_DEEP: Final = f"it nests more than {PACKED_DEPTH_MAX} levels deep"
SHOWN_CHARS_MAX: Final = 80
"""Of a place in a value, in the text of a problem."""

SHOWN_BITS_MAX: Final = 1024
"""Of an integer in the text of a problem: writing one takes time by the square of its length."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_HALVES: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_NUMBERS: Final = (int, float)
_MANY: Final = (list, tuple, set, frozenset)
_HOLDERS: Final = (dict, *_MANY)
_HOLDERS_IN_JSON: Final = (dict, list, tuple)
_BLOBS: Final = (bytes, bytearray, msgspec.Raw)
_DATA: Final = (dict, list, tuple, msgspec.Struct)
"""What data has its parts in that keep their kind, but for a tuple and a Struct."""
_TEXTS: Final = (str, bytes, bytearray)
_BRACKETS: Final[Mapping[type, tuple[str, str]]] = {
    dict: ("{", "}"),
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}
_NUMBERED: Final = (*_NUMBERS, *_HOLDERS, msgspec.Struct)
"""What is a number, or may have one in it."""
_PAIR: Final = 2
_BRACKETS_OF_NONE: Final = (set, frozenset)
_PATHS: Final = (PurePosixPath, PosixPath)
_NAMED: Final = (type(None), complex, FunctionType, BuiltinFunctionType)
"""Besides what is plain: classes of Python's own that write no more than a name or a number."""


_BASES: Final[Mapping[type, Callable[[Any], Any]]] = {  # Any: a value of the type
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    bytes: bytes.__bytes__,
    bytearray: bytearray.copy,
    dict: lambda value: {own(key): part for key, part in dict.items(value)},
    list: list.copy,
    tuple: lambda value: tuple.__getitem__(value, slice(None)),
    set: lambda value: set().union(value),
    frozenset: lambda value: frozenset().union(value),
}
"""How a value of a subclass becomes one of the type, by the type's own means."""
_OWN: Final = frozenset({*_BASES, bool, type(None)})


def own(value: Any) -> Any:  # Any: a value of any class
    """Return ``value``, or where its class is a subclass of a plain one: what of that it holds.

    Its parts stay as they are, but for the keys of a dict.
    """
    kind = type(value)
    if kind in _OWN:
        return value
    found = next((made for base, made in _BASES.items() if issubclass(kind, base)), None)
    return value if found is None else found(value)


def owned(value: Any) -> Any:  # Any: what ``problem_of`` has nothing against
    """Return ``value`` with each part of it as ``own`` returns it."""
    value = own(value)
    if type(value) is dict:
        return {own(key): owned(part) for key, part in value.items()}
    return type(value)(map(owned, value)) if type(value) in _MANY else value


def is_a(value: object, kinds: type | tuple[type, ...]) -> bool:
    """Say what ``isinstance`` says, without a look at what ``value`` says of itself."""
    return issubclass(type(value), kinds)


def is_data(value: object) -> bool:
    """Say whether ``value`` is of a plain type, or of a subclass of one, whatever its parts are."""
    return is_a(value, tuple(_BASES))


def problem_of(
    value: object, holders: tuple[type, ...] = _HOLDERS, blobs: tuple[type, ...] = _BLOBS
) -> str | None:
    """Return what of ``value`` cannot be kept, with its place, or None where all of it can.

    A place reads as Python would: ``['rows'][3]: inf is not a finite number``. ``holders`` are the
    types that may have parts, ``blobs`` those whose bytes are taken as they are.
    """
    if (wrong := _own_problem(value, holders, blobs)) is not None or not is_a(value, holders):
        return wrong
    keys: list[object] = []
    count = 0
    open_ = [(value, _parts_of(value))]
    while open_:
        for key, part in open_[-1][1]:
            kind = type(part)
            if kind is str and part.isascii():  # most are: nothing else is asked of them
                continue
            wrong = _own_problem(part, holders, blobs)
            is_holder = wrong is None and is_a(part, holders)
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


def json_problem(value: object) -> str | None:
    """Return what of ``value`` has no form in JSON or cannot be kept, with its place, or None."""
    return problem_of(value, _HOLDERS_IN_JSON, ())


def reason_of(error: Exception) -> str:
    """Return why a value could not be encoded, in the words of a problem where there are some."""
    if isinstance(error, RecursionError):
        return TOO_DEEP
    unwritten = problem_of(error.object) if isinstance(error, UnicodeEncodeError) else None
    return unwritten or str(error) or type(error).__name__


def unread_reason(text: str, error: Exception) -> str:
    """Return why ``text``, which a model or a person wrote, was not read as JSON.

    Its own decoder said ``error``, which for half of a surrogate pair in an escape, or for a number
    that JSON has not, names something else than what is wrong.
    """
    import json  # noqa: PLC0415 - an error's cost, not a start's

    if isinstance(error, RecursionError):
        return TOO_DEEP
    try:
        problem = problem_of(json.loads(text))
    except (ValueError, RecursionError):
        problem = None
    return problem or str(error)


def kept_numbers_problem(value: object) -> str | None:
    """Return which number in ``value`` cannot be kept, with its place, whatever else is in it.

    For options whose other parts may be anything, such as functions: what is no number is the
    affair of whoever takes them.
    """
    open_: list[tuple[str, object]] = [("", value)]
    count = 0
    while open_ and count < VALUES_MAX:  # what holds itself has no end, and no other number
        place, part = open_.pop()
        count += 1
        if is_a(part, _NUMBERS):
            if (wrong := _own_problem(part, (), ())) is not None:
                return f"{place}: {wrong}" if place else wrong
        elif is_a(part, _NUMBERED):
            with suppress(AttributeError):  # a Struct may lack a field
                parts = [(key, one) for key, one in _parts_of(part) if is_a(one, _NUMBERED)]
                open_ += [(_short(f"{place}[{short(own(key))}]"), one) for key, one in parts[::-1]]
    return None


def nests_deeper(value: object, levels: int) -> bool:
    """Say whether ``value`` nests more than ``levels`` levels deep, the outermost counted."""
    left: list[tuple[object, int]] = [(value, 1)]
    while left:
        holder, level = left.pop()
        if is_a(holder, _HOLDERS):
            if level > levels:
                return True
            left += [(part, level + 1) for _, part in _parts_of(holder) if is_a(part, _HOLDERS)]
    return False


def _excess(levels: int, holders: int) -> str | None:
    if levels >= DEPTH_MAX:
        return TOO_DEEP
    return f"it has more than {VALUES_MAX:,} lists and dicts" if holders > VALUES_MAX else None


def text_problem(text: object, *, chars_max: int, one_line: bool = False) -> str | None:
    """Return what is wrong with a text, or None; ``one_line`` refuses control characters, too."""
    if not is_a(text, str):
        return f"expected a str, got {_name_of(text)}"
    held: str = own(text)
    if len(held) > chars_max:
        return f"it has {len(held):,} characters, at most {chars_max:,} are taken"
    if (found := _SURROGATE.search(held)) is not None:
        return _surrogate(found)
    if one_line and (found := _CONTROL.search(held)) is not None:
        return f"it has the control character U+{ord(found[0]):04X} at {found.start()}"
    return None


def whole_problem(value: object, low: int, high: int) -> str | None:
    """Return why ``value`` is no integer from ``low`` to ``high``, or None."""
    if is_a(value, bool) or not is_a(value, int):
        return f"expected an int, got {_name_of(value)}"
    return number_problem(value, low, high)


def number_problem(value: object, low: float, high: float) -> str | None:
    """Return why ``value`` is no number from ``low`` to ``high``, or None."""
    if is_a(value, bool) or not is_a(value, (int, float)):
        return f"expected a number, got {_name_of(value)}"
    held: int | float = own(value)
    if isinstance(held, float) and not math.isfinite(held):
        return f"{held} is not a finite number"
    if not low <= held <= high:
        shown = held if isinstance(held, float) or INT_MIN <= held <= INT_MAX else "the integer"
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
                return PACKED_TOO_DEEP
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


def packed_nests_too_deep(data: bytes) -> bool:
    """Say whether ``data``, one value in MessagePack, nests more than ``PACKED_DEPTH_MAX`` levels.

    It costs below 1 us where there are too few bytes in it that could begin a list or a dict.
    """
    heads = len(data.translate(None, _NO_CONTAINERS))
    return heads > PACKED_DEPTH_MAX and packed_problem(data, values_max=len(data)) == (
        PACKED_TOO_DEEP
    )


def copied(value: object, bytes_max: int) -> Any:  # Any: what was given, as data
    """Return ``value`` as it is read back: a Struct as a dict, a tuple as a list.

    What would arrive as something else, as a set or a date would, is refused by name.

    Raises:
        ValueError: it can't be kept, or takes more than ``bytes_max``; the text says what of it.
    """
    try:
        problem = problem_of(value, _DATA)
        body = b"" if problem is not None else msgspec.msgpack.encode(owned(value))
    except Exception as error:  # a Struct may lack a field, or be changed meanwhile
        raise ValueError(f"it is no plain data: {error}") from error
    if problem is not None:
        raise ValueError(problem)
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


def short(value: object, path: tuple[str, ...] = ("",)) -> str:
    """Return ``value`` as an error message shows it: as Python writes it, cut, without credentials.

    It costs the same however much there is of the value, and runs no code of the value's own class:
    an object of a class that is nobody's here is shown by its class's name. ``path`` names what
    the value lies in, as ``discretion`` reads it. A dict may be the options of anything, so a text
    in it is hidden, but for those that are known to be none, and so are the user and the key of an
    address, wherever they stand.
    """
    text = ""
    with suppress(RuntimeError):  # another thread changes it meanwhile
        for piece in _written(value, path):
            text += piece
            if len(text) > SHOWN_CHARS_MAX:
                break
    return _short(text if text.isprintable() else ascii(text))


def ends_of(text: str, chars_max: int) -> str:
    """Return ``text``, or its beginning and its end, which say most, where it is too long."""
    if len(text) <= chars_max:
        return text
    tail = chars_max // 4
    return f"{text[: chars_max - tail - 3]} … {text[-tail:]}"


def nearest(name: str, known: Iterable[str], likeness: float = LIKENESS) -> str | None:
    """Return which of the known names a mistyped one is like, None where it is like none.

    ``likeness`` is how like it has to be: the ratio of ``difflib``, 0 to 1.
    """
    import difflib  # noqa: PLC0415 - an error's cost, not a start's

    if len(name) > MISTYPED_CHARS_MAX:
        return None
    return next(iter(difflib.get_close_matches(name, list(known), 1, likeness)), None)


def mended(text: str) -> str:
    """Return ``text`` with U+FFFD for each half of a surrogate pair that stands alone.

    Two halves that belong together are the one character that they mean. For text whose sender
    can't be sent: what a program printed, what a model streams.
    """
    return text if _SURROGATE.search(text) is None else _HALVES.sub(_whole, text)


def _whole(found: re.Match[str]) -> str:
    return found[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


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
_NO_CONTAINERS: Final = bytes(
    first for first, head in enumerate(_HEADS) if head[0] is not _Head.CONTAINER
)


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


def without_controls(text: str) -> str:
    """Return ``text`` mended, with U+FFFD for each control character, too."""
    return _CONTROL.sub("�", mended(text))


def _own_problem(value: object, holders: tuple[type, ...], blobs: tuple[type, ...]) -> str | None:
    """Return what is wrong with a value but for its parts."""
    kind = type(value)
    if issubclass(kind, str):
        found = _SURROGATE.search(own(value))
        return None if found is None else _surrogate(found)
    if issubclass(kind, int):
        return None if INT_MIN <= own(value) <= INT_MAX else "it is an integer beyond 64 bits"
    if issubclass(kind, float):
        number = own(value)
        return None if math.isfinite(number) else f"{number} is not a finite number"
    if issubclass(kind, dict):
        return next(filter(None, (_key_problem(key) for key, _ in _parts_of(value))), None)
    if value is None or issubclass(kind, holders) or issubclass(kind, blobs):
        return None
    return f"a {_name_of(value)} is no plain value"


def _key_problem(key: object) -> str | None:
    if not is_a(key, str):
        return f"a key is of type {_name_of(key)}, and only str can be kept"
    found = _SURROGATE.search(own(key))
    return None if found is None else f"a key of it: {_surrogate(found)}"


def _parts_of(value: Any) -> Iterator[tuple[object, Any]]:  # Any: a value with parts
    kind = type(value)
    if issubclass(kind, msgspec.Struct):
        return iter(msgspec.structs.asdict(value).items())
    if issubclass(kind, dict):
        return iter(dict.items(value))
    return enumerate(value if kind in _OWN else own(value))


def _place(steps: Iterable[tuple[object, object]]) -> str:
    """Return what leads to a part: each holder with the key in it, cut as it grows."""
    place = ""
    for holder, key in steps:
        is_named = is_a(holder, (dict, msgspec.Struct))
        place = _short(f"{place}[{short(own(key))}]" if is_named else f"{place}[{key}]")
    return place


def _surrogate(found: re.Match[str]) -> str:
    return f"it is no valid UTF-8: half a surrogate pair (U+{ord(found[0]):04X}) at {found.start()}"


def _name_of(value: object) -> str:
    return _short(type(value).__name__)


def _written(value: Any, path: tuple[str, ...]) -> Iterator[str]:  # Any: a value of any class
    """Yield what may be shown of ``value``, in pieces that are bounded, for who stops in time."""
    kind = type(value)
    if issubclass(kind, _TEXTS):
        yield _text_written(value, path)
    elif issubclass(kind, _HOLDERS):
        yield from _holder_written(value, path)
    elif issubclass(kind, float) or (issubclass(kind, int) and _has_few_digits(value)):
        yield repr(own(value))
    elif issubclass(kind, type):
        yield type.__repr__(value)
    elif kind in _PATHS:
        yield f"{kind.__name__}({_text_written(str(value), path)})"
    else:
        yield repr(value) if kind in _NAMED else f"<a {_name_of(value)}>"


def _text_written(value: Any, path: tuple[str, ...]) -> str:  # Any: text or bytes
    base: type[Any] = next(one for one in _TEXTS if issubclass(type(value), one))
    looked = base.__getitem__(value, slice(SHOWN_CHARS_MAX + SECRET_CHARS_MAX))
    if base is str:
        return repr(text_shown(looked, path)[:SHOWN_CHARS_MAX])
    text = text_shown(looked.decode("latin-1"), path)
    return repr(base(text.encode("latin-1")[:SHOWN_CHARS_MAX]))


def _holder_written(value: Any, path: tuple[str, ...]) -> Iterator[str]:  # Any: it has parts
    base = next(one for one in _HOLDERS if issubclass(type(value), one))
    count = base.__len__(value)
    if not count and base in _BRACKETS_OF_NONE:
        yield f"{base.__name__}()"
        return
    before, after = _BRACKETS[base]
    is_pair = base in (list, tuple) and count == _PAIR
    within = path
    yield before
    for at, part in enumerate(base.items(value) if base is dict else base.__iter__(value)):
        yield ", " if at else ""
        if base is dict:
            yield from _written(part[0], ("",))
            yield ": "
            yield from _written(part[1], (*path, "opts", _name_in(part[0])))
            continue
        yield from _written(part, within)
        if is_pair and at == 0:  # headers may come as pairs of name and value
            within = (*path, _name_in(part))
    yield f",{after}" if base is tuple and count == 1 else after


def _name_in(key: Any) -> str:  # Any: text or bytes, or what has no name in it
    """Return what a key, or the first of a pair, names; headers come as either."""
    if is_a(key, str):
        return str.__getitem__(key, slice(SHOWN_CHARS_MAX))
    if is_a(key, bytes):
        return bytes.__getitem__(key, slice(SHOWN_CHARS_MAX)).decode("latin-1")
    return ""


def _has_few_digits(number: int) -> bool:
    return int.bit_length(number) <= SHOWN_BITS_MAX


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[: SHOWN_CHARS_MAX - 1]}…"
