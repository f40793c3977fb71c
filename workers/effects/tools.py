"""Carries out ``RunTools``: prepare, execute, finalize, for every call of a batch.

*Prepare* finds the tool, checks the arguments and asks whether a person must allow the call;
*execute* runs it where its isolation says, with its bound of time and its retries; *finalize* makes
the text that the model reads. Failures are data: a batch always ends with one result for each call
that was not cancelled.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from cmdc_runtime.clock import now_ms
from cmdc_runtime.commands import AttachTools, ReplaceTools
from cmdc_runtime.extensions.context import Context, ToolContext
from cmdc_runtime.extensions.provider import ToolSpec
from cmdc_runtime.extensions.tool import Tool, ToolError
from cmdc_runtime.frames import HostLost
from cmdc_runtime.ids import CallId, CommandId, Incarnation, SessionId
from cmdc_runtime.messages import ToolCall
from workers.core.effects import ChangeTools, RunTools
from workers.core.inputs import ApprovalNeeded, Result, ToolBegun, ToolEmitted, ToolReturned
from workers.core.state import ToolFacts
from workers.effects.tool_hooks import ToolHooks
from workers.effects.tool_places import Threads, in_task
from workers.effects.tool_port import AgentPort, Answers
from workers.effects.toolbox import REPEATABLE, LoadedTool, Toolbox
from workers.effects.toolhost_link import HostFailedError, HostLink, Wire
from workers.pipeline import Pipeline
from workers.toolhost.wire import Begin, Run
from workers.toolhost.words import (
    Crashed,
    Died,
    Ending,
    Refused,
    Returned,
    crashed,
    fit,
    refused,
)

__all__ = ["REPEATABLE", "LoadedTool", "ToolRunner", "ToolSettings"]

log = structlog.get_logger()

SUMMARY_CHARS_MAX: Final = 200
"""Of what a tool says about a call, for people."""
MALFORMED_CHARS_SHOWN: Final = 200
"""Of arguments that are no JSON object."""

Todos = tuple[dict[str, str], ...]


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


@dataclass(frozen=True, slots=True)
class _Job:
    """One call, what it runs and with which arguments."""

    batch: RunTools
    call: ToolCall
    todos: Todos
    loaded: LoadedTool
    arguments: dict[str, Any]  # Any: whatever the tool takes

    @property
    def tool(self) -> Tool:
        """The tool itself."""
        return self.loaded.tool


class ToolRunner:
    """Runs batches of calls and posts what becomes of them."""

    def __init__(
        self,
        tools: Iterable[LoadedTool],
        settings: ToolSettings,
        post: Callable[[Result], None],
        link: Wire,
        plugins: Pipeline | None = None,
    ) -> None:
        """Post results by ``post``; a call that may not run twice waits for the journal first."""
        self._hooks = ToolHooks(plugins, post)
        self._box = Toolbox(tools, post)
        self._settings = settings
        self._post = post
        self._link = link
        self._answers = Answers()
        self._threads = Threads()
        self._host = HostLink(_begin(settings), settings.runtime_dir, link)
        self._gate = asyncio.Semaphore(settings.parallel_max)
        self._tasks: dict[asyncio.Task[None], CallId] = {}
        self._loads: set[asyncio.Task[None]] = set()
        # fmt: off
        self._places: Final[Mapping[str, Callable[[_Job], Awaitable[Ending]]]] = {
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

    def run(self, batch: RunTools, todos: Todos = ()) -> list[asyncio.Task[None]]:
        """Start every call of the batch; ``todos`` is what the calls see of the session's list."""
        tasks = []
        for call in batch.calls:
            task = asyncio.create_task(self._call(batch, call, todos), name=f"tool-{call.name}")
            task.add_done_callback(self._forget)
            self._tasks[task] = call.call_id
            tasks.append(task)
        return tasks

    def cancel_calls(self, call_ids: Iterable[CallId]) -> None:
        """End these calls: kill a process, cancel a task, leave a thread alone; waits for none."""
        given_up = frozenset(call_ids)
        for task, call_id in self._tasks.items():
            if call_id in given_up:
                task.cancel()

    def answer(self, ref: str, value: Any, error: str | None) -> None:
        """Give a call what it asked for by ``ref`` (Any: what that is), or an error to raise."""
        self._answers.give(ref, value, error)

    def cancel(self) -> None:
        """End everything that can be ended."""
        for task in [*self._tasks, *self._loads]:
            task.cancel()

    async def settle(self) -> None:
        """Return when every call that was ended is gone, its processes and the host too."""
        await asyncio.gather(*self._tasks, *self._loads, return_exceptions=True)
        await self._host.close()

    def host_lost(self, frame: HostLost) -> None:
        """Take the daemon's word on a tool host."""
        self._host.lost(frame)

    # --- tools ------------------------------------------------------------------------------------

    def facts(self) -> tuple[ToolFacts, ...]:
        """Return what the tables know of the tools."""
        return self._box.facts()

    def specs(self, where: ToolContext) -> tuple[ToolSpec, ...]:
        """Return what a provider is told of the tools now."""
        return self._box.specs(where)

    def load(
        self, command_id: CommandId, command: AttachTools | ReplaceTools
    ) -> asyncio.Task[None]:
        """Open what a command brings, and post ``ToolsLoaded``."""
        task = asyncio.create_task(self._box.load(command_id, command), name="tools-loaded")
        self._loads.add(task)
        task.add_done_callback(self._loads.discard)
        return task

    def change(self, change: ChangeTools) -> None:
        """Exchange tools, from the next call on."""
        for gone in self._box.change(change):
            self._host.detach(gone)

    # --- prepare ----------------------------------------------------------------------------------

    async def _call(self, batch: RunTools, call: ToolCall, todos: Todos) -> None:
        async with self._gate:
            job = await self._allowed(batch, call, todos)
            if job is None:
                return
            args = _changed_args(call, job)
            self._post(ToolBegun(batch.work, call.call_id, now_ms(), _summary(job), args))
            if job.tool.effects not in REPEATABLE:
                await self._link.synced()
            ending = await self._execute(job)
            told = None if ending is None else await self._hooks.after(batch.work, call, ending)
            if told is not None:
                self._return(batch, call, told)

    async def _allowed(self, batch: RunTools, call: ToolCall, todos: Todos) -> _Job | None:
        """Return what is to be run; plugins may refuse or change it, a person must allow it."""
        job = self._prepared(batch, call, todos)
        if job is None:
            return None
        heard = await self._hooks.before(batch.work, call)
        if heard is None:
            return None
        if heard is not call:  # plugins gave it other arguments
            job = self._prepared(batch, heard, todos)
        if job is not None and call.call_id not in batch.approved and _wants_approval(job):
            self._conclude()
            args = _changed_args(call, job)
            self._post(ApprovalNeeded(batch.work, call.call_id, _summary(job), now_ms(), args))
            return None
        return job

    def _prepared(self, batch: RunTools, call: ToolCall, todos: Todos) -> _Job | None:
        """Return what is to be run, or None where the call is over before it begins."""
        loaded = self._box.find(call.name)
        if loaded is None:
            known = ", ".join(sorted(self._box.names)) or "none"
            text = f"Error: there is no tool named {call.name!r}. Tools: {known}."
            self._return(batch, call, Refused(text=fit(text)), is_unknown=True)
            return None
        try:
            job = _Job(batch, call, todos, loaded, _checked(call, loaded.tool))
        except ToolError as error:
            self._return(batch, call, refused(error))
            return None
        return job

    # --- execute ----------------------------------------------------------------------------------

    async def _execute(self, job: _Job) -> Ending | None:
        """Return how the call ended; None where plugins ended the cycle over a failure."""
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

    async def _once(self, job: _Job) -> Ending:
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
            text = f"{job.call.name} took longer than {bound_s:g} s and was ended"
            return Refused(text=text)

    async def _in_process(self, job: _Job) -> Ending:
        batch, call = job.batch, job.call

        def emit(name: str, payload: Any) -> None:  # Any: the tool's own
            self._post(ToolEmitted(batch.work, call.call_id, name, payload))

        order = Run(
            call_id=call.call_id,
            arguments=call.arguments,
            model=batch.model,
            turn=batch.turn,
            todos=job.todos,
        )
        return await self._host.run(job.loaded, order, emit)

    async def _in_thread(self, job: _Job) -> Ending:
        port = self._port(job)
        try:
            return await self._threads.run(job.tool, job.arguments, self._context(job, port))
        finally:
            port.close()

    async def _in_task(self, job: _Job) -> Ending:
        port = self._port(job)
        try:
            return await in_task(job.tool, job.arguments, self._context(job, port))
        finally:
            port.close()

    def _port(self, job: _Job) -> AgentPort:
        return AgentPort(job.batch.work, job.call.call_id, self._post, self._answers)

    def _context(self, job: _Job, port: AgentPort) -> Context:
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
            todos=job.todos,
            session=port,
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
        self, batch: RunTools, call: ToolCall, ending: Ending, *, is_unknown: bool = False
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
            )
        )

    def _conclude(self) -> None:
        """Count the running call no more: who hears of its end must find the runner idle."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - calls run in tasks of ours
        self._forget(task)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)


def _begin(settings: ToolSettings) -> Begin:
    return Begin(
        session_id=settings.session_id,
        incarnation=settings.incarnation,
        group_id=settings.group_id,
        working_dir=settings.working_dir,
        user_data=settings.user_data,
    )


def _checked(call: ToolCall, tool: Tool) -> dict[str, Any]:  # Any: whatever the tool takes
    if call.malformed is not None:
        shown = call.malformed[:MALFORMED_CHARS_SHOWN]
        raise ToolError(f"the arguments are no JSON object: {shown!r}. Send a JSON object.")
    try:
        return tool.check(call.arguments)
    except ToolError:
        raise
    except Exception as error:
        log.exception("tool.crashed", tool=call.name, call_id=call.call_id)
        raise ToolError(crashed(error).text) from error


# Any: whatever the tool takes.
def _changed_args(asked: ToolCall, job: _Job) -> dict[str, Any] | None:
    """Return the arguments that plugins gave the call, None where they left them alone."""
    return None if job.call is asked else job.call.arguments


def _wants_approval(job: _Job) -> bool:
    """Ask the tool whether a person must allow the call; one that can't tell is not trusted."""
    try:
        return job.tool.wants_approval(job.arguments)
    except Exception:
        log.exception("tool.crashed", tool=job.call.name, call_id=job.call.call_id)
        return True


def _summary(job: _Job) -> str:
    """Return what the tool says of the call, for people; its name where it says nothing."""
    try:
        text = str(job.tool.meta(job.arguments))
    except Exception:
        log.exception("tool.crashed", tool=job.call.name, call_id=job.call.call_id)
        text = job.tool.name
    return fit(text[:SUMMARY_CHARS_MAX])
