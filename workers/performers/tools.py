"""Carries out ``RunTools``: prepare, execute, finalize, for every call of a batch.

*Prepare* finds the tool, checks the arguments and asks whether a person must allow the call;
*execute* runs it where its isolation says, with its bound of time and its retries; *finalize* makes
the text that the model reads. Failures are data: a batch always ends with one result for each call
that was not cancelled.

Inside the agent's process a call is a task of the loop or has a thread. Whatever the tool does
there comes back as one ``CallEnding``; only a cancellation of ours passes through. ``ToolHooks``
asks plugins before a call, at its failures, and after it.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from cmdc_runtime import foreign
from cmdc_runtime.clock import now_ms
from cmdc_runtime.commands import AttachTools, ReplaceTools
from cmdc_runtime.extensions.actions import RequireApproval
from cmdc_runtime.extensions.context import Context, SessionFacts, seen
from cmdc_runtime.extensions.hooks import AfterTool, AnyHook, BeforeTool, OnToolError
from cmdc_runtime.extensions.sandbox import Sandbox
from cmdc_runtime.extensions.tool import Tool
from cmdc_runtime.extensions.tool_error import ToolError
from cmdc_runtime.faults import note_call
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.ids import CallId, CommandId, Incarnation, SessionId
from cmdc_runtime.messages import ToolCall
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.subagent import CLIENT_TOOL
from cmdc_runtime.user_values import packed
from cmdc_runtime.wire.frames import HostLost
from workers import threads
from workers.core.inputs import (
    ApprovalRequest,
    PluginsAborted,
    PluginsReported,
    Result,
    ToolBegun,
    ToolEmitted,
    ToolRefused,
    ToolReturned,
)
from workers.core.step import ChangeTools, ExchangeTools, RunTools
from workers.core.verdict import Verdict
from workers.link import Link
from workers.mcp.servers import McpServers
from workers.output import printing
from workers.performers.tool_port import AgentPort, Answers, Recall, no_recall
from workers.performers.toolbox import (
    NO_RESERVE,
    REPEATABLE,
    CodeOpener,
    Job,
    LoadedTool,
    Reserve,
    Seat,
    Tally,
    Toolbox,
    checked,
)
from workers.performers.toolhost_link import HostFailedError, HostLink
from workers.pipeline import Pipeline
from workers.toolhost.wire import (
    Begin,
    CallEnding,
    Crashed,
    Cut,
    Died,
    Refused,
    Returned,
    RunCall,
    failed,
    fit,
    is_awaitable,
    refused,
    returned,
)

# --- in the agent's process -----------------------------------------------------------------------


# Any: whatever the tool takes.
async def in_task(tool: Tool, arguments: dict[str, Any], context: Context) -> CallEnding:
    """Run an async tool; who cancels the calling task ends it."""
    return await _ending_of(partial(tool.execute, arguments, context))


class ToolThreads(threads.Threads):
    """Threads of calls, those that nobody waits for any more among them."""

    def __init__(self) -> None:
        """Have none."""
        super().__init__("tool")

    # Any: whatever the tool takes.
    async def run_tool(self, tool: Tool, arguments: dict[str, Any], context: Context) -> CallEnding:
        """Run a sync tool in a thread; when cancelled, leave it alone and discard what it returns.

        An awaitable that it returns is awaited in the loop.
        """

        def work() -> CallEnding | Awaitable[object]:
            value: Any = tool.execute(arguments, context)  # Any: the tool's own
            return value if is_awaitable(value) else returned(value)

        try:
            found = await self.run(work)
        except ForeignError as failure:
            return failed(failure)
        return await _ending_of(lambda: found) if inspect.isawaitable(found) else found


async def _ending_of(work: Callable[[], object]) -> CallEnding:
    try:
        value = await foreign.wait(work)
        return foreign.call(lambda: returned(value))  # its text is the tool's code too
    except ForeignError as failure:
        return failed(failure)


# --- plugins and calls ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AllowedCall:
    """What plugins made of a call that may run: its arguments, and whom to ask first."""

    call: ToolCall
    approval: RequireApproval | None = None


class ToolHooks:
    """Asks the plugins of one session about its calls.

    What they say besides (events, states, notes, another model) is posted at once. A call that
    plugins end, or whose cycle they end, is over for the runner: the tables do the rest.
    """

    def __init__(self, plugins: Pipeline | None, post: Callable[[Result], None]) -> None:
        """Post what plugins say by ``post``."""
        self._plugins = plugins
        self._post = post

    async def before(self, work: int, call: ToolCall) -> AllowedCall | None:
        """Return the call as it is to run, or None where it is not to run."""
        verdict = await self._ask(work, BeforeTool(call.name, call.call_id, call.arguments))
        if verdict is None:
            return None
        if verdict.blocked is not None:
            self._post(ToolRefused(work, call.call_id, verdict.blocked, now_ms()))
            return None
        if verdict.args is not None:
            call = msgspec.structs.replace(call, arguments=verdict.args, malformed=None)
        return AllowedCall(call, verdict.approval)

    async def failed(self, work: int, call: ToolCall, ending: CallEnding, attempt: int) -> bool:
        """Ask the plugins about a failure; return whether the call goes on."""
        hook = OnToolError(call.name, call.call_id, ending.text, attempt)
        return await self._ask(work, hook) is not None

    async def after(self, work: int, call: ToolCall, ending: CallEnding) -> CallEnding | None:
        """Return the ending as the model is to read it, or None where the cycle is over."""
        is_error = not isinstance(ending, Returned)
        hook = AfterTool(call.name, call.call_id, ending.text, is_error)
        verdict = await self._ask(work, hook)
        if verdict is None:
            return None
        if verdict.result is None:
            return ending
        text, final = verdict.result
        if is_error if final is None else final:
            return Refused(text=text)
        return Returned(text=text, effect=ending.effect if isinstance(ending, Returned) else None)

    async def _ask(self, work: int, hook: AnyHook) -> Verdict | None:
        """Return the plugins' verdict; None where it ends the cycle."""
        if self._plugins is None or hook.kind not in self._plugins.hooks:
            return Verdict()
        verdict = await self._plugins.run(hook)
        besides = replace(verdict, abort=None, blocked=None, args=None, result=None, approval=None)
        if besides != Verdict():
            self._post(PluginsReported(besides, work))
        if verdict.abort is not None:
            self._post(PluginsAborted(work, verdict.abort, now_ms()))
            return None
        return verdict


# --- the runner -----------------------------------------------------------------------------------

__all__ = ["REPEATABLE", "LoadedTool", "ToolRunner", "ToolSettings"]

log = structlog.get_logger()


_NO_FACTS: Final = SessionFacts()


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """What every call of a session has in common; times are seconds."""

    session_id: SessionId
    incarnation: Incarnation
    group_id: str | None
    working_dir: str
    user_data: dict[str, Any]  # Any: the application's own
    parallel_max: int
    timeout_s: float
    retries_max: int
    runtime_dir: Path
    """The daemon's folder, where the tool host connects."""
    config_facts: dict[str, Any] | None = None  # Any: fields of a Config
    environment: Mapping[str, str] = field(default_factory=dict)
    """What a call in a process of its own gets beside what every tool's process has."""
    opener: CodeOpener = field(default_factory=CodeOpener)
    """The session's own: what opens the tools that commands bring."""
    servers: McpServers | None = None
    """The session's MCP servers; a call that an earlier process left waits for them."""
    recall: Recall = no_recall
    """Reads what calls have published before."""
    sandbox: Sandbox | None = None
    """The session's own; None in tests, where tools make do without."""
    packed_sandbox: Packed | None = None
    """The same as the tool host opens it."""
    reserve: Reserve = NO_RESERVE
    """Tools of the agents that the session may be handed to."""
    is_subagent: bool = False
    """It ends with its only cycle, so what needs a person waits in it."""


class ToolRunner:
    """Runs batches of calls and posts what becomes of them."""

    def __init__(
        self,
        tools: Iterable[LoadedTool],
        settings: ToolSettings,
        post: Callable[[Result], None],
        link: Link,
        plugins: Pipeline | None = None,
    ) -> None:
        """Post results by ``post``.

        A call that may not run twice waits for the journal first, as does one of a cycle that has
        cost a process before.
        """
        self._hooks = ToolHooks(plugins, post)
        self.toolbox = Toolbox(tools, post, settings.opener, settings.reserve)
        self._settings = settings
        self._post = post
        self._link = link
        self._answers = Answers()
        self._threads = ToolThreads()
        self._host = HostLink(_begin(settings), settings.runtime_dir, link)
        self._gate = asyncio.Semaphore(settings.parallel_max)
        self._tasks: dict[asyncio.Task[None], CallId] = {}
        self._cancelled: set[asyncio.Task[None]] = set()
        """Those that we have cancelled; a tool's code in our task may cancel it, too."""
        self._loads: set[asyncio.Task[None]] = set()
        # fmt: off
        self._places: Final[Mapping[str, Callable[[Job], Awaitable[CallEnding]]]] = {
            "process": self._in_process,
            "thread":  self._in_thread,
            "task":    self._in_task,
        }
        # fmt: on

    # --- calls ------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether no call runs on, wanted or not."""
        return not self._tasks and not len(self._threads)

    def run(self, batch: RunTools, facts: SessionFacts = _NO_FACTS) -> list[asyncio.Task[None]]:
        """Start every call of the batch; ``facts`` is what the calls see of the session."""
        tasks = []
        for call in batch.calls:
            task = asyncio.create_task(self._whole(batch, call, facts), name=f"tool-{call.name}")
            task.add_done_callback(self._forget)
            self._tasks[task] = call.call_id
            tasks.append(task)
        return tasks

    def cancel_calls(self, call_ids: Iterable[CallId]) -> None:
        """End these calls: kill a process, cancel a task, leave a thread alone; waits for none."""
        ending = frozenset(call_ids)
        self._cancel_tasks([task for task, call_id in self._tasks.items() if call_id in ending])

    def answer(self, ref: str, value: Any, error: str | None) -> None:
        """Give a call what it asked for by ``ref`` (Any: what that is), or an error to raise."""
        self._answers.answer(ref, value, error)

    def cancel(self) -> None:
        """End everything that can be ended."""
        self._answers.close()
        self._cancel_tasks(self._tasks)
        for task in self._loads:
            task.cancel()

    async def closed(self) -> None:
        """Return when every call that was ended is gone, its processes and the host too."""
        await asyncio.gather(*self._tasks, *self._loads, return_exceptions=True)
        await self._host.close()

    def host_lost(self, frame: HostLost) -> None:
        """Receive from the daemon that a tool host is gone."""
        self._host.lost(frame)

    def renew_host(self) -> None:
        """Have the next call that needs a tool host get a new one; the others keep theirs."""
        self._host.renew()

    # --- tools ------------------------------------------------------------------------------------

    def load(
        self, command_id: CommandId, command: AttachTools | ReplaceTools
    ) -> asyncio.Task[None]:
        """Open what a command brings, and post ``ToolsLoaded``."""
        task = asyncio.create_task(self.toolbox.load(command_id, command), name="tools-loaded")
        self._loads.add(task)
        task.add_done_callback(self._loads.discard)
        return task

    def change(self, change: ChangeTools) -> None:
        """Exchange tools, from the next call on."""
        for gone in self.toolbox.change(change):
            self._host.detach(gone)

    def exchange(self, exchange: ExchangeTools) -> None:
        """Have the tools of another agent, from the next call on."""
        for gone in self.toolbox.exchange(exchange):
            self._host.detach(gone)

    # --- prepare ----------------------------------------------------------------------------------

    async def _whole(self, batch: RunTools, call: ToolCall, facts: SessionFacts) -> None:
        """Have a call end with one result, whoever cancels its task beside us."""
        try:
            await self._call(batch, call, facts)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task in self._cancelled or task not in self._tasks:
                raise
            text = f"Error: the call's task was cancelled: {foreign.OWN_CANCEL}"
            self._return(batch, call, Refused(text=text))

    async def _call(self, batch: RunTools, call: ToolCall, facts: SessionFacts) -> None:
        await self._join_servers(call)
        async with Seat(self._gate) as seat:
            job = await self._allowed(batch, call, facts, seat)
            if job is None:
                return
            self._post(
                ToolBegun(
                    batch.work, call.call_id, now_ms(), job.summary, args=job.args_given(call)
                )
            )
            await self._link.contained()
            if batch.is_suspect or job.tool.effects not in REPEATABLE:
                await self._link.synced()
            ending = await self._execute(job)
            final = None if ending is None else await self._hooks.after(batch.work, call, ending)
            if final is not None:
                self._return(batch, call, final, is_cut=isinstance(ending, Cut | Died))

    async def _join_servers(self, call: ToolCall) -> None:
        """Wait for MCP servers where a call's tool is not there: this process is a new one."""
        servers = self._settings.servers
        if servers is not None and servers.may_have(call.name) and not self.toolbox.find(call.name):
            await servers.wait()
            self.toolbox.join(servers)

    async def _allowed(
        self, batch: RunTools, call: ToolCall, facts: SessionFacts, seat: Seat
    ) -> Job | None:
        """Return what is to be run; plugins may refuse or change it, a person must allow it."""
        job = self._prepared(batch, call, facts)
        if job is None:
            return None
        allowed = await self._hooks.before(batch.work, call)
        if allowed is None:
            return None
        if allowed.call is not call:  # plugins gave it other arguments
            job = self._prepared(batch, allowed.call, facts)
        if job is None or call.call_id in batch.approved:
            return job
        wanted = job.approval(allowed.approval, holds=self._settings.is_subagent)
        if wanted is None:
            return job
        ref = f"{call.call_id}:approval" if wanted.hold else None
        request = ApprovalRequest(
            batch.work, call.call_id, wanted, now_ms(), job.args_given(call), ref
        )
        if ref is None:
            self._conclude()
            self._post(request)
            return None
        # Whoever refuses it ends this task.
        await seat.left_for(self._answers.of(ref, lambda: self._post(request)))
        return job

    def _prepared(self, batch: RunTools, call: ToolCall, facts: SessionFacts) -> Job | None:
        """Return what is to be run, or None where the call is over before it begins."""
        loaded = self.toolbox.find(call.name)
        if loaded is None:
            known = ", ".join(sorted(self.toolbox.names)) or "none"
            text = f"Error: there is no tool named {call.name!r}. Tools: {known}."
            self._return(batch, call, Refused(text=fit(text)), is_unknown=True)
            return None
        try:
            kept, asked = batch.kept.get(call.call_id, (b"", 0))
            tally = Tally(batch.steps_before.get(call.call_id, 0), kept, asked)
            job = Job(batch, call, facts, loaded, checked(call, loaded.tool), tally)
        except ToolError as error:
            self._return(batch, call, refused(error))
            return None
        return job

    # --- execute ----------------------------------------------------------------------------------

    async def _execute(self, job: Job) -> CallEnding | None:
        """Return how the call ended; None where plugins ended the cycle over a failure."""
        if job.loaded.packed.ref != CLIENT_TOOL:  # that one is made elsewhere, and once
            note_call(self._settings.session_id, job.call.call_id, job.tool.effects)
        attempt = 0
        while True:
            ending = await self._once(job)
            attempt += 1
            if isinstance(ending, Returned):
                return ending
            if not await self._hooks.failed(job.batch.work, job.call, ending, attempt):
                return None
            if not isinstance(ending, Crashed | Died):
                return ending
            if attempt > self._retries_max(job.tool, ending):
                detail = ending.detail if isinstance(ending, Crashed) else ending.text
                log.error(
                    "tool.crashed", tool=job.call.name, call_id=job.call.call_id, problem=detail
                )
                return ending

    async def _once(self, job: Job) -> CallEnding:
        tool = job.tool
        bound_s = self._settings.timeout_s if tool.timeout is None else tool.timeout
        try:
            if tool.isolation == "process":
                await self._host.connected()  # to wait for it is no fault of the tool
            async with asyncio.timeout(bound_s):
                return await self._places[tool.isolation](job)
        except HostFailedError as error:
            return Refused(text=f"Error: there is no tool host to run this call: {error}")
        except TimeoutError:
            late = f"{job.call.name} took longer than {bound_s:g} s"
            if job.loaded.packed.ref == CLIENT_TOOL:  # its thread is not ours to end
                return Cut(text=f"{late}; nobody waits for it any more, its program may go on")
            return Cut(text=f"{late} and was ended")

    async def _in_process(self, job: Job) -> CallEnding:
        batch, call = job.batch, job.call

        def emit(name: str, payload: Any) -> None:  # Any: the tool's own
            self._post(ToolEmitted(batch.work, call.call_id, name, payload))

        order = RunCall(
            call_id=call.call_id,
            arguments=call.arguments,
            model=batch.model,
            turn=batch.turn,
            todos=job.facts.todos,
            facts=msgspec.structs.replace(job.facts, todos=()),
        )
        return await self._host.run(job.loaded, order, emit)

    async def _in_thread(self, job: Job) -> CallEnding:
        port = self._port(job)
        try:
            with printing(job.call.call_id, job.tool.name):
                context = self._context(job, port)
                return await self._threads.run_tool(job.tool, job.arguments, context)
        finally:
            port.close()

    async def _in_task(self, job: Job) -> CallEnding:
        port = self._port(job)
        try:
            with printing(job.call.call_id, job.tool.name):
                return await in_task(job.tool, job.arguments, self._context(job, port))
        finally:
            port.close()

    def _port(self, job: Job) -> AgentPort:
        return AgentPort(
            job.batch.work,
            job.call.call_id,
            self._post,
            self._answers,
            tally=job.tally,
            recall=self._settings.recall,
            synced=self._link.synced,
        )

    def _context(self, job: Job, port: AgentPort) -> Context:
        settings = self._settings
        return Context(
            session_id=settings.session_id,
            call_id=job.call.call_id,
            working_dir=settings.working_dir,
            model=job.batch.model,
            turn=job.batch.turn,
            user_data=settings.user_data,
            group_id=settings.group_id,
            incarnation=settings.incarnation,
            config_facts=settings.config_facts,
            session=port,
            sandbox=settings.sandbox,
            **seen(job.facts),
        )

    def _retries_max(self, tool: Tool, ending: Crashed | Died) -> int:
        is_repeatable = tool.effects in REPEATABLE
        if isinstance(ending, Died) and not is_repeatable:
            return 0  # nobody knows how far it came
        if tool.max_retries is not None:
            return tool.max_retries
        return self._settings.retries_max if is_repeatable else 0

    # --- finalize ---------------------------------------------------------------------------------

    def _return(
        self,
        batch: RunTools,
        call: ToolCall,
        ending: CallEnding,
        *,
        is_unknown: bool = False,
        is_cut: bool = False,
    ) -> None:
        is_returned = isinstance(ending, Returned)
        self._conclude()
        self._post(
            ToolReturned(
                batch.work,
                call.call_id,
                ok=is_returned,
                text=ending.text,
                at_ms=now_ms(),
                is_unknown=is_unknown,
                effect=ending.effect if isinstance(ending, Returned) else None,
                is_cut=is_cut,
            )
        )

    def _conclude(self) -> None:
        """Count the running call no more: who gets its end must find the runner idle."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - calls run in tasks of ours
        self._forget(task)

    def _cancel_tasks(self, tasks: Iterable["asyncio.Task[None]"]) -> None:
        for task in tasks:
            self._cancelled.add(task)
            task.cancel()

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        self._cancelled.discard(task)


def _begin(settings: ToolSettings) -> Begin:
    return Begin(
        session_id=settings.session_id,
        incarnation=settings.incarnation,
        group_id=settings.group_id,
        working_dir=settings.working_dir,
        user_data=packed(settings.user_data),
        environment=dict(settings.environment),
        sandbox=settings.packed_sandbox,
        real_dir="" if settings.sandbox is None else settings.sandbox.place.real_dir,
        config_facts=settings.config_facts,
    )
