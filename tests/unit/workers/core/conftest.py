"""A session's tables driven by hand, for the tests of every core module."""

import dataclasses
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from cmdc_runtime.commands import Prompt
from cmdc_runtime.events import AgentAbort, ToolExecutionEnd
from cmdc_runtime.messages import TokenUsage, ToolCall
from cmdc_runtime.reasons import Signal
from workers.core import causes, commands, evolve, recovery, results
from workers.core.assemble import Reply
from workers.core.inputs import FirstChunk, Order, StreamEnded, TextArrived, ToolBegun, ToolReturned
from workers.core.records import Record
from workers.core.replaying import Entry, reread
from workers.core.state import Memory, PluginFacts, Policy, State, ToolFacts
from workers.core.step import Publish, Step, WriteRecord

USED = TokenUsage(prompt_tokens=2, completion_tokens=1, total_tokens=3)
TOOLS = (ToolFacts("read", is_repeatable=True), ToolFacts("write"), ToolFacts("thread"))
KILLED = Signal(number=9, name="SIGKILL")


@dataclass(frozen=True, slots=True)
class Taken:
    """A step: its input, None where a test took it by hand, the memory before it, its records.

    ``after`` is the memory behind it.
    """

    given: causes.Given | None
    memory: Memory
    incarnation: int
    records: tuple[Record, ...]
    after: Memory


@dataclass(frozen=True, slots=True)
class Session:
    """One session after a step; each input returns it after the next one.

    ``first`` is the memory that it began with, ``taken`` every step so far.
    """

    step: Step
    first: Memory
    taken: tuple[Taken, ...] = ()
    incarnation: int = 1

    @classmethod
    def new(cls, memory=None, **policy):
        """Return a session at rest."""
        memory = memory or Memory(model="x:m", tools=TOOLS)
        hooks = policy.pop("hooks", None)
        policy = Policy(**{"session_id": "s", "subagents": frozenset({"any"}), **policy})
        plugins = (PluginFacts("p", hooks),) if hooks else memory.plugins
        memory = replace(memory, policy=policy, plugins=plugins)
        return cls(Step(memory), memory)

    @classmethod
    def at(cls, state, **policy):
        """Return a session in ``state``, brought there by the tables; its batch is a, b."""
        session = cls.new(**policy)
        if state is State.IDLE:
            return session
        session = session.prompt("go", "p-1")
        if state is State.RUNNING:
            return session
        if state is State.STREAMING:
            return session.speak("part")
        return session.call("read:a", "write:b")

    @property
    def state(self):
        return self.step.state

    @property
    def memory(self):
        return self.step.memory

    @property
    def effects(self):
        return self.step.effects

    # --- inputs ---------------------------------------------------------------------------------

    def take(self, step, given=None):
        """Go on from a step; its records say that it came of the input ``given``."""
        kept = [kept.record for kept in step.effects if isinstance(kept, WriteRecord)]
        if given is not None:
            kept = causes.with_cause(kept, given, self.memory, self.recorded)
        taken = Taken(given, self.memory, self.incarnation, tuple(kept), step.memory)
        return dataclasses.replace(self, step=step, taken=(*self.taken, taken))

    def remembering(self, memory):
        """Go on as if the session remembered this."""
        return self.take(Step(memory))

    def stands_as(self, before):
        """Say whether nothing that is remembered has changed."""
        return (self.state, self.memory) == (before.state, before.memory)

    def give(self, command, command_id="c", at_ms=7):
        """Take a command."""
        order = Order(command_id, command, at_ms)
        return self.take(commands.apply(self.memory, order), order)

    def prompt(self, text="go", command_id="p-1"):
        """Take a prompt."""
        return self.give(Prompt(text=text), command_id)

    def post(self, result):
        """Take a result as it is."""
        return self.take(results.apply(self.memory, result), result)

    def report(self, kind, *rest, **fields):
        """Take a result of the work under way."""
        return self.post(kind(self.memory.work, *rest, **fields))

    def speak(self, text):
        """Have the model say something."""
        session = self if self.state is State.STREAMING else self.report(FirstChunk)
        return session.report(TextArrived, text)

    def answer(self, text="done", usage=USED):
        """Have the model answer without calls."""
        return self.speak(text).report(StreamEnded, Reply("", None, (), usage, "stop"), 8)

    def call(self, *calls):
        """Have the model make calls, each ``name:call_id`` or a ``ToolCall``."""
        made = tuple(call if isinstance(call, ToolCall) else call_of(call) for call in calls)
        session = self if self.state is State.STREAMING else self.report(FirstChunk)
        return session.report(StreamEnded, Reply("", None, made, USED, "tool_calls"), 8)

    def begin(self, *call_ids):
        """Have calls begin."""
        session = self
        for call_id in call_ids:
            session = session.report(ToolBegun, call_id, 9)
        return session

    def end(self, *call_ids, **fields):
        """Have calls return."""
        session = self
        for call_id in call_ids:
            session = session.report(ToolReturned, call_id, True, f"of {call_id}", 10, **fields)
        return session

    def crash(self):
        """Lose the process; the next one has what is written down, and went on with it."""
        memory, number = self.rebuilt(), self.incarnation + 1
        dead = dataclasses.replace(self, step=Step(memory), incarnation=number)
        restarted = causes.Restarted(KILLED, 11)
        return dead.take(recovery.resume(memory, number, KILLED, restarted.at_ms), restarted)

    def rebuilt(self):
        """Return the memory that the journal gives."""
        return evolve.rebuild(self.first, (entry.record for entry in self.entries))

    @property
    def entries(self):
        """The journal: the records of every step so far, as they are read back."""
        kept = [(one.incarnation, record) for one in self.taken for record in one.records]
        return [
            Entry(number, incarnation, reread(record))
            for number, (incarnation, record) in enumerate(kept, start=1)
        ]

    @property
    def recorded(self):
        """The memory behind the last step of this process that kept records, or None."""
        own = [one for one in self.taken if one.incarnation == self.incarnation]
        return next((one.after for one in reversed(own) if one.records), None)

    # --- what came of the latest input ----------------------------------------------------------

    def of(self, kind):
        """Return the effects of this kind."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def events(self, kind=object):
        """Return the events of this kind."""
        return [sent.event for sent in self.of(Publish) if isinstance(sent.event, kind)]

    def records(self, kind=Record):
        """Return the records of this kind."""
        return [kept.record for kept in self.of(WriteRecord) if isinstance(kept.record, kind)]

    def is_announced(self):
        """Say whether one abort is published, behind ends of calls, and before anything is done."""
        at = [
            number
            for number, effect in enumerate(self.effects)
            if isinstance(effect, Publish) and isinstance(effect.event, AgentAbort)
        ]
        ends = [
            number
            for number, effect in enumerate(self.effects)
            if isinstance(effect, Publish) and isinstance(effect.event, ToolExecutionEnd)
        ]
        said = self.effects[: at[0]]
        is_first = all(isinstance(effect, WriteRecord | Publish) for effect in said)
        return len(at) == 1 and is_first and all(end < at[0] for end in ends)

    def is_unchanged(self, before):
        """Say whether the latest input did nothing at all."""
        return self.step == Step(before.memory)


def taken(verb, memory, *rest, state=State.IDLE, **more):
    """Return the step in which a verb of the core meets this memory."""
    step = Step(memory)
    verb(step, *rest, **more)
    return step


def call_of(text):
    """Return the call that ``name:call_id`` stands for."""
    name, _, call_id = text.partition(":")
    return ToolCall(call_id=call_id, name=name)


@pytest.fixture(scope="session")
def session():
    """The class: ``session.new(...)`` is at rest, ``session.at(state)`` in any state."""
    return Session
