"""An agent's tables driven at random, with crashes: the journal knows all that must survive.

``Life`` is one session over several processes. It plays the shell: it answers requests, runs tools
and keeps the records of each step together, as the journal does. What it counts (prompts, ends,
runs of each call) is the model that the tables are held against.
"""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.commands import Abort, AwaitCycle, Prompt, PromptReceipt
from cmdc_runtime.events import AgentAbort, AgentEnd, AgentError, AgentRecovered, PromptDropped
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.messages import TokenUsage, ToolCall
from cmdc_runtime.reasons import Signal
from workers.core import commands, rebuild, results
from workers.core.assemble import Reply
from workers.core.records import CycleStarted, PromptQueued, ToolStarted
from workers.core.repair import repair
from workers.core.state import (
    Answer,
    CallModel,
    FirstChunk,
    Keep,
    Memory,
    Order,
    Policy,
    Publish,
    Refuse,
    RetryDue,
    RunTools,
    Settle,
    State,
    Step,
    StreamEnded,
    StreamFailed,
    StreamSilent,
    TextArrived,
    ThoughtArrived,
    ToolBegun,
    ToolReturned,
)

CRASHES_MAX = 3
POLICY = Policy(
    max_turns=4,
    max_queued_prompts=3,
    max_retries=1,
    max_cycle_crashes=CRASHES_MAX,
    repeatable=frozenset({"read"}),
)
KILLED = Signal(number=9, name="SIGKILL")
USED = TokenUsage(prompt_tokens=2, completion_tokens=1, total_tokens=3, cost_usd=0.25)
TOOLS = ("read", "write")
KINDS = tuple(FailureKind)
ENDS = AgentEnd | AgentAbort | AgentError


def durable(memory):
    """Return what of a memory has to survive a crash."""
    cycle = memory.cycle
    return (
        memory.messages,
        memory.queue,
        cycle and (cycle.command_id, cycle.first, cycle.usage_before, cycle.crashes),
        memory.calls,
        memory.usage,
        memory.outcomes,
        memory.latest_prompt,
    )


class Life:
    """One session, its journal, and what its clients were told."""

    def __init__(self):
        self.step = Step(State.IDLE, Memory(policy=POLICY, model="m"))
        self.journal = []  # the records of one step in each entry
        self.incarnation = 1
        self.number = 0
        self.to_begin, self.running = [], []
        self.accepted, self.events = [], []
        self.asked, self.told = [], Counter()

    # --- the shell ------------------------------------------------------------------------------

    def take(self, step):
        """Do what a step says, and check what holds after every step."""
        self.step = step
        self.journal.append([kept.record for kept in step.effects if isinstance(kept, Keep)])
        for effect in step.effects:
            match effect:
                case Settle(id=command_id, outcome=PromptReceipt()):
                    self.accepted.append(command_id)
                case Publish(event=event):
                    self.events.append(event)
                case Answer(id=waiter) | Refuse(id=waiter):
                    self.told[waiter] += 1
                case CallModel(messages=messages):
                    assert repair(messages) == messages == step.memory.messages
                case RunTools(calls=calls):
                    self.to_begin, self.running = list(calls), []
        self.check()

    def check(self):
        state, memory = self.step.state, self.step.memory
        assert bool(memory.calls) == (state is State.EXECUTING_TOOLS)
        assert (memory.cycle is None) == (state is State.IDLE)
        assert state is not State.IDLE or not memory.queue
        assert len(memory.queue) <= POLICY.max_queued_prompts
        if memory.calls:
            assert memory.messages[-1].tool_calls == tuple(one.call for one in memory.calls)
        else:
            assert repair(memory.messages) == memory.messages
        assert memory.cycle is None or memory.cycle.turns <= POLICY.max_turns

    def order(self, command, prefix):
        self.number += 1
        order = Order(f"{prefix}-{self.number}", command, at_ms=self.number)
        self.take(commands.apply(self.step.state, self.step.memory, order))

    def post(self, kind, *rest, late=0):
        memory = self.step.memory
        step = results.apply(self.step.state, memory, kind(memory.work - late, *rest))
        if late:
            assert step == Step(self.step.state, memory)
        self.take(step)

    # --- what can happen ------------------------------------------------------------------------

    def prompt(self, number):
        self.order(Prompt(text=f"do {number}" if number < 3 else " "), "p")

    def abort(self, number):
        kill = ("killable", "all", "none", "none")[number]
        self.order(Abort(reason="why", clear_queue=number != 1, kill_tools=kill), "a")

    def wait(self, number):
        prompt_id = (None, None, "p-404", self.accepted[-1] if self.accepted else None)[number]
        self.asked.append(f"w-{self.number + 1}")
        self.order(AwaitCycle(prompt_id=prompt_id), "w")

    def speak(self, number):
        self.post(FirstChunk)
        self.post((TextArrived, ThoughtArrived)[number % 2], ("word ", "hm", "<sta", "x")[number])
        self.post(StreamSilent, 1.0)

    def answer(self, number):
        self.post(FirstChunk)
        self.number += 1
        calls = tuple(
            ToolCall(call_id=f"c-{self.number}-{at}", name=TOOLS[at % 2]) for at in range(number)
        )
        self.post(StreamEnded, Reply("", None, calls, USED, "stop"), 1)

    def fail(self, number):
        self.post(StreamFailed, KINDS[number], "broke", 1)

    def retry(self, _number):
        self.post(RetryDue, 1)

    def begin(self, number):
        if self.step.state is State.EXECUTING_TOOLS and self.to_begin:
            call = self.to_begin.pop(number % len(self.to_begin))
            self.running.append(call)
            self.post(ToolBegun, call.call_id, 5)

    def give(self, number):
        if self.step.state is State.EXECUTING_TOOLS and self.running:
            call = self.running.pop(number % len(self.running))
            self.post(ToolReturned, call.call_id, number != 0, "fine", 6)

    def lag(self, number):
        self.post(StreamEnded, Reply("", None, (), USED, "stop"), 1, late=number + 1)
        self.post(ToolReturned, "c-1-0", True, "late", 6, late=number + 1)

    def crash(self, _number):
        """Lose the process; the next one begins with what the journal has."""
        memory = replayed(self.journal)
        assert durable(memory) == durable(self.step.memory)
        assert set(self.accepted) == known(memory)
        self.resume(memory)

    def resume(self, memory):
        self.incarnation += 1
        self.take(rebuild.resume(memory, self.incarnation, KILLED, 7))

    def finish(self):
        """Answer everything until the session rests."""
        for _ in range(200):
            match self.step.state:
                case State.IDLE:
                    return
                case State.EXECUTING_TOOLS:
                    self.begin(0)
                    self.give(1)
                case _:
                    self.answer(0)
        raise AssertionError("the session does not come to rest")


def replayed(journal):
    records = [record for records in journal for record in records]
    return rebuild.replay(Memory(policy=POLICY, model="m"), records)


def known(memory):
    """Return the prompts that a memory knows of."""
    running = [] if memory.cycle is None else [memory.cycle.command_id]
    over = [seen.command_id for seen in memory.outcomes]
    return {*running, *over, *(queued.command_id for queued in memory.queue)}


def ends_of(life):
    """Count the end events of each prompt."""
    return Counter(
        event.command_id
        for event in life.events
        if isinstance(event, ENDS | PromptDropped) and event.command_id is not None
    )


def started(life):
    """Return the prompts whose cycles began, in that order."""
    records = [record for records in life.journal for record in records]
    return [record.command_id for record in records if isinstance(record, CycleStarted)]


PROMPTS = (Life.prompt, Life.prompt, Life.abort, Life.wait, Life.lag)
ASKING = (*(Life.speak, Life.answer) * 3, Life.fail, Life.retry, *PROMPTS)
# What brings a session on is drawn more often, so that batches get far enough to be cut.
HAPPENS = {
    State.IDLE: PROMPTS,
    State.RUNNING: ASKING,
    State.STREAMING: ASKING,
    State.EXECUTING_TOOLS: (*(Life.begin, Life.give) * 3, *PROMPTS),
}
numbers = st.integers(0, 3)
histories = st.lists(st.tuples(st.integers(0, 100), numbers), min_size=10, max_size=60)


def lived(history, *, stormy=True):
    """Return a session to which one thing happened after another, as its state allows."""
    life = Life()
    life.prompt(0)
    for draw, number in history:
        kinds = HAPPENS[life.step.state] + ((Life.crash,) if stormy else ())
        kinds[draw % len(kinds)](life, number)
    return life


@given(histories)
def test_a_session_comes_to_rest_with_every_prompt_ended_once(history):
    """Each accepted prompt has one outcome and one end event, each question one answer."""
    life = lived(history, stormy=False)
    life.finish()
    memory = life.step.memory
    outcomes = [seen.command_id for seen in memory.outcomes]

    assert sorted(outcomes) == sorted(life.accepted)
    assert ends_of(life) == Counter(life.accepted)
    assert started(life) == [prompt for prompt in life.accepted if prompt in started(life)]
    assert memory.waiters == ()
    assert life.told == Counter(life.asked)


@given(histories)
def test_a_crash_between_steps_loses_nothing(history):
    """The memory that comes back is the one that was lost, and each prompt still ends once."""
    life = lived(history)
    life.crash(0)
    life.finish()
    outcomes = [seen.command_id for seen in life.step.memory.outcomes]

    assert sorted(outcomes) == sorted(life.accepted)
    assert ends_of(life) == Counter(life.accepted)
    assert durable(replayed(life.journal)) == durable(life.step.memory)


@given(histories)
def test_a_call_that_may_not_run_twice_runs_once(history):
    """Counted over all processes of the session; every started call has a result in the end."""
    life = lived(history)
    life.crash(0)
    life.finish()
    messages = life.step.memory.messages
    names = {call.call_id: call.name for said in messages for call in said.tool_calls}
    records = [record for records in life.journal for record in records]
    runs = Counter(record.call_id for record in records if isinstance(record, ToolStarted))

    assert {call_id for call_id in runs if names[call_id] == "write" and runs[call_id] > 1} == set()
    assert {said.call_id for said in messages if said.call_id} == set(names)


@given(histories, st.data())
def test_any_torn_journal_leads_to_a_valid_end(history, data):
    """Cut after any record, also within a step: the session goes on, and no prompt is lost."""
    records = [record for records in lived(history).journal for record in records]
    cut = records[: data.draw(st.integers(0, len(records)), label="records left")]
    accepted = {
        record.command_id for record in cut if isinstance(record, PromptQueued | CycleStarted)
    }
    life = Life()
    life.journal.append(cut)
    life.resume(replayed([cut]))
    life.finish()

    assert known(life.step.memory) == accepted
    assert repair(life.step.memory.messages) == life.step.memory.messages
    assert durable(replayed(life.journal)) == durable(life.step.memory)


@given(st.lists(st.sampled_from([Life.begin, Life.give, Life.speak]), max_size=6))
def test_a_prompt_that_kills_its_process_is_given_up(between):
    """After ``max_cycle_crashes`` it is aborted with the reason, and the next one has its turn."""
    life = Life()
    life.prompt(0)
    life.prompt(1)
    life.answer(2)
    first, second = life.accepted
    for _ in range(CRASHES_MAX):
        assert life.step.memory.cycle.command_id == first
        for happen in between[:3]:
            happen(life, 0)
        life.crash(0)
    aborted = [event for event in life.events if isinstance(event, AgentAbort)]
    recovered = [event for event in life.events if isinstance(event, AgentRecovered)]

    assert [(event.command_id, event.reason) for event in aborted] == [
        (first, f"crashed({KILLED})")
    ]
    assert life.step.memory.cycle.command_id == second
    assert len(recovered) == CRASHES_MAX
