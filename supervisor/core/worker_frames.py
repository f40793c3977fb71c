"""What a worker's frame must be, beyond the types of its fields, before anybody acts on it.

The daemon passes on most of what workers say without reading it: to the journal, to subscribers, to
whoever asked. So it looks at the envelopes: that a body is one whole value, that a batch holds as
many events as it says, that an outcome answers the command that it is filed under. Then nothing
that one session's process says can be taken for another one's, or spoil what it is packed with.
To add a rule, add a case to ``check_form``.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from cmdc_runtime.errors import ProtocolError
from cmdc_runtime.wire.codec import decode, decode_as
from cmdc_runtime.wire.frames import (
    Answer,
    Batch,
    Completed,
    EventEntry,
    FailedReply,
    FromWorker,
    Refusal,
    ToClient,
    ValueReply,
    Write,
)

_SMALL_MAP: Final = 0x80
_LARGE_MAPS: Final = b"\xde\xdf"
"""How a map begins in MessagePack."""


def check_form(frame: FromWorker, body: bytes) -> None:
    """Check one frame, and for a ``Batch`` the ``body`` behind it.

    Raises:
        ProtocolError: it is not what it has to be.
    """
    match frame:
        case Batch(first=first, count=count):
            found = len(decode_as(list[EventEntry], body))
            if found != count:
                raise ProtocolError(f"a batch of {count} events from {first} holds {found}")
        case Write(completed=outcomes, records=records, snapshot=snapshot):
            _check_outcomes(outcomes)
            _check_bodies([one.body for one in records] + ([snapshot] if snapshot else []))
        case Answer(body=value, page_id="") | Refusal(details=value):
            decode_as(msgspec.Raw, value)  # of a page there is only the beginning, put into a field
        case _:
            pass


def _check_outcomes(outcomes: Iterable[Completed]) -> None:
    """Check that each outcome is a client's frame for its own command."""
    for one in outcomes:
        frame = decode(ToClient, one.frame)
        if not isinstance(frame, ValueReply | FailedReply) or frame.id != one.id:
            raise ProtocolError(f"the outcome of command {one.id!r} is no answer to it")


def _check_bodies(bodies: Iterable[bytes]) -> None:
    """Check that each record, and the snapshot, is one whole map; nothing in it is read.

    It is passed over in C, at the price of a copy: what a worker sends must not hold up the others.
    How deep that goes is msgspec's limit; who rebuilds a session from it has a lower one.
    """
    for body in bodies:
        decode_as(msgspec.Raw, body)
        if not (body[0] & 0xF0 == _SMALL_MAP or body[0] in _LARGE_MAPS):
            raise ProtocolError(f"a record or snapshot of {len(body)} bytes is no map")
