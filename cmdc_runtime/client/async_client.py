"""The client for coroutines: every call of the API, in the caller's event loop.

The calls that guide a running session are in ``guidance``.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from cmdc_runtime import foreign
from cmdc_runtime.client import orders
from cmdc_runtime.client.address import Address, checked_address
from cmdc_runtime.client.calls import Calls, Reply
from cmdc_runtime.client.cycle import Pieces, View, Whole
from cmdc_runtime.client.cycle_stream import AsyncCycleStream, Opening
from cmdc_runtime.client.edge import edge
from cmdc_runtime.client.feed import Feed
from cmdc_runtime.client.inbox import AsyncInbox
from cmdc_runtime.client.keeping import AsyncKeeping
from cmdc_runtime.client.limits import REPLY_TIMEOUT_S, STOP_TIMEOUT_S
from cmdc_runtime.client.link import Connector, Link
from cmdc_runtime.client.monitors import AsyncMonitor, Watch
from cmdc_runtime.client.offload import offload
from cmdc_runtime.client.selection import EventTypes, Selection
from cmdc_runtime.client.session import AsyncSession
from cmdc_runtime.client.start import start_request
from cmdc_runtime.client.stream import AsyncEventStream
from cmdc_runtime.client.subjects import (
    SessionLike,
    checked_callback,
    checked_group,
    checked_id,
    checked_kind,
    checked_ref,
)
from cmdc_runtime.commands import PromptReceipt, Status
from cmdc_runtime.events import Envelope, Event
from cmdc_runtime.ids import EventIndex, SessionId
from cmdc_runtime.messages import Message, OpeningCall
from cmdc_runtime.options import Options
from cmdc_runtime.reasons import Down
from cmdc_runtime.requests import TreeNode

T = TypeVar("T")

_log = logging.getLogger(__name__)

AsyncCallback = Callable[[Down], Awaitable[None] | None]


@edge
class AsyncClient(AsyncKeeping):
    """Speaks with one daemon; use it in one event loop, and ``close`` it or use ``async with``.

    A call takes a session object or a session id. Every call may raise DaemonUnavailable,
    CommandTimeout, and InvalidSession or SessionNotAlive where it is about a session.
    """

    def __init__(
        self, address: Address | None = None, *, connector: Connector | None = None
    ) -> None:
        """Connect at the first call, to the daemon at ``address``, a runtime directory.

        Without one: ``CMDC_ADDRESS``, a running daemon in a default place, or a private one.
        """
        checked_address(address)
        if connector is not None:
            checked_kind(connector, Connector, "connector")
        self._connector = Link(address) if connector is None else connector
        self._calls = Calls(self._connector)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Connect."""
        try:
            await self._calls.connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Close the connection with its streams and monitors.

        A private daemon ends with its last client; the sessions of another one go on.
        """
        lease = await self._connector.disconnect()
        if lease is not None:
            await offload(lease.release)

    async def create_agent(self, options: Options | None = None, /, **given: Any) -> AsyncSession:
        """Start an agent and return its session when it is ready (Any: see ``Options``).

        Raises:
            InvalidOptions: ``problems`` has one line for each wrong field.
            InvalidTool: a tool cannot travel.
            SessionExists: the session id is taken.
            StartFailed: ``reason`` says at which stage and why.

        """
        return AsyncSession(await self._calls.start(start_request(options, given)), self)

    async def resume_session(
        self,
        session_id: SessionLike,
        /,
        *,
        checkpoint_id: str | None = None,
        new_id: str | None = None,
        **overrides: Any,
    ) -> AsyncSession:
        """Start a session from a checkpoint, or from all that a session recorded (see ``Options``).

        An ended session goes on under its id; with ``new_id`` the state becomes a new session, also
        of one that lives. ``overrides`` are options that are to change (Any: as there).

        Raises:
            SessionExists: it is alive and ``new_id`` is not given, or that is taken.
            CheckpointNotFound: there is no such checkpoint.
            InvalidOptions: ``problems`` has one line for each wrong field.
            StartFailed: ``reason`` says at which stage and why.

        """
        found = await self._resume(session_id, checkpoint_id, new_id, overrides)
        return AsyncSession(found, self)

    async def prompt(self, session: SessionLike, text: str) -> PromptReceipt:
        """Send a prompt and return when it is in the journal.

        Raises:
            InvalidText: ``text`` is not a non-empty str.
            QueueFull: too many prompts wait.

        """
        return await self._calls.prompt(checked_id(session), text)

    async def collect_reply(
        self,
        session: SessionLike,
        *,
        timeout: float | None = REPLY_TIMEOUT_S,  # noqa: ASYNC109 - the contract's name
    ) -> str:
        """Return the last answer of the cycle that serves this client's latest prompt.

        Raises:
            CollectTimeout: the cycle takes longer than ``timeout`` seconds; it goes on.
            AgentAborted: it was aborted, or the prompt was dropped from the queue.
            AgentFailed: the provider or the kernel failed for good.

        """
        return await self._calls.collect_reply(checked_id(session), timeout)

    async def run(
        self,
        session: SessionLike,
        text: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the contract's name
    ) -> Reply:
        """Send a prompt and return what its own cycle led to; raises as both calls above."""
        return await self._calls.run(checked_id(session), text, timeout)

    def stream(
        self,
        session: SessionLike,
        text: str,
        *,
        timeout: float | None = None,
    ) -> AsyncCycleStream[str]:
        """Send a prompt and return the pieces of its answers, as they come, to be iterated.

        The iteration ends with the prompt's own cycle, which may begin later, and raises what ended
        that as ``collect_reply`` does; ``timeout`` seconds are for all of it. A request that is
        sent again says only what was not said yet; an answer that differs is said from its
        beginning. ``stream_events`` tells more.

        Raises:
            InvalidText: ``text`` is not a non-empty str.
            QueueFull: too many prompts wait.

        """
        return self._read(session, text, Pieces(), timeout)

    def stream_events(
        self,
        session: SessionLike,
        text: str,
        *,
        timeout: float | None = None,
    ) -> AsyncCycleStream[Event]:
        """Send a prompt and return the events of its own cycle, from ``agent_start`` on.

        The last one tells how it ended: ``agent_end``, ``agent_abort``, ``agent_error``, or
        ``prompt_dropped`` where it never began. What no event tells is raised: the session's end.

        Raises:
            InvalidText: ``text`` is not a non-empty str.
            QueueFull: too many prompts wait.

        """
        return self._read(session, text, Whole(), timeout)

    def _read(
        self,
        session: SessionLike,
        text: str,
        view: View[T],
        timeout_s: float | None,
        call: OpeningCall | None = None,
    ) -> AsyncCycleStream[T]:
        session_id = checked_id(session)
        orders.prompt(text)  # what cannot be sent is refused now, not when it is read

        async def opening(left_s: float | None) -> Opening:
            inbox: AsyncInbox[Envelope] = AsyncInbox()
            maker = partial(Feed, inbox=inbox, selection=Selection(view.kinds))
            opened = await self._calls.open_cycle(session_id, text, maker, left_s, call)
            look = partial(self._calls.look_for_end, opened)
            return AsyncEventStream(opened.feed, inbox), opened, look

        return AsyncCycleStream(opening, view, timeout_s)

    async def stop(
        self,
        session: SessionLike,
        *,
        reason: str = "normal",
        timeout: float = STOP_TIMEOUT_S,  # noqa: ASYNC109 - the contract's name
    ) -> None:
        """End the session and return when its process is gone; SIGKILL after ``timeout`` s."""
        await self._calls.stop(checked_id(session), reason, timeout)

    async def subscribe(
        self,
        session: SessionLike,
        *,
        since: int | None = None,
        types: EventTypes | None = None,
    ) -> AsyncEventStream:
        """Return the session's events after index ``since``, or from now on.

        ``types`` are event classes or names, ``plugin:NAME`` for what a plugin or a tool emits;
        others are not shown, EventsLost always is.
        """
        inbox: AsyncInbox[Envelope] = AsyncInbox()
        maker = partial(Feed, inbox=inbox, selection=Selection(types))
        return AsyncEventStream(await self._calls.follow(checked_id(session), maker, since), inbox)

    async def subscribe_all(self, *, types: EventTypes | None = None) -> AsyncEventStream:
        """Return the events of all sessions from now on, new sessions included."""
        inbox: AsyncInbox[Envelope] = AsyncInbox()
        maker = partial(Feed, inbox=inbox, selection=Selection(types), follows_strangers=True)
        return AsyncEventStream(await self._calls.follow_all(maker), inbox)

    async def subscribe_group(
        self, group_id: str, *, since: int | None = None, types: EventTypes | None = None
    ) -> AsyncEventStream:
        """Return the events of a group's sessions, those that join later included.

        Each is heard after its own index ``since`` (0: its whole past), or from now on.
        """
        inbox: AsyncInbox[Envelope] = AsyncInbox()
        maker = partial(Feed, inbox=inbox, selection=Selection(types))
        feed = await self._calls.follow_group(checked_group(group_id), maker, since)
        return AsyncEventStream(feed, inbox)

    async def unsubscribe(self, stream: AsyncEventStream | SessionLike) -> None:
        """Close a stream, or all streams that this client has of a session."""
        if isinstance(stream, AsyncEventStream):
            await stream.close()
        else:
            await self._calls.unfollow(checked_id(stream))

    async def last_index(self, session: SessionLike) -> EventIndex:
        """Return the index of the session's newest event, for a later ``since``."""
        return (await self._calls.find_live(checked_id(session))).last_index

    async def session_id(self, session: SessionLike) -> SessionId:
        """Return the session's id; a str that can be one comes back as it is."""
        return checked_id(session)

    async def agent_pid(self, session: SessionLike) -> int | None:
        """Return the process id of the agent, None between two incarnations."""
        return (await self._calls.find_live(checked_id(session))).pid

    async def status(self, session: SessionLike) -> Status:
        """Return how the session stands, also while its process does not answer."""
        return await self._calls.status(checked_id(session))

    async def list_sessions(self) -> list[Status]:
        """Return how all live sessions stand."""
        return await self._calls.list_sessions()

    async def tree(self) -> TreeNode:
        """Return the supervision tree."""
        return await self._calls.tree()

    async def messages(self, session: SessionLike) -> list[Message]:
        """Return the conversation, oldest first, system message and tool results included."""
        return await self._calls.messages(checked_id(session))

    async def monitor(
        self,
        session: SessionLike,
        callback: AsyncCallback | None = None,
        *,
        persistent: bool = False,
    ) -> AsyncMonitor:
        """Ask to be told when the session's process ends; ``persistent``: each of its processes.

        ``callback(down)``, plain or a coroutine function, runs as a task of this loop.
        """
        checked_callback(callback)
        deliver = partial(self._call_back, callback) if callback is not None else None
        watch = AsyncMonitor(checked_id(session), deliver, persistent=persistent)
        await self._calls.watch(watch)
        return watch

    async def demonitor(self, session: SessionLike, ref: AsyncMonitor | str) -> None:
        """Forget a monitor; after this returned no notice of it is delivered."""
        checked_id(session)
        if isinstance(ref, AsyncMonitor):
            ref.mark_removed()
            ref = ref.ref
        await self._calls.unwatch(checked_ref(ref))

    def _call_back(self, callback: AsyncCallback, watch: Watch, down: Down) -> None:
        task = asyncio.get_running_loop().create_task(_called_back(callback, watch, down))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _called_back(callback: AsyncCallback, watch: Watch, down: Down) -> None:
    if watch.is_removed:
        return
    try:
        await foreign.wait(lambda: callback(down))
    except foreign.ForeignError as failed:  # it is the application's, and the log has it
        _log.error("callback.raised", extra={"ref": watch.ref}, exc_info=failed.error)
