"""One client's link to one daemon: questions, answers, and what to do when either is lost.

An open request is sent again under its own id until it is answered or its time is up, and at once
when another daemon took over; the daemon takes it once. Everything here runs in one loop.
"""

import asyncio
import contextlib
import math
import os
import secrets
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from cmdc_runtime.checked_struct import COMMAND_VALUES_MAX
from cmdc_runtime.client.address import DaemonPlace
from cmdc_runtime.client.dispatcher import Dispatcher
from cmdc_runtime.client.down_order import DownOrder
from cmdc_runtime.client.limits import (
    ABSENCE_S,
    COMMAND_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    FACTS_S,
    QUESTIONS_PARALLEL_MAX,
    READS_MAX,
    SESSIONS_HELD_MAX,
    TICK_S,
)
from cmdc_runtime.client.logged import ClientLog
from cmdc_runtime.client.monitors import Monitors
from cmdc_runtime.client.open_requests import OpenRequests
from cmdc_runtime.commands import (
    AttachPlugin,
    AttachTools,
    Command,
    ForgetWait,
    NextPage,
    ReplaceTools,
    Status,
)
from cmdc_runtime.errors import (
    AccessDenied,
    CmdcError,
    CommandTimeout,
    DaemonUnavailable,
    ProtocolError,
    SessionNotAlive,
    TransientError,
    UsageError,
)
from cmdc_runtime.ids import CommandId, SessionId, new_command_id
from cmdc_runtime.packing import brings_code
from cmdc_runtime.pages import Page
from cmdc_runtime.plain import VALUES_MAX, packed_problem
from cmdc_runtime.reasons import Other
from cmdc_runtime.requests import DaemonFacts, GetFacts, ReadPage, Request
from cmdc_runtime.runtime_dir import read_token
from cmdc_runtime.wire import codec
from cmdc_runtime.wire.frames import (
    Ask,
    FailedReply,
    FromClient,
    Notify,
    PagedReply,
    Published,
    Send,
    ToClient,
    ValueReply,
)
from cmdc_runtime.wire.sockets import Dealer, encode

_Q = TypeVar("_Q", Request, Command)

_OPEN: Final = "the command may still take effect, once"
_log = ClientLog(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait:
    """How long a call waits for its answer, and for a daemon that could give it; in seconds."""

    timeout_s: float | None
    absence_s: float = math.inf
    is_done: Callable[[CmdcError], bool] | None = None
    """Says of an error to a request that was sent again whether the first one has had effect."""


class Connection:
    """Asks and sends requests, and receives, until ``fail``."""

    def __init__(self, place: DaemonPlace) -> None:
        """Keep the place; ``open`` connects."""
        self.place = place
        self.pid = os.getpid()
        self.monitors = Monitors(self)
        self.slots = asyncio.Semaphore(QUESTIONS_PARALLEL_MAX)
        self._dealer = Dealer(
            control=place.control,
            events=place.events,
            identity=f"c-{secrets.token_hex(8)}".encode(),
            listener=self,
        )
        self.dispatcher = Dispatcher(self, self._dealer)
        self.down_order = DownOrder(self, self.dispatcher)
        self._mailbox = OpenRequests()
        self._waiting: dict[CommandId, asyncio.Future[ValueReply | PagedReply]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken: CmdcError | None = None
        self._instance: str | None = None
        self._token = ""
        self._facts_id: CommandId | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._absent_s: float | None = None
        """Since when no daemon is there, as far as open requests have shown."""
        self._death_fd = -1
        self._held: set[SessionId] = set()
        """Sessions that end with an embedded daemon."""
        self._gone: dict[SessionId, str] = {}
        """Those that did, and how it ended; the oldest first."""

    async def open(self) -> None:
        """Connect, and see who answers.

        Raises:
            DaemonUnavailable: nobody does.
            ProtocolError: it speaks another version.

        """
        self.loop = asyncio.get_running_loop()
        self._dealer.open()
        try:
            self._watch_embedded()
            facts: DaemonFacts = await self.ask(GetFacts(), timeout_s=CONNECT_TIMEOUT_S)
        except (CommandTimeout, DaemonUnavailable) as error:
            raise self.place.absence() or DaemonUnavailable(
                f"the daemon at {self.place.directory} holds its lock and gave no answer within "
                f"{CONNECT_TIMEOUT_S:g} s: see its log"
            ) from error
        self._instance = facts.instance
        self.monitors.reconcile(facts.notices, is_new=False)
        self._beat = self.loop.call_later(FACTS_S, self._ask_facts)

    async def ask(
        self,
        request: Request,
        *,
        timeout_s: float | None = COMMAND_TIMEOUT_S,
        is_done: Callable[[CmdcError], bool] | None = None,
    ) -> Any:
        """Return the daemon's answer to ``request``: what its ``answer`` says (Any).

        ``is_done`` says of an error to a request that was sent again whether it only says that the
        first one has had its effect: then there is no error, and None is returned. However long
        the daemon may take, nobody waits longer than ``ABSENCE_S`` for one that is not there.

        Raises:
            CmdcError: what the daemon says is wrong, or CommandTimeout.
            DaemonUnavailable: none was there to take the request.

        """

        def frame_of(id_: CommandId, asked: Request) -> bytes:
            return encode(Ask(id=id_, body=_packed(asked, VALUES_MAX), token=self._shown()))

        wait = _Wait(timeout_s=timeout_s, absence_s=ABSENCE_S, is_done=is_done)
        return await self._read(request, frame_of, ReadPage, wait)

    async def send(
        self,
        session_id: SessionId,
        command: Command,
        *,
        timeout_s: float | None = COMMAND_TIMEOUT_S,
        reads_ended: bool = False,
    ) -> Any:
        """Return a session's answer to ``command``: what its ``answer`` says (Any).

        The session is notified of a wait that is cancelled. ``reads_ended``: it only looks, and is
        answered from the journal where the session has ended, also one that is not always so.

        Raises:
            CmdcError: what the session or the daemon says is wrong, or CommandTimeout.

        """
        asked_as: CommandId | None = None

        def frame_of(id_: CommandId, asked: Command) -> bytes:
            nonlocal asked_as
            asked_as = id_
            return encode(
                Send(
                    id=id_,
                    session_id=session_id,
                    durable=asked.durable,
                    body=_packed(asked, COMMAND_VALUES_MAX),
                    carries_code=_carries_code(asked),
                    looks=asked.looks or reads_ended,
                    token=self._shown(),
                    waits=asked.waits,
                    ends=asked.ends,
                    reads_ended=reads_ended or asked.reads_ended,
                )
            )

        try:
            return await self._read(command, frame_of, NextPage, _Wait(timeout_s=timeout_s))
        except asyncio.CancelledError:
            if command.waits and asked_as is not None and self._broken is None:
                self._dealer.send(frame_of(new_command_id(), ForgetWait(wait_id=asked_as)))
            raise

    @property
    def known_instance(self) -> str | None:
        """The name of the daemon that answered last time it was asked for it."""
        return self._instance

    async def instance(self) -> str:
        """Return the name of the daemon that answers now; another one has another name.

        Raises:
            CmdcError: none does.

        """
        facts: DaemonFacts = await self.ask(GetFacts())
        return facts.instance

    @property
    def is_lost(self) -> bool:
        """Say whether it was to an embedded daemon that has died."""
        lease = self.place.lease
        if lease is None:
            return False
        if self._broken is None and not lease.daemon.is_alive:
            self._on_death()
        return isinstance(self._broken, DaemonUnavailable)

    def hold(self, session_id: SessionId) -> None:
        """Remember a session that was started by this connection."""
        self._gone.pop(session_id, None)
        if self.place.lease is not None and len(self._held) < SESSIONS_HELD_MAX:
            self._held.add(session_id)

    def check_held(self, session_id: SessionId) -> None:
        """Raise SessionNotAlive if the session went with the daemon of this lost connection."""
        self.check_gone(session_id)
        if session_id in self._held:
            raise SessionNotAlive(Other(detail=str(self._broken)))

    def check_gone(self, session_id: SessionId) -> None:
        """Raise SessionNotAlive if the session went with a daemon before this one."""
        if session_id in self._gone:
            raise SessionNotAlive(Other(detail=self._gone[session_id]))

    def succeed(self, before: "Connection") -> None:
        """Know the sessions that went with the daemon of a lost connection."""
        self._gone = {**before._gone, **dict.fromkeys(before._held, str(before._broken))}  # noqa: SLF001 - of its own class
        for old in list(self._gone)[: max(0, len(self._gone) - SESSIONS_HELD_MAX)]:
            del self._gone[old]

    def notify(self, request: Request) -> None:
        """Send a request whose answer nobody waits for; it may be lost."""
        ask = Ask(id=new_command_id(), body=codec.raw(request), token=self._shown())
        self._dealer.send(encode(ask))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` until it is done or the connection fails."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def fail(self, error: CmdcError) -> None:
        """Close the sockets and fail whatever waits; only the first call counts."""
        if self._broken is not None:
            return
        self._broken = error
        for timer in (self._tick, self._beat):
            if timer is not None:
                timer.cancel()
        self._unwatch_embedded()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        for task in list(self._tasks):
            task.cancel()
        self.dispatcher.fail(error)
        self.down_order.release()
        self.monitors.fail(error)
        self._dealer.close()

    async def close(self, error: CmdcError) -> None:
        """Fail with ``error`` and wait until nothing runs any more."""
        self.fail(error)
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        await asyncio.gather(*tasks, return_exceptions=True)

    def abandon(self) -> None:
        """Give everything back after the loop was closed."""
        self._broken = DaemonUnavailable("the event loop of this client is closed")
        if self._death_fd >= 0:
            os.close(self._death_fd)
            self._death_fd = -1
        self._dealer.abandon()

    # --- what arrives -------------------------------------------------------------------------

    def on_frame(self, frame: ToClient) -> None:
        """Take an answer or a notice."""
        if isinstance(frame, Notify):
            self.monitors.take(frame)
        elif isinstance(frame, FailedReply):
            self._on_failed(frame)
        elif isinstance(frame, ValueReply | PagedReply):
            self._on_reply(frame)

    def on_published(self, topic: bytes, frame: Published, body: bytes) -> None:
        """Take events or a watermark."""
        self.dispatcher.take(topic, frame, body)

    def on_violation(self, error: ProtocolError, *, is_foreign: bool) -> None:
        """Log a message that breaks the contract."""
        _log.error("message.refused", problem=str(error))
        if is_foreign:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(error)

    def _on_reply(self, frame: ValueReply | PagedReply) -> None:
        if frame.id == self._facts_id and isinstance(frame, ValueReply):
            self._compare(frame)
            return
        future = self._waiting.get(frame.id)
        if future is not None and not future.done():
            future.set_result(frame)

    def _on_failed(self, frame: FailedReply) -> None:
        error = codec.raised(frame)
        if isinstance(error, DaemonUnavailable):
            return  # it is about to end, and what is open is asked of the next one
        if isinstance(error, AccessDenied) and (
            self._is_shown_anew(frame.id) or self._mailbox.is_of_earlier(frame.id)
        ):
            return
        future = self._waiting.get(frame.id)
        if future is not None and not future.done():
            future.set_exception(error)
        elif not frame.id:
            _log.error("message.refused", problem=str(error))

    # --- what is due --------------------------------------------------------------------------

    async def _read(
        self,
        asked: _Q,
        frame_of: Callable[[CommandId, _Q], bytes],
        next_page: Callable[..., _Q],
        wait: _Wait,
    ) -> Any:
        """Return the answer to ``asked``, page by page where it is long; each is waited for."""
        for _ in range(READS_MAX):
            id_ = new_command_id()
            try:
                reply = await self._exchange(id_, frame_of(id_, asked), wait)
            except CommandTimeout:
                # What changes nothing is not open where nobody is there who could answer.
                if _has_effect(asked) or (absence := self.place.absence()) is None:
                    raise
                raise absence from None
            if reply is None or asked.answer is None:
                return None
            if isinstance(reply, ValueReply):
                found = codec.decode_as(asked.answer, reply.body)
                is_status = reply.unsaved and isinstance(found, Status)
                return msgspec.structs.replace(found, unsaved=True) if is_status else found
            body = await self._rest(reply, frame_of, next_page, wait)
            if body is not None:
                return codec.decode_as(asked.answer, body)
        raise TransientError(
            f"the answer to {type(asked).__name__} has many pages, and went while they were read,"
            f" {READS_MAX} times: ask again when there is less to do"
        )

    async def _rest(
        self,
        begun: PagedReply,
        frame_of: Callable[[CommandId, _Q], bytes],
        next_page: Callable[..., _Q],
        wait: _Wait,
    ) -> bytes | None:
        """Return all bytes of an answer, or None where the rest of it is gone."""
        pieces, offset = [begun.body], len(begun.body)
        while True:
            id_, wanted = new_command_id(), next_page(page_id=begun.page_id, offset=offset)
            reply = await self._exchange(id_, frame_of(id_, wanted), wait)
            if not isinstance(reply, ValueReply):
                raise ProtocolError("a page of an answer came in pages")
            page: Page = codec.decode_as(Page, reply.body)
            if page.is_gone:
                return None
            pieces.append(page.body)
            offset += len(page.body)
            if page.is_last:
                return b"".join(pieces)

    async def _exchange(
        self, id_: CommandId, frame: bytes, wait: _Wait
    ) -> ValueReply | PagedReply | None:
        if self._broken is not None:
            raise self._broken.with_traceback(None)  # each raise would lengthen it
        now_s = self.loop.time()
        due_s = self._mailbox.open(id_, frame, now_s, wait.timeout_s, wait.absence_s)
        future = self._waiting[id_] = self.loop.create_future()
        try:
            self._dealer.send(frame)
            self._set_tick(due_s)
            reply: ValueReply | PagedReply = await future
        except CmdcError as error:
            is_repeated = self._mailbox.close(id_)
            if is_repeated and wait.is_done is not None and wait.is_done(error):
                return None
            raise
        finally:
            del self._waiting[id_]
            self._mailbox.close(id_)
        return reply

    def _shown(self) -> str:
        """Return the token of the daemon's directory, read once."""
        self._token = self._token or read_token(self.place.directory)
        return self._token

    def _is_shown_anew(self, id_: CommandId) -> bool:
        """Send a refused question again where another token than it showed counts by now."""
        self._token = read_token(self.place.directory)
        changed = self._mailbox.change(id_, self._with_token)
        if changed is not None:
            self._dealer.send(changed)
        return changed is not None

    def _with_token(self, frame: bytes) -> bytes | None:
        sent = codec.decode(FromClient, frame)
        if not isinstance(sent, Ask | Send) or sent.token == self._token:
            return None
        return encode(msgspec.structs.replace(sent, token=self._token, again=True))

    def _send_again(self, frames: Iterable[bytes]) -> None:
        """Send frames that were sent before, and say so in them."""
        for frame in frames:
            sent = codec.decode(FromClient, frame)
            if isinstance(sent, Ask | Send):
                self._dealer.send(encode(msgspec.structs.replace(sent, again=True)))

    def _set_tick(self, due_s: float | None) -> None:
        if due_s is None:
            return
        if self._tick is not None:
            if self._tick.when() <= due_s:
                return
            self._tick.cancel()
        self._tick = self.loop.call_at(max(due_s, self.loop.time() + TICK_S), self._on_tick)

    def _on_tick(self) -> None:
        self._tick = None
        now_s, absence = self.loop.time(), self.place.absence()
        if absence is None:
            self._absent_s = None
        elif self._absent_s is None:
            self._absent_s = now_s
        due = self._mailbox.due(now_s, self._absent_s)
        if not self._dealer.has_unsent:  # what still waits for the connection is sent anyway
            self._send_again(due.frames)
        never_sent = self._dealer.withdraw(set(due.expired))
        for id_ in due.expired:
            future = self._waiting.get(id_)
            if future is not None and not future.done():
                future.set_exception(self._too_late(absence, was_sent=id_ not in never_sent))
        self._set_tick(self._mailbox.next_s())

    def _too_late(
        self, absence: DaemonUnavailable | None, *, was_sent: bool
    ) -> CommandTimeout | DaemonUnavailable:
        """Return the error of a call whose time is up; ``absence`` is why no daemon is there."""
        where = self.place.directory
        if not was_sent:
            return absence or DaemonUnavailable(
                f"the daemon at {where} took no message in time, so nothing was asked of it"
            )
        why = "gave no answer in time" if absence is None else "ended, and no other one has come"
        return CommandTimeout(f"the daemon at {where} {why}; {_OPEN}")

    def _ask_facts(self) -> None:
        self._beat = self.loop.call_later(FACTS_S, self._ask_facts)
        if self._waiting or len(self.monitors) or len(self.dispatcher):
            self._facts_id = new_command_id()
            if not self._dealer.has_unsent:
                body = codec.raw(GetFacts())
                self._dealer.send(encode(Ask(id=self._facts_id, body=body, token=self._shown())))

    def _compare(self, frame: ValueReply) -> None:
        facts = codec.decode_as(DaemonFacts, frame.body)
        is_new = facts.instance != self._instance
        if is_new:
            self._instance = facts.instance
            self._send_again(self._mailbox.all_frames(self.loop.time()))
        self.monitors.reconcile(facts.notices, is_new=is_new)
        if is_new:
            self.dispatcher.look_again()

    # --- an embedded daemon's end -------------------------------------------------------------

    def _watch_embedded(self) -> None:
        if self.place.lease is None:
            return
        try:
            self._death_fd = os.pidfd_open(self.place.lease.daemon.pid)
        except OSError:
            raise self.place.lease.daemon.death() from None
        self.loop.add_reader(self._death_fd, self._on_death)

    def _on_death(self) -> None:
        assert self.place.lease is not None  # noqa: S101 - it is what is watched
        self.fail(self.place.lease.daemon.death())

    def _unwatch_embedded(self) -> None:
        if self._death_fd >= 0:
            with contextlib.suppress(OSError):
                self.loop.remove_reader(self._death_fd)
            os.close(self._death_fd)
            self._death_fd = -1


def _packed(value: Request | Command, values_max: int) -> msgspec.Raw:
    """Return the wire form of a request or a command that its receiver can take.

    Raises:
        UsageError: it nests too deep or has too many values, or something in it has no wire form.

    """
    body = codec.raw(value)
    if (problem := packed_problem(body, values_max=values_max)) is not None:
        raise UsageError(f"a {type(value).__name__} cannot be sent: {problem}")
    return body


def _has_effect(asked: Request | Command) -> bool:
    """Say whether it does something, or only asks."""
    return asked.durable if isinstance(asked, Command) else asked.changes


def _carries_code(command: Command) -> bool:
    """Say whether code travels by value: the daemon, which opens no body, is to know it."""
    if isinstance(command, AttachPlugin):
        return brings_code(command.plugin)
    if not isinstance(command, AttachTools | ReplaceTools):
        return False
    return any(map(brings_code, command.tools))
