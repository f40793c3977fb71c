"""The table effect → performer: what starts, ends or answers the work that a step asks for.

``Performers.perform`` returns at once; what becomes of the work is posted as results. To add an
effect: its class in ``core/step.py``, its method here and its row in ``_table``.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from cmdc_runtime.child_spec import Branching, Parent, child_request
from cmdc_runtime.clock import now_ms
from cmdc_runtime.commands import McpServerStatus
from cmdc_runtime.events import Event
from cmdc_runtime.extensions.context import SessionFacts
from cmdc_runtime.extensions.hooks import AnyHook, BeforeSteering
from cmdc_runtime.ids import CommandId, Incarnation, SessionId, new_command_id
from cmdc_runtime.reasons import PlainReason
from cmdc_runtime.requests import StartSession
from cmdc_runtime.spec import AgentSpec, acting
from cmdc_runtime.tracing import (
    SpanParent,
    branch_span_id,
    call_span_id,
    cycle_span_id,
    trace_id_of,
)
from cmdc_runtime.wire.frames import HostLost, ServerFound
from workers.core.conversation import find_child, is_running
from workers.core.inputs import (
    ANY_WORK,
    GuardrailsAnswered,
    PluginsAnswered,
    PluginsReported,
    Result,
    RetryDue,
    SteeringAnswered,
)
from workers.core.state import Memory
from workers.core.step import (
    Answer,
    AnswerMessages,
    AnswerPage,
    AnswerStatus,
    AnswerTool,
    AskAboutSteering,
    AskBackend,
    AskPlugins,
    CallModel,
    CancelCalls,
    CancelModel,
    ChangePlugins,
    ChangeServers,
    ChangeTools,
    CheckAnswer,
    CheckPrompt,
    CountSubagents,
    Effect,
    EndSubagents,
    ExchangeTools,
    ExitProcess,
    FilterHistory,
    LoadPlugin,
    LoadTools,
    MakeCheckpoint,
    Refuse,
    RunSubagent,
    RunTools,
    Sleep,
    Summarize,
)
from workers.core.verdict import Verdict
from workers.mcp.servers import McpServers
from workers.performers.checkpoints import Checkpoints, Forks
from workers.performers.guardrails import NO_GUARDS, Guards, Held
from workers.performers.histories import HistoryFilters
from workers.performers.model import ModelCaller, Requests, Summarizer
from workers.performers.plugin_port import PluginLoader, PluginPorts
from workers.performers.replies import Replies
from workers.performers.subagents import Subagents
from workers.performers.tools import ToolRunner
from workers.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class ExitCallbacks:
    """How an agent ends its process: a task of ours has raised, or the options say so."""

    on_crash: Callable[[BaseException], None]
    on_exit: Callable[[PlainReason], None]

    def watch(self, task: asyncio.Task[None]) -> None:
        """End the process where a task of a performer raises: that is a bug."""
        task.add_done_callback(self._check)

    def _check(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.on_crash(error)


@dataclass(frozen=True, slots=True)
class PerformerParts:
    """The performers of one session, each with effects of its own, and whose session it is."""

    spec: AgentSpec
    session_id: SessionId
    incarnation: Incarnation
    group_id: str | None
    requests: Requests
    model: ModelCaller
    summarizer: Summarizer
    runner: ToolRunner
    subagents: Subagents
    plugins: Pipeline
    ports: PluginPorts
    plugin_loader: PluginLoader
    checkpoints: Checkpoints
    forks: Forks
    replies: Replies
    servers: McpServers
    guards: Guards = NO_GUARDS
    histories: HistoryFilters = field(default_factory=lambda: HistoryFilters({}))
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of providers, which its subagents are given, too."""


class Performers:
    """Starts, ends and answers work."""

    def __init__(
        self,
        parts: PerformerParts,
        post: Callable[[Result], None],
        exit_callbacks: ExitCallbacks,
    ) -> None:
        """Perform by ``parts``; results of its own are posted by ``post``."""
        self._parts = parts
        self._post = post
        self._watch, self._on_exit = exit_callbacks.watch, exit_callbacks.on_exit
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        self._passed: CommandId | None = None
        """The prompt that the input guardrails have passed last."""
        self._waiting: asyncio.Task[None] | None = None
        """For MCP servers, before a request."""
        self._notifications: set[asyncio.Task[None]] = set()
        self._apart: set[asyncio.Task[None]] = set()
        # fmt: off
        self._table: Final[Mapping[type, Callable[[Any, Memory], None]]] = {  # Any: of the row
            CallModel:      self._call_model,
            Summarize:      self._summarize,
            Sleep:          self._sleep,
            CancelModel:    self._cancel_model,
            RunTools:       self._run_tools,
            CancelCalls:    self._cancel_calls,
            AnswerTool:     self._answer_tool,
            FilterHistory:  self._filter_history,
            CheckAnswer:    self._check,
            CheckPrompt:    self._check,
            ExchangeTools:  lambda effect, _memory: parts.runner.exchange(effect),
            LoadTools:      self._load_tools,
            ChangeTools:    self._change_tools,
            ChangeServers:  lambda effect, _memory: parts.servers.change(effect.servers),
            LoadPlugin:     self._load_plugin,
            ChangePlugins:  self._change_plugins,
            AskPlugins:     self._ask_plugins,
            AskAboutSteering: self._ask_about_steering,
            RunSubagent:    self._run_subagent,
            EndSubagents:   self._end_subagents,
            CountSubagents: self._count_subagents,
            MakeCheckpoint: self._make_checkpoint,
            AskBackend:     self._ask_backend,
            Answer:         lambda effect, _memory: parts.replies.answer(effect),
            Refuse:         lambda effect, _memory: parts.replies.refuse(effect),
            AnswerStatus:   lambda effect, _memory: parts.replies.answer_status(effect),
            AnswerMessages: self._answer_messages,
            AnswerPage:     lambda effect, _memory: parts.replies.answer_page(effect),
            ExitProcess:    lambda effect, _memory: self._on_exit(effect.reason),
        }
        # fmt: on

    def perform(self, effect: Effect, memory: Memory) -> None:
        """Begin what ``effect`` asks for; ``memory`` is that of the step it belongs to."""
        self._table[type(effect)](effect, memory)

    @property
    def is_idle(self) -> bool:
        """Whether no call runs on, wanted or not, and no plugin is being asked."""
        return self._parts.runner.is_idle and not self._notifications and not self._apart

    def mcp_status(self) -> tuple[McpServerStatus, ...]:
        """Return how each MCP server stands."""
        return self._parts.servers.status()

    def observe(self, event: Event) -> None:
        """Pass an event that was published to the plugins that observe."""
        self._parts.plugins.observe(event)

    def hear(self, notice: HostLost | ServerFound) -> None:
        """Receive from the daemon that a tool host is gone, or where a shared server is."""
        if isinstance(notice, HostLost):
            self._parts.runner.host_lost(notice)
        else:
            self._parts.servers.found(notice)

    def renew_host(self) -> None:
        """Have the next call that needs a tool host get a new one."""
        self._parts.runner.renew_host()

    async def stop(self) -> None:
        """End what is under way, processes of tools included; notifications of plugins go on."""
        parts = self._parts
        parts.model.cancel()
        parts.summarizer.cancel()
        parts.runner.cancel()
        for work in (self._timer, self._asking, self._waiting, *self._apart):
            if work is not None:
                work.cancel()
        closing = (parts.runner.closed(), parts.subagents.close(), parts.servers.close())
        await asyncio.gather(*closing)

    def _call_model(self, call: CallModel, memory: Memory) -> None:
        if not self._parts.servers.must_wait:
            self._send_request(call, memory)
            return
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = asyncio.create_task(self._call_after_wait(call, memory), name="mcp-wait")
        self._watch(self._waiting)

    async def _call_after_wait(self, call: CallModel, memory: Memory) -> None:
        await self._parts.servers.wait()
        self._send_request(call, memory)

    def _send_request(self, call: CallModel, memory: Memory) -> None:
        request = self._parts.requests.answer(call, memory)
        used = {one.call_id for said in memory.messages for one in said.tool_calls}
        held = self._held(call, memory)
        post = None if held is None else held.post
        self._watch(self._parts.model.call(call.work, request, used, post))

    def _held(self, call: CallModel, memory: Memory) -> Held | None:
        """Return what holds a request's answer back until the input guardrails have passed.

        They look at a prompt once, however often its first request is sent.
        """
        cycle_id = None if memory.cycle is None else memory.cycle.command_id
        if call.guarded is None or cycle_id == self._passed:
            return None
        held = Held(self._post)
        check = self._check_input(call.work, call.guarded, held, cycle_id)
        self._asking = asyncio.create_task(check, name="input-guardrails")
        self._watch(self._asking)
        return held

    async def _check_input(
        self, work: int, text: str, held: Held, cycle_id: CommandId | None
    ) -> None:
        parts = self._parts
        tripped = await parts.guards.input.check(text, parts.guards.context())
        if tripped is None:
            self._passed = cycle_id
            held.open()
            return
        parts.model.cancel()
        self._post(GuardrailsAnswered(work, tripped, now_ms()))

    def _check(self, check: CheckAnswer | CheckPrompt, _memory: Memory) -> None:
        self._asking = asyncio.create_task(self._checked(check), name="guardrails")
        self._watch(self._asking)

    async def _checked(self, check: CheckAnswer | CheckPrompt) -> None:
        guards = self._parts.guards
        side = guards.output if isinstance(check, CheckAnswer) else guards.input
        tripped = await side.check(check.text, guards.context())
        self._post(GuardrailsAnswered(check.work, tripped, now_ms()))

    def _summarize(self, wanted: Summarize, memory: Memory) -> None:
        request = self._parts.requests.summary(wanted, memory)
        self._watch(self._parts.summarizer.start(wanted.work, request, wanted.messages))

    def _filter_history(self, wanted: FilterHistory, _memory: Memory) -> None:
        self._asking = asyncio.create_task(self._filtered(wanted), name="history")
        self._watch(self._asking)

    async def _filtered(self, wanted: FilterHistory) -> None:
        self._post(await self._parts.histories.ask(wanted))

    def _sleep(self, sleep: Sleep, _memory: Memory) -> None:
        loop = asyncio.get_running_loop()
        due = RetryDue
        self._timer = loop.call_later(sleep.delay_s, lambda: self._post(due(sleep.work, now_ms())))

    def _cancel_model(self, _effect: CancelModel, _memory: Memory) -> None:
        self._parts.model.cancel()
        self._parts.summarizer.cancel()
        for work in (self._timer, self._asking, self._waiting):
            if work is not None:
                work.cancel()

    def _run_tools(self, batch: RunTools, memory: Memory) -> None:
        self._watch_all(self._parts.runner.run(batch, session_facts(self._parts.spec, memory)))

    def _cancel_calls(self, effect: CancelCalls, _memory: Memory) -> None:
        self._parts.runner.cancel_calls(effect.call_ids)

    def _answer_tool(self, effect: AnswerTool, _memory: Memory) -> None:
        # A reference is of one of them; the other knows no such wait.
        self._parts.runner.answer(effect.ref, effect.value, effect.error)
        self._parts.ports.answer(effect.ref, effect.value, effect.error)

    def _answer_messages(self, effect: AnswerMessages, memory: Memory) -> None:
        system = self._parts.requests.system_message(memory)
        self._parts.replies.answer_messages(effect, system, memory)

    def _load_tools(self, effect: LoadTools, _memory: Memory) -> None:
        self._watch(self._parts.runner.load(effect.id, effect.command))

    def _change_tools(self, effect: ChangeTools, _memory: Memory) -> None:
        self._parts.runner.change(effect)

    def _load_plugin(self, effect: LoadPlugin, _memory: Memory) -> None:
        self._run_apart(self._parts.plugin_loader.load(effect.id, effect.command), self._apart)

    def _change_plugins(self, effect: ChangePlugins, _memory: Memory) -> None:
        self._parts.plugin_loader.change(effect)

    def _ask_plugins(self, effect: AskPlugins, _memory: Memory) -> None:
        if effect.work == ANY_WORK:
            self._run_apart(self.notify_plugins(effect.hook), self._notifications)
            return
        self._asking = asyncio.create_task(self._ask(effect), name="plugins")
        self._watch(self._asking)

    def _ask_about_steering(self, effect: AskAboutSteering, _memory: Memory) -> None:
        self._run_apart(self._ask_about(effect), self._apart)

    async def notified(self) -> None:
        """Return when the notifications of plugins that began, of ends of cycles, are over."""
        while self._notifications:
            await asyncio.wait(self._notifications)

    async def observed(self) -> None:
        """Return when observers have received what was published, or their time is over."""
        await self._parts.plugins.observed()

    async def _ask(self, effect: AskPlugins) -> None:
        await self.notified()  # the end of a cycle comes before the next one's beginning
        verdict = await self._parts.plugins.run(effect.hook)
        self._post(PluginsAnswered(effect.work, verdict, now_ms()))

    async def _ask_about(self, effect: AskAboutSteering) -> None:
        verdict = await self._parts.plugins.run(BeforeSteering(effect.command.text))
        self._post(SteeringAnswered(effect.order, effect.command, verdict))

    async def notify_plugins(self, hook: AnyHook) -> Verdict:
        """Run a hook that nothing in the tables waits for, and post what plugins decided."""
        verdict = await self._parts.plugins.run(hook)
        if verdict != Verdict():
            self._post(PluginsReported(verdict))
        return verdict

    def _run_apart(self, work: Coroutine[Any, Any, object], among: set[asyncio.Task[None]]) -> None:
        """Run what goes on where a request is cancelled."""

        async def run() -> None:
            await work

        task = asyncio.create_task(run(), name="plugins-aside")
        among.add(task)
        task.add_done_callback(among.discard)
        self._watch(task)

    def _run_subagent(self, effect: RunSubagent, memory: Memory) -> None:
        request, forks = self._child_request(effect, memory), None
        if effect.branch is not None and effect.branch.fork:
            forks = self._parts.forks.lent(memory)
        self._watch(self._parts.subagents.start(request, effect.description, forks))

    def _end_subagents(self, effect: EndSubagents, _memory: Memory) -> None:
        self._watch_all(self._parts.subagents.end(effect.child_ids))

    def _count_subagents(self, effect: CountSubagents, _memory: Memory) -> None:
        self._watch_all(self._parts.subagents.count(effect.child_ids))
        self._watch(self._parts.forks.sweep())

    def _make_checkpoint(self, effect: MakeCheckpoint, memory: Memory) -> None:
        self._watch(self._parts.checkpoints.make(effect, memory))

    def _ask_backend(self, effect: AskBackend, _memory: Memory) -> None:
        self._watch(self._parts.checkpoints.ask_backend(effect))

    def _child_request(self, effect: RunSubagent, memory: Memory) -> StartSession:
        parts, task = self._parts, effect.branch
        kind = next(one for one in parts.spec.subagents if one.name == effect.subagent_type)
        parent = Parent(
            session_id=parts.session_id,
            spec=acting(parts.spec, memory.agent),
            model=memory.model,
            provider_opts=memory.provider_opts,
            tools=tuple(tool.packed for tool in memory.tools if tool.packed is not None),
            plugins=tuple(one.packed for one in memory.plugins if one.packed is not None),
            mcp_servers=memory.mcp_servers,
            group_id=parts.group_id,
            keys=parts.keys,
            trace_parent=_trace_parent(parts.session_id, parts.spec, effect.child_id, memory),
        )
        request = child_request(
            parent,
            effect.child_id,
            kind,
            max_total_tokens=effect.grant.tokens,
            max_cost_usd=effect.grant.cost_usd,
            branching=None
            if task is None
            else Branching(task.model, task.response_format, task.fork),
        )
        # A start that is still under way when this process dies must not serve the next one; one
        # whose answer is lost with the daemon is known to the next by its id.
        return msgspec.structs.replace(
            request, parent_incarnation=parts.incarnation, start_id=new_command_id()
        )

    def _watch_all(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        for task in tasks:
            self._watch(task)


def session_facts(spec: AgentSpec, memory: Memory) -> SessionFacts:
    """Return what the calls of a batch see of their session."""
    said = (one.content for one in reversed(memory.messages) if one.role == "assistant")
    return SessionFacts(
        todos=memory.todos,
        usage=memory.usage,
        tools=tuple(tool.name for tool in memory.tools),
        subagents=tuple(one.name for one in spec.subagents),
        prompt_mode=acting(spec, memory.agent).prompt_mode,
        last_assistant_reply=next(said, None),
        memory_contents=dict(memory.memory_contents),
    )


def _trace_parent(
    session_id: SessionId, spec: AgentSpec, child_id: SessionId, memory: Memory
) -> str | None:
    """Return the span that what a child does is in: of its branch, its call, else of the cycle."""
    child, cycle = find_child(memory, child_id), memory.cycle
    if child is None or cycle is None:
        return spec.trace_parent
    trace_id = trace_id_of(session_id, cycle.command_id, spec.trace_parent)
    if child.branch:
        span_id = branch_span_id(session_id, child.branch)
    elif is_running(memory, child.call_id):
        span_id = call_span_id(session_id, child.call_id)
    else:
        span_id = cycle_span_id(session_id, cycle.command_id)
    return str(SpanParent(trace_id, span_id))
