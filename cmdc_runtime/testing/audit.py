"""What must hold of a session whatever died: seen in its events, its conversation and its calls.

Nothing here knows how the runtime works; it knows what events and conversations promise. Each
function returns what is broken, one line for each. ``Books`` are kept of one session's events, in
their order. To add a rule about events: a method with its row in ``_ROWS``.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

from cmdc_runtime import events
from cmdc_runtime.events import Envelope
from cmdc_runtime.ids import CallId, CommandId, EventIndex
from cmdc_runtime.messages import Message

REPEATABLE = frozenset({"read", "idempotent"})


class Books:
    """What the events of one session add up to."""

    def __init__(self) -> None:
        """Begin before the first event."""
        self.problems: list[str] = []
        self.last = EventIndex(0)
        self.received: list[CommandId] = []
        self.started: list[CommandId] = []
        self.ended: list[CommandId] = []
        self.dropped: list[CommandId] = []
        self.recovered = 0
        self.calls_begun: Counter[CallId] = Counter()
        self.calls_ended: Counter[CallId] = Counter()
        self._durable: set[EventIndex] = set()

    def feed(self, envelope: Envelope) -> None:
        """Take the next event."""
        event, first = envelope.event, self.last + 1
        if isinstance(event, events.EventsLost):
            # Those of a process that is dead, which nobody had yet; what is durable is never lost.
            if event.first != first:
                self.problems.append(
                    f"events {event.first} to {event.last} lost behind {self.last}"
                )
            self.last = event.last
            return
        if envelope.index != first:
            self.problems.append(f"index {envelope.index} of {event.kind} follows {self.last}")
        self.last = envelope.index
        if event.durable:
            self._durable.add(envelope.index)
        note = self._ROWS.get(type(event))
        if note is not None:
            note(self, event)

    def missing(self, heard: Mapping[EventIndex, str]) -> list[str]:
        """Return which of the durable events that were published before are not there any more."""
        return [
            f"event {index}, {kind}, was published and is not there any more"
            for index, kind in heard.items()
            if index not in self._durable
        ]

    def close(self, *, is_over: bool) -> list[str]:
        """Return what is broken; ``is_over``: the session has ended, and left open what it did."""
        found = list(self.problems)
        over = {*self.ended, *self.dropped}
        lost = [command for command in self.received if command not in over and not is_over]
        found += [f"prompt {command} has neither an end nor a drop" for command in lost]
        for what, counted in (("starts", self.started), ("ends", self.ended)):
            twice = [command for command, count in Counter(counted).items() if count > 1]
            found += [f"the cycle of {command} {what} twice" for command in twice]
        for call_id, count in self.calls_begun.items():
            if self.calls_ended[call_id] != count and not is_over:
                found.append(f"call {call_id} has {self.calls_ended[call_id]} ends for {count}")
        return found

    # --- rows -------------------------------------------------------------------------------------

    def _receive(self, event: events.PromptReceived) -> None:
        self.received.append(event.command_id)

    def _start(self, event: events.AgentStart) -> None:
        self.started.append(event.command_id)

    def _end(self, event: events.AgentEnd | events.AgentError) -> None:
        self.ended.append(event.command_id)

    def _abort(self, event: events.AgentAbort) -> None:
        if event.command_id is not None:
            self.ended.append(event.command_id)

    def _drop(self, event: events.PromptDropped) -> None:
        self.dropped.append(event.command_id)

    def _recover(self, _event: events.AgentRecovered) -> None:
        self.recovered += 1

    def _begin_call(self, event: events.ToolExecutionStart | events.ToolBlocked) -> None:
        self.calls_begun[event.call_id] += 1

    def _end_call(self, event: events.ToolExecutionEnd) -> None:
        self.calls_ended[event.call_id] += 1

    # Any: each method takes the event of its own row.
    _ROWS: ClassVar[Mapping[type[events.Event], Callable[[Any, Any], None]]] = {
        events.PromptReceived: _receive,
        events.AgentStart: _start,
        events.AgentEnd: _end,
        events.AgentError: _end,
        events.AgentAbort: _abort,
        events.PromptDropped: _drop,
        events.AgentRecovered: _recover,
        events.ToolExecutionStart: _begin_call,
        events.ToolBlocked: _begin_call,
        events.ToolExecutionEnd: _end_call,
    }


def calls_repeated(lines: Iterable[str]) -> list[str]:
    """Return the calls of ``write`` tools that began to run in two processes.

    ``lines`` are those of ``faults.note_call``.
    """
    noted = Counter(tuple(json.loads(line)) for line in lines)
    return [
        f"call {call_id} of a tool with effects={effects!r} ran {count} times"
        for (call_id, effects), count in noted.items()
        if count > 1 and effects not in REPEATABLE
    ]


def history_problems(messages: Sequence[Message]) -> list[str]:
    """Return what a strict provider would refuse of a conversation.

    Each call has exactly one result, behind the answer that made it and before anything else is
    said; the first word is the user's; the model does not speak twice in a row.
    """
    said = [
        one
        for one in messages
        if one.role != "system" and (one.role != "assistant" or one.content or one.tool_calls)
    ]
    found = [] if not said or said[0].role == "user" else [f"the first word is {said[0].role}'s"]
    found += [
        f"{after.id}: the model speaks twice in a row"
        for before, after in pairwise(said)
        if before.role == after.role == "assistant"
    ]
    return found + list(_unanswered(said))


def _unanswered(said: Iterable[Message]) -> Iterator[str]:
    waiting: list[str] = []
    for message in said:
        if message.role == "tool_result":
            if message.call_id in waiting:
                waiting.remove(str(message.call_id))
            else:
                yield f"{message.id}: a result of {message.call_id}, which is not asked for"
            continue
        if waiting:
            yield f"{message.id}: no result of {', '.join(waiting)} before it"
        waiting = [call.call_id for call in message.tool_calls]
    if waiting:
        yield f"no result of {', '.join(waiting)}"
