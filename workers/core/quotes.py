"""Dataclasses and structs as plain values that quote a source in place of repeating it.

What is written lies beside its source, which is read first. A part that is the very object that the
source has is quoted as a whole, a long text as a piece of one there. A field with its default is
left out.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, cached_property
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

import msgspec
from msgspec.msgpack import Ext

from cmdc_runtime.commands import Command
from cmdc_runtime.events import Event
from cmdc_runtime.wire.codec import decode, encode

T = TypeVar("T")
Plain = dict[str, Any]  # Any: what MessagePack takes

LONG: Final = 24
"""Texts of so many characters or bytes are quoted, and can be."""
_QUOTE: Final = 127
"""The code of the extension that a quote travels as."""
_OPEN: Final = (Command, Event)
"""Bases of which any subclass may stand in a field."""


class _Quote(NamedTuple):
    """Which part of the source; of a text from where on, and how much."""

    number: int
    begin: int = 0
    length: int = 0


class Quotes:
    """Values that quote ``source``: structs, and what these are made of."""

    def __init__(self, source: object) -> None:
        """Prepare; the source is looked at when there is something to quote."""
        self._source = source

    def written(self, value: object) -> Plain:
        """Return the fields of a dataclass or a struct that are not what they are by default."""
        kind: Any = type(value)  # Any: as ``_shape_of`` takes it
        shape = _shape_of(kind)
        plain_fields = {
            field.key: self._written(part)
            for field in shape.fields
            if (part := getattr(value, field.name)) != field.default
        }
        return shape.tag | plain_fields

    def read(self, kind: type[T], plain: Plain) -> T:
        """Return the value of a dataclass that was written so.

        Raises:
            ValueError, TypeError: it was not; msgspec's own errors are among these.
        """
        made: T = _made(kind, self._filled(plain))
        return made

    @cached_property
    def _parts(self) -> tuple[Any, ...]:  # Any: whatever the source has
        return tuple(_parts_of(self._source))

    @cached_property
    def _numbers(self) -> Mapping[int, int]:
        """The numbers of the parts by their identities, while the source is there."""
        return {id(part): number for number, part in enumerate(self._parts)}

    def _written(self, value: Any) -> Any:  # Any: a part of a value, and its plain form
        match value:
            case Enum():
                return value.value
            case str() | bytes():
                return self._piece(value) if len(value) >= LONG else value
            case dict() | list() | tuple() | set() | frozenset() | msgspec.Struct():
                number = self._numbers.get(id(value))
                return self._plain(value) if number is None else _ext(_Quote(number))
            case _:
                return self.written(value) if is_dataclass(value) else value

    def _plain(self, value: Any) -> Any:  # Any: as above
        if isinstance(value, msgspec.Struct):
            return self.written(value)
        if isinstance(value, dict):
            return {key: self._written(one) for key, one in value.items()}
        return [self._written(one) for one in value]

    def _piece(self, text: Any) -> Any:  # Any: a str or bytes; a quote of it, or itself
        for number, part in enumerate(self._parts):
            if type(part) is type(text) and (begin := part.find(text)) >= 0:
                return _ext(_Quote(number, begin, len(text)))
        return text

    def _filled(self, plain: Any) -> Any:  # Any: plain values
        """Return plain values with the texts that they quote."""
        match plain:
            case dict():
                return {key: self._filled(one) for key, one in plain.items()}
            case list():
                return [self._filled(one) for one in plain]
            case Ext(code=code, data=data) if code == _QUOTE:
                return self._quoted(msgspec.msgpack.decode(data, type=_Quote))
            case _:
                return plain

    def _quoted(self, quote: _Quote) -> Any:  # Any: as the part is
        if not 0 <= quote.number < len(self._parts):
            raise ValueError(f"it quotes a part that is not there: number {quote.number}")
        part = self._parts[quote.number]
        if not isinstance(part, str | bytes):
            return msgspec.to_builtins(part, builtin_types=(bytes,))
        piece = part[quote.begin : quote.begin + quote.length]
        if len(piece) != quote.length:
            raise ValueError(f"it quotes {quote.length} of a text, and {len(piece)} are there")
        return piece


def _ext(quote: _Quote) -> Ext:
    return Ext(_QUOTE, msgspec.msgpack.encode(quote))


def _parts_of(value: Any) -> Iterator[Any]:  # Any: a source, and its parts
    """Yield what can be quoted of a value, in an order that is the same when it is read again."""
    match value:
        case str() | bytes():
            if len(value) >= LONG:
                yield value
            return
        case msgspec.Struct():
            inner: Iterable[Any] = (getattr(value, name) for name in value.__struct_fields__)
        case dict():
            inner = value.values()
        case list() | tuple():
            inner = value
        case _:
            return
    if value:
        yield value
        for part in inner:
            yield from _parts_of(part)


# --- the shapes of classes ------------------------------------------------------------------------


class _Field(NamedTuple):
    """A field of a class: its name, what it is called when it is written, its default."""

    name: str
    key: str
    default: Any  # Any: a value of the field's own


class _Shape(NamedTuple):
    """How a class is written: its tag, where it has one, and its fields."""

    tag: Plain
    fields: tuple[_Field, ...]


@cache
def _shape_of(kind: Any) -> _Shape:  # Any: a dataclass or a struct
    if not issubclass(kind, msgspec.Struct):
        return _Shape({}, tuple(_Field(one.name, one.name, _default(one)) for one in fields(kind)))
    config = kind.__struct_config__
    tag = {} if config.tag_field is None else {config.tag_field: config.tag}
    found = msgspec.structs.fields(kind)
    return _Shape(tag, tuple(_Field(one.name, one.encode_name, _default(one)) for one in found))


def _default(field: Any) -> Any:  # Any: a field of either kind, and its default
    factory = field.default_factory
    return field.default if factory in {MISSING, msgspec.NODEFAULT} else factory()


@cache
def _hints_of(kind: Any) -> Mapping[str, Any]:  # Any: a class, and type hints
    return get_type_hints(kind)


def _made(kind: Any, plain_fields: Plain) -> Any:  # Any: a dataclass, and an instance of it
    hints = _hints_of(kind)
    if unknown := plain_fields.keys() - hints.keys():
        raise ValueError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    return kind(**{name: _part(hints[name], one) for name, one in plain_fields.items()})


def _part(hint: Any, plain_fields: Any) -> Any:  # Any: a type hint, plain values, what they are
    if hint in _OPEN:
        return decode(hint, encode(plain_fields))
    if isinstance(hint, type) and is_dataclass(hint) and isinstance(plain_fields, dict):
        return _made(hint, plain_fields)
    return msgspec.convert(plain_fields, hint, builtin_types=(bytes,))
