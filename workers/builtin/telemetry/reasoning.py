"""Runs of reasoning strategies as spans: one ``reason`` for each, one ``branch`` for each branch.

The run's span is in that of the call which runs it, else in the cycle's; its branches are in the
run's, and name their parents in the tree. What a branch's own session does is in the branch's span
(``cmdc_runtime.tracing``). Scores, prunings and thoughts that no branch of this process has brought
are events of the run.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from cmdc_runtime import events
from cmdc_runtime.ids import CallId, branch_ref, call_of_run
from cmdc_runtime.reasoning.result import ReasoningEvent
from cmdc_runtime.tracing import branch_span_id
from workers.builtin.telemetry import names
from workers.builtin.telemetry.calls import Calls
from workers.builtin.telemetry.content import text_of
from workers.builtin.telemetry.operations import Attributes
from workers.builtin.telemetry.sheet import (
    CYCLE,
    Ending,
    Place,
    Sheet,
    error_kind,
    usage_attributes,
)

NOTES_MAX: Final = 100
"""Scores, prunings and thoughts that a run's span tells: a span has room for 128 events."""
RUNS_MAX: Final = 64
"""Open at a time; of more runs than that nothing is told."""
_KILLED: Final = "killed"
"""How a run and its branches end whose call is ended from outside: that is their error, too."""
_NO_FAILURE: Final = frozenset({"done", "aborted"})


@dataclass(slots=True)
class _Run:
    strategy: str
    branches: int = 0
    notes: int = 0
    running: set[str] = field(default_factory=set)


class Runs:
    """The runs of strategies that are under way in this session."""

    def __init__(self, sheet: Sheet, calls: Calls) -> None:
        """Tell on ``sheet``, of runs within ``calls``."""
        self._sheet = sheet
        self._calls = calls
        self._running: dict[str, _Run] = {}
        self._over: deque[str] = deque(maxlen=RUNS_MAX)
        """Runs that are closed: what is told of their branches later opens none anew."""

    def branch(self, event: events.ReasoningBranch) -> None:
        """Open a branch, and its run with the first one."""
        run = self._run(event)
        if run is None:
            return
        if event.branch_id in run.running:
            self._end(event.run_id, event.branch_id, Ending("unknown"))
        more: Attributes = {"cmdc.reasoning.branch_id": event.branch_id, **_kinds(event.strategy)}
        if event.parent_id is not None:
            more["cmdc.reasoning.parent_id"] = event.parent_id
        if event.revision:
            more["cmdc.reasoning.revision"] = event.revision
        if self._sheet.captures:
            more["cmdc.reasoning.prompt"] = text_of(event.prompt)
        where, inside = _key(event.run_id, event.branch_id), _key(event.run_id)
        ref = branch_ref(call_of_run(event.run_id), event.branch_id)
        span_id = branch_span_id(self._sheet.facts.session_id, ref)
        self._sheet.open(where, names.BRANCH, event.branch_id, more, Place(inside, span_id))
        run.branches += 1
        run.running.add(event.branch_id)

    def thought(self, event: events.ReasoningThought) -> None:
        """End a branch; another thought is an event of the run."""
        run = self._run(event)
        if run is None:
            return
        if event.thought_id not in run.running:
            told: Attributes = {"cmdc.reasoning.thought_id": event.thought_id}
            self._note(event.run_id, names.REASONING_THOUGHT, told)
            return
        told = usage_attributes(event.usage)
        if self._sheet.captures:
            told["cmdc.reasoning.thought"] = text_of(event.content)
        self._sheet.describe(_key(event.run_id, event.thought_id), told)
        word = None if event.error is None else names.word_of(event.error) or names.OTHER_ERROR
        outcome = "finished" if word is None else "failed"
        self._end(event.run_id, event.thought_id, Ending(outcome, word, event.error))

    def score(self, event: events.ReasoningScore) -> None:
        """Tell how a thought was scored."""
        if self._run(event) is not None:
            told: Attributes = {
                "cmdc.reasoning.thought_id": event.thought_id,
                "cmdc.reasoning.score": event.score,
            }
            self._note(event.run_id, names.REASONING_SCORE, told)

    def prune(self, event: events.ReasoningPrune) -> None:
        """Tell which thoughts were given up."""
        if self._run(event) is not None:
            told: Attributes = {"cmdc.reasoning.thought_ids": event.thought_ids}
            self._note(event.run_id, names.REASONING_PRUNE, told)

    def finish(self, event: events.ReasoningDone) -> None:
        """Close the run, and what still runs of it."""
        if self._run(event) is None:
            return
        outcome = "finished" if event.status == "done" else event.status
        error = None if event.status in _NO_FAILURE else event.status
        self._close(event.run_id, Ending(outcome, error, event.reason))

    def close_of(self, call_id: CallId, outcome: str) -> None:
        """Close what a call that is over has left open; what was killed has failed."""
        error = outcome if outcome == _KILLED else None
        for run_id in [one for one in self._running if call_of_run(one) == call_id]:
            self._close(run_id, Ending(outcome, error))

    def close_all(self, outcome: str) -> None:
        """Close what nothing more is told of."""
        for run_id in [*self._running]:
            self._close(run_id, Ending(outcome))

    def _run(self, event: ReasoningEvent) -> _Run | None:
        """Return the run of an event; None after the cycle, which had closed it, and of too many.

        It is opened with what is heard first, since this process may not have heard its begin.
        """
        run = self._running.get(event.run_id)
        if event.run_id in self._over:
            return None
        if run is None and self._sheet.has(CYCLE) and len(self._running) < RUNS_MAX:
            run = self._running[event.run_id] = _Run(event.strategy)
            more: Attributes = {"cmdc.reasoning.run_id": event.run_id, **_kinds(event.strategy)}
            parent = self._calls.span_of(call_of_run(event.run_id))
            place = Place(parent)
            self._sheet.open(_key(event.run_id), names.REASON, event.strategy, more, place)
        return run

    def _note(self, run_id: str, name: str, told: Attributes) -> None:
        run = self._running[run_id]
        run.notes += 1
        if run.notes <= NOTES_MAX:
            self._sheet.note(name, told, _key(run_id))

    def _end(self, run_id: str, branch_id: str, ending: Ending) -> None:
        self._running[run_id].running.discard(branch_id)
        self._sheet.close(_key(run_id, branch_id), ending)

    def _close(self, run_id: str, ending: Ending) -> None:
        sheet, run, where = self._sheet, self._running[run_id], _key(run_id)
        for branch_id in sorted(run.running):
            error = ending.error if ending.outcome == _KILLED else None
            self._end(run_id, branch_id, Ending(ending.outcome, error))
        del self._running[run_id]
        self._over.append(run_id)
        told: Attributes = {"cmdc.reasoning.branches": run.branches}
        if run.notes > NOTES_MAX:
            told["cmdc.reasoning.omitted"] = run.notes - NOTES_MAX
        sheet.describe(where, told)
        kinds = {**_kinds(run.strategy), "cmdc.outcome": ending.outcome, **error_kind(ending)}
        sheet.measure(names.REASONING_RUN_DURATION, sheet.elapsed_s(where), kinds)
        sheet.close(where, ending)


def _kinds(strategy: str) -> Attributes:
    return {"cmdc.reasoning.strategy": strategy}


def _key(run_id: str, branch_id: str | None = None) -> str:
    return f"run {run_id}" if branch_id is None else f"run {run_id} branch {branch_id}"
