"""Inputs that are nearly right: values of a type, with hostile ones in their midst.

A value of noise is refused by the first check of a decoder. What is right but for one field, one
length or one level of nesting gets further, so that is what is made here, from the types that the
decoders themselves are made of.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from scripts.fuzz.entropy import Entropy, one_in, pick

HOSTILE_ONE_IN: Final = 24
"""Values that are replaced by a hostile one."""
LEVELS_MAX: Final = 5
"""Of a value that may contain itself, before its lists are left empty."""
ENTRIES_MAX: Final = 4

_DEPTHS: Final = (20, 63, 64, 65, 100, 500, 970, 976, 3_000)
_INTEGERS: Final = (
    *(0, 1, 2, 7, 60_000, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1),
    *(-1, -(2**31), -(2**63)),
)
_FLOATS: Final = (0.0, 1.5, -1.0, 1e300, math.inf, -math.inf, math.nan, 5e-324)
_TEXTS: Final = (
    *("", "s-1", "a", "idle", "x" * 200, "x" * 5_000, "\0", "a\nb", "\x1b[2J", "\x9b2J"),
    *("../../etc/passwd", "control.sock", "\u202eevil", "é" * 50, "😀", "[REDACTED]", "{}"),
)
_BYTES: Final = (b"", b"\0", b"\xff" * 9, b"\x91" * 40, b"\xc1", b"\xa1x")


def deep_raw(levels: int, *, is_map: bool = False) -> msgspec.Raw:
    """Return MessagePack that nests ``levels`` deep, which no encoder would write."""
    return msgspec.Raw((b"\x81\xa1k" if is_map else b"\x91") * levels + b"\xc0")


def bad_text_raw() -> msgspec.Raw:
    """Return MessagePack text that is no UTF-8: half a surrogate pair."""
    return msgspec.Raw(b"\xa5ab\xed\xa0\x80")


def hostile(entropy: Entropy) -> object:
    """Return a value that somebody might send to see what happens."""
    return pick(entropy, _HOSTILE)(entropy)


_HOSTILE: Final[tuple[Callable[[Entropy], object], ...]] = (
    *(2 * (lambda entropy: pick(entropy, _INTEGERS),)),
    lambda entropy: pick(entropy, _FLOATS),
    lambda entropy: pick(entropy, _TEXTS),
    lambda entropy: pick(entropy, _BYTES),
    lambda entropy: deep_raw(pick(entropy, _DEPTHS), is_map=one_in(entropy, 2)),
    lambda _entropy: bad_text_raw(),
    lambda entropy: pick(entropy, (None, True, [], {}, [[]], {"a": {}})),
    lambda entropy: [pick(entropy, _INTEGERS)] * entropy.below(40),
)


def value_of(kind: Any, entropy: Entropy, level: int = 0) -> object:  # Any: a type
    """Return what a value of ``kind`` is encoded from, hostile in places."""
    if one_in(entropy, HOSTILE_ONE_IN):
        return hostile(entropy)
    info = _info(kind) if not isinstance(kind, inspect.Type) else kind
    maker = _MAKERS.get(type(info))
    return hostile(entropy) if maker is None else maker(info, entropy, level)


def message_pack(kind: Any, entropy: Entropy) -> bytes:  # Any: a type
    """Return a value of ``kind`` as MessagePack, some with bytes changed."""
    return mutated(msgspec.msgpack.encode(value_of(kind, entropy)), entropy)


def mutated(data: bytes, entropy: Entropy, one_of: int = 8) -> bytes:
    """Return ``data``, one in ``one_of`` times with something changed, cut out or put in."""
    if not data or not one_in(entropy, one_of):
        return data
    at = entropy.below(len(data))
    match entropy.below(4):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + entropy.blob(1) + data[at + 1 :]
        case 2:
            return data[:at] + entropy.blob(1 + entropy.below(8)) + data[at:]
        case _:
            return data[:at] + data[at // 2 :]


@cache
def _info(kind: Any) -> inspect.Type:  # Any: a type
    return inspect.type_info(kind)


@cache
def _fields(kind: type) -> tuple[inspect.Field, ...]:
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)  # noqa: S101 - what it is asked for
    return found.fields


def _struct(info: Any, entropy: Entropy, level: int) -> object:
    fields = _fields(info.cls)
    values = [(one, value_of(one.type, entropy, level + 1)) for one in fields]
    if info.array_like:
        listed = [value for _, value in values]
        if one_in(entropy, HOSTILE_ONE_IN):
            listed = listed[: entropy.below(len(listed) + 1)]
        return listed if info.tag is None else [info.tag, *listed]
    named = {
        one.encode_name: value
        for one, value in values
        if one.required or not one_in(entropy, ENTRIES_MAX)
    }
    return named if info.tag_field is None else {info.tag_field: info.tag, **named}


def _list(info: Any, entropy: Entropy, level: int) -> object:
    count = 0 if level > LEVELS_MAX else entropy.below(ENTRIES_MAX)
    return [value_of(info.item_type, entropy, level + 1) for _ in range(count)]


def _dict(info: Any, entropy: Entropy, level: int) -> object:
    count = 0 if level > LEVELS_MAX else entropy.below(ENTRIES_MAX)
    return {
        pick(entropy, _TEXTS): value_of(info.value_type, entropy, level + 1) for _ in range(count)
    }


def _any(_info: object, entropy: Entropy, level: int) -> object:
    if level > LEVELS_MAX or one_in(entropy, 2):
        return pick(entropy, (*_TEXTS, *_INTEGERS, None))
    inner = [_any(_info, entropy, level + 1) for _ in range(entropy.below(ENTRIES_MAX))]
    return inner if one_in(entropy, 2) else {f"k{at}": one for at, one in enumerate(inner)}


_MAKERS: Final[dict[type, Callable[[Any, Entropy, int], object]]] = {
    inspect.NoneType: lambda _info, _entropy, _level: None,
    inspect.BoolType: lambda _info, entropy, _level: one_in(entropy, 2),
    inspect.IntType: lambda _info, entropy, _level: entropy.below(50),
    inspect.FloatType: lambda _info, entropy, _level: entropy.below(50) / 4,
    inspect.StrType: lambda _info, entropy, _level: pick(entropy, _TEXTS[1:5]),
    inspect.BytesType: lambda _info, entropy, _level: pick(entropy, _BYTES),
    inspect.RawType: lambda _info, entropy, level: _any(None, entropy, level),
    inspect.AnyType: _any,
    inspect.LiteralType: lambda info, entropy, _level: pick(entropy, info.values),
    inspect.EnumType: lambda info, entropy, _level: pick(entropy, list(info.cls)).value,
    inspect.ListType: _list,
    inspect.VarTupleType: _list,
    inspect.SetType: _list,
    inspect.FrozenSetType: _list,
    inspect.TupleType: lambda info, entropy, level: [
        value_of(one, entropy, level + 1) for one in info.item_types
    ],
    inspect.DictType: _dict,
    inspect.UnionType: lambda info, entropy, level: value_of(
        pick(entropy, info.types), entropy, level + 1
    ),
    inspect.StructType: _struct,
}  # Any: each takes the description of its own row
