"""What comes from clients: requests to the daemon, and commands that go on to a session.

A frame that has to wait for something is worked on in a task of its own, so nothing else waits for
one session or one client.
A frame that a client sends again is taken once: while it is worked on the second one is dropped,
and afterwards a request is answered from memory and a durable command from the journal.
A client that gets an error may try again as if nothing had happened. So none is sent to a client
that asks again for what may have been taken before: it is answered in time, by this daemon or the
next.

A daemon that ends answers nothing but who it is, as if it had been killed: all that it
could report of its sessions is what its own end does to them, and they go on. Clients ask the next
daemon, under the same ids.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

import msgspec
import structlog

from cmdc_runtime.clock import now_ms
from cmdc_runtime.errors import (
    AccessDenied,
    CmdcError,
    Overloaded,
    ProtocolError,
    SessionNotAlive,
    UsageError,
)
from cmdc_runtime.ids import CommandId
from cmdc_runtime.pages import ANSWER_KEPT_S
from cmdc_runtime.requests import GetFacts, Request
from cmdc_runtime.wire.codec import decode, encode, failed, is_answer
from cmdc_runtime.wire.frames import (
    ASKED_BYTES_MAX,
    Ask,
    FromClient,
    PagedReply,
    Send,
    ValueReply,
)
from supervisor.adapters.journal.base import (
    Duplicate,
    JournalFailed,
    JournalFull,
    JournalUndecided,
    JournalUnread,
    SessionEnded,
)
from supervisor.adapters.journal.operations import AcceptCommand
from supervisor.adapters.router import Published
from supervisor.adapters.tasks import BackgroundTasks
from supervisor.api.gate import Gate
from supervisor.api.handlers import HANDLERS, ApiContext, check_body, check_code
from supervisor.core.authority import Kind, Peer
from supervisor.sessions.session import Session
from supervisor.sessions.sessions import Sessions

log = structlog.get_logger()

Work: TypeAlias = Callable[[], Awaitable[None]]
"""What a frame asks for, not begun: one that is not to be worked on is no coroutine yet."""

REQUESTS_OPEN_MAX: Final = 20_000
"""Frames of all clients that are worked on; the next one is refused as Overloaded."""
ANSWERS_KEPT_MAX: Final = 4_096
"""Answers to requests that are remembered for a client that asks again."""
ANSWER_BYTES_KEPT_MAX: Final = 64 * 1024
"""A longer answer is worked out anew."""
FORGET_S: Final = ANSWER_KEPT_S / 4
"""Between two looks for long answers whose readers are gone."""


class RequestRouter:
    """Takes every frame of the control socket."""

    def __init__(self, context: ApiContext, sessions: Sessions, gate: Gate) -> None:
        """Serve ``context``; answers go out by the control socket that ``sessions`` has."""
        self._context = context
        self._sessions, self._gate = sessions, gate
        self._open: set[tuple[bytes, CommandId]] = set()
        self._tasks = BackgroundTasks()
        self._answers: OrderedDict[tuple[bytes, CommandId], bytes] = OrderedDict()
        self._forgetting: asyncio.TimerHandle | None = None

    def receive(self, client: bytes, frame: FromClient, _published: Published) -> None:
        """Take one frame."""
        if self._sessions.is_silent and not _asks_facts(frame):
            return
        if isinstance(frame, Ask | Send) and len(bytes(frame.body)) > ASKED_BYTES_MAX:
            long = UsageError(f"the body has more than {ASKED_BYTES_MAX} bytes; no agent takes it")
            self._sessions.control.send(client, failed(frame.id, long))
        elif isinstance(frame, Ask):
            kept = self._answers.get((client, frame.id))
            if kept is not None:
                self._sessions.control.send_encoded(client, kept)
                return
            self._work(client, frame, partial(self._ask, client, frame, self._gate.peer(client)))
        elif isinstance(frame, Send):
            self._receive_command(client, frame)

    def _receive_command(self, client: bytes, send: Send) -> None:
        try:
            check_code(self._context, carries_code=send.carries_code)
            check_body(send.body)
        except CmdcError as error:
            self._refuse(client, send, error)
            return
        session, peer = self._sessions.live.get(send.session_id), self._gate.peer(client)
        if send.durable or session is None or peer.kind is not Kind.PERSON:
            self._work(client, send, partial(self._send, client, send, peer))
            return
        try:  # a question to a live session waits for nothing here, so it needs no task
            _question(session, client, send)
        except CmdcError as error:
            self._refuse(client, send, error)

    async def close(self) -> None:
        """End the work under way."""
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._tasks.cancel()
        await self._tasks.wait()

    def _work(self, client: bytes, frame: Ask | Send, work: Work) -> None:
        key = (client, frame.id)
        if key in self._open:
            return
        if len(self._open) >= REQUESTS_OPEN_MAX:
            full = Overloaded(f"{REQUESTS_OPEN_MAX} requests are open; try again later")
            self._refuse(client, frame, full)
            return
        self._open.add(key)
        self._tasks.spawn(self._answer(client, frame, work), f"request-{frame.id}")

    async def _answer(self, client: bytes, frame: Ask | Send, work: Work) -> None:
        """Do the work, and answer with what it fails with."""
        try:
            await work()
        except CmdcError as error:
            if not self._sessions.is_silent:
                self._refuse(client, frame, error)
        except Exception as error:
            if not self._sessions.is_silent:
                log.exception("request.failed")
                why = f"the daemon failed on this request: {type(error).__name__}: {error}"
                self._refuse(client, frame, CmdcError(why))
        finally:
            self._open.discard((client, frame.id))

    def _refuse(self, client: bytes, frame: Ask | Send, error: CmdcError) -> None:
        """Answer with an error, unless what is asked for may have been taken before."""
        session = self._sessions.live.get(frame.session_id) if isinstance(frame, Send) else None
        is_in_hand = session is not None and session.pending.has(frame.id)
        if is_in_hand or isinstance(error, JournalUndecided):
            return
        if not (frame.again and _is_of_the_moment(error)):
            self._sessions.control.send(client, failed(frame.id, error))

    async def _ask(self, client: bytes, ask: Ask, peer: Peer) -> None:
        request = decode(Request, ask.body)
        await self._gate.check_request(peer, request)
        answer = await HANDLERS[type(request)](self._context, client, request)
        if self._sessions.is_silent and not isinstance(request, GetFacts):
            return
        body, page_id = self._context.pages.first(answer)
        if page_id:
            self._sessions.control.send(client, PagedReply(id=ask.id, body=body, page_id=page_id))
            self._forget_later()
            return
        frame = encode(ValueReply(id=ask.id, body=msgspec.Raw(body)))
        if len(frame) <= ANSWER_BYTES_KEPT_MAX:
            self._answers[client, ask.id] = frame
            if len(self._answers) > ANSWERS_KEPT_MAX:
                self._answers.popitem(last=False)
        self._sessions.control.send_encoded(client, frame)

    def _forget_later(self) -> None:
        """Look for what nobody has read to its end; one timer does for all that come meanwhile."""
        if self._forgetting is None:
            loop = asyncio.get_running_loop()
            self._forgetting = loop.call_later(FORGET_S, self._forget)

    def _forget(self) -> None:
        self._forgetting = None
        self._context.pages.forget_old()
        if self._context.pages.has_any:
            self._forget_later()

    async def _send(self, client: bytes, send: Send, peer: Peer) -> None:
        await self._gate.check_command(peer, send)
        if send.durable:
            await self._send_durable(client, send)
            return
        if send.reads_ended and send.looks and send.session_id not in self._sessions.live:
            ended = await self._sessions.find_ended(send.session_id)
            if send.session_id not in self._sessions.live:  # it is not resumed meanwhile
                ended.look(client, send.id, send.body)
                return
        _question(await self._sessions.find(send.session_id), client, send)

    async def _send_durable(self, client: bytes, send: Send) -> None:
        session = self._sessions.live.get(send.session_id)
        if session is not None:
            if (early := session.pending.early_answer(send.id)) is not None:
                self._sessions.control.send_encoded(client, early)
                return
            session.pending.check_room(send.id)
        else:
            await self._sessions.look_up(send.session_id)  # raises for one never seen
        at_ms = now_ms()
        try:
            accepted = await self._sessions.journal.write(
                AcceptCommand(send.session_id, send.id, bytes(send.body), at_ms)
            )
        except JournalFull:
            if session is None or not send.ends or self._sessions.is_silent:
                raise
            session.deliver(client, send.id, send.body, durable=False)
            return
        except SessionEnded:
            info = await self._sessions.look_up(send.session_id)
            if info.reason is None:
                raise
            raise SessionNotAlive(info.reason) from None
        if self._sessions.is_silent:
            return  # it is safe, and the next daemon has it done
        if isinstance(accepted, Duplicate) and accepted.answer is not None:
            self._send_kept(client, send, accepted.answer)
            return
        session = await self._sessions.find(send.session_id)
        session.deliver(client, send.id, send.body, durable=True)

    def _send_kept(self, client: bytes, send: Send, answer: bytes) -> None:
        """Answer as the journal says; a row that is damaged goes to nobody."""
        if is_answer(answer, send.id):
            self._sessions.control.send_encoded(client, answer)
            return
        error = ProtocolError(
            f"the answer to command {send.id!r} is damaged in the journal: it was carried out or"
            " refused before, and is not done again; messages() and events() show what came of it"
        )
        log.error("answer.damaged", session_id=send.session_id, command_id=send.id)
        self._sessions.control.send(client, failed(send.id, error))


def _question(session: Session, client: bytes, send: Send) -> None:
    """Give a session what is not journaled; raises what its ``deliver`` does."""
    if send.looks or send.waits:
        session.look(client, send.id, send.body, waits=send.waits)
    else:
        session.deliver(client, send.id, send.body, durable=False)


def _is_of_the_moment(error: CmdcError) -> bool:
    """Say of an error whether it says nothing of what came before under the same id."""
    if isinstance(error, JournalFull):
        return isinstance(error, JournalUnread)
    return isinstance(error, AccessDenied | JournalFailed | Overloaded)


def _asks_facts(frame: FromClient) -> bool:
    """Say whether a frame asks who the daemon is, which holds to its last moment."""
    if not isinstance(frame, Ask):
        return False
    try:
        return isinstance(decode(Request, frame.body), GetFacts)
    except ProtocolError:
        return False
