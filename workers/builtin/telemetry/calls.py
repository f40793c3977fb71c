"""Tool calls as spans: one ``execute_tool`` for each call that begins, be they parallel.

A call that never begins (a plugin refuses it, there is no such tool) is an event of the cycle.
"""

from dataclasses import dataclass
from typing import Final

from cmdc_runtime import events
from cmdc_runtime.ids import CallId, SessionId
from cmdc_runtime.tracing import call_span_id
from workers.builtin.telemetry import names
from workers.builtin.telemetry.content import arguments_json, text_of
from workers.builtin.telemetry.operations import Attributes
from workers.builtin.telemetry.sheet import Ending, Place, Sheet, error_kind, usage_attributes

CHILDREN_MAX: Final = 256
"""Subagents that are remembered until their end."""
_KILLED: Final = frozenset({"abandoned", "aborted", "steered"})
"""Words of the kernel for why a call was ended; other reasons are somebody's words."""


@dataclass(slots=True)
class _Call:
    name: str
    duration_ms: int | None = None


class Calls:
    """The calls that run, and the subagents that they wait for."""

    def __init__(self, sheet: Sheet) -> None:
        """Tell on ``sheet``."""
        self._sheet = sheet
        self._running: dict[CallId, _Call] = {}
        self._left_ns: int | None = None
        self._told: set[CallId] = set()
        """Whose end was told already: by what ended them, or since they never began."""
        self._children: dict[SessionId, str] = {}

    def begin_cycle(self) -> None:
        """Forget the cycle before."""
        self.settle()
        self._told.clear()

    def leave(self) -> None:
        """Take this as the end of what runs, unless more is told of it: the cycle was aborted."""
        self._left_ns = self._sheet.now_ns

    def settle(self) -> None:
        """Close what was left by an abort: whatever was ended with it has been told."""
        if self._left_ns is not None:
            self.close_all("aborted", self._left_ns)
            self._left_ns = None

    def close_all(self, outcome: str, at_ns: int) -> None:
        """Close what nothing more is told of."""
        for call_id in self._running:
            self._sheet.close(_key(call_id), Ending(outcome), at_ns)
        self._running.clear()

    def span_of(self, call_id: CallId) -> str | None:
        """Return the span of a call that runs, None of another one."""
        return _key(call_id) if call_id in self._running else None

    def start(self, event: events.ToolExecutionStart) -> None:
        """Open a call."""
        if event.call_id in self._running:
            self._end(event.call_id, Ending("unknown"))
        told: Attributes = {}
        if self._sheet.captures:
            told = {names.TOOL_ARGUMENTS: arguments_json(event.args)}
        self._open(event.name, event.call_id, told)

    def time(self, event: events.ToolExecutionMetrics) -> None:
        """Keep the time that a call took, as the session has measured it.

        Where only its time begins, it is made again by this process, which did not hear its start.
        """
        if (call := self._running.get(event.call_id)) is not None:
            call.duration_ms = event.meta.get("duration_ms")
        elif "ended_at_ms" not in event.meta:
            self._open(event.name, event.call_id)

    def end(self, event: events.ToolExecutionEnd) -> None:
        """End a call."""
        ending = Ending("finished") if event.ok else Ending("failed", "tool_error", event.text)
        if self._left_ns is not None:  # the session waits for it no more
            ending = Ending("aborted")
        if event.call_id in self._running:
            if self._sheet.captures:
                told: Attributes = {names.TOOL_RESULT: text_of(event.text)}
                self._sheet.describe(_key(event.call_id), told)
            self._end(event.call_id, ending)
        elif event.call_id in self._told:
            self._told.discard(event.call_id)
        else:  # it began in a process before this one
            self._tell_refused(event.name, event.call_id, "unknown")

    def kill(self, event: events.ToolKilled) -> None:
        """End a call from outside."""
        if event.call_id not in self._running:
            return  # it had not begun
        why = event.reason if event.reason in _KILLED else "aborted"
        self._sheet.describe(_key(event.call_id), {"cmdc.kill.reason": why})
        self._end(event.call_id, Ending("killed", "killed", event.reason))
        self._told.add(event.call_id)

    def block(self, event: events.ToolBlocked) -> None:
        """Tell of a call that is not made."""
        if event.call_id not in self._told:
            self._told.add(event.call_id)
            self._tell_refused(event.name, event.call_id, "blocked")

    def miss(self, event: events.ToolCallUnknown) -> None:
        """Tell of a call of a tool that there is none of."""
        self._told.add(event.call_id)
        self._tell_refused(event.name, event.call_id, "no_such_tool")

    def loop(self, event: events.LoopDetected) -> None:
        """Tell that the model repeats its calls."""
        told: Attributes = {
            "cmdc.loop.type": event.type,
            "cmdc.loop.count": event.count,
            names.TOOL_NAME: event.name,
        }
        self._sheet.note(names.LOOP_DETECTED, told)

    def start_subagent(self, event: events.SubagentStart) -> None:
        """Tell which session does the work of a call: its spans have that conversation's id."""
        self._children[event.child_session_id] = event.subagent_type
        if len(self._children) > CHILDREN_MAX:
            del self._children[next(iter(self._children))]
        if event.call_id in self._running:
            told: Attributes = {
                "cmdc.subagent.type": event.subagent_type,
                "cmdc.subagent.session_id": event.child_session_id,
            }
            self._sheet.describe(_key(event.call_id), told)

    def end_subagent(self, event: events.SubagentEnd) -> None:
        """Tell what a subagent came to; its requests are measured by its own session."""
        kind = self._children.pop(event.child_session_id, "unknown")
        outcome = "finished" if event.ok else "failed"
        kinds: Attributes = {"cmdc.subagent.type": kind, "cmdc.outcome": outcome}
        told: Attributes = {"cmdc.subagent.session_id": event.child_session_id}
        self._sheet.note(
            names.SUBAGENT_RUN,
            {**kinds, **told, **usage_attributes(event.usage)},
            self.span_of(event.call_id),
        )
        self._sheet.measure(names.SUBAGENT_RUNS, 1, kinds)

    def _open(self, name: str, call_id: CallId, told: Attributes | None = None) -> None:
        more: Attributes = {names.TOOL_TYPE: "function", **_attributes(name, call_id)}
        more |= told or {}
        place = Place(span_id=call_span_id(self._sheet.facts.session_id, call_id))
        self._sheet.open(_key(call_id), names.EXECUTE_TOOL, name, more, place)
        self._running[call_id] = _Call(name)

    def _end(self, call_id: CallId, ending: Ending) -> None:
        sheet, key = self._sheet, _key(call_id)
        call = self._running.pop(call_id)
        took_ms = sheet.elapsed_ms(key) if call.duration_ms is None else call.duration_ms
        summary: Attributes = {"cmdc.outcome": ending.outcome, "cmdc.duration_ms": took_ms}
        sheet.note(names.TOOL_EXEC, {**_attributes(call.name, call_id), **summary}, key)
        kinds: Attributes = {names.TOOL_NAME: call.name, **error_kind(ending)}
        sheet.measure(names.TOOL_EXEC_DURATION, took_ms / 1000, kinds)
        sheet.close(key, ending)

    def _tell_refused(self, name: str, call_id: CallId, outcome: str) -> None:
        told: Attributes = {**_attributes(name, call_id), "cmdc.outcome": outcome}
        self._sheet.note(names.TOOL_EXEC, told)


def _key(call_id: CallId) -> str:
    return f"call {call_id}"


def _attributes(name: str, call_id: CallId) -> Attributes:
    return {names.TOOL_NAME: name, names.TOOL_CALL_ID: call_id}
