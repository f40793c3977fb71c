"""The daemon's two ROUTER sockets: frames in, frames out, peers distinguished by their connection.

A malformed message, or one that its sender has no right to, is counted, logged and, where somebody
may read it, answered; it never gets further than this file. Bodies stay undecoded
(``msgspec.Raw``).
"""

import logging
import time
from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar

import structlog
import zmq

from cmdc_runtime.errors import CmdcError, ProtocolError
from cmdc_runtime.ids import CommandId, EventIndex
from cmdc_runtime.wire.codec import decode, encode, failed
from cmdc_runtime.wire.frames import (
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
    to_dealer,
)
from cmdc_runtime.wire.sockets import Pump, Role, open_socket
from supervisor.adapters.endpoint import private_umask
from supervisor.core.authority import Refusals, SenderEnded
from supervisor.core.peer_memory import Heard
from supervisor.core.worker_frames import check_form

log = structlog.get_logger()

Published: TypeAlias = tuple[tuple[Batch, bytes], ...]
"""Events, batch by batch, each with its encoded body."""
FromPeer = TypeVar("FromPeer", FromClient, FromWorker)
ToPeer = TypeVar("ToPeer", ToClient, ToWorker)
Check: TypeAlias = Callable[[bytes, int | None, FromPeer], None]
"""Gets (peer, the pid of its process, frame) and raises a ``CmdcError`` for what is to be refused.

The pid is that of the process which made the connection, as the kernel says; None where the
transport does not say.
"""

PARTS_MAX: Final = 1_024
"""Of one message; a step of an agent has a handful of frames."""
_PROBE: Final = to_dealer(encode(Written(number=0, index=EventIndex(0))))
"""A frame that means nothing to a worker: whether it can be sent is the question."""


def _anybody(_peer: bytes, _pid: int | None, _frame: object) -> None:
    """Refuse nothing."""


def _nobody(_peer: bytes, _pid: int | None, _error: CmdcError) -> None:
    """Notify nobody."""


class Router(Generic[FromPeer, ToPeer]):
    """One ROUTER; ``on_frame`` gets (peer, frame, the events that come with it).

    Events come with the frame before them: with the ``Write`` that they report, or with the first
    ``Batch`` of several. ``check`` is asked about each frame before any of its message is taken,
    and ``on_refused`` gets (peer, pid, why) of each message that is not.
    """

    def __init__(  # noqa: PLR0913 - a socket, and three things that its owner says of a frame
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        role: Role,
        base: type[FromPeer],
        on_frame: Callable[[bytes, FromPeer, Published], None],
        *,
        check: Check[FromPeer] = _anybody,
        on_refused: Callable[[bytes, int | None, CmdcError], None] = _nobody,
    ) -> None:
        """Make the socket; ``bind`` opens it."""
        self._check: Check[FromPeer] = check
        self._on_refused: Callable[[bytes, int | None, CmdcError], None] = on_refused
        self._socket = open_socket(context, role)
        self._role = role
        self._base: type[FromPeer] = base
        self._on_frame: Callable[[bytes, FromPeer, Published], None] = on_frame
        self._pump = Pump(self._socket, self._receive, asks_pid=True)
        self._refusals, self._late = Refusals(), Refusals()
        self.heard = Heard()
        """Which processes have said something that was taken."""

    @property
    def refused(self) -> int:
        """How many messages were refused, but for those of processes that had ended."""
        return self._refusals.total

    def bind(self, address: str) -> None:
        """Listen at ``address`` and begin to read, in the running loop."""
        self.listen(address)
        self._pump.start()

    def listen(self, address: str) -> None:
        """Listen at ``address``, where nobody listens any more; who is connected stays so."""
        with private_umask():
            self._socket.bind(address)

    def send(self, peer: bytes, frame: ToPeer) -> bool:
        """Send ``frame``; False means that the peer is gone or does not read at all."""
        return self._pump.send(to_dealer(encode(frame)), peer=peer)

    def send_encoded(self, peer: bytes, frame: bytes) -> bool:
        """Send a frame that is encoded already."""
        return self._pump.send(to_dealer(frame), peer=peer)

    def is_connected(self, peer: bytes) -> bool:
        """Say whether the connection is there, or was and has something left to be read."""
        return self._pump.knows(peer, _PROBE)

    def drain(self) -> None:
        """Read what has arrived."""
        self._pump.drain()

    def close(self) -> None:
        """Stop and close."""
        self._pump.stop()

    def refuse(self, peer: bytes, error: CmdcError, command_id: CommandId | None = None) -> None:
        """Count a message that is not taken, and send a client the reason."""
        is_late = isinstance(error, SenderEnded)
        count = (self._late if is_late else self._refusals).count(peer, time.monotonic())
        if count is not None:
            log.log(
                logging.INFO if is_late else logging.WARNING,
                "frame.late" if is_late else "frame.refused",
                socket=self._role.value,
                pid=self._pump.sender_pid,
                problem=str(error),
                of_peer=count,
                refused=self.refused,
            )
        if self._base is FromClient:
            refusal = encode(failed(command_id or CommandId(""), error))
            self._pump.send(to_dealer(refusal), peer=peer)
        self._on_refused(peer, self._pump.sender_pid, error)

    def _receive(self, parts: list[bytes]) -> None:
        peer = parts[0]
        try:
            frames = self._parse(parts[1:])
        except ProtocolError as error:
            self.refuse(peer, error)
            return
        for frame, _ in frames:
            try:
                self._check(peer, self._pump.sender_pid, frame)
            except CmdcError as error:
                self.refuse(peer, error, getattr(frame, "id", None))
                return
        self.heard.note(self._pump.sender_pid, time.monotonic())
        for frame, events in frames:
            self._on_frame(peer, frame, events)

    def _parse(self, parts: list[bytes]) -> list[tuple[FromPeer, Published]]:
        """Return every frame with the events that come with it; a bad one spoils the message."""
        if not 2 <= len(parts) <= PARTS_MAX:  # noqa: PLR2004 - header and frame
            raise ProtocolError(f"expected a header and a frame, got {len(parts)} parts")
        if parts[0] != HEADER:
            raise ProtocolError(_header_problem(parts[0]))
        left = iter(parts[1:])
        frames: list[tuple[FromPeer, Published]] = []
        for data in left:
            frame = decode(self._base, data)
            published: Published = ((frame, next(left, b"")),) if isinstance(frame, Batch) else ()
            if isinstance(frame, FromWorker):
                check_form(frame, published[0][1] if published else b"")
            if published and frames and isinstance(frames[-1][0], Write | Batch):
                frames[-1] = frames[-1][0], (*frames[-1][1], *published)
            else:
                frames.append((frame, published))
        if self._base is FromClient and len(frames) > 1:
            raise ProtocolError(f"expected one frame, got {len(frames)}")
        return frames


def _header_problem(header: bytes) -> str:
    if len(header) == len(HEADER) and header.startswith(MAGIC):
        return f"the peer speaks version {header[-1]} of the protocol, this is {WIRE_VERSION}"
    return "not a message of this protocol"
