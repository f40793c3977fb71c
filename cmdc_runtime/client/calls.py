"""What a client can ask, as coroutines over session ids; both kinds of client stand on this.

To add a call: its coroutine here, a method of ``AsyncClient`` and ``Client``, and one of both kinds
of session.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakValueDictionary

import msgspec

from cmdc_runtime import codec
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
from cmdc_runtime.clock import now_ms
from cmdc_runtime.commands import (
    PROMPT_CHARS_MAX,
    Abort,
    AwaitCycle,
    Command,
    CycleResult,
    GetMessages,
    GetStatus,
    Prompt,
    PromptReceipt,
    Status,
)
from cmdc_runtime.errors import (
    AgentAborted,
    AgentFailed,
    CmdcError,
    CollectTimeout,
    CommandTimeout,
    InvalidOptions,
    InvalidSession,
    InvalidText,
    SessionNotAlive,
    UsageError,
)
from cmdc_runtime.ids import CommandId, MonitorRef, SessionId, is_session_id, new_session_id
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.options import Options, parse
from cmdc_runtime.reasons import Other
from cmdc_runtime.requests import (
    FindSession,
    GetTree,
    ListSessions,
    SessionInfo,
    StartSession,
    StopSession,
    TreeNode,
)
from cmdc_runtime.spec import AgentSpec, agent_spec, supervision


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What one prompt led to; ``text`` is the last answer's, ``messages`` what the cycle added."""

    text: str
    messages: tuple[Message, ...]
    usage: TokenUsage


class HasId(Protocol):
    """A session object of either kind."""

    @property
    def id(self) -> SessionId:
        """The session's id."""


SessionLike = str | HasId
FeedMaker = Callable[[Connection], Feed]
"""Makes the feed of one stream, once the connection is there."""


def id_of(session: SessionLike) -> SessionId:
    """Return the id of a session object, or the str as it is.

    Raises:
        InvalidSession: it is neither.

    """
    found = session if isinstance(session, str) else getattr(session, "id", None)
    if not isinstance(found, str):
        raise InvalidSession(f"expected a session or a session id, got {session!r}")
    return SessionId(found)


def checked_id(session: SessionLike) -> SessionId:
    """Return the id of a session object or a str.

    Raises:
        InvalidSession: it is neither, or no id can look like this.

    """
    found = id_of(session)
    if not is_session_id(found):
        raise InvalidSession(f"not a session id: {found!r}")
    return found


def start_request(options: Options | None, given: dict[str, Any]) -> StartSession:
    """Return the request that starts the agent that the options describe.

    Raises:
        InvalidOptions: ``problems`` has one line for each wrong field.
        InvalidTool: a tool cannot travel.

    """
    if options is not None and not isinstance(options, Options):
        raise InvalidOptions([f"options: expected Options, got {type(options).__name__}"])
    checked = parse(options, given)
    spec = agent_spec(checked)
    return StartSession(
        session_id=SessionId(checked.session_id) if checked.session_id else new_session_id(),
        supervision=supervision(checked),
        agent=_raw(spec),
        carries_code=any(tool.kind == "value" for tool in spec.tools),
        group_id=checked.group_id,
    )


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
        await connection.ask(request, timeout_s=timeout_s + COMMAND_TIMEOUT_S)

    async def prompt(
        self, session_id: SessionId, text: str, timeout_s: float = COMMAND_TIMEOUT_S
    ) -> PromptReceipt:
        """Send a prompt; see ``prompt``."""
        _check_text(text)
        receipt: PromptReceipt = await self._send(session_id, Prompt(text=text), timeout_s)
        self._prompts[session_id] = receipt.command_id
        self._prompts.move_to_end(session_id)
        if len(self._prompts) > PROMPTS_REMEMBERED_MAX:
            self._prompts.popitem(last=False)
        return receipt

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

    async def abort(self, session_id: SessionId, command: Abort) -> None:
        """End the running cycle; see ``abort``."""
        await self._send(session_id, command)

    async def messages(self, session_id: SessionId) -> list[Message]:
        """Return the conversation; see ``messages``."""
        return list(await self._send(session_id, GetMessages()))

    async def status(self, session_id: SessionId) -> Status:
        """Return how a session stands; see ``status``."""
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

    async def follow(self, session_id: SessionId, feed_of: FeedMaker, since: int | None) -> Feed:
        """Fill a stream with one session's events; see ``subscribe``."""
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

    async def unfollow(self, session_id: SessionId) -> None:
        """Close this client's streams of one session; see ``unsubscribe``."""
        connection = await self._connector.connected()
        for feed in connection.topics.feeds_of(session_id):
            feed.finish(UsageError("the stream was unsubscribed"))

    async def watch(self, watch: Watch) -> None:
        """Begin to fill a monitor; see ``monitor``."""
        connection = await self._connector.connected()
        self._watches[watch.ref] = watch
        await connection.monitors.add(
            watch.session_id, watch, ref=watch.ref, persistent=watch.persistent
        )

    async def unwatch(self, ref: MonitorRef) -> Watch | None:
        """Forget a monitor and return it, if anybody still holds it; see ``demonitor``."""
        connection = await self._connector.connected()
        watch = self._watches.pop(ref, None)
        if watch is not None:
            watch.mark_removed()
        await connection.monitors.remove(ref)
        return watch

    async def _send(
        self, session_id: SessionId, command: Command, timeout_s: float | None = COMMAND_TIMEOUT_S
    ) -> Any:  # Any: what the command's ``answer`` says
        connection = await self._connector.connected()
        return await connection.send(session_id, command, timeout_s=timeout_s)

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


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise InvalidText(f"a prompt is a str, got {type(text).__name__}")
    if not text.strip():
        raise InvalidText("a prompt is more than blanks")
    if len(text) > PROMPT_CHARS_MAX:
        raise InvalidText(
            f"a prompt has at most {PROMPT_CHARS_MAX} characters, got {len(text)}: put it into a "
            "file and let a tool read it"
        )


def _ending(result: CycleResult) -> CmdcError:
    if result.outcome == "failed":
        return AgentFailed(result.reason or "no reason given")
    if result.outcome == "dropped":
        return AgentAborted("dropped")
    return AgentAborted(result.reason)


def _silent(found: SessionInfo) -> Status:
    """Return the status of a session that does not answer."""
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


def _raw(spec: AgentSpec) -> msgspec.Raw:
    problems = []
    for name in ("provider_opts", "user_data", "messages"):
        try:
            codec.encode(getattr(spec, name))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            problems.append(f"{name}: cannot travel to the agent: {error}")
    if problems:
        raise InvalidOptions(problems)
    return codec.raw(spec)
