"""The books of one session, kept by its events alone: everything that begins has one end.

Events go in one by one, problems come out. The books know nothing of how the kernel works; they
know what its events promise, so they find what gets lost or comes twice. ``close`` adds what can
be said only when the session rests.

To add a rule: a method for the event, with its row in ``_ROWS`` below them.
"""

import zlib
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import msgspec

from cmdc_runtime import events
from cmdc_runtime.events import Envelope, Event
from cmdc_runtime.messages import Message
from cmdc_runtime.process import DAEMON_RESTARTED, RESUMED
from scripts.soak.tools import NOTED
from scripts.soak.wrongs import Problem, Wrong

TAIL_EVENTS: Final = 40
"""Shown of a session that something is wrong with."""
PROBLEMS_MAX: Final = 20
"""Of one session; what follows the first few is their echo."""


class Ledger:
    """What the events of one session add up to."""

    def __init__(self, cycle_crashes_max: int = 2) -> None:
        """Begin before the first event; a cycle is given up when it has cost so many processes."""
        self._crashes_max = cycle_crashes_max
        self._crashes = 0
        """Processes that the running cycle has cost, as far as they may be its fault."""
        self.incarnation = 0
        """The newest process that ``agent_recovered`` has named, which is never the first one."""
        self.problems: list[Problem] = []
        self.jumps_allowed = 0
        """How often the daemon has died with no loss reported since: one jump each is no hole."""
        self.tail: deque[Envelope] = deque(maxlen=TAIL_EVENTS)
        self.counts: Counter[str] = Counter()
        self.digests: dict[int, int] = {}
        """Of the durable events, by index: who reads them later must find the same."""
        self.said: list[Message] = []
        """The model's answers, in order."""
        self.last = 0
        self.open: str | None = None
        """The command whose cycle runs."""
        self.given_up = 0
        """Cycles that were aborted because they kill their process."""
        self.steerings_left = 0
        """Accepted, and neither given to the model nor dropped so far."""
        self._received: dict[str, bool] = {}
        self._started: list[str] = []
        self._ended: set[str] = set()
        self._steered: set[str] = set()
        self._dropped: set[str] = set()
        self._calls: set[str] = set()
        """Of the latest answer, those that have no end so far."""
        self._begun: set[str] = set()
        self._text: str | None = ""
        """Pieces of the answer so far; None: some were lost, and it comes whole."""
        self._asked: set[str] = set()
        self._answered: set[str] = set()
        self.refused: set[str] = set()
        """Questions of which the session said that they do not wait."""
        self._thoughts: set[tuple[str, str]] = set()
        self._below: set[str] = set()
        """Subagents that have ended."""
        self._noted: list[str] = []
        self.notes: list[str] = []
        """What plugins had to say in cycles that finished: the model has read it."""
        self._lost = 0
        """The last index reported as lost, while nothing has said that its process is gone."""

    # --- what is asked of it ----------------------------------------------------------------------

    @property
    def waiting(self) -> list[str]:
        """Return the prompts that were received and are neither started nor dropped."""
        over = {*self._started, *self._dropped}
        return [prompt for prompt in self._received if prompt not in over]

    @property
    def is_at_rest(self) -> bool:
        """Say whether nothing runs and nothing waits."""
        return self.open is None and not self.waiting and not self.steerings_left

    @property
    def has_lost(self) -> bool:
        """Say whether events were lost and nothing has said that their process is gone."""
        return bool(self._lost)

    def knows(self, command_id: str) -> bool:
        """Say whether any event named this prompt or steering."""
        return command_id in self._received or command_id in self._steered

    def has_started(self, command_id: str) -> bool:
        """Say whether the cycle of this prompt began."""
        return command_id in self._started

    def has_ended(self, command_id: str) -> bool:
        """Say whether this prompt or steering has its end."""
        if command_id in self._steered:
            return not self.steerings_left or command_id in self._dropped
        return command_id in self._ended or command_id in self._dropped

    def close(self, accepted: list[str]) -> None:
        """Say what is missing now that the session rests; ``accepted`` are commands' ids."""
        self._check_lost()
        self._check_calls()
        if self.open is not None:
            self._report(f"the cycle of {self.open} has no end", Wrong.PROMPT)
        for prompt in self.waiting:
            self._report(f"prompt {prompt} has neither a cycle nor a drop", Wrong.PROMPT)
        if self.steerings_left:
            self._report(
                f"{self.steerings_left} steerings were neither received nor dropped", Wrong.PROMPT
            )
        for command_id in accepted:
            if not self.knows(command_id):
                self._report(
                    f"command {command_id} was accepted and no event says so", Wrong.PROMPT
                )
            elif not self.has_ended(command_id):
                self._report(f"command {command_id} was accepted and has no end", Wrong.PROMPT)

    # --- what happens -----------------------------------------------------------------------------

    def feed(self, envelope: Envelope) -> None:
        """Take the next event."""
        event = envelope.event
        self.tail.append(envelope)
        self._follow(envelope)
        self.counts["events"] += 1
        if event.durable and not isinstance(event, events.EventsLost):
            self.digests[envelope.index] = digest(event)
        if isinstance(event, _OF_A_CYCLE) and self.open is None:
            self._report(f"{event.kind} at index {envelope.index} outside of every cycle")
        note = self._ROWS.get(type(event))
        if note is not None:
            note(self, event)

    def _report(self, text: str, kind: Wrong = Wrong.OTHER) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(kind, text))

    def _follow(self, envelope: Envelope) -> None:
        """Check that an index is the next one, and that only a process that is gone loses any.

        Behind a loss may come what the journal had of that process, and another loss; then the next
        process. All that is one jump, and each death of the daemon allows one.
        """
        event, last = envelope.event, self.last
        self.last = envelope.index
        if isinstance(event, events.EventsLost):
            self.counts["jumps"] += 1
            self.jumps_allowed -= not self._lost
            self._lost, self._text = event.last, None
            if event.first != last + 1 or self.jumps_allowed < 0:
                self._report(f"events {event.first} to {event.last} were lost", Wrong.INDEX)
            return
        if envelope.index != last + 1:
            self._report(f"index {envelope.index} follows {last}", Wrong.INDEX)
        if isinstance(event, _NEW_PROCESS):
            self._lost = 0
        elif not event.durable:
            self._check_lost()

    def _check_lost(self) -> None:
        if self._lost:
            text = f"events up to {self._lost} were lost of a process that lives on"
            self._report(text, Wrong.INDEX)
            self._lost = 0

    def _receive(self, event: events.PromptReceived) -> None:
        self.counts["prompts_received"] += 1
        if event.command_id in self._received:
            self._report(f"prompt {event.command_id} was received twice")
        self._received[event.command_id] = event.queued

    def _start(self, event: events.AgentStart) -> None:
        self.counts["cycles"] += 1
        if self.open is not None:
            self._report(f"the cycle of {event.command_id} starts in that of {self.open}")
        if event.command_id in self._started:
            self._report(f"the cycle of {event.command_id} starts twice")
        self._check_order(event.command_id)
        self._started.append(event.command_id)
        self.open = event.command_id
        self._crashes = 0
        self._noted.clear()

    def _check_order(self, command_id: str) -> None:
        waiting = self.waiting
        if command_id in waiting and waiting[0] != command_id:
            self._report(f"prompt {command_id} starts before {waiting[0]}, which came first")

    def _finish(self, event: events.AgentEnd) -> None:
        self.notes += self._noted
        self._end(event.command_id, "finished")

    def _fail(self, event: events.AgentError) -> None:
        self._end(event.command_id, "failed")

    def _abort(self, event: events.AgentAbort) -> None:
        self.given_up += str(event.reason).startswith("crashed(")
        if event.command_id is not None:
            self._end(event.command_id, "aborted")
        elif self.open is not None:
            self._report(f"an abort names no cycle, and that of {self.open} runs")

    def _end(self, command_id: str, how: str) -> None:
        self.counts[f"cycles_{how}"] += 1
        if command_id != self.open:
            self._report(f"the cycle of {command_id} ends, and that of {self.open} runs")
        if command_id in self._ended:
            self._report(f"the cycle of {command_id} ends twice")
        self._ended.add(command_id)
        self.open = None
        self._text = ""

    def _drop(self, event: events.PromptDropped) -> None:
        self.counts["dropped"] += 1
        if event.command_id in self._dropped or event.command_id in self._started:
            self._report(f"{event.command_id} is dropped after its end or its start")
        self._dropped.add(event.command_id)
        if event.command_id in self._steered:
            self._leave(1)

    def _steer(self, event: events.SteeringReceived) -> None:
        self.counts[f"steerings_{event.status}"] += 1
        if event.status != "queued":
            return
        if event.ref in self._steered:
            self._report(f"steering {event.ref} was received twice")
        self._steered.add(event.ref)
        self.steerings_left += 1

    def _apply(self, event: events.SteeringApplied) -> None:
        self._leave(event.count)

    def _leave(self, count: int) -> None:
        self.steerings_left -= count
        if self.steerings_left < 0:
            self._report("more steerings were read or dropped than were received")
            self.steerings_left = 0

    def _request(self, _event: events.RequestStart) -> None:
        self.counts["requests"] += 1
        if self._text:
            self._report("a request starts, and no event discards the answer so far")
            self._text = ""

    def _reset(self, _event: events.StreamReset) -> None:
        self._text = ""

    def _speak(self, event: events.MessageDelta) -> None:
        if self._text is not None:
            self._text += event.delta

    def _answer(self, event: events.ResponseComplete) -> None:
        if self._text is not None and self._text != event.message.content:
            self._report(f"the pieces of answer {event.message.id} do not add up to it")
        self._text = ""
        self.said.append(event.message)
        self._check_calls()
        self._calls = {call.call_id for call in event.message.tool_calls}
        self.counts["tool_calls"] += len(self._calls)

    def _check_calls(self) -> None:
        for call_id in self._calls:
            self._report(f"call {call_id} has no end")
        self._calls.clear()
        self._begun.clear()

    def _begin_call(self, event: events.ToolExecutionStart | events.ToolBlocked) -> None:
        self.counts[event.kind] += 1
        if event.call_id not in self._calls or event.call_id in self._begun:
            self._report(f"{event.kind} of call {event.call_id}, which is not to begin")
        self._begun.add(event.call_id)

    def _kill_call(self, event: events.ToolKilled) -> None:
        self.counts[event.kind] += 1
        if event.call_id not in self._begun:
            self._report(f"{event.kind} of call {event.call_id}, which is not open")

    def _close_call(self, event: events.ToolExecutionEnd) -> None:
        self.counts[event.kind] += 1
        if event.call_id not in self._begun:
            self._report(f"{event.kind} of call {event.call_id}, which is not open")
        self._begun.discard(event.call_id)
        self._calls.discard(event.call_id)

    def _recover(self, event: events.AgentRecovered) -> None:
        self.counts[f"recovered_{event.resumed}"] += 1
        self.incarnation = event.incarnation
        if event.resumed == "idle" or str(event.reason) in _NOBODYS_FAULT:
            return
        self._crashes += 1
        if self._crashes >= self._crashes_max:
            self._report(f"the cycle of {self.open} goes on after {self._crashes} crashes")

    def _ask(self, event: events.AskUser) -> None:
        self.counts["questions"] += 1
        if event.ref in self._answered:  # one that still waits is asked by the next process too
            self._report(f"question {event.ref} is asked again after its answer")
        if event.ref in self.refused:
            self._report(f"question {event.ref} waits, and its answer was refused")
        self._asked.add(event.ref)

    def _hear(self, event: events.UserResponded) -> None:
        self.counts["questions_answered"] += 1
        if event.ref not in self._asked:
            self._report(f"question {event.ref} is answered twice, or was never asked")
        self._asked.discard(event.ref)
        self._answered.add(event.ref)

    def _think(self, event: events.ReasoningThought) -> None:
        self.counts[event.kind] += 1
        thought = event.run_id, event.thought_id
        if thought in self._thoughts:
            self._report(f"thought {event.thought_id} of run {event.run_id} comes twice")
        self._thoughts.add(thought)
        if event.error is None:  # what a run gains outweighs the deaths before it
            self._crashes = 0

    def _end_below(self, event: events.SubagentEnd) -> None:
        self.counts[event.kind] += 1
        self.counts["answers_below"] += event.ok
        if event.child_session_id in self._below:
            self._report(f"subagent {event.child_session_id} ends twice: it is paid twice")
        self._below.add(event.child_session_id)

    def _note(self, event: events.PluginEvent) -> None:
        """Keep what the model is to read; what is said of a call that is over comes too late."""
        call_id, _, _ = str(event.payload).partition(" ")
        if event.name == NOTED and call_id in self._begun:
            self._noted.append(event.payload)

    def _count(self, event: Event) -> None:
        self.counts[event.kind] += 1

    # Any: each method takes the event of its own row.
    _ROWS: ClassVar[Mapping[type[Event], Callable[[Any, Any], None]]] = {
        events.PromptReceived: _receive,
        events.AgentStart: _start,
        events.AgentEnd: _finish,
        events.AgentError: _fail,
        events.AgentAbort: _abort,
        events.PromptDropped: _drop,
        events.SteeringReceived: _steer,
        events.SteeringApplied: _apply,
        events.RequestStart: _request,
        events.StreamReset: _reset,
        events.MessageDelta: _speak,
        events.ResponseComplete: _answer,
        events.ToolExecutionStart: _begin_call,
        events.ToolExecutionEnd: _close_call,
        events.ToolKilled: _kill_call,
        events.ToolBlocked: _begin_call,
        events.AgentRecovered: _recover,
        events.AskUser: _ask,
        events.UserResponded: _hear,
        events.PluginEvent: _note,
        events.ApprovalRequired: _count,
        events.ConversationCompacted: _count,
        events.SubagentStart: _count,
        events.SubagentEnd: _end_below,
        events.ReasoningThought: _think,
        events.PluginCrashed: _count,
        events.AgentHibernated: _count,
        events.LoopDetected: _count,
    }


def digest(event: Event) -> int:
    """Return a number that two events share if they are equal."""
    return zlib.crc32(msgspec.msgpack.encode(event))


_NEW_PROCESS: Final = (events.AgentRecovered, events.AgentWoken)
"""What says that a loss was one of a dead process: an agent that is adopted has kept its events."""
_NOBODYS_FAULT: Final = frozenset({DAEMON_RESTARTED, RESUMED})
_OF_A_CYCLE: Final = (
    events.RequestStart,
    events.MessageStart,
    events.MessageDelta,
    events.ThinkingDelta,
    events.ResponseComplete,
    events.ToolCalls,
    events.ToolExecutionStart,
    events.Retry,
    events.AskUser,
)
"""What is published of a cycle, and never when none runs."""
