"""An agent's hands: carries out the effects that start, end or answer work.

``Hands.perform`` returns at once; what becomes of the work is posted as results. To add an effect
of this kind: its method here and its row in ``_table``.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cmdc_runtime.clock import now_ms
from cmdc_runtime.events import Event
from cmdc_runtime.extensions.hooks import AnyHook, BeforeSteering
from cmdc_runtime.ids import Incarnation, SessionId, new_command_id
from cmdc_runtime.messages import Message
from cmdc_runtime.requests import StartSession
from cmdc_runtime.spec import AgentSpec, Branching, Parent, child_request
from cmdc_runtime.tracing import (
    SpanParent,
    branch_span_id,
    call_span_id,
    cycle_span_id,
    trace_id_of,
)
from cmdc_runtime.wire.frames import HostLost
from workers.core.conversation import find_child, is_running
from workers.core.inputs import (
    ANY_WORK,
    Consulted,
    PluginsSpoke,
    Result,
    RetryDue,
    SteeringJudged,
)
from workers.core.state import Memory
from workers.core.step import (
    AnswerTool,
    AskPlugins,
    CallModel,
    CancelCalls,
    CancelModel,
    ChangePlugins,
    ChangeTools,
    CountSubagents,
    Effect,
    EndSubagents,
    JudgeSteering,
    LoadPlugin,
    LoadTools,
    MakeCheckpoint,
    RunSubagent,
    RunTools,
    Sleep,
    Summarize,
)
from workers.core.verdict import Verdict
from workers.effects.checkpoints import Checkpoints, Forks
from workers.effects.model import ModelCaller, Requests
from workers.effects.plugin_port import PluginBox, PluginPorts
from workers.effects.subagents import Subagents
from workers.effects.summary import Summarizer
from workers.effects.tools import ToolRunner
from workers.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Tools:
    """What the hands work with."""

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
    plugin_box: PluginBox
    checkpoints: Checkpoints
    forks: Forks


class Hands:
    """Starts, ends and answers work; ``watch`` looks after every task that it starts."""

    def __init__(
        self,
        tools: Tools,
        post: Callable[[Result], None],
        watch: Callable[[asyncio.Task[None]], None],
    ) -> None:
        """Use ``tools``; results of its own are posted by ``post``."""
        self._tools = tools
        self._post = post
        self._watch = watch
        self._timer: asyncio.TimerHandle | None = None
        self._consulting: asyncio.Task[None] | None = None
        self._told: set[asyncio.Task[None]] = set()
        self._judging: set[asyncio.Task[None]] = set()
        # fmt: off
        self._table: Final[Mapping[type, Callable[[Any, Memory], None]]] = {  # Any: of the row
            CallModel:      self._call_model,
            Summarize:      self._summarize,
            Sleep:          self._sleep,
            CancelModel:    self._cancel_model,
            RunTools:       self._run_tools,
            CancelCalls:    self._cancel_calls,
            AnswerTool:     self._answer_tool,
            LoadTools:      self._load_tools,
            ChangeTools:    self._change_tools,
            LoadPlugin:     self._load_plugin,
            ChangePlugins:  self._change_plugins,
            AskPlugins:        self._consult,
            JudgeSteering:  self._judge_steering,
            RunSubagent:    self._run_subagent,
            EndSubagents:   self._end_subagents,
            CountSubagents: self._count_subagents,
            MakeCheckpoint: self._make_checkpoint,
        }
        # fmt: on

    def can(self, effect: Effect) -> bool:
        """Say whether ``effect`` is for the hands."""
        return type(effect) in self._table

    def perform(self, effect: Effect, memory: Memory) -> None:
        """Begin what ``effect`` asks for; ``memory`` is that of the step it belongs to."""
        self._table[type(effect)](effect, memory)

    def system_message(self, memory: Memory) -> Message:
        """Return the system prompt as of now, as a message."""
        return self._tools.requests.system_message(memory)

    @property
    def are_idle(self) -> bool:
        """Whether no call runs on, wanted or not, and no plugin is being asked."""
        return self._tools.runner.is_idle and not self._told and not self._judging

    def observe(self, event: Event) -> None:
        """Tell plugins that listen of an event that was published."""
        self._tools.plugins.observe(event)

    def host_lost(self, frame: HostLost) -> None:
        """Take the daemon's word on a tool host."""
        self._tools.runner.host_lost(frame)

    def renew_host(self) -> None:
        """Have the next call that needs a tool host get a new one."""
        self._tools.runner.renew_host()

    async def stop(self) -> None:
        """End what is under way, processes of tools included; what plugins are told goes on."""
        tools = self._tools
        tools.model.cancel()
        tools.summarizer.cancel()
        tools.runner.cancel()
        for work in (self._timer, self._consulting, *self._judging):
            if work is not None:
                work.cancel()
        await asyncio.gather(tools.runner.settle(), tools.subagents.close())

    def _call_model(self, call: CallModel, memory: Memory) -> None:
        request = self._tools.requests.answer(call, memory)
        used = {one.call_id for said in memory.messages for one in said.tool_calls}
        self._watch(self._tools.model.call(call.work, request, used))

    def _summarize(self, wanted: Summarize, memory: Memory) -> None:
        request = self._tools.requests.summary(wanted, memory)
        self._watch(self._tools.summarizer.start(wanted.work, request, wanted.messages))

    def _sleep(self, sleep: Sleep, _memory: Memory) -> None:
        loop = asyncio.get_running_loop()
        due = RetryDue
        self._timer = loop.call_later(sleep.delay_s, lambda: self._post(due(sleep.work, now_ms())))

    def _cancel_model(self, _effect: CancelModel, _memory: Memory) -> None:
        self._tools.model.cancel()
        self._tools.summarizer.cancel()
        for work in (self._timer, self._consulting):
            if work is not None:
                work.cancel()

    def _run_tools(self, batch: RunTools, memory: Memory) -> None:
        self._watch_all(self._tools.runner.run(batch, memory.todos))

    def _cancel_calls(self, effect: CancelCalls, _memory: Memory) -> None:
        self._tools.runner.cancel_calls(effect.call_ids)

    def _answer_tool(self, effect: AnswerTool, _memory: Memory) -> None:
        # A reference is of one of them; the other knows no such wait.
        self._tools.runner.answer(effect.ref, effect.value, effect.error)
        self._tools.ports.give(effect.ref, effect.value, effect.error)

    def _load_tools(self, effect: LoadTools, _memory: Memory) -> None:
        self._watch(self._tools.runner.load(effect.id, effect.command))

    def _change_tools(self, effect: ChangeTools, _memory: Memory) -> None:
        self._tools.runner.change(effect)

    def _load_plugin(self, effect: LoadPlugin, _memory: Memory) -> None:
        self._aside(self._tools.plugin_box.load(effect.id, effect.command), self._judging)

    def _change_plugins(self, effect: ChangePlugins, _memory: Memory) -> None:
        self._tools.plugin_box.change(effect)

    def _consult(self, effect: AskPlugins, _memory: Memory) -> None:
        if effect.work == ANY_WORK:
            self._aside(self.tell_plugins(effect.hook), self._told)
            return
        self._consulting = asyncio.create_task(self._ask_plugins(effect), name="plugins")
        self._watch(self._consulting)

    def _judge_steering(self, effect: JudgeSteering, _memory: Memory) -> None:
        self._aside(self._ask_about(effect), self._judging)

    async def told_all(self) -> None:
        """Return when plugins have heard of all that they were told: of the ends of cycles."""
        while self._told:
            await asyncio.wait(self._told)

    async def observed_all(self) -> None:
        """Return when plugins have heard of what was published, or have had time enough."""
        await self._tools.plugins.observed()

    async def _ask_plugins(self, effect: AskPlugins) -> None:
        await self.told_all()  # the end of a cycle comes before the next one's beginning
        verdict = await self._tools.plugins.run(effect.hook)
        self._post(Consulted(effect.work, verdict, now_ms()))

    async def _ask_about(self, effect: JudgeSteering) -> None:
        verdict = await self._tools.plugins.run(BeforeSteering(effect.command.text))
        self._post(SteeringJudged(effect.order, effect.command, verdict))

    async def tell_plugins(self, hook: AnyHook) -> Verdict:
        """Ask plugins at a hook that nothing in the tables waits for, and have it taken down."""
        verdict = await self._tools.plugins.run(hook)
        if verdict != Verdict():
            self._post(PluginsSpoke(verdict))
        return verdict

    def _aside(self, work: Coroutine[Any, Any, object], among: set[asyncio.Task[None]]) -> None:
        """Run what no cancelled request takes with it."""

        async def run() -> None:
            await work

        task = asyncio.create_task(run(), name="plugins-aside")
        among.add(task)
        task.add_done_callback(among.discard)
        self._watch(task)

    def _run_subagent(self, effect: RunSubagent, memory: Memory) -> None:
        request, forks = self._child_request(effect, memory), None
        if effect.branch is not None and effect.branch.fork:
            forks = self._tools.forks.lent(memory)
        self._watch(self._tools.subagents.start(request, effect.description, forks))

    def _end_subagents(self, effect: EndSubagents, _memory: Memory) -> None:
        self._watch_all(self._tools.subagents.end(effect.child_ids))

    def _count_subagents(self, effect: CountSubagents, _memory: Memory) -> None:
        self._watch_all(self._tools.subagents.count(effect.child_ids))
        self._watch(self._tools.forks.sweep())

    def _make_checkpoint(self, effect: MakeCheckpoint, memory: Memory) -> None:
        self._watch(self._tools.checkpoints.make(effect, memory))

    def _child_request(self, effect: RunSubagent, memory: Memory) -> StartSession:
        tools, task = self._tools, effect.branch
        kind = next(one for one in tools.spec.subagents if one.name == effect.subagent_type)
        parent = Parent(
            session_id=tools.session_id,
            spec=tools.spec,
            model=memory.model,
            provider_opts=memory.provider_opts,
            tools=tuple(tool.packed for tool in memory.tools if tool.packed is not None),
            plugins=tuple(one.packed for one in memory.plugins if one.packed is not None),
            group_id=tools.group_id,
            trace_parent=_trace_parent(tools.session_id, tools.spec, effect.child_id, memory),
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
            request, parent_incarnation=tools.incarnation, start_id=new_command_id()
        )

    def _watch_all(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        for task in tasks:
            self._watch(task)


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
