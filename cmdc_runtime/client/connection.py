"""One client's link to one daemon: questions, answers, and what to do when either is lost.

An open request is sent again under its own id until it is answered or its time is up, and at once
when another daemon took over; the daemon takes it once. Everything here runs in one loop.
"""

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Callable, Coroutine
from typing import Any

from cmdc_runtime import codec
from cmdc_runtime.client.address import Place
from cmdc_runtime.client.holding import Holding
from cmdc_runtime.client.limits import (
    COMMAND_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    FACTS_S,
    QUESTIONS_PARALLEL_MAX,
    TICK_S,
)
from cmdc_runtime.client.mailbox import Mailbox
from cmdc_runtime.client.monitors import Monitors
from cmdc_runtime.client.topics import Topics
from cmdc_runtime.commands import AttachPlugin, AttachTools, Command, ReplaceTools
from cmdc_runtime.dealer import Dealer, encode
from cmdc_runtime.errors import CmdcError, CommandTimeout, DaemonUnavailable, ProtocolError
from cmdc_runtime.frames import Ask, Failed, Notify, Published, Reply, Send, ToClient
from cmdc_runtime.ids import CommandId, SessionId, new_command_id
from cmdc_runtime.requests import DaemonFacts, GetFacts, Request

_log = logging.getLogger(__name__)


class Connection:
    """Asks, tells and listens until ``fail``."""

    def __init__(self, place: Place) -> None:
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
        self.topics = Topics(self, self._dealer)
        self.holding = Holding(self, self.topics)
        self._mailbox = Mailbox()
        self._waiting: dict[CommandId, asyncio.Future[Reply]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken: CmdcError | None = None
        self._instance: str | None = None
        self._facts_id: CommandId | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._death_fd = -1

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
        except CommandTimeout as error:
            raise DaemonUnavailable(
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

        ``is_done`` says of an error to a request that was sent again whether it only tells that the
        first one has had its effect: then there is no error, and None is returned.

        Raises:
            CmdcError: what the daemon says is wrong, or CommandTimeout.

        """
        id_ = new_command_id()
        frame = encode(Ask(id=id_, body=codec.raw(request)))
        return await self._exchange(id_, frame, request.answer, timeout_s, is_done)

    async def send(
        self,
        session_id: SessionId,
        command: Command,
        *,
        timeout_s: float | None = COMMAND_TIMEOUT_S,
    ) -> Any:
        """Return a session's answer to ``command``: what its ``answer`` says (Any).

        Raises:
            CmdcError: what the session or the daemon says is wrong, or CommandTimeout.

        """
        id_ = new_command_id()
        frame = encode(
            Send(
                id=id_,
                session_id=session_id,
                durable=command.durable,
                body=codec.raw(command),
                carries_code=_carries_code(command),
            )
        )
        return await self._exchange(id_, frame, command.answer, timeout_s)

    def tell(self, request: Request) -> None:
        """Send a request whose answer nobody waits for; it may be lost."""
        self._dealer.send(encode(Ask(id=new_command_id(), body=codec.raw(request))))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` until it is done or the connection fails."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def fail(self, error: CmdcError) -> None:
        """Close the sockets and tell everybody who waits; only the first call counts."""
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
        self.topics.fail(error)
        self.holding.release()
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
        elif isinstance(frame, Failed):
            self._on_failed(frame)
        elif isinstance(frame, Reply):
            self._on_reply(frame)

    def on_published(self, topic: bytes, frame: Published, body: bytes) -> None:
        """Take events or a watermark."""
        self.topics.take(topic, frame, body)

    def on_violation(self, error: ProtocolError, *, is_foreign: bool) -> None:
        """Take note of a message that breaks the contract."""
        _log.error("message.refused", extra={"error": str(error)})
        if is_foreign:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(error)

    def _on_reply(self, frame: Reply) -> None:
        if frame.id == self._facts_id:
            self._compare(frame)
            return
        future = self._waiting.get(frame.id)
        if future is not None and not future.done():
            future.set_result(frame)

    def _on_failed(self, frame: Failed) -> None:
        error = codec.raised(frame)
        future = self._waiting.get(frame.id)
        if future is not None and not future.done():
            future.set_exception(error)
        elif not frame.id:
            _log.error("message.refused", extra={"error": str(error)})

    # --- what is due --------------------------------------------------------------------------

    async def _exchange(
        self,
        id_: CommandId,
        frame: bytes,
        answer: Any,
        timeout_s: float | None,
        is_done: Callable[[CmdcError], bool] | None = None,
    ) -> Any:
        if self._broken is not None:
            raise self._broken.with_traceback(None)  # each raise would lengthen it
        due_s = self._mailbox.open(id_, frame, self.loop.time(), timeout_s)
        future = self._waiting[id_] = self.loop.create_future()
        try:
            self._dealer.send(frame)
            self._set_tick(due_s)
            reply = await future
        except CmdcError as error:
            if self._mailbox.close(id_) and is_done is not None and is_done(error):
                return None
            raise
        finally:
            del self._waiting[id_]
            self._mailbox.close(id_)
        return None if answer is None else codec.decode_as(answer, reply.body)

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
        due = self._mailbox.due(self.loop.time())
        if not self._dealer.has_unsent:  # what still waits for the connection is sent anyway
            for frame in due.frames:
                self._dealer.send(frame)
        absence = self.place.absence() if due.expired else None
        for id_ in due.expired:
            future = self._waiting.get(id_)
            if future is not None and not future.done():
                future.set_exception(absence or self._too_late())
        self._set_tick(self._mailbox.next_s())

    def _too_late(self) -> CommandTimeout:
        return CommandTimeout(
            f"the daemon at {self.place.directory} gave no answer in time; the command may still "
            "take effect, once"
        )

    def _ask_facts(self) -> None:
        self._beat = self.loop.call_later(FACTS_S, self._ask_facts)
        if self._waiting or len(self.monitors) or len(self.topics):
            self._facts_id = new_command_id()
            if not self._dealer.has_unsent:
                self._dealer.send(encode(Ask(id=self._facts_id, body=codec.raw(GetFacts()))))

    def _compare(self, frame: Reply) -> None:
        facts = codec.decode_as(DaemonFacts, frame.body)
        is_new = facts.instance != self._instance
        if is_new:
            self._instance = facts.instance
            for waiting in self._mailbox.all_frames(self.loop.time()):
                self._dealer.send(waiting)
        self.monitors.reconcile(facts.notices, is_new=is_new)
        if is_new:
            self.topics.look_again()

    # --- an embedded daemon's end -------------------------------------------------------------

    def _watch_embedded(self) -> None:
        if self.place.lease is None:
            return
        try:
            self._death_fd = os.pidfd_open(self.place.lease.daemon.pid)
        except OSError:
            raise self.place.lease.daemon.obituary() from None
        self.loop.add_reader(self._death_fd, self._on_death)

    def _on_death(self) -> None:
        assert self.place.lease is not None  # noqa: S101 - it is what is watched
        self.fail(self.place.lease.daemon.obituary())

    def _unwatch_embedded(self) -> None:
        if self._death_fd >= 0:
            with contextlib.suppress(OSError):
                self.loop.remove_reader(self._death_fd)
            os.close(self._death_fd)
            self._death_fd = -1


def _carries_code(command: Command) -> bool:
    """Say whether code travels by value: the daemon, which opens no body, is to know it."""
    if isinstance(command, AttachPlugin):
        return command.plugin.kind == "value"
    if not isinstance(command, AttachTools | ReplaceTools):
        return False
    return any(tool.kind == "value" for tool in command.tools)
