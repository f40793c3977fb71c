"""What a client's calls do in its event loop, as coroutines over session ids, for both faces.

Arguments are checked and commands are made by then: ``session`` and ``control`` do that. A call
that is more than one request to the daemon or one command to a session has its coroutine here.
"""

import asyncio
import contextlib
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import msgspec

from cmdc_runtime.checkpoints import Snapshot, read_saved
from cmdc_runtime.client.connection import Connection
from cmdc_runtime.client.cycle import OpenedCycle, ending
from cmdc_runtime.client.daemon_start import NOTICE_AFTER_S, announce
from cmdc_runtime.client.limits import (
    COMMAND_TIMEOUT_S,
    LIST_ANSWER_S,
    LIST_PARALLEL_MAX,
    LIST_TURN_S,
    PROMPTS_REMEMBERED_MAX,
    REPLAY_RETRY_S,
    START_GRACE_S,
    STATUS_ANSWER_S,
    STOP_TIMEOUT_S,
    UNOWNED_END_S,
    WAIT_TURN_S,
)
from cmdc_runtime.client.link import Connector
from cmdc_runtime.client.monitors import Watch
from cmdc_runtime.client.resuming import check_free, definition_of, resume_request
from cmdc_runtime.client.saved_states import beginning, kept
from cmdc_runtime.client.subscription import Subscription
from cmdc_runtime.client.tool_calls import ServedTools, index_before
from cmdc_runtime.client.transfer import (
    end_to_move,
    export_session,
    import_session,
    keep_part,
    new_facts,
    read_past,
)
from cmdc_runtime.client.typed_answer import Reply
from cmdc_runtime.clock import now_ms
from cmdc_runtime.commands import (
    Approve,
    AttachTools,
    AwaitCycle,
    Command,
    CycleResult,
    GetStatus,
    Prompt,
    PromptReceipt,
    Reject,
    ReplaceTools,
    SaveCheckpoint,
    Status,
    Steer,
    SteerReceipt,
)
from cmdc_runtime.content import File, Image
from cmdc_runtime.errors import (
    CheckpointFailed,
    CmdcError,
    CollectTimeout,
    CommandDropped,
    CommandTimeout,
    DaemonUnavailable,
    InvalidPart,
    InvalidSession,
    ProtocolError,
    SessionError,
    SessionNotAlive,
    TransientError,
    UsageError,
)
from cmdc_runtime.ids import CommandId, MonitorRef, SessionId
from cmdc_runtime.message_parts import MessagePart, parts_problem
from cmdc_runtime.packing import client_tools
from cmdc_runtime.reasons import Normal, Other, Shutdown
from cmdc_runtime.requests import (
    BackUp,
    BackupFacts,
    FindSession,
    GetDefinition,
    ListInactive,
    ListSessions,
    Origin,
    PastPage,
    Request,
    SessionDefinition,
    SessionInfo,
    StartSession,
    StopSession,
)
from cmdc_runtime.transfer import Header
from cmdc_runtime.wire import codec

_LOADING: Final = "the private daemon loads what agents run on; only its first sessions wait for it"
"""Announced where the start of a session takes long, in which case it is mostly that."""

T = TypeVar("T")
SubscriptionMaker = Callable[[Connection], Subscription]
"""Makes the subscription of one stream, once the connection is there."""


class Exchange:
    """The exchange of one client with its daemon."""

    def __init__(self, connector: Connector, *, has_own_loop: bool = False) -> None:
        """Connect at the first call; ``has_own_loop``: it is no place for application code."""
        self._connector = connector
        self._served = ServedTools(has_own_loop=has_own_loop)
        self._prompts: OrderedDict[SessionId, CommandId] = OrderedDict()
        self._endings: set[asyncio.Task[None]] = set()
        self._watches: WeakValueDictionary[MonitorRef, Watch] = WeakValueDictionary()

    async def connect(self) -> None:
        """Connect now."""
        await self._connector.connected()

    async def start(self, request: StartSession) -> SessionId:
        """Start a session; see ``create_agent``. One whose caller is cancelled ends behind it."""
        connection = await self._connector.connected()
        starting = asyncio.ensure_future(self._started(connection, request))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            ending = asyncio.ensure_future(self._end_unowned(starting))
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)
            raise

    async def await_ends(self) -> None:
        """Return when what cancelled starts have begun has ended, or after a bounded time."""
        if self._endings:
            await asyncio.wait(self._endings, timeout=UNOWNED_END_S)

    async def _started(self, connection: Connection, request: StartSession) -> SessionId:
        timeout_s = request.supervision.start_timeout + START_GRACE_S
        loop, is_private = asyncio.get_running_loop(), connection.place.lease is not None
        notice = loop.call_later(NOTICE_AFTER_S, announce, _LOADING) if is_private else None
        since = await index_before(connection, request)
        try:
            found: SessionInfo = await connection.ask(request, timeout_s=timeout_s)
        except DaemonUnavailable:
            # An embedded daemon has died meanwhile; what it had begun ended with it.
            if (following := await self._connector.connected()) is connection:
                raise
            connection = following
            found = await connection.ask(request, timeout_s=timeout_s)
        finally:
            if notice is not None:
                notice.cancel()
        connection.hold(found.session_id)
        await self._served.serve_started(connection, request, since)
        return found.session_id

    async def change_tools(
        self, session_id: SessionId, command: AttachTools | ReplaceTools
    ) -> Any:  # Any: what the command's ``answer`` says
        """Give tools to a session, and answer the calls of those of this program."""
        tools = client_tools.tools_of(command.tools)
        if tools:
            since = (await self.find_live(session_id)).last_index
            connection = await self._connector.connected(session_id)
            await self._served.serve(connection, session_id, tools, since)
        return await self.send(session_id, command)

    async def _end_unowned(self, starting: asyncio.Future[SessionId]) -> None:
        """End a session that nobody waits for any more, when it has started."""
        with contextlib.suppress(CmdcError):  # it did not start, or has ended
            made = await starting
            await self.stop(StopSession(session_id=made, reason="normal", timeout=STOP_TIMEOUT_S))

    async def stop(self, request: StopSession) -> None:
        """End a session; see ``stop``."""
        connection = await self._connector.connected(request.session_id)
        self._prompts.pop(request.session_id, None)
        is_normal = request.reason == "normal"
        asked = Normal() if is_normal else Shutdown(detail=request.reason)

        def is_stopped(error: CmdcError) -> bool:
            return isinstance(error, SessionNotAlive) and error.reason == asked

        timeout_s = request.timeout + COMMAND_TIMEOUT_S
        await connection.ask(request, timeout_s=timeout_s, is_done=is_stopped)

    async def ask(
        self, request: Request, session_id: SessionId | None = None
    ) -> Any:  # Any: what the request's ``answer`` says
        """Return the daemon's answer to ``request``; ``session_id``: the session it is about."""
        connection = await self._connector.connected(session_id)
        return await connection.ask(request)

    async def send(
        self, session_id: SessionId, command: Command, timeout_s: float | None = COMMAND_TIMEOUT_S
    ) -> Any:  # Any: what the command's ``answer`` says
        """Return a session's answer to ``command``."""
        connection = await self._connector.connected(session_id)
        return await connection.send(session_id, command, timeout_s=timeout_s)

    async def prompt(
        self, session_id: SessionId, command: Prompt, timeout_s: float = COMMAND_TIMEOUT_S
    ) -> PromptReceipt:
        """Send a prompt; see ``prompt``."""
        receipt: PromptReceipt = await self.send(session_id, command, timeout_s)
        self._remember(session_id, receipt.command_id)
        return receipt

    async def keep_parts(
        self, session_id: SessionId, given: Sequence[tuple[int, Image | File]], text_chars: int
    ) -> tuple[MessagePart, ...]:
        """Have images and files kept, and return what stands for them in a prompt.

        Each is sent before the next one is read, so one at a time is in memory.
        """
        connection = await self._connector.connected(session_id)
        parts: list[MessagePart] = []
        for at, one in given:
            parts.append(await keep_part(connection, session_id, one, at))
            if (problem := parts_problem(parts, text_chars)) is not None:
                raise InvalidPart(problem)
        return tuple(parts)

    async def open_cycle(
        self,
        session_id: SessionId,
        command: Prompt,
        subscribed: SubscriptionMaker,
        timeout_s: float | None,
    ) -> OpenedCycle:
        """Send a prompt and fill a stream with all that is published from before it on."""
        started_s = time.monotonic()
        subscription = await self.follow(session_id, subscribed, None)
        try:
            limit_s = COMMAND_TIMEOUT_S
            if timeout_s is not None:
                limit_s = min(limit_s, max(0.0, timeout_s - (time.monotonic() - started_s)))
            receipt = await self.prompt(session_id, command, limit_s)
        except BaseException:
            subscription.finish(UsageError("the prompt was not sent"))
            raise
        return OpenedCycle(session_id, receipt.command_id, subscription)

    async def look_for_end(self, opened: OpenedCycle) -> None:
        """Have a cycle's stream end behind its events though the one that shows its end is lost."""
        connection = await self._connector.connected()
        look = connection.spawn(self._look_for_end(connection, opened))
        opened.subscription.when_finished(lambda _finished: look.cancel())

    async def _look_for_end(self, connection: Connection, opened: OpenedCycle) -> None:
        wanted = AwaitCycle(prompt_id=opened.command_id, within_s=WAIT_TURN_S)
        session_id = opened.session_id
        while True:
            try:
                result = await connection.send(session_id, wanted, timeout_s=None)
                found: SessionInfo = await connection.ask(FindSession(session_id=session_id))
            except TransientError:
                await asyncio.sleep(REPLAY_RETRY_S)
                continue
            except SessionError:  # the stream shows its end
                return
            except CmdcError as error:
                opened.subscription.finish(error)
                return
            await opened.subscription.reached(session_id, found.last_index)
            opened.result = result
            opened.subscription.finish(UsageError("the cycle is over"))
            return

    async def steer(self, session_id: SessionId, command: Steer) -> str:
        """Send a steering and return its reference; see ``steer``."""
        receipt: SteerReceipt = await self.send(session_id, command)
        if receipt.opened:
            self._remember(session_id, CommandId(receipt.ref))
        return receipt.ref

    async def checkpoint(self, session_id: SessionId, command: SaveCheckpoint) -> Snapshot:
        """Have a session save its state; see ``checkpoint``."""
        try:
            made: Snapshot = await self.send(session_id, command)
        except CommandDropped as error:
            raise CheckpointFailed(str(error)) from error
        return made

    async def decide(self, session_id: SessionId, command: Approve | Reject) -> None:
        """Send a person's word about a call; see ``approve`` and ``reject``."""
        opened: CommandId | None = await self.send(session_id, command)
        if opened is not None:
            self._remember(session_id, opened)

    async def collect_reply(self, session_id: SessionId, timeout_s: float | None) -> str:
        """Wait for the end of this client's latest prompt; see ``collect_reply``."""
        prompt_id = self._prompts.get(session_id)
        result = await self._cycle(session_id, prompt_id, timeout_s, time.monotonic())
        return result.text

    async def run(self, session_id: SessionId, command: Prompt, timeout_s: float | None) -> Reply:
        """Send a prompt and wait for its own cycle; see ``run``."""
        started_s = time.monotonic()
        limit_s = COMMAND_TIMEOUT_S if timeout_s is None else min(timeout_s, COMMAND_TIMEOUT_S)
        receipt = await self.prompt(session_id, command, limit_s)
        result = await self._cycle(session_id, receipt.command_id, timeout_s, started_s)
        return Reply(
            text=result.text, messages=result.messages, usage=result.usage, output=result.text
        )

    async def resume(
        self,
        origin: Origin,
        new_id: str | None,
        given: dict[str, Any],  # Any: see ``Options``
    ) -> SessionId:
        """Start a session from a saved state; see ``resume_session``."""
        connection = await self._connector.connected(origin.session_id)
        known: SessionDefinition = await connection.ask(GetDefinition(session_id=origin.session_id))
        check_free(origin, new_id, is_alive=known.is_alive)
        async with beginning(connection, origin, known) as begun:
            spec = definition_of(begun.agent)
            return await self.start(
                resume_request(begun.origin, new_id, spec, begun.group_id, given)
            )

    async def status(self, session_id: SessionId) -> Status:
        """Return how a session stands; see ``status``. One that sleeps has left word of it."""
        known = await self.find_live(session_id)
        if known.phase == "hibernated":
            return _silent(known)
        found = await self._look(session_id, STATUS_ANSWER_S)
        return found or _silent(await self.find_live(session_id))

    async def list_sessions(self) -> list[Status]:
        """Return how all live sessions stand; see ``list_sessions``."""
        connection = await self._connector.connected()
        found: tuple[SessionInfo, ...] = await connection.ask(ListSessions())
        parallel = asyncio.Semaphore(LIST_PARALLEL_MAX)

        async def look(one: SessionInfo) -> Status | None:
            if one.phase != "up":
                return _silent(one)
            await parallel.acquire()
            asked = asyncio.ensure_future(self._look(one.session_id, LIST_ANSWER_S))
            try:
                await asyncio.wait({asked}, timeout=LIST_TURN_S)
                parallel.release()
                return await asked or _silent(one)
            except ProtocolError:  # one that talks nonsense hides no other
                return _silent(one)
            except (SessionNotAlive, InvalidSession):
                return None  # it ended meanwhile
            finally:
                asked.cancel()

        return [status for status in await asyncio.gather(*map(look, found)) if status is not None]

    async def last_status(self, session_id: SessionId) -> Status:
        """Return how a session stands, or how one stood that has ended, with the reason."""
        connection = await self._connector.connected(session_id)
        found: SessionInfo = await connection.ask(FindSession(session_id=session_id))
        if found.phase != "ended":
            return await self.status(session_id)
        with contextlib.suppress(SessionNotAlive):  # it never was up, or nothing of it is kept
            left: Status = await connection.send(session_id, GetStatus(), reads_ended=True)
            found = msgspec.structs.replace(found, asleep=codec.encode(left))
        silent = _silent(found)
        reason = None if found.reason is None else str(found.reason)
        return msgspec.structs.replace(silent, reason=reason, uptime_ms=0)

    async def list_inactive(self) -> list[Status]:
        """Return what is parked, and the newest of what has ended; no process is asked."""
        connection = await self._connector.connected()
        found: tuple[SessionInfo, ...] = await connection.ask(ListInactive())
        return [
            msgspec.structs.replace(
                _silent(one), reason=None if one.reason is None else str(one.reason)
            )
            for one in found
        ]

    async def find_live(self, session_id: SessionId) -> SessionInfo:
        """Return what the daemon knows about a session that has not ended.

        Raises:
            SessionNotAlive: it has.

        """
        connection = await self._connector.connected(session_id)
        found: SessionInfo = await connection.ask(FindSession(session_id=session_id))
        if found.phase == "ended":
            raise SessionNotAlive(found.reason or Other(detail="its reason is not known"))
        return found

    async def export(self, session_id: SessionId, write: Callable[[bytes], None]) -> Header:
        """Give the frames of a session's file to ``write``; one that has ended may be moved."""
        connection = await self._connector.connected(session_id)
        return await export_session(connection, session_id, write)

    async def end_to_move(self, session_id: SessionId) -> bool:
        """End a session that is to go on elsewhere; False where it had ended otherwise."""
        return await end_to_move(await self._connector.connected(session_id), session_id)

    async def bring(self, frames: Iterable[bytes], as_id: SessionId | None) -> SessionInfo:
        """Start a session from the frames of its file."""
        return await import_session(await self._connector.connected(), frames, as_id)

    async def past(self, session_id: SessionId) -> PastPage:
        """Return what the journal keeps of a session, live or ended, but its events."""
        return await read_past(await self._connector.connected(session_id), session_id)

    async def back_up(self, request: BackUp) -> BackupFacts:
        """Have the journal copied to a file, and return when the copy is durable there."""
        connection = await self._connector.connected()
        made: BackupFacts = await connection.ask(request, timeout_s=None)
        if not await asyncio.to_thread(_is_there, made):
            raise UsageError(
                f"{made.file} was written, but not where this process sees it: the daemon has "
                "other folders (of a container, or a /tmp of its own); name a place that both see"
            )
        return made

    async def fork(self, session_id: SessionId, new_id: str, state: bytes) -> SessionId:
        """Start a session from a state of another one, which is no checkpoint of it for long."""
        connection, saved = await self._connector.connected(), read_saved(state)
        async with kept(connection, new_facts(session_id, new_id), state) as origin:
            spec = definition_of(saved.agent)
            return await self.start(resume_request(origin, new_id, spec, saved.group_id, {}))

    async def with_daemon(
        self, session_id: SessionId, work: Callable[[Connection, SessionId], Awaitable[T]]
    ) -> T:
        """Return what ``work`` makes of the connection for a session."""
        return await work(await self._connector.connected(session_id), session_id)

    async def follow(
        self, session_id: SessionId, subscribed: SubscriptionMaker, since: int | None
    ) -> Subscription:
        """Fill a stream with one session's events; see ``subscribe``."""
        connection = await self._connector.connected(session_id)
        subscription = subscribed(connection)
        await connection.dispatcher.follow(session_id, subscription, since)
        return subscription

    async def follow_all(self, subscribed: SubscriptionMaker) -> Subscription:
        """Fill a stream with all sessions' events; see ``subscribe_all``."""
        connection = await self._connector.connected()
        subscription = subscribed(connection)
        await connection.dispatcher.follow_all(subscription)
        return subscription

    async def follow_group(
        self, group_id: str, subscribed: SubscriptionMaker, since: int | None
    ) -> Subscription:
        """Fill a stream with a group's events; see ``subscribe_group``."""
        connection = await self._connector.connected()
        subscription = subscribed(connection)
        await connection.dispatcher.follow_group(group_id, subscription, since)
        return subscription

    async def unfollow(self, session_id: SessionId) -> None:
        """Close this client's streams of one session; see ``unsubscribe``."""
        connection = await self._connector.connected(session_id)
        for subscription in connection.dispatcher.subscriptions_of(session_id):
            subscription.finish(UsageError("the stream was unsubscribed"))

    async def watch(self, watch: Watch) -> None:
        """Begin to fill a monitor; see ``monitor``."""
        connection = await self._connector.connected(watch.session_id)
        self._watches[watch.ref] = watch
        line = connection.down_order.before(watch)
        await connection.monitors.add(
            watch.session_id, line, ref=watch.ref, persistent=watch.persistent
        )

    async def unwatch(self, ref: MonitorRef) -> Watch | None:
        """Forget a monitor and return it, if anybody still holds it; see ``demonitor``."""
        watch = self._watches.pop(ref, None)
        if watch is not None:
            watch.mark_removed()
        connection = await self._connector.connected()
        await connection.monitors.remove(ref)
        return watch

    async def _look(self, session_id: SessionId, timeout_s: float) -> Status | None:
        """Return a session's status, None where it gives none in time; the daemon's end is no time.

        Where another daemon has taken over meanwhile, the session is asked again there.
        """
        connection = await self._connector.connected(session_id)
        asked = connection.known_instance
        while True:
            try:
                found: Status = await self.send(session_id, GetStatus(), timeout_s)
            except (CommandTimeout, DaemonUnavailable):
                await self.find_live(session_id)  # a daemon that ends says no more than who it is
                before, asked = asked, await connection.instance()
                if asked == before:
                    return None
            else:
                return found

    def _remember(self, session_id: SessionId, prompt_id: CommandId) -> None:
        """Remember the cycle that ``collect_reply`` is to wait for."""
        self._prompts[session_id] = prompt_id
        self._prompts.move_to_end(session_id)
        if len(self._prompts) > PROMPTS_REMEMBERED_MAX:
            self._prompts.popitem(last=False)

    async def _end_of(
        self, session_id: SessionId, prompt_id: CommandId | None, timeout_s: float | None
    ) -> CycleResult:
        """Wait for the end of a cycle, in turns: the agent forgets a wait that is not renewed.

        Raises:
            CommandTimeout: the time is over.
            CollectTimeout: the same, and the agent was quicker to say so.
        """
        begun_s, left_s = time.monotonic(), timeout_s
        while True:
            turn_s = WAIT_TURN_S if left_s is None else min(max(0.0, left_s), WAIT_TURN_S)
            wanted = AwaitCycle(prompt_id=prompt_id, within_s=turn_s)
            try:
                result: CycleResult = await self.send(session_id, wanted, left_s)
            except CollectTimeout:
                spent_s = time.monotonic() - begun_s
                left_s = None if timeout_s is None else timeout_s - spent_s
                if left_s is not None and left_s <= 0:
                    raise
            else:
                return result

    async def _cycle(
        self,
        session_id: SessionId,
        prompt_id: CommandId | None,
        timeout_s: float | None,
        begun_s: float,
    ) -> CycleResult:
        """Return how a cycle ended; the time of the call counts from ``begun_s``."""
        spent_s = time.monotonic() - begun_s
        left_s = None if timeout_s is None else max(0.0, timeout_s - spent_s)
        try:
            result = await self._end_of(session_id, prompt_id, left_s)
        except (CommandTimeout, CollectTimeout) as error:
            raise CollectTimeout(
                f"the cycle of session {session_id} did not end within {timeout_s:g} s; it goes on"
            ) from error
        if (ended := ending(result)) is not None:
            raise ended
        return result


def _is_there(made: BackupFacts) -> bool:
    """Say whether a backup stands at its place as this process sees it."""
    try:
        found = os.stat(made.file)  # noqa: PTH116 - no more of it than this
    except OSError:
        return False
    is_same = (found.st_dev, found.st_ino) == (made.device, made.inode)
    return is_same or found.st_size == made.size_bytes  # some file systems number files anew


def _silent(found: SessionInfo) -> Status:
    """Return the status of a session that does not answer, or is not asked.

    One that sleeps has left its counters; what its agent has left may be no status.
    """
    left = Status(state="starting", session_id=found.session_id, incarnation=found.incarnation)
    if found.asleep:
        with contextlib.suppress(ProtocolError):
            left = codec.decode_as(Status, found.asleep)
    return msgspec.structs.replace(
        left,
        state="unresponsive" if found.phase == "up" else found.phase,
        session_id=found.session_id,
        timestamp_ms=now_ms(),
        incarnation=found.incarnation,
        restarts=found.restarts,
        pid=found.pid,
        parent_id=found.parent_id,
        group_id=found.group_id,
        last_index=found.last_index,
        active_at_ms=found.ended_ms or left.active_at_ms,
    )
