"""What a client can ask, as coroutines over session ids; both kinds of client stand on this.

To add a call: its coroutine here, its command in ``orders`` if it has arguments to check, a method
of ``AsyncClient`` and ``Client``, and one of both kinds of session.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from cmdc_runtime.checkpoints import Snapshot, read_saved, snapshot_of
from cmdc_runtime.client import orders
from cmdc_runtime.client.connection import Connection
from cmdc_runtime.client.feed import Feed
from cmdc_runtime.client.limits import (
    COMMAND_TIMEOUT_S,
    LIST_ANSWER_S,
    LIST_PARALLEL_MAX,
    PROMPTS_REMEMBERED_MAX,
    START_GRACE_S,
    STATUS_ANSWER_S,
)
from cmdc_runtime.client.link import Connector
from cmdc_runtime.client.monitors import Watch
from cmdc_runtime.client.moving import export_session, import_session
from cmdc_runtime.client.past import new_facts, read_past
from cmdc_runtime.client.resuming import check_free, definition_of, resume_request
from cmdc_runtime.clock import now_ms
from cmdc_runtime.commands import (
    Approve,
    AwaitCycle,
    Command,
    CycleResult,
    GetMessages,
    GetStatus,
    PromptReceipt,
    Reject,
    Status,
    Steer,
    SteerReceipt,
)
from cmdc_runtime.errors import (
    AgentAborted,
    AgentFailed,
    CmdcError,
    CollectTimeout,
    CommandTimeout,
    InvalidSession,
    SessionNotAlive,
    UsageError,
)
from cmdc_runtime.ids import CommandId, MonitorRef, SessionId
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.reasons import Normal, Other, Shutdown
from cmdc_runtime.requests import (
    CheckpointFound,
    DeleteCheckpoint,
    FindSession,
    GetCheckpoint,
    GetDefinition,
    GetTree,
    KeepCheckpoint,
    ListCheckpoints,
    ListSessions,
    Origin,
    PastPage,
    SessionDefinition,
    SessionInfo,
    StartSession,
    StopSession,
    TreeNode,
)
from cmdc_runtime.transfer import Header


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What one prompt led to; ``text`` is the last answer's, ``messages`` what the cycle added."""

    text: str
    messages: tuple[Message, ...]
    usage: TokenUsage


FeedMaker = Callable[[Connection], Feed]
"""Makes the feed of one stream, once the connection is there."""


class Calls:
    """The calls of one client."""

    def __init__(self, connector: Connector) -> None:
        """Connect at the first call."""
        self._connector = connector
        self._prompts: OrderedDict[SessionId, CommandId] = OrderedDict()
        self._watches: WeakValueDictionary[MonitorRef, Watch] = WeakValueDictionary()

    async def connect(self) -> None:
        """Connect now."""
        await self._connector.connected()

    async def start(self, request: StartSession) -> SessionId:
        """Start a session; see ``create_agent``."""
        connection = await self._connector.connected()
        timeout_s = request.supervision.start_timeout + START_GRACE_S
        found: SessionInfo = await connection.ask(request, timeout_s=timeout_s)
        return found.session_id

    async def stop(self, session_id: SessionId, reason: str, timeout_s: float) -> None:
        """End a session; see ``stop``."""
        connection = await self._connector.connected()
        self._prompts.pop(session_id, None)
        request = StopSession(session_id=session_id, reason=reason, timeout=timeout_s)
        asked = Normal() if reason == "normal" else Shutdown(detail=reason)

        def is_stopped(error: CmdcError) -> bool:
            return isinstance(error, SessionNotAlive) and error.reason == asked

        await connection.ask(request, timeout_s=timeout_s + COMMAND_TIMEOUT_S, is_done=is_stopped)

    async def prompt(
        self, session_id: SessionId, text: str, timeout_s: float = COMMAND_TIMEOUT_S
    ) -> PromptReceipt:
        """Send a prompt; see ``prompt``."""
        receipt: PromptReceipt = await self._send(session_id, orders.prompt(text), timeout_s)
        self._remember(session_id, receipt.command_id)
        return receipt

    async def steer(self, session_id: SessionId, command: Steer) -> str:
        """Send guidance and return its reference; see ``steer``."""
        receipt: SteerReceipt = await self._send(session_id, command)
        if receipt.opened:
            self._remember(session_id, CommandId(receipt.ref))
        return receipt.ref

    async def decide(self, session_id: SessionId, command: Approve | Reject) -> None:
        """Send a person's word about a call; see ``approve`` and ``reject``."""
        opened: CommandId | None = await self._send(session_id, command)
        if opened is not None:
            self._remember(session_id, opened)

    async def collect_reply(self, session_id: SessionId, timeout_s: float | None) -> str:
        """Wait for the end of this client's latest prompt; see ``collect_reply``."""
        result = await self._cycle(session_id, self._prompts.get(session_id), timeout_s)
        return result.text

    async def run(self, session_id: SessionId, text: str, timeout_s: float | None) -> Reply:
        """Send a prompt and wait for its own cycle; see ``run``."""
        started_s = time.monotonic()
        limit_s = COMMAND_TIMEOUT_S if timeout_s is None else min(timeout_s, COMMAND_TIMEOUT_S)
        receipt = await self.prompt(session_id, text, limit_s)
        left_s = None if timeout_s is None else timeout_s - (time.monotonic() - started_s)
        result = await self._cycle(session_id, receipt.command_id, left_s)
        return Reply(text=result.text, messages=result.messages, usage=result.usage)

    async def order(self, session_id: SessionId, command: Command) -> Any:
        """Return the session's answer to a command (Any: what the command's ``answer`` says)."""
        return await self._send(session_id, command)

    async def list_checkpoints(self, session_id: SessionId) -> list[Snapshot]:
        """Return a session's checkpoints; see ``list_checkpoints``."""
        connection = await self._connector.connected()
        found = await connection.ask(ListCheckpoints(session_id=session_id))
        return [snapshot_of(facts) for facts in found]

    async def load_checkpoint(self, session_id: SessionId, checkpoint_id: str | None) -> Snapshot:
        """Return a checkpoint with its state; see ``load_checkpoint``."""
        connection = await self._connector.connected()
        wanted = GetCheckpoint(session_id=session_id, checkpoint_id=checkpoint_id)
        found: CheckpointFound = await connection.ask(wanted)
        return snapshot_of(found.facts, found.body)

    async def delete_checkpoint(self, session_id: SessionId, checkpoint_id: str | None) -> None:
        """Delete one checkpoint or all; see ``delete_checkpoint``."""
        connection = await self._connector.connected()
        gone = DeleteCheckpoint(session_id=session_id, checkpoint_id=checkpoint_id)
        await connection.ask(gone)

    async def resume(
        self,
        origin: Origin,
        new_id: str | None,
        given: dict[str, Any],  # Any: see ``Options``
    ) -> SessionId:
        """Start a session from a saved state; see ``resume_session``."""
        connection = await self._connector.connected()
        known: SessionDefinition = await connection.ask(GetDefinition(session_id=origin.session_id))
        check_free(origin, new_id, is_alive=known.is_alive)
        agent, group_id = bytes(known.agent), known.group_id
        if origin.checkpoint_id is not None:
            wanted = GetCheckpoint(session_id=origin.session_id, checkpoint_id=origin.checkpoint_id)
            found: CheckpointFound = await connection.ask(wanted)
            saved = read_saved(found.body)
            agent, group_id = saved.agent, saved.group_id
        request = resume_request(origin, new_id, definition_of(agent), group_id, given)
        return await self.start(request)

    async def messages(self, session_id: SessionId) -> list[Message]:
        """Return the conversation; see ``messages``."""
        return list(await self._send(session_id, GetMessages()))

    async def status(self, session_id: SessionId) -> Status:
        """Return how a session stands; see ``status``. A hibernated one is not woken for it."""
        known = await self.find_live(session_id)
        if known.phase == "hibernated":
            return _silent(known)
        try:
            found: Status = await self._send(session_id, GetStatus(), STATUS_ANSWER_S)
        except CommandTimeout:
            return _silent(await self.find_live(session_id))
        return found

    async def list_sessions(self) -> list[Status]:
        """Return how all live sessions stand; see ``list_sessions``."""
        connection = await self._connector.connected()
        found: tuple[SessionInfo, ...] = await connection.ask(ListSessions())
        parallel = asyncio.Semaphore(LIST_PARALLEL_MAX)

        async def look(one: SessionInfo) -> Status | None:
            if one.phase != "up":
                return _silent(one)
            async with parallel:
                try:
                    status: Status = await self._send(one.session_id, GetStatus(), LIST_ANSWER_S)
                except CommandTimeout:
                    return _silent(one)
                except (SessionNotAlive, InvalidSession):
                    return None  # it ended meanwhile
            return status

        return [status for status in await asyncio.gather(*map(look, found)) if status is not None]

    async def tree(self) -> TreeNode:
        """Return the supervision tree; see ``tree``."""
        connection = await self._connector.connected()
        found: TreeNode = await connection.ask(GetTree())
        return found

    async def find_live(self, session_id: SessionId) -> SessionInfo:
        """Return what the daemon knows about a session that has not ended.

        Raises:
            SessionNotAlive: it has.

        """
        connection = await self._connector.connected()
        found: SessionInfo = await connection.ask(FindSession(session_id=session_id))
        if found.phase == "ended":
            raise SessionNotAlive(found.reason or Other(detail="its reason is not known"))
        return found

    async def export(
        self, session_id: SessionId, write: Callable[[bytes], None], *, move: bool
    ) -> Header:
        """Give the frames of a session's file to ``write``; ``move`` ends the session first."""
        connection = await self._connector.connected()
        return await export_session(connection, session_id, write, move=move)

    async def bring(self, frames: Iterable[bytes], as_id: SessionId | None) -> SessionInfo:
        """Start a session from the frames of its file."""
        return await import_session(await self._connector.connected(), frames, as_id)

    async def past(self, session_id: SessionId) -> PastPage:
        """Return what the journal keeps of a session, live or ended, but its events."""
        return await read_past(await self._connector.connected(), session_id)

    async def fork(self, session_id: SessionId, new_id: str, state: bytes) -> SessionId:
        """Start a session from a state of another one, which is no checkpoint of it for long."""
        connection = await self._connector.connected()
        facts = new_facts(session_id, new_id)
        await connection.ask(KeepCheckpoint(facts=facts, body=state))
        try:
            origin = Origin(session_id=session_id, checkpoint_id=facts.checkpoint_id)
            return await self.resume(origin, new_id, {})
        finally:
            await self.delete_checkpoint(session_id, facts.checkpoint_id)

    async def follow(self, session_id: SessionId, feed_of: FeedMaker, since: int | None) -> Feed:
        """Fill a stream with one session's events; see ``subscribe``."""
        _check_since(since)
        connection = await self._connector.connected()
        feed = feed_of(connection)
        await connection.topics.follow(session_id, feed, since)
        return feed

    async def follow_all(self, feed_of: FeedMaker) -> Feed:
        """Fill a stream with all sessions' events; see ``subscribe_all``."""
        connection = await self._connector.connected()
        feed = feed_of(connection)
        await connection.topics.follow_all(feed)
        return feed

    async def follow_group(self, group_id: str, feed_of: FeedMaker, since: int | None) -> Feed:
        """Fill a stream with a group's events; see ``subscribe_group``."""
        _check_since(since)
        connection = await self._connector.connected()
        feed = feed_of(connection)
        await connection.topics.follow_group(group_id, feed, since)
        return feed

    async def unfollow(self, session_id: SessionId) -> None:
        """Close this client's streams of one session; see ``unsubscribe``."""
        connection = await self._connector.connected()
        for feed in connection.topics.feeds_of(session_id):
            feed.finish(UsageError("the stream was unsubscribed"))

    async def watch(self, watch: Watch) -> None:
        """Begin to fill a monitor; see ``monitor``."""
        connection = await self._connector.connected()
        self._watches[watch.ref] = watch
        line = connection.holding.before(watch)
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

    async def _send(
        self, session_id: SessionId, command: Command, timeout_s: float | None = COMMAND_TIMEOUT_S
    ) -> Any:  # Any: what the command's ``answer`` says
        connection = await self._connector.connected()
        return await connection.send(session_id, command, timeout_s=timeout_s)

    def _remember(self, session_id: SessionId, prompt_id: CommandId) -> None:
        """Take note of the cycle that ``collect_reply`` is to wait for."""
        self._prompts[session_id] = prompt_id
        self._prompts.move_to_end(session_id)
        if len(self._prompts) > PROMPTS_REMEMBERED_MAX:
            self._prompts.popitem(last=False)

    async def _cycle(
        self, session_id: SessionId, prompt_id: CommandId | None, timeout_s: float | None
    ) -> CycleResult:
        try:
            result: CycleResult = await self._send(
                session_id, AwaitCycle(prompt_id=prompt_id), timeout_s
            )
        except CommandTimeout as error:
            raise CollectTimeout(
                f"the cycle of session {session_id} did not end within {timeout_s:g} s; it goes on"
            ) from error
        if result.outcome == "finished":
            return result
        raise _ending(result)


def _check_since(since: object) -> None:
    if since is not None and (type(since) is not int or since < 0):
        raise UsageError(
            f"since: expected the index of the last event seen, or 0 for all, got {since!r}"
        )


def _ending(result: CycleResult) -> CmdcError:
    if result.outcome == "failed":
        return AgentFailed(result.reason or "no reason given")
    if result.outcome == "dropped":
        return AgentAborted("dropped")
    return AgentAborted(result.reason)


def _silent(found: SessionInfo) -> Status:
    """Return the status of a session that does not answer, or is not asked."""
    return Status(
        state="unresponsive" if found.phase == "up" else found.phase,
        session_id=found.session_id,
        timestamp_ms=now_ms(),
        incarnation=found.incarnation,
        restarts=found.restarts,
        pid=found.pid,
        parent_id=found.parent_id,
        group_id=found.group_id,
        last_index=found.last_index,
    )
