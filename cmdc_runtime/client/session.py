"""A client and its sessions: how one begins, and what it is asked.

``AsyncClient`` has each call once: its arguments, what they have to be, and what is sent; those
that stream what happens meanwhile are in ``follower``, and those that steer or watch a session or
are about its tools and checkpoints in ``control``. A call of a session object is the client's with
the id bound: ``make sync`` writes it, and the sync face in ``client/sync``.
"""

import contextlib
import os
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Generic, Self, Unpack, overload

from cmdc_runtime.answer_schema import repair_request
from cmdc_runtime.checkpoints import Snapshot
from cmdc_runtime.client.arguments import (
    SessionLike,
    checked_checkpoint,
    checked_content,
    checked_id,
    checked_kind,
    checked_timeout,
)
from cmdc_runtime.client.cycle import Clock
from cmdc_runtime.client.edge import edge, guarded
from cmdc_runtime.client.engine import AsyncCallback
from cmdc_runtime.client.exchange import Exchange
from cmdc_runtime.client.follower import AsyncFollower
from cmdc_runtime.client.given_options import ChangedOptions, GivenOptions
from cmdc_runtime.client.limits import REPLY_TIMEOUT_S, STOP_TIMEOUT_S
from cmdc_runtime.client.option_types import AnyPlugin, AnyTool
from cmdc_runtime.client.resuming import start_request
from cmdc_runtime.client.selection import EventTypes
from cmdc_runtime.client.stream import AsyncCycleStream, AsyncEventStream, AsyncMonitor
from cmdc_runtime.client.typed_answer import (
    WISHES_MAX,
    Given,
    Output,
    Reply,
    ResultForm,
    TypeForm,
    added,
    default_form,
    form_of,
    with_form,
)
from cmdc_runtime.commands import (
    ApprovalKind,
    KillTools,
    Prompt,
    PromptReceipt,
    Status,
    SteerScope,
    ToolsDiff,
)
from cmdc_runtime.content import Content
from cmdc_runtime.errors import ResultInvalid, SessionNotAlive
from cmdc_runtime.events import AnyEvent
from cmdc_runtime.ids import EventIndex, SessionId
from cmdc_runtime.mcp_servers import McpServer
from cmdc_runtime.messages import Message
from cmdc_runtime.options import ModelSource, Options
from cmdc_runtime.requests import Origin
from cmdc_runtime.skills import SkillsDir


@edge
class AsyncClient(AsyncFollower):
    """Speaks with one daemon; use it in one event loop, and ``close`` it or use ``async with``.

    A call takes a session object or a session id. Every call may raise DaemonUnavailable,
    CommandTimeout, and InvalidSession or SessionNotAlive where it is about a session.
    """

    @overload
    async def create_agent(
        self,
        options: Options | None = None,
        /,
        *,
        result: TypeForm[Given],
        **given: Unpack[GivenOptions],
    ) -> "AsyncSession[Given]": ...
    @overload
    async def create_agent(
        self, options: Options | None = None, /, **given: Unpack[GivenOptions]
    ) -> "AsyncSession": ...
    async def create_agent(
        self,
        options: Options | None = None,
        /,
        *,
        result: Any = None,  # Any: a type of any form
        **given: Unpack[GivenOptions],
    ) -> "AsyncSession[Any]":
        """Start an agent and return its session when it is ready.

        ``result`` is the type of its answers: ``run`` returns a reply whose ``output`` is one.

        Raises:
            InvalidOptions: ``problems`` has one line for each wrong field.
            InvalidTool: a tool cannot travel.
            SessionExists: the session id is taken.
            StartFailed: ``reason`` says at which stage and why.

        """
        form = None if result is None else form_of(result)
        request = start_request(options, with_form(given, form, options))
        made = AsyncSession[Any](await self._run(Exchange.start, request), self)
        made.form = form
        return made

    async def resume_session(
        self,
        session_id: SessionLike,
        /,
        *,
        checkpoint_id: str | None = None,
        new_id: str | None = None,
        **overrides: Unpack[ChangedOptions],
    ) -> "AsyncSession":
        """Start a session from a checkpoint, or from all that was recorded (see ``Options``).

        An ended session goes on under its id; with ``new_id`` the state becomes a new session, also
        of one that lives. ``overrides`` are options that are to change.

        Raises:
            SessionExists: it is alive and ``new_id`` is not given, or that is taken.
            CheckpointNotFound: there is no such checkpoint.
            InvalidOptions: ``problems`` has one line for each wrong field.
            StartFailed: ``reason`` says at which stage and why.

        """
        origin = Origin(
            session_id=checked_id(session_id), checkpoint_id=checked_checkpoint(checkpoint_id)
        )
        found = await self._run(Exchange.resume, origin, new_id, dict(overrides))
        return AsyncSession(found, self)

    async def prompt(self, session: SessionLike, text: Content) -> PromptReceipt:
        """Send a prompt and return when it is in the journal.

        ``text`` is a str, or a list of texts, ``Image`` and ``File`` in their order.

        Raises:
            InvalidText: ``text`` is not a non-empty str, nor such a list.
            InvalidPart: an image or a file is none that the model is known to take, or too large.
            QueueFull: too many prompts wait.

        """
        session_id, asked = checked_id(session), checked_content(text, "prompt")
        command = await self._with_parts(session_id, Prompt(text=asked.text), asked)
        return await self._run(Exchange.prompt, session_id, command)

    async def collect_reply(
        self,
        session: SessionLike,
        *,
        timeout: float | None = REPLY_TIMEOUT_S,
    ) -> str:
        """Return the last answer of the cycle that serves this client's latest prompt.

        Raises:
            CollectTimeout: the cycle takes longer than ``timeout`` seconds; it goes on.
            AgentAborted: it was aborted, or the prompt was dropped from the queue.
            AgentFailed: the provider or the kernel failed for good.
            UsageError: nobody has given the session a prompt yet.

        """
        timeout_s = checked_timeout(timeout)
        return await self._run(Exchange.collect_reply, checked_id(session), timeout_s)

    @overload
    async def run(
        self,
        session: SessionLike,
        text: Content,
        *,
        result: TypeForm[Given],
        timeout: float | None = None,
    ) -> Reply[Given]: ...
    @overload
    async def run(
        self, session: "AsyncSession[Output]", text: Content, *, timeout: float | None = None
    ) -> Reply[Output]: ...
    @overload
    async def run(
        self, session: SessionLike, text: Content, *, timeout: float | None = None
    ) -> Reply: ...
    async def run(
        self,
        session: SessionLike,
        text: Content,
        *,
        result: Any = None,  # Any: a type of any form
        timeout: float | None = None,
    ) -> Reply[Any]:
        """Send a prompt and return what its own cycle led to; raises as both calls above.

        With ``result``, a type, the reply's ``output`` is one; without, one of the type
        that ``create_agent`` was given, else the answer's text. An answer that is none is reported
        to the model, once, and asked for again.

        Raises:
            ResultInvalid: the second answer was none either.
            InvalidOptions: ``result`` is no type that has a JSON Schema.

        """
        session_id, clock = checked_id(session), Clock(timeout)
        own = None if result is None else form_of(result)
        schema = None if own is None else own.schema
        asked = checked_content(text, "prompt")
        plain = Prompt(text=asked.text, response_format=schema)
        command = await self._with_parts(session_id, plain, asked)
        reply: Reply[Any] = await self._run(Exchange.run, session_id, command, clock.timeout_s)
        form = own or default_form(session)
        if form is None:
            return reply
        for _ in range(WISHES_MAX):
            try:
                return form.reply(reply)
            except ResultInvalid as error:
                wish = repair_request("; ".join(error.problems))
            command = Prompt(text=wish, response_format=schema)
            again = await self._run(Exchange.run, session_id, command, clock.left_s)
            reply = added(reply, again)
        return form.reply(reply)


class AsyncSession(Generic[Output]):
    """One session, for coroutines; as a context manager it stops the session at exit.

    Each method is the call of ``AsyncClient`` of the same name, which names its errors. ``Output``
    is what ``run`` makes of an answer: its text, or the ``result`` that the session was made with.
    """

    form: ResultForm[Output] | None = None
    """How an answer becomes an ``Output``; None: it is the text."""

    @guarded
    def __init__(self, id_: SessionId, client: AsyncClient) -> None:
        """Name a session; whether it exists shows at the first call.

        Raises:
            InvalidSession: no id can look like this.
            UsageError: ``client`` is none.

        """
        self.id = checked_id(id_)
        self.client = checked_kind(client, AsyncClient, "client")

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

    async def unsubscribe(self) -> None:
        """Close all streams that this client has of the session."""
        await self.client.unsubscribe(self)

    @overload
    async def run(
        self, text: Content, *, result: TypeForm[Given], timeout: float | None = None
    ) -> Reply[Given]: ...
    @overload
    async def run(self, text: Content, *, timeout: float | None = None) -> Reply[Output]: ...
    async def run(
        self,
        text: Content,
        *,
        result: Any = None,  # Any: a type of any form
        timeout: float | None = None,
    ) -> Reply[Any]:
        """Send a prompt and return what its own cycle led to; raises as both calls above."""
        return await self.client.run(self, text, result=result, timeout=timeout)

    # --- made by ``make sync`` of the calls above: begin --------------------------------------

    async def steer(self, text: Content, *, scope: SteerScope = "session") -> str:
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
            self, reason=reason, clear_queue=clear_queue, kill_tools=kill_tools, children=children
        )

    async def approve(
        self, approval_id: str, *, auto_resume: bool = True, kind: ApprovalKind = "approve_once"
    ) -> None:
        """Allow a call that waits for approval; "approve_always" allows its tool from now on."""
        await self.client.approve(self, approval_id, auto_resume=auto_resume, kind=kind)

    async def reject(self, approval_id: str, *, auto_resume: bool = False) -> None:
        """Refuse a call that waits for approval; ``auto_resume`` opens a cycle that says so."""
        await self.client.reject(self, approval_id, auto_resume=auto_resume)

    async def user_respond(self, ref: str, response: object) -> None:
        """Answer a tool's question, with whatever MessagePack takes."""
        await self.client.user_respond(self, ref, response)

    async def stop(self, *, reason: str = "normal", timeout: float = STOP_TIMEOUT_S) -> None:
        """End the session and return when its process is gone; SIGKILL after ``timeout`` s."""
        await self.client.stop(self, reason=reason, timeout=timeout)

    async def attach_tool(self, tool: AnyTool) -> None:
        """Add a tool; the model has it from the next request on."""
        await self.client.attach_tool(self, tool)

    async def attach_tools(self, tools: Iterable[AnyTool]) -> list[str]:
        """Add tools, all or none, and return their names."""
        return await self.client.attach_tools(self, tools)

    async def detach_tool(self, name: str) -> None:
        """Remove a tool; its calls that run go on."""
        await self.client.detach_tool(self, name)

    async def detach_tools(self, names: Iterable[str]) -> list[str]:
        """Remove tools, all or none, and return their names."""
        return await self.client.detach_tools(self, names)

    async def replace_tools(self, tools: Iterable[AnyTool]) -> ToolsDiff:
        """Make these the session's tools; one whose name and code are kept stays as it is."""
        return await self.client.replace_tools(self, tools)

    async def attach_plugin(self, plugin: AnyPlugin) -> str:
        """Add a plugin; it is asked from the next hook on, at ``session_start`` first."""
        return await self.client.attach_plugin(self, plugin)

    async def update_plugin(self, plugin: AnyPlugin) -> str:
        """Put a plugin in the place of the one of its name, whose state it keeps."""
        return await self.client.update_plugin(self, plugin)

    async def detach_plugin(self, name: str) -> None:
        """Remove a plugin, with what it knew; a hook that it is being asked at goes on."""
        await self.client.detach_plugin(self, name)

    async def add_skills_dirs(self, dirs: Iterable[SkillsDir]) -> None:
        """Have the skills of more folders, as by ``skills_dirs``; they outrank the others."""
        await self.client.add_skills_dirs(self, dirs)

    async def add_memory(self, files: Iterable[str | os.PathLike[str]]) -> None:
        """Show more memory files, as by ``memory``, from the next request on."""
        await self.client.add_memory(self, files)

    async def attach_mcp_server(self, server: McpServer) -> None:
        """Add an MCP server; the next request starts it, and the model has its tools."""
        await self.client.attach_mcp_server(self, server)

    async def detach_mcp_server(self, name: str) -> None:
        """Remove an MCP server and its tools, and end it; its calls that run fail."""
        await self.client.detach_mcp_server(self, name)

    async def switch_model(
        self,
        model: str | ModelSource,
        *,
        provider_opts: dict[str, Any] | None = None,  # Any: litellm's own arguments
    ) -> None:
        """Send the next request to ``model``; ``provider_opts`` None keeps those in force."""
        await self.client.switch_model(self, model, provider_opts=provider_opts)

    async def checkpoint(
        self,
        *,
        label: str | None = None,
        metadata: dict[str, Any] | None = None,  # Any: whatever MessagePack takes
    ) -> Snapshot:
        """Save the session's state under a name, busy or not, and return when it is durable."""
        return await self.client.checkpoint(self, label=label, metadata=metadata)

    async def list_checkpoints(self) -> list[Snapshot]:
        """Return the session's checkpoints without their states, newest first."""
        return await self.client.list_checkpoints(self)

    async def load_checkpoint(self, checkpoint_id: str | None = None) -> Snapshot:
        """Return a checkpoint with its state, or with None the newest."""
        return await self.client.load_checkpoint(self, checkpoint_id)

    async def delete_checkpoint(self, checkpoint_id: str | None = None) -> None:
        """Delete a checkpoint, or with None all of the session; none to delete is no error."""
        await self.client.delete_checkpoint(self, checkpoint_id)

    async def enable_buffer(self, size: int = 1000) -> None:
        """Keep the session's newest ``size`` events for replays, from now on."""
        await self.client.enable_buffer(self, size)

    async def disable_buffer(self) -> None:
        """Keep no events for replays any more, and let those go that are kept."""
        await self.client.disable_buffer(self)

    async def last_index(self) -> EventIndex:
        """Return the index of the session's newest event, for a later ``since``."""
        return await self.client.last_index(self)

    async def session_id(self) -> SessionId:
        """Return the session's id; a str that can be one comes back as it is."""
        return await self.client.session_id(self)

    async def agent_pid(self) -> int | None:
        """Return the process id of the agent, None between two incarnations."""
        return await self.client.agent_pid(self)

    async def status(self) -> Status:
        """Return how the session stands, also while its process does not answer."""
        return await self.client.status(self)

    async def monitor(
        self, callback: AsyncCallback | None = None, *, persistent: bool = False
    ) -> AsyncMonitor:
        """Watch for the end of the session's process; ``persistent``: each of its processes."""
        return await self.client.monitor(self, callback, persistent=persistent)

    async def demonitor(self, ref: AsyncMonitor | str) -> None:
        """Forget a monitor; after this returned no notice of it is delivered."""
        await self.client.demonitor(self, ref)

    async def messages(self) -> list[Message]:
        """Return the conversation, oldest first, system message and tool results included."""
        return await self.client.messages(self)

    async def resume_session(
        self,
        /,
        *,
        checkpoint_id: str | None = None,
        new_id: str | None = None,
        **overrides: Unpack[ChangedOptions],
    ) -> "AsyncSession":
        """Start a session from a checkpoint, or from all that was recorded (see ``Options``)."""
        return await self.client.resume_session(
            self, checkpoint_id=checkpoint_id, new_id=new_id, **overrides
        )

    async def prompt(self, text: Content) -> PromptReceipt:
        """Send a prompt and return when it is in the journal."""
        return await self.client.prompt(self, text)

    async def collect_reply(self, *, timeout: float | None = REPLY_TIMEOUT_S) -> str:
        """Return the last answer of the cycle that serves this client's latest prompt."""
        return await self.client.collect_reply(self, timeout=timeout)

    def stream(self, text: Content, *, timeout: float | None = None) -> AsyncCycleStream[str]:
        """Send a prompt and return the pieces of its answers, as they come, to be iterated."""
        return self.client.stream(self, text, timeout=timeout)

    def stream_events(
        self, text: Content, *, timeout: float | None = None
    ) -> AsyncCycleStream[AnyEvent]:
        """Send a prompt and return the events of its own cycle, from ``agent_start`` on."""
        return self.client.stream_events(self, text, timeout=timeout)

    async def subscribe(
        self, *, since: int | None = None, types: EventTypes | None = None
    ) -> AsyncEventStream:
        """Return the session's events after index ``since``, or from now on."""
        return await self.client.subscribe(self, since=since, types=types)

    # --- end ----------------------------------------------------------------------------------
