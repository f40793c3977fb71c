"""What ``create_agent`` returns: one session, with every call as a method."""

import contextlib
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cmdc_runtime.client.calls import Reply
from cmdc_runtime.client.cycle_stream import AsyncCycleStream, CycleStream
from cmdc_runtime.client.edge import guarded
from cmdc_runtime.client.keeping import AsyncKeeping, AsyncKept, Keeping, Kept
from cmdc_runtime.client.limits import REPLY_TIMEOUT_S, STOP_TIMEOUT_S
from cmdc_runtime.client.monitors import AsyncMonitor, Monitor
from cmdc_runtime.client.selection import EventTypes
from cmdc_runtime.client.stream import AsyncEventStream, EventStream
from cmdc_runtime.client.subjects import checked_id, checked_kind
from cmdc_runtime.commands import (
    ApprovalKind,
    KillTools,
    PromptReceipt,
    Status,
    SteerScope,
    ToolsDiff,
)
from cmdc_runtime.errors import SessionNotAlive
from cmdc_runtime.events import Event
from cmdc_runtime.ids import EventIndex, SessionId
from cmdc_runtime.messages import Message
from cmdc_runtime.options import ModelSource

if TYPE_CHECKING:
    from cmdc_runtime.client.async_client import AsyncCallback, AsyncClient
    from cmdc_runtime.client.callbacks import Callback
    from cmdc_runtime.client.client import Client


class Session(Kept):
    """One session, for threads; as a context manager it stops the session at exit.

    Each method is the call of ``Client`` of the same name, where errors are told.
    """

    @guarded
    def __init__(self, id_: SessionId, client: "Client") -> None:
        """Name a session; whether it exists shows at the first call.

        Raises:
            InvalidSession: no id can look like this.
            UsageError: ``client`` is none.

        """
        self.id = checked_id(id_)
        self.client = checked_kind(client, Keeping, "client")

    def __repr__(self) -> str:
        """Return the session with its id."""
        return f"Session({self.id!r})"

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the session, unless it has ended."""
        with contextlib.suppress(SessionNotAlive):
            self.stop()

    def prompt(self, text: str) -> PromptReceipt:
        """Send a prompt and return when it is in the journal."""
        return self.client.prompt(self, text)

    def collect_reply(self, *, timeout: float | None = REPLY_TIMEOUT_S) -> str:
        """Return the last answer of the cycle that serves this client's latest prompt."""
        return self.client.collect_reply(self, timeout=timeout)

    def run(self, text: str, *, timeout: float | None = None) -> Reply:
        """Send a prompt and return what its own cycle led to."""
        return self.client.run(self, text, timeout=timeout)

    def stream(self, text: str, *, timeout: float | None = None) -> CycleStream[str]:
        """Send a prompt and return the pieces of its answers, as they come, to be iterated."""
        return self.client.stream(self, text, timeout=timeout)

    def stream_events(self, text: str, *, timeout: float | None = None) -> CycleStream[Event]:
        """Send a prompt and return the events of its own cycle to be iterated."""
        return self.client.stream_events(self, text, timeout=timeout)

    def steer(self, text: str, *, scope: SteerScope = "session") -> str:
        """Guide the running cycle and return the reference that the events of it name."""
        return self.client.steer(self, text, scope=scope)

    def abort(
        self,
        *,
        reason: Any = None,  # Any: plain data
        clear_queue: bool = True,
        kill_tools: KillTools = "killable",
        children: bool = True,
    ) -> None:
        """End the running cycle; the session stays. ``clear_queue`` drops the waiting prompts."""
        self.client.abort(
            self,
            reason=reason,
            clear_queue=clear_queue,
            kill_tools=kill_tools,
            children=children,
        )

    def stop(self, *, reason: str = "normal", timeout: float = STOP_TIMEOUT_S) -> None:
        """End the session and return when its process is gone; SIGKILL after ``timeout`` s."""
        self.client.stop(self, reason=reason, timeout=timeout)

    def subscribe(
        self, *, since: int | None = None, types: EventTypes | None = None
    ) -> EventStream:
        """Return the session's events after index ``since``, or from now on."""
        return self.client.subscribe(self, since=since, types=types)

    def unsubscribe(self) -> None:
        """Close all streams that this client has of the session."""
        self.client.unsubscribe(self)

    def last_index(self) -> EventIndex:
        """Return the index of the session's newest event, for a later ``since``."""
        return self.client.last_index(self)

    def session_id(self) -> SessionId:
        """Return the session's id."""
        return self.client.session_id(self)

    def agent_pid(self) -> int | None:
        """Return the process id of the agent, None between two incarnations."""
        return self.client.agent_pid(self)

    def status(self) -> Status:
        """Return how the session stands, also while its process does not answer."""
        return self.client.status(self)

    def messages(self) -> list[Message]:
        """Return the conversation, oldest first, system message and tool results included."""
        return self.client.messages(self)

    def approve(
        self, approval_id: str, *, auto_resume: bool = True, kind: ApprovalKind = "approve_once"
    ) -> None:
        """Allow a call that waits for approval; "approve_always" allows its tool from now on."""
        self.client.approve(self, approval_id, auto_resume=auto_resume, kind=kind)

    def reject(self, approval_id: str, *, auto_resume: bool = False) -> None:
        """Refuse a call that waits for approval; ``auto_resume`` opens a cycle that tells so."""
        self.client.reject(self, approval_id, auto_resume=auto_resume)

    def user_respond(self, ref: str, response: object) -> None:
        """Answer a tool's question, with whatever MessagePack takes."""
        self.client.user_respond(self, ref, response)

    def attach_tool(self, tool: object) -> None:
        """Add a tool; the model has it from the next request on."""
        self.client.attach_tool(self, tool)

    def attach_tools(self, tools: Iterable[object]) -> list[str]:
        """Add tools, all or none, and return their names."""
        return self.client.attach_tools(self, tools)

    def detach_tool(self, name: str) -> None:
        """Remove a tool; its calls that run go on."""
        self.client.detach_tool(self, name)

    def detach_tools(self, names: Iterable[str]) -> list[str]:
        """Remove tools, all or none, and return their names."""
        return self.client.detach_tools(self, names)

    def replace_tools(self, tools: Iterable[object]) -> ToolsDiff:
        """Make these the session's tools; one whose name is kept stays as it is."""
        return self.client.replace_tools(self, tools)

    def attach_plugin(self, plugin: object) -> str:
        """Add a plugin; it is asked from the next hook on, at ``session_start`` first."""
        return self.client.attach_plugin(self, plugin)

    def update_plugin(self, plugin: object) -> str:
        """Put a plugin in the place of the one of its name, whose state it keeps."""
        return self.client.update_plugin(self, plugin)

    def detach_plugin(self, name: str) -> None:
        """Remove a plugin, with what it knew; a hook that it is being asked at goes on."""
        self.client.detach_plugin(self, name)

    def switch_model(
        self,
        model: str | ModelSource,
        *,
        provider_opts: dict[str, Any] | None = None,  # Any: litellm's own arguments
    ) -> None:
        """Send the next request to ``model``; ``provider_opts`` None keeps those in force."""
        self.client.switch_model(self, model, provider_opts=provider_opts)

    def monitor(self, callback: "Callback | None" = None, *, persistent: bool = False) -> Monitor:
        """Ask to be told when the session's process ends; ``persistent``: each of its processes."""
        return self.client.monitor(self, callback, persistent=persistent)

    def demonitor(self, ref: Monitor | str) -> None:
        """Forget a monitor; after this returned no notice of it is delivered."""
        self.client.demonitor(self, ref)


class AsyncSession(AsyncKept):
    """One session, for coroutines; as a context manager it stops the session at exit.

    Each method is the call of ``AsyncClient`` of the same name, where errors are told.
    """

    @guarded
    def __init__(self, id_: SessionId, client: "AsyncClient") -> None:
        """Name a session; whether it exists shows at the first call.

        Raises:
            InvalidSession: no id can look like this.
            UsageError: ``client`` is none.

        """
        self.id = checked_id(id_)
        self.client = checked_kind(client, AsyncKeeping, "client")

    def __repr__(self) -> str:
        """Return the session with its id."""
        return f"AsyncSession({self.id!r})"

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the session, unless it has ended."""
        with contextlib.suppress(SessionNotAlive):
            await self.stop()

    async def prompt(self, text: str) -> PromptReceipt:
        """Send a prompt and return when it is in the journal."""
        return await self.client.prompt(self, text)

    async def collect_reply(
        self,
        *,
        timeout: float | None = REPLY_TIMEOUT_S,  # noqa: ASYNC109 - the contract's name
    ) -> str:
        """Return the last answer of the cycle that serves this client's latest prompt."""
        return await self.client.collect_reply(self, timeout=timeout)

    async def run(
        self,
        text: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the contract's name
    ) -> Reply:
        """Send a prompt and return what its own cycle led to."""
        return await self.client.run(self, text, timeout=timeout)

    def stream(self, text: str, *, timeout: float | None = None) -> AsyncCycleStream[str]:
        """Send a prompt and return the pieces of its answers, as they come, to be iterated."""
        return self.client.stream(self, text, timeout=timeout)

    def stream_events(self, text: str, *, timeout: float | None = None) -> AsyncCycleStream[Event]:
        """Send a prompt and return the events of its own cycle to be iterated."""
        return self.client.stream_events(self, text, timeout=timeout)

    async def steer(self, text: str, *, scope: SteerScope = "session") -> str:
        """Guide the running cycle and return the reference that the events of it name."""
        return await self.client.steer(self, text, scope=scope)

    async def abort(
        self,
        *,
        reason: Any = None,  # Any: plain data
        clear_queue: bool = True,
        kill_tools: KillTools = "killable",
        children: bool = True,
    ) -> None:
        """End the running cycle; the session stays. ``clear_queue`` drops the waiting prompts."""
        await self.client.abort(
            self,
            reason=reason,
            clear_queue=clear_queue,
            kill_tools=kill_tools,
            children=children,
        )

    async def stop(
        self,
        *,
        reason: str = "normal",
        timeout: float = STOP_TIMEOUT_S,  # noqa: ASYNC109 - the contract's name
    ) -> None:
        """End the session and return when its process is gone; SIGKILL after ``timeout`` s."""
        await self.client.stop(self, reason=reason, timeout=timeout)

    async def subscribe(
        self, *, since: int | None = None, types: EventTypes | None = None
    ) -> AsyncEventStream:
        """Return the session's events after index ``since``, or from now on."""
        return await self.client.subscribe(self, since=since, types=types)

    async def unsubscribe(self) -> None:
        """Close all streams that this client has of the session."""
        await self.client.unsubscribe(self)

    async def last_index(self) -> EventIndex:
        """Return the index of the session's newest event, for a later ``since``."""
        return await self.client.last_index(self)

    async def session_id(self) -> SessionId:
        """Return the session's id."""
        return await self.client.session_id(self)

    async def agent_pid(self) -> int | None:
        """Return the process id of the agent, None between two incarnations."""
        return await self.client.agent_pid(self)

    async def status(self) -> Status:
        """Return how the session stands, also while its process does not answer."""
        return await self.client.status(self)

    async def messages(self) -> list[Message]:
        """Return the conversation, oldest first, system message and tool results included."""
        return await self.client.messages(self)

    async def approve(
        self, approval_id: str, *, auto_resume: bool = True, kind: ApprovalKind = "approve_once"
    ) -> None:
        """Allow a call that waits for approval; "approve_always" allows its tool from now on."""
        await self.client.approve(self, approval_id, auto_resume=auto_resume, kind=kind)

    async def reject(self, approval_id: str, *, auto_resume: bool = False) -> None:
        """Refuse a call that waits for approval; ``auto_resume`` opens a cycle that tells so."""
        await self.client.reject(self, approval_id, auto_resume=auto_resume)

    async def user_respond(self, ref: str, response: object) -> None:
        """Answer a tool's question, with whatever MessagePack takes."""
        await self.client.user_respond(self, ref, response)

    async def attach_tool(self, tool: object) -> None:
        """Add a tool; the model has it from the next request on."""
        await self.client.attach_tool(self, tool)

    async def attach_tools(self, tools: Iterable[object]) -> list[str]:
        """Add tools, all or none, and return their names."""
        return await self.client.attach_tools(self, tools)

    async def detach_tool(self, name: str) -> None:
        """Remove a tool; its calls that run go on."""
        await self.client.detach_tool(self, name)

    async def detach_tools(self, names: Iterable[str]) -> list[str]:
        """Remove tools, all or none, and return their names."""
        return await self.client.detach_tools(self, names)

    async def replace_tools(self, tools: Iterable[object]) -> ToolsDiff:
        """Make these the session's tools; one whose name is kept stays as it is."""
        return await self.client.replace_tools(self, tools)

    async def attach_plugin(self, plugin: object) -> str:
        """Add a plugin; it is asked from the next hook on, at ``session_start`` first."""
        return await self.client.attach_plugin(self, plugin)

    async def update_plugin(self, plugin: object) -> str:
        """Put a plugin in the place of the one of its name, whose state it keeps."""
        return await self.client.update_plugin(self, plugin)

    async def detach_plugin(self, name: str) -> None:
        """Remove a plugin, with what it knew; a hook that it is being asked at goes on."""
        await self.client.detach_plugin(self, name)

    async def switch_model(
        self,
        model: str | ModelSource,
        *,
        provider_opts: dict[str, Any] | None = None,  # Any: litellm's own arguments
    ) -> None:
        """Send the next request to ``model``; ``provider_opts`` None keeps those in force."""
        await self.client.switch_model(self, model, provider_opts=provider_opts)

    async def monitor(
        self, callback: "AsyncCallback | None" = None, *, persistent: bool = False
    ) -> AsyncMonitor:
        """Ask to be told when the session's process ends; ``persistent``: each of its processes."""
        return await self.client.monitor(self, callback, persistent=persistent)

    async def demonitor(self, ref: AsyncMonitor | str) -> None:
        """Forget a monitor; after this returned no notice of it is delivered."""
        await self.client.demonitor(self, ref)
