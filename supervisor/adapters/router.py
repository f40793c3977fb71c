"""The daemon's two ROUTER sockets: frames in, frames out, peers told apart by their connection.

A malformed message is logged, counted and, where somebody may read it, answered; it never gets
further than this file. Bodies stay undecoded (``msgspec.Raw``).
"""

from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar

import structlog
import zmq

from cmdc_runtime.codec import decode, encode, failed
from cmdc_runtime.errors import ProtocolError
from cmdc_runtime.frames import (
    HEADER,
    MAGIC,
    WIRE_VERSION,
    Batch,
    FromClient,
    FromWorker,
    ToClient,
    ToWorker,
    Write,
    Written,
)
from cmdc_runtime.ids import CommandId, EventIndex
from cmdc_runtime.sockets import Pump, Role, open_socket
from supervisor.adapters.endpoint import private_umask

log = structlog.get_logger()

Told: TypeAlias = tuple[tuple[Batch, bytes], ...]
"""Events, batch by batch, each with its encoded body."""
FromPeer = TypeVar("FromPeer", FromClient, FromWorker)
ToPeer = TypeVar("ToPeer", ToClient, ToWorker)

PARTS_MAX: Final = 1_024
"""Of one message; a step of an agent has a handful of frames."""
_PROBE: Final = (HEADER, encode(Written(number=0, index=EventIndex(0))))
"""A frame that means nothing to a worker: whether it can be sent is the question."""


class Router(Generic[FromPeer, ToPeer]):
    """One ROUTER; ``on_frame`` gets (peer, frame, the events that come with it).

    Events come with the frame before them: with the ``Write`` that they tell of, or with the first
    ``Batch`` of several.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        role: Role,
        base: type[FromPeer],
        on_frame: Callable[[bytes, FromPeer, Told], None],
    ) -> None:
        """Make the socket; ``bind`` opens it."""
        self._socket = open_socket(context, role)
        self._role = role
        self._base: type[FromPeer] = base
        self._on_frame: Callable[[bytes, FromPeer, Told], None] = on_frame
        self._pump = Pump(self._socket, self._receive)
        self.refused = 0

    def bind(self, address: str) -> None:
        """Listen at ``address`` and begin to read, in the running loop."""
        with private_umask():
            self._socket.bind(address)
        self._pump.start()

    def send(self, peer: bytes, frame: ToPeer) -> bool:
        """Send ``frame``; False means that the peer is gone or does not read at all."""
        return self._pump.send((HEADER, encode(frame)), peer=peer)

    def send_encoded(self, peer: bytes, frame: bytes) -> bool:
        """Send a frame that is encoded already."""
        return self._pump.send((HEADER, frame), peer=peer)

    def is_connected(self, peer: bytes) -> bool:
        """Say whether the connection is there, or was and has something left to be read."""
        return self._pump.knows(peer, _PROBE)

    def drain(self) -> None:
        """Read what has arrived."""
        self._pump.drain()

    def close(self) -> None:
        """Stop and close."""
        self._pump.stop()

    def _receive(self, parts: list[bytes]) -> None:
        peer = parts[0]
        try:
            frames = self._parse(parts[1:])
        except ProtocolError as error:
            self.refused += 1
            log.warning(
                "frame.refused", socket=self._role.value, problem=str(error), refused=self.refused
            )
            if self._base is FromClient:
                refusal = encode(failed(CommandId(""), error))
                self._pump.send((HEADER, refusal), peer=peer)
            return
        for frame, told in frames:
            self._on_frame(peer, frame, told)

    def _parse(self, parts: list[bytes]) -> list[tuple[FromPeer, Told]]:
        """Return every frame with the events that come with it; a bad one spoils the message."""
        if not 2 <= len(parts) <= PARTS_MAX:  # noqa: PLR2004 - header and frame
            raise ProtocolError(f"expected a header and a frame, got {len(parts)} parts")
        if parts[0] != HEADER:
            raise ProtocolError(_header_problem(parts[0]))
        left = iter(parts[1:])
        frames: list[tuple[FromPeer, Told]] = []
        for data in left:
            frame = decode(self._base, data)
            told: Told = ((frame, next(left, b"")),) if isinstance(frame, Batch) else ()
            if told and frames and isinstance(frames[-1][0], Write | Batch):
                frames[-1] = frames[-1][0], (*frames[-1][1], *told)
            else:
                frames.append((frame, told))
        if self._base is FromClient and len(frames) > 1:
            raise ProtocolError(f"expected one frame, got {len(frames)}")
        return frames


def _header_problem(header: bytes) -> str:
    if len(header) == len(HEADER) and header.startswith(MAGIC):
        return f"the peer speaks version {header[-1]} of the protocol, this is {WIRE_VERSION}"
    return "not a message of this protocol"
