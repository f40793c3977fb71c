"""Who is heard at the control socket, and who gets events: tools are not, agents for their own.

A person shows the token that lies in the runtime directory. Who made a connection is found out at
its first frame, and remembered. Rules: nothing is decided here, see ``core.authority``; of a person
nothing is looked up twice; a request of an agent may have to wait for the journal.

Who is not to have the events of sessions is not let in at all, since a socket cannot refuse a
subscription: libzmq asks ``Admission`` before it takes a connection (ZAP).
"""

import hmac
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec
import structlog
import zmq

from cmdc_runtime.errors import AccessDenied
from cmdc_runtime.ids import SessionId
from cmdc_runtime.requests import Request, StartSession
from cmdc_runtime.runtime_dir import TOKEN_FILE
from cmdc_runtime.wire.frames import Ask, FromClient, Send
from cmdc_runtime.wire.sockets import Pump, Role, open_socket, pid_of_address
from supervisor.adapters.peers import SessionProcesses, peer_of
from supervisor.core.authority import (
    AGENT_COMMANDS,
    Kind,
    Peer,
    Reach,
    Refusals,
    is_own_child,
    problem,
    reach_of,
    refusal,
    target_of,
)
from supervisor.core.limits import SESSIONS_DEEP_MAX
from supervisor.sessions.sessions import Sessions

# --- who may connect for events -------------------------------------------------------------------

log = structlog.get_logger()

ADDRESS: Final = "inproc://zeromq.zap.01"
"""Where libzmq looks for who answers, in the sockets' own context."""
_VERSION: Final = b"1.0"
_ENVELOPE: Final = 2  # who asks, and an empty part
_REQUEST_PARTS_MIN: Final = 6  # version, id, domain, address, identity, mechanism


class Admission:
    """Answers libzmq's questions; who is asked gets the pid of a peer, None over other wires.

    See RFC 27 of ZeroMQ. Only sockets with a ``ZAP_DOMAIN`` in the table of options are asked
    about. It must be open before they are bound. Rules: every request is answered at once, since a
    handshake waits for it; what can't be read is refused.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        may_enter: Callable[[int | None], bool],
        must_wait: Callable[[int | None], bool],
    ) -> None:
        """Make the socket; ``open`` begins to answer. Who must wait may enter, but later."""
        self._socket = open_socket(context, Role.ADMISSION)
        self._may_enter = may_enter
        self._must_wait = must_wait
        self._pump = Pump(self._socket, self._answer)
        self._refusals = Refusals()

    @property
    def refused(self) -> int:
        """How many connections were refused."""
        return self._refusals.total

    def open(self) -> None:
        """Begin to answer, in the running loop."""
        self._socket.bind(ADDRESS)
        self._pump.start()

    def close(self) -> None:
        """Stop and close."""
        self._pump.stop()

    def _answer(self, parts: list[bytes]) -> None:
        envelope, request = parts[:_ENVELOPE], parts[_ENVELOPE:]
        if len(request) < _REQUEST_PARTS_MIN:
            return
        pid = pid_of_address(request[3].decode(errors="replace"))
        problem = self._problem(pid)
        if problem:
            self._report(pid, problem)
        status = b"400" if problem else b"200"
        reply = [_VERSION, request[1], status, problem.encode(), b"", b""]
        self._pump.send([*envelope[1:], *reply], peer=envelope[0])

    def _problem(self, pid: int | None) -> str:
        """Return why a process is not let in, nothing for one that is."""
        if self._must_wait(pid):
            return "it was cut off since it followed too much, and may try again later"
        return "" if self._may_enter(pid) else "not for a process of a session"

    def _report(self, pid: int | None, problem: str) -> None:
        count = self._refusals.count(str(pid).encode(), time.monotonic())
        if count is not None:
            log.warning(
                "connection.refused", socket="events", pid=pid, problem=problem, of_peer=count
            )


# --- who is heard ---------------------------------------------------------------------------------

PEERS_MAX: Final = 4_096
"""Connections of which is remembered who made them; another one is looked at again."""


class _Named(msgspec.Struct):
    """As much of a command as says which one it is."""

    type: str


@dataclass(slots=True)
class Gate:
    """Judges each request; ``session_processes`` says which processes sessions run in now."""

    sessions: Sessions
    session_processes: Callable[[], SessionProcesses]
    token: str
    keep_token: Callable[[], str | None]
    """Puts the token where clients look for it, if it has gone from there; says why it can't."""
    _peers: OrderedDict[bytes, tuple[int | None, Peer]] = field(default_factory=OrderedDict)

    def check(self, client: bytes, pid: int | None, frame: FromClient) -> None:
        """Let a frame pass that may be looked at.

        Raises:
            AccessDenied: its sender is not heard; the error says what would be right.
        """
        known = self._peers.get(client)
        if known is not None and known[0] == pid:
            return
        peer = peer_of(pid, self.session_processes())
        if (error := problem(peer)) is not None:
            raise error
        if peer.kind is Kind.PERSON and pid not in {None, os.getpid()}:
            self._check_token(frame)
        self._peers[client] = pid, peer
        if len(self._peers) > PEERS_MAX:
            self._peers.popitem(last=False)

    def lets_listen(self, pid: int | None) -> bool:
        """Say whether a process may have the events of sessions: a person may."""
        return peer_of(pid, self.session_processes()).kind is Kind.PERSON

    def peer(self, client: bytes) -> Peer:
        """Return who a client is whose frame was let pass just now."""
        known = self._peers.get(client)
        return Peer(Kind.GONE) if known is None else known[1]

    async def check_request(self, peer: Peer, request: Request) -> None:
        """Refuse everybody but a person what is not his own.

        Raises:
            AccessDenied: it is not.
            InvalidSession: there never was the session that it is about.
        """
        if peer.kind is Kind.PERSON:
            return
        if not await self._is_own(peer, request):
            raise AccessDenied(refusal(peer, str(request.__struct_config__.tag)))

    async def check_command(self, peer: Peer, send: Send) -> None:
        """Refuse everybody but a person what he may not send to a session.

        Raises:
            AccessDenied: he may not.
            InvalidSession: there never was this session.
        """
        if peer.kind is Kind.PERSON:
            return
        try:
            name = msgspec.msgpack.decode(send.body, type=_Named).type
        except (msgspec.MsgspecError, UnicodeDecodeError):
            name = "?"
        if name not in AGENT_COMMANDS or not await self._is_below(send.session_id, peer):
            raise AccessDenied(refusal(peer, name))

    async def _is_own(self, peer: Peer, request: Request) -> bool:
        match reach_of(request):
            case Reach.FREE:
                return True
            case Reach.NEW:
                return isinstance(request, StartSession) and is_own_child(peer, request)
            case Reach.BELOW:
                return await self._is_below(target_of(request), peer)
            case Reach.TREE if target_of(request) != peer.session_id:
                return await self._is_below(target_of(request), peer)
            case Reach.OWN | Reach.TREE:
                return target_of(request) == peer.session_id
            case Reach.NONE:
                return False

    def _check_token(self, frame: FromClient) -> None:
        shown = frame.token if isinstance(frame, Ask | Send) else ""
        if hmac.compare_digest(shown.encode(errors="replace"), self.token.encode()):
            return
        place = f"{TOKEN_FILE!r} in the runtime directory"
        if (problem := self.keep_token()) is not None:
            raise AccessDenied(
                f"the daemon's token cannot be put into {place}: {problem}; make room for it there"
            )
        raise AccessDenied(
            f"the client has not shown this daemon's token, which is in {place}: connect anew,"
            " with the daemon's release of cmdc-runtime"
        )

    async def _is_below(self, session_id: SessionId, peer: Peer) -> bool:
        """Say whether a session, also one that has ended, is below that of an agent."""
        for _ in range(SESSIONS_DEEP_MAX):
            found = await self.sessions.look_up(session_id)
            if found.parent_id is None:
                return False
            if found.parent_id == peer.session_id:
                return True
            session_id = found.parent_id
        return False
