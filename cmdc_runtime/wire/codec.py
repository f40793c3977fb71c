"""Bytes to structs and back: the only file that knows that the wire is MessagePack.

Every decoder is closed and strict. Whatever is wrong with a peer's bytes arrives as
``ProtocolError``; msgspec alone would also let UnicodeDecodeError and RecursionError through.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeVar, Union

import msgspec

from cmdc_runtime.commands import Command
from cmdc_runtime.errors import ERRORS_BY_CODE, CmdcError, ProtocolError, UsageError
from cmdc_runtime.events import AnyEvent, Event, UnknownEvent
from cmdc_runtime.ids import CommandId
from cmdc_runtime.plain import reason_of
from cmdc_runtime.reasons import snake
from cmdc_runtime.requests import Request
from cmdc_runtime.wire.frames import (
    EventEntry,
    FailedReply,
    FromClient,
    FromWorker,
    Published,
    ToClient,
    ToWorker,
    ValueReply,
)

T = TypeVar("T")

_BASES: Final = (FromClient, ToClient, FromWorker, ToWorker, Published, Command, Request, Event)
_BAD_BYTES: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_UNKNOWN_REQUEST: Final = f"not a {Request.__name__}: Invalid value "
"""How ``decode`` and msgspec begin where the tag is none that they know."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoders: Final[dict[type, msgspec.msgpack.Decoder[Any]]] = {  # Any: one decoder for each base
    base: msgspec.msgpack.Decoder(
        Union[tuple(kind for kind in base.__subclasses__() if kind is not UnknownEvent)]  # noqa: UP007
    )
    for base in _BASES
}
_entries: Final = msgspec.msgpack.Decoder(list[EventEntry])
_untyped: Final = msgspec.msgpack.Decoder(dict[str, Any])


def encode(value: object) -> bytes:
    """Return the wire form of a struct or of a plain value.

    Raises:
        UsageError: something in it has none; the message says what.
    """
    try:
        return _encoder.encode(value)
    except Exception as error:  # msgspec's own, or of a part whose class is a stranger's
        raise UsageError(f"a {type(value).__name__} cannot be sent: {reason_of(error)}") from error


def raw(value: object) -> msgspec.Raw:
    """Return the wire form of ``value``, to be put into a frame as it is; raises as ``encode``."""
    return msgspec.Raw(encode(value))


def decode(base: type[T], data: bytes | memoryview | msgspec.Raw) -> T:
    """Return the subclass of ``base`` that ``data`` holds.

    Raises:
        ProtocolError: unknown tag, missing field, wrong type or no MessagePack at all.
    """
    try:
        value = _decoders[base].decode(data)
    except _BAD_BYTES as error:
        raise ProtocolError(f"not a {base.__name__}: {error}") from error
    assert isinstance(value, base)  # noqa: S101 - the decoder's union guarantees it
    return value


def is_unknown_request(error: ProtocolError) -> bool:
    """Say whether a daemon refused a request because it has none of that kind: it is older."""
    return str(error).startswith(_UNKNOWN_REQUEST)


def decode_as(kind: Any, data: bytes | memoryview | msgspec.Raw) -> Any:
    """Return ``data`` as the type ``kind`` (Any: whatever msgspec takes, whatever comes of it).

    Raises:
        ProtocolError: the bytes hold something else.
    """
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except _BAD_BYTES as error:
        raise ProtocolError(f"not {_kind_in_words(kind)}: {error}") from error


def _kind_in_words(kind: Any) -> str:  # Any: as above
    """Return the words for what should have come: a person reads them in the reason of an end."""
    if not isinstance(kind, type):
        return "what should be here"
    called = getattr(kind, "called", "")
    return called or f"a {snake(kind.__name__).replace('_', ' ')}"


def encode_events(entries: Iterable[tuple[int, Event]]) -> bytes:
    """Return the body of a batch of ``(at_ms, event)``."""
    return _encoder.encode(list(entries))


def decode_events(body: bytes | memoryview) -> list[tuple[int, AnyEvent]]:
    """Return the ``(at_ms, event)`` of a batch; a kind from a newer peer is ``UnknownEvent``.

    Raises:
        ProtocolError: not a batch.
    """
    try:
        return [(entry.at_ms, _event(entry.event)) for entry in _entries.decode(body)]
    except _BAD_BYTES as error:
        raise ProtocolError(f"not a batch of events: {error}") from error


def _event(data: msgspec.Raw) -> AnyEvent:
    try:
        event: AnyEvent = _decoders[Event].decode(data)
    except msgspec.ValidationError:
        fields = _untyped.decode(data)
        return UnknownEvent(name=str(fields.pop("kind", "")), data=fields)
    return event


def is_answer(packed: bytes, command_id: str) -> bool:
    """Say whether ``packed`` can be sent to a client as the answer to a command."""
    try:
        frame = decode(ToClient, packed)
    except ProtocolError:
        return False
    return isinstance(frame, ValueReply | FailedReply) and frame.id == command_id


def failed(command_id: CommandId, error: CmdcError) -> FailedReply:
    """Return the frame that carries ``error`` to the client."""
    return FailedReply(
        id=command_id, code=error.code, message=str(error), details=raw(error.details())
    )


def raised(frame: FailedReply) -> CmdcError:
    """Return the error that ``frame`` carries, as an instance of its own class."""
    kind = ERRORS_BY_CODE.get(frame.code, CmdcError)
    if not kind.fields:
        return kind(frame.message)
    try:
        details = decode_as(dict[str, Any], frame.details)
        values = {
            name: msgspec.convert(details.get(name), type_) for name, type_ in kind.fields.items()
        }
    except (msgspec.ValidationError, ProtocolError) as error:
        return ProtocolError(f"details of {frame.code}: {error}")
    return kind(**values)
