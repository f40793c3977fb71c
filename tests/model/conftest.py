"""``Life``: one session over several processes, driven at random, with the shell played by hand.

It answers requests, runs tools and subagents, opens packed code, and keeps the records of each step
together, as the journal does. After every step it holds the memory against the one that the journal
gives: so each prefix of the journal is checked. What it counts (prompts, steering, runs of each
call, outcomes of commands) is the model that the tables are held against.

What clients and providers do stands in ``test_recovery.py``: to add such an input, write a function
there and give it a place in ``HAPPENS``.
"""

from collections import Counter

import msgspec
import pytest

from cmdc_runtime.commands import AttachTools, UserRespond
from cmdc_runtime.events import PluginEvent
from cmdc_runtime.extensions.actions import RequireApproval
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.messages import TokenUsage, ToolCall
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.reasons import Signal
from workers.core import commands, inputs, recovery, results, step
from workers.core.assemble import Reply
from workers.core.budget import Grant
from workers.core.conversation import plugin_call, repair
from workers.core.evolve import rebuild
from workers.core.records import TurnSpent, decode_record
from workers.core.snapshot import STRIPPED
from workers.core.state import Memory, PluginFacts, Policy, State, ToolFacts
from workers.core.step import Step
from workers.core.verdict import Aborted, Verdict

KILLED = Signal(number=9, name="SIGKILL")
USED = TokenUsage(prompt_tokens=2, completion_tokens=1, total_tokens=3, cost_usd=0.25)
KINDS = tuple(FailureKind)
REPEATABLE = {"read", "ask", "compact", "gated", "fork"}
NAMES = ("read", "write", "ask", "gone", "gated", "task", "fork", "compact", "refused", "held")
TOOLS = tuple(ToolFacts(name, is_repeatable=name in REPEATABLE) for name in NAMES if name != "gone")
WANTS = {
    "ask": (inputs.QuestionAsked, ("which?", ("x",))),
    "task": (inputs.SubagentWanted, ("any", "do it")),
    "fork": (inputs.BranchWanted, (inputs.BranchTask("do it"), "digest", Grant(tokens=40), 2)),
    "compact": (inputs.CompactWanted, ("long",)),
}
ORDERS = (
    ("memory_contents", {"contents": {"AGENTS.md": "Use tabs."}}),
    ("update_system_context", {"key": "Plan", "text": "1. sow"}),
    ("update_message_metadata", {"updates": [{"id": "m-1", "metadata": {"seen": True}}]}),
    ("synthetic_tool_results", {"results": [{"call_id": "never", "content": "lost"}]}),
    ("decide_approval", {"approval_id": "approval-3", "decision": "approve_once"}),
)
GUARD = Packed(kind="ref", label="guard", ref="guard")
VERDICTS = (
    Verdict(),
    Verdict(interventions=("mind the gap",), model=("y:n", None)),
    Verdict(states=(("plugin", b"state"),), emitted=(("news", 1), *ORDERS)),
    Verdict(abort=Aborted("plugin", "no")),
)
WINDOW = 60
DURABLE = {field.name for field in msgspec.structs.fields(Memory)} - {*STRIPPED}


def durable(memory):
    """Return what of a memory has to survive a crash."""
    return {name: getattr(memory, name) for name in DURABLE}


def found(name, *, is_fine=True):
    """Return what opening the packed code of a tool of this name gives."""
    packed = Packed(kind="ref", label=name, ref=f"tools:{name}")
    facts = ToolFacts(name, is_repeatable=name in REPEATABLE, packed=packed)
    return inputs.FoundTool(
        name, facts if is_fine else None, "" if is_fine else "it cannot be imported"
    )


class Life:
    """One session, its journal, and what its clients got."""

    def __init__(self, **policy):
        """Begin at rest."""
        bounds = {"max_turns": 4, "max_queued_prompts": 3, "max_steering_queue": 2}
        limits = {"max_retries": 1, "max_cycle_crashes": 3, "max_children": 2, "max_spawns": 4}
        heard = policy.pop("hooks", frozenset())
        policy = Policy(
            session_id="s",
            immune=frozenset({"compact"}),
            loop_threshold=2,
            loop_abort=4,
            cycle_timeout_s=1e5,
            subagents=frozenset({"any"}),
            window_of={"y:n": WINDOW}.get,
            **{**bounds, **limits, **policy},
        )
        plugins = (PluginFacts("p", heard),)
        memory = Memory(policy=policy, model="x:m", tools=TOOLS, plugins=plugins)
        self.step = Step(memory)
        self.known = self.step.memory  # what the journal gives
        self.journal = []
        self.incarnation, self.number = 1, 0
        self.events, self.settled, self.ordered = [], Counter(), []
        self.asked, self.replied = [], Counter()
        self.clear()

    def clear(self):
        """Forget what was under way in the process."""
        self.batch, self.approved = {}, frozenset()
        self.summary, self.asked_plugins = None, None
        self.children, self.loads, self.judging = [], {}, []
        self.plugin_loads = {}

    @property
    def state(self):
        return self.step.state

    @property
    def memory(self):
        return self.step.memory

    @property
    def is_held_up(self):
        """Whether something else comes before the request's answer."""
        return bool(self.memory.compacting or self.memory.point)

    # --- the shell ------------------------------------------------------------------------------

    def take(self, step):
        """Do what a step says, and check what holds after every step."""
        self.step = step
        self.journal += step.records
        self.known = rebuild(self.known, map(reread, step.records))
        for effect in step.effects:
            self.perform(effect)
        self.check()

    def perform(self, effect):
        """Carry out one effect, or note that it has to be."""
        match effect:
            case step.Complete(id=command_id):
                self.settled[command_id] += 1
            case step.Publish(event=event):
                self.events.append(event)
            case step.Answer(id=waiter) | step.Refuse(id=waiter):
                self.replied[waiter] += 1
            case step.CallModel(messages=messages):
                assert repair(messages) == messages == self.memory.messages
                self.summary = None
            case step.Summarize():
                self.summary = effect
            case step.CancelModel():
                self.summary = None
            case step.AskPlugins(work=work) if work != inputs.ANY_WORK:
                self.asked_plugins = effect
            case step.AskAboutSteering():
                self.judging.append(effect)
            case step.LoadPlugin() | step.LoadTools():
                loads = self.loads if isinstance(effect, step.LoadTools) else self.plugin_loads
                loads[effect.id] = effect.command
            case _:
                self.perform_tool_work(effect)

    def perform_tool_work(self, effect):
        """Carry out what is about running calls and subagents."""
        match effect:
            case step.RunTools(calls=calls):
                self.batch = {call.call_id: (call, "new") for call in calls}
                self.approved = effect.approved
            case step.CancelCalls(call_ids=ids):
                self.batch = {one: seen for one, seen in self.batch.items() if one not in ids}
            case step.AnswerTool(ref=ref) if ref.endswith(":approval"):
                waiting = self.calls(ref)
                self.approved |= {call.call_id for call in waiting}
                self.batch.update({call.call_id: (call, "new") for call in waiting})
            case step.AnswerTool(ref=ref) if ref.endswith(":end"):
                assert not self.calls(ref)  # nothing here waits for an end
            case step.AnswerTool(ref=ref):
                waiting = self.calls(ref)
                # A compaction may be over when nobody waits for it any more, and a question may be
                # answered after a crash, before it is asked again. A subagent answers its own call.
                assert waiting or not ref.startswith("task")
                self.batch.update({call.call_id: (call, "running") for call in waiting})
            case step.RunSubagent(child_id=child_id):
                self.children.append(child_id)
            case step.CountSubagents(child_ids=ids):
                self.children += ids
            case step.EndSubagents(child_ids=ids):
                assert set(ids) <= {child.session_id for child in self.memory.children}

    def check(self):
        """Check what holds in every state."""
        state, memory, policy = self.state, self.memory, self.memory.policy
        assert durable(self.known) == durable(memory)
        assert memory.turns == sum(isinstance(one, TurnSpent) for one in self.journal)
        assert memory.turns_begun == memory.turns + (memory.cycle is not None and memory.is_asking)
        is_asked = memory.point is not None
        assert bool(memory.calls) == (state is State.EXECUTING_TOOLS) or is_asked
        assert not is_asked or state is State.RUNNING or memory.compacting  # a call wants that
        assert (memory.cycle is None) == (state is State.IDLE)
        assert state is not State.IDLE or not (memory.queue or memory.steering)
        assert memory.compacting is None or state in (State.RUNNING, State.EXECUTING_TOOLS)
        assert memory.cycle is None or memory.cycle.turns <= policy.max_turns
        self.check_bounds()
        if memory.calls:
            assert memory.messages[-1].tool_calls == tuple(one.call for one in memory.calls)
        else:
            assert repair(memory.messages) == memory.messages

    def check_bounds(self):
        """Check that nothing grows beyond its bound, and that no name is given twice."""
        memory, policy = self.memory, self.memory.policy
        assert len(memory.queue) <= policy.max_queued_prompts
        assert len(memory.steering) <= policy.max_steering_queue
        assert len(memory.children) <= policy.max_children
        assert memory.spawns - memory.branched <= policy.max_spawns
        assert {one.call_id for one in memory.branches} <= {
            one.call.call_id for one in memory.calls
        }
        running = {one.call.call_id for one in memory.calls if one.result is None}
        assert {ask.call_id for ask in memory.asks} <= running
        assert {one.call_id for one in memory.approvals if one.ref} <= running
        waited_for = {child.call_id for child in memory.children if child.ref}
        assert {one for one in waited_for if one != plugin_call("p")} <= running
        for named in (memory.messages, memory.approvals):
            assert len({one.id for one in named}) == len(named)

    def order(self, command, prefix):
        """Give a command."""
        self.number += 1
        order = inputs.Order(f"{prefix}-{self.number}", command, at_ms=self.number)
        if command.durable:
            self.ordered.append(order.id)
        self.give_order(order)

    def post(self, kind, *rest, late=0, **fields):
        """Report a result, of the work under way or of one ``late`` numbers before it."""
        result = kind(self.memory.work - late, *rest, **fields)
        step = results.apply(self.memory, result)
        assert not late or step == Step(self.memory)
        self.feed(result)

    def give_order(self, order):
        """Have the tables take a command."""
        self.take(commands.apply(self.memory, order))

    def feed(self, result):
        """Have the tables take a result."""
        self.take(results.apply(self.memory, result))

    # --- what comes of the work -----------------------------------------------------------------

    def answer(self, number):
        if self.is_held_up:
            return
        self.post(inputs.FirstChunk)
        self.number += 1
        names = [NAMES[(self.number // 3 + 3 * at) % len(NAMES)] for at in range(number)]
        calls = tuple(
            ToolCall(call_id=f"{name}:{self.number}-{at}", name=name, arguments={"n": number % 2})
            for at, name in enumerate(names)
        )
        self.post(inputs.TextArrived, ("7", "long " * 10)[self.number % 2])
        self.post(inputs.StreamEnded, Reply("", None, calls, USED, "stop"), 1)

    def respond(self, number):
        waiting = [ask.ref for ask in self.memory.asks] or ["ask:404"]
        self.order(UserRespond(ref=waiting[0], response=["yes", {"n": number}]), "r")

    def summarize(self, number):
        if self.summary is None:
            return
        late, self.summary = self.memory.work - self.summary.work, None
        if number:
            self.post(inputs.Summarized, f"short {number}", USED, "history.md", 1, late=late)
        else:
            self.post(inputs.SummaryFailed, "busy", 1, late=late)

    def calls(self, *standings):
        """Return the calls of the batch that are "new" or "running", or wait by a reference."""
        return [call for call, standing in self.batch.values() if standing in standings]

    def begin(self, number):
        if not (new := self.calls("new")):
            return
        call = new[number % len(new)]
        if self.memory.tool(call.name) is None:
            self.end(call, inputs.ToolReturned, False, "no such tool", 5, is_unknown=True)
        elif call.name == "gated" and call.call_id not in self.approved:
            self.end(call, inputs.ApprovalRequest, RequireApproval(hint="sure?"), 5)
        elif call.name == "held" and call.call_id not in self.approved:
            self.batch[call.call_id] = (call, f"{call.call_id}:approval")
            asked = RequireApproval(hint="sure?", hold=True, timeout_s=1, family="any")
            self.post(
                inputs.ApprovalRequest, call.call_id, asked, 5, None, f"{call.call_id}:approval"
            )
        elif call.name == "refused":
            self.end(call, inputs.ToolRefused, "not this one", 5)
        else:
            self.batch[call.call_id] = (call, "running")
            self.post(inputs.ToolBegun, call.call_id, 5)

    def end(self, call, kind, *rest, **fields):
        """Have a call end with a result of this kind."""
        del self.batch[call.call_id]
        self.post(kind, call.call_id, *rest, **fields)

    def want(self, number):
        """Have a running call ask for what its tool is there for."""
        able = [call for call in self.calls("running") if call.name in WANTS]
        if not able:
            self.give(number)
            return
        call = able[number % len(able)]
        ref = f"{call.call_id}:1"
        self.batch[call.call_id] = (call, ref)
        self.post(inputs.ToolEmitted, call.call_id, "news", number)
        self.post(inputs.ToolKept, call.call_id, b"here" if number % 2 else b"", number)
        self.post(
            inputs.ToolStepReported,
            call.call_id,
            PluginEvent(name="reasoning_thought", payload=None),
        )
        kind, rest = WANTS[call.name]
        self.post(kind, call.call_id, ref, *rest)

    def give(self, number):
        """Have a call return; one that waits gives up where no other runs."""
        waiting = [call for call, _ in self.batch.values() if f"{call.call_id}:1" in self.refs()]
        able = self.calls("running") or waiting[: number == 3]
        if able:
            effect = ("update_todos", {"todos": [{"content": f"{self.number}"}]})
            extra = {"effect": effect} if number == 2 else {"is_cut": number == 0}
            self.end(able[number % len(able)], inputs.ToolReturned, number != 0, "fine", 6, **extra)

    def refs(self):
        """Return the references by which calls wait."""
        return {standing for _, standing in self.batch.values()}

    def drop(self, number):
        """Have a call wait no more for its branch, and return."""
        forks = [call for call, standing in self.batch.values() if standing.startswith("fork")]
        if forks:
            call = forks[number % len(forks)]
            self.batch[call.call_id] = (call, "running")
            self.post(inputs.BranchDropped, call.call_id, f"{call.call_id}:1")

    def child(self, number):
        if self.children:
            done = inputs.SubagentDone(
                self.children.pop(0), number != 0, "did it", USED, is_lost=number == 0
            )
            self.feed(done)

    def load(self, number):
        if self.loads:
            command_id, command = self.loads.popitem()
            new = found(NAMES[number], is_fine=number != 3)
            table = (new, *map(found, NAMES[4:]))
            tools = (new,) if isinstance(command, AttachTools) else table
            self.feed(inputs.ToolsLoaded(command_id, command, tools))

    def load_plugin(self, number):
        if self.plugin_loads:
            command_id, command = self.plugin_loads.popitem()
            facts = PluginFacts("guard", frozenset(), GUARD) if number != 3 else None
            loaded = inputs.PluginLoaded(command_id, command, facts, VERDICTS[number], "broken")
            self.feed(loaded)

    def apply_verdict(self, number):
        """Have the plugins answer where the cycle waits for them."""
        if asked := self.asked_plugins:
            self.asked_plugins = None
            late = self.memory.work - asked.work
            self.post(inputs.PluginsAnswered, VERDICTS[number], 7, late=late)

    def judge(self, number):
        """Have the plugins answer about a steering."""
        if self.judging:
            asked = self.judging.pop(0)
            self.feed(inputs.SteeringAnswered(asked.order, asked.command, VERDICTS[number]))

    def expire(self, number):
        """Have a time be over: to decide, of the first that wait, or of the cycle."""
        over = [inputs.ApprovalExpired(one.id, 10**9) for one in self.memory.approvals[:number]]
        if number == 0 and self.memory.cycle:
            over = [inputs.CycleExpired(self.memory.cycle.command_id, 10**9)]
        for expired in over:
            self.feed(expired)

    def crash(self, _number):
        """Lose the process; the next one begins with what the journal has."""
        unanswered = [inputs.Order(one, command, 7) for one, command in self.loads.items()]
        unanswered += [inputs.Order(one, command, 7) for one, command in self.plugin_loads.items()]
        unanswered += [asked.order for asked in self.judging]
        self.clear()
        self.resume(self.known)
        for order in unanswered:
            self.give_order(order)

    def resume(self, memory):
        """Begin a process with ``memory``."""
        self.known = memory
        self.incarnation += 1
        self.take(recovery.resume(memory, self.incarnation, KILLED, 7))


def reread(record):
    """Return a record as the journal gives it back."""
    return decode_record(msgspec.msgpack.encode(record))


@pytest.fixture(scope="session")
def life():
    """The class: ``life(...)`` is a new session, with the options of a policy."""
    return Life
