"""A client in its smallest form: one blocking DEALER that speaks the daemon's frames.

It shows what the daemon costs without what the client library costs. Answers are matched by their
id; Down notices that come in between are kept.
"""

import os
import secrets
import select
import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import zmq

from cmdc_runtime.commands import Command, GetStatus
from cmdc_runtime.ids import CommandId, SessionId, new_command_id
from cmdc_runtime.options import parse
from cmdc_runtime.reasons import Down
from cmdc_runtime.requests import Request, SessionInfo, StartSession, StopSession
from cmdc_runtime.runtime_dir import CONTROL_SOCKET, read_token, socket_address
from cmdc_runtime.spec import agent_spec, supervision
from cmdc_runtime.wire.codec import decode, decode_as, encode, raised, raw
from cmdc_runtime.wire.frames import (
    HEADER,
    Ask,
    FailedReply,
    Notify,
    Send,
    ToClient,
    ValueReply,
    of_router,
)
from cmdc_runtime.wire.sockets import Role, open_socket

MODEL: Final = "openai:none"
"""An agent that is never prompted needs a name only."""
ANSWER_MS: Final = 120_000
OPEN_MAX: Final = 64
"""Requests that one client has under way when it makes a crowd."""

T = TypeVar("T")


def batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in runs of ``size``, the last one shorter."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def start_request(**given: object) -> StartSession:
    """Return the request that ``create_agent(**given)`` makes, for an agent without tools."""
    options = parse(None, {"model": MODEL, **given})
    return StartSession(
        session_id=SessionId(options.session_id or f"b-{secrets.token_hex(6)}"),
        supervision=supervision(options),
        agent=raw(agent_spec(options)),
        carries_code=False,
    )


class Wire:
    """One connection to one daemon."""

    def __init__(self, directory: Path) -> None:
        """Connect to the daemon of a runtime directory."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        identity = f"bench-{os.getpid()}-{secrets.token_hex(4)}".encode()
        self._socket = open_socket(self._context, Role.CLIENT, identity=identity)
        self._socket.connect(socket_address(directory, CONTROL_SOCKET))
        self._directory = directory
        self._downs: deque[Down] = deque()

    @cached_property
    def _token(self) -> str:
        """The daemon's, which it has written when it can be spoken with."""
        return read_token(self._directory)

    def __enter__(self) -> Self:
        """Return the connection."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self._context.destroy(linger=0)

    def ask(self, request: Request) -> Any:  # Any: what the request answers
        """Return the answer of the daemon."""
        return self.answer(self.post(request), request.answer)

    def send(self, session_id: SessionId, command: Command) -> Any:  # Any: the command's answer
        """Return the answer of a session."""
        return self.answer(self.post_command(session_id, command), command.answer)

    def status(self, session_id: SessionId) -> Any:  # Any: a Status
        """Return how a session stands."""
        return self.send(session_id, GetStatus())

    def post_status(self, session_id: SessionId) -> CommandId:
        """Ask how a session stands and do not wait."""
        return self.post_command(session_id, GetStatus())

    def post(self, request: Request) -> CommandId:
        """Send a request and do not wait."""
        id_ = new_command_id()
        self._put(Ask(id=id_, body=raw(request), token=self._token))
        return id_

    def post_command(self, session_id: SessionId, command: Command) -> CommandId:
        """Send a session a command and do not wait."""
        id_ = new_command_id()
        self._put(
            Send(
                id=id_,
                session_id=session_id,
                durable=command.durable,
                body=raw(command),
                token=self._token,
            )
        )
        return id_

    def answer(self, id_: CommandId, kind: Any = None) -> Any:  # Any: as in decode_as
        """Return the answer to what was posted last, as a ``kind``."""
        reply = self._next_reply()
        if reply.id != id_:
            raise RuntimeError(f"an answer to {reply.id} while {id_} was asked")
        return None if kind is None else decode_as(kind, reply.body)

    def start(self, **given: object) -> SessionInfo:
        """Start a session."""
        found: SessionInfo = self.ask(start_request(**given))
        return found

    def crowd(self, count: int, **given: object) -> list[SessionId]:
        """Start ``count`` sessions, ``OPEN_MAX`` of them at a time."""
        requests = [start_request(**given) for _ in range(count)]
        self._ask_all(requests)
        return [request.session_id for request in requests]

    def disband(self, session_ids: Sequence[SessionId]) -> None:
        """Stop many sessions."""
        self._ask_all([StopSession(session_id=session_id) for session_id in session_ids])

    def send_all(self, session_ids: Sequence[SessionId], command: Command) -> None:
        """Send one command to each of many sessions and wait for all answers."""
        for ids in batched(session_ids, OPEN_MAX):
            for session_id in ids:
                self.post_command(session_id, command)
            for _ in ids:
                self._next_reply()

    def wait_down(self) -> Down:
        """Return the next Down notice."""
        while not self._downs:
            frame = self._take()
            if not isinstance(frame, Notify):
                raise TypeError(f"expected a Down, got {frame}")
            self._downs.append(frame.down)
        return self._downs.popleft()

    def arrivals(self, count: int) -> Iterator[tuple[float, Down | CommandId]]:
        """Yield the next ``count`` Downs and answers as they come, each with its time in seconds.

        A Down that came before is not among them.
        """
        for _ in range(count):
            frame = self._take()
            at_s = time.perf_counter()
            if isinstance(frame, FailedReply):
                raise raised(frame)
            if isinstance(frame, Notify):
                yield at_s, frame.down
            elif isinstance(frame, ValueReply):
                yield at_s, frame.id

    def _ask_all(self, requests: Sequence[Request]) -> None:
        for some in batched(requests, OPEN_MAX):
            for request in some:
                self.post(request)
            for _ in some:
                self._next_reply()

    def _put(self, frame: Ask | Send) -> None:
        self._socket.send_multipart([HEADER, encode(frame)])

    def _take(self) -> ToClient:
        if not self._socket.poll(ANSWER_MS):
            raise TimeoutError(f"the daemon gave no answer within {ANSWER_MS / 1000:g} s")
        return decode(ToClient, of_router(self._socket.recv_multipart()) or b"")

    def _next_reply(self) -> ValueReply:
        while isinstance(frame := self._take(), Notify):
            self._downs.append(frame.down)
        if isinstance(frame, FailedReply):
            raise raised(frame)
        assert isinstance(frame, ValueReply)
        return frame


def wait_ended(pidfd: int) -> None:
    """Return when the process of a pidfd has ended."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    if not poller.poll(ANSWER_MS):
        raise TimeoutError(f"a killed process lives after {ANSWER_MS / 1000:g} s")
