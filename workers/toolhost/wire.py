"""What agent and tool host tell each other, and what a forked call tells its host: frames of bytes.

A frame is its length in four bytes, then as many bytes; between agent and host these are one
message. The host does not read what a call says: it passes the bytes on. To add a message, add its
class below its direction and its handler in ``host`` or in ``workers.effects.toolhost_link``.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final, Union

import msgspec

from cmdc_runtime.ids import CallId, Incarnation, SessionId
from cmdc_runtime.parcels import Packed
from cmdc_runtime.reasons import PlainReason, snake

FRAME_BYTES_MAX: Final = 16 * 2**20
"""Between agent and host: a parcel, or the arguments of a call."""
WORD_BYTES_MAX: Final = 4 * 2**20
"""Of one word of a call: 400,000 characters and a payload fit."""
LENGTH: Final = struct.Struct(">I")


class FrameTooLargeError(Exception):
    """A frame is larger than its bound."""


class ToHost(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=snake):
    """Agent to host."""


class Begin(ToHost, frozen=True, kw_only=True, array_like=True):
    """What all calls have in common; always the first message."""

    session_id: SessionId
    incarnation: Incarnation
    group_id: str | None
    working_dir: str
    user_data: dict[str, Any]  # Any: the application's own
    environment: dict[str, str] = {}  # what calls see beside what every tool sees


class Open(ToHost, frozen=True, kw_only=True, array_like=True):
    """Have this tool ready under ``tool``, for every fork from now on."""

    tool: int
    packed: Packed


class Close(ToHost, frozen=True, kw_only=True, array_like=True):
    """Forget a tool; calls of it that run go on."""

    tool: int


class Run(ToHost, frozen=True, kw_only=True, array_like=True):
    """Fork and call; ``number`` names the call in both directions. Arguments are the model's."""

    call_id: CallId
    arguments: dict[str, Any]  # Any: whatever the model sent
    model: str
    turn: int
    todos: tuple[dict[str, str], ...] = ()
    tool: int = 0
    number: int = 0


class Kill(ToHost, frozen=True, kw_only=True, array_like=True):
    """End a call with all that it started; ``Ended`` follows."""

    number: int


class FromHost(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=snake):
    """Host to agent."""


class Said(FromHost, frozen=True, kw_only=True, array_like=True):
    """One word of a call, as it came."""

    number: int
    word: bytes


class Ended(FromHost, frozen=True, kw_only=True, array_like=True):
    """The call's process and its group are gone; ``reason`` is how the process ended."""

    number: int
    reason: PlainReason


# Any: each decoder is one of its own union.
to_host: Final[Any] = msgspec.msgpack.Decoder(Union[tuple(ToHost.__subclasses__())])  # noqa: UP007
from_host: Final[Any] = msgspec.msgpack.Decoder(Union[tuple(FromHost.__subclasses__())])  # noqa: UP007


def framed(message: msgspec.Struct, bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """Return a message as a frame.

    Raises:
        FrameTooLargeError: it has more than ``bytes_max``.
        TypeError, ValueError, OverflowError: it holds what MessagePack does not take.
    """
    body = msgspec.msgpack.encode(message)
    if len(body) > bytes_max:
        raise FrameTooLargeError(f"{len(body)} bytes; at most {bytes_max} can go")
    return LENGTH.pack(len(body)) + body


class Frames:
    """Cuts a stream of bytes into frames; memory is bounded by the largest frame."""

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        """Refuse frames of more than ``bytes_max``."""
        self._bytes_max = bytes_max
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the frames that are complete with ``chunk``.

        Raises:
            FrameTooLargeError: the stream announces one that is too large, and is of no use.
        """
        self._buffer += chunk
        start = 0
        try:
            while (end := self._end(start)) is not None and end <= len(self._buffer):
                yield bytes(self._buffer[start + LENGTH.size : end])
                start = end
        finally:
            del self._buffer[:start]

    def _end(self, start: int) -> int | None:
        """Return where the frame from ``start`` ends, None while its length is not there."""
        if len(self._buffer) - start < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self._buffer, start)
        if length > self._bytes_max:
            raise FrameTooLargeError(f"{length} bytes are announced, more than {self._bytes_max}")
        return start + LENGTH.size + int(length)
