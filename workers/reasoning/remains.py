"""What is left of a run whose strategy is not asked any more: it hangs, or decides otherwise now.

``Remains`` knows the run by its events alone: which branches have come to nothing yet, what the
best answer is by the rule of all strategies, and how the rest is told.
"""

from collections.abc import Iterable
from typing import Any

from cmdc_runtime.events import ReasoningBranch, ReasoningDone, ReasoningThought
from cmdc_runtime.events.reasoning import TEXT_CHARS_MAX, over
from cmdc_runtime.extensions.reasoning import ReasoningStrategy, RunStatus
from cmdc_runtime.plain import mended
from cmdc_runtime.reasoning.result import ReasoningEvent, ReasoningResult
from workers.reasoning.inputs import StartBranch, ThoughtCame, charge


def best_of(events: Iterable[ReasoningEvent], run_id: str) -> Any:  # Any: text, or None
    """Return the best answer that events tell of, by the rule of a strategy without one."""
    thoughts = ReasoningResult.of(events, run_id).thoughts
    return ReasoningStrategy().best(thoughts, None)


def open_of(events: Iterable[ReasoningEvent]) -> dict[str, ReasoningBranch]:
    """Return the branches that were asked for, and whose thoughts nobody has told."""
    found: dict[str, ReasoningBranch] = {}
    for event in events:
        if isinstance(event, ReasoningBranch):
            found[event.branch_id] = event
        elif isinstance(event, ReasoningThought):
            found.pop(event.thought_id, None)
    return found


class Remains:
    """One run as far as it is told."""

    def __init__(self, run_id: str, strategy: str, told: Iterable[ReasoningEvent] = ()) -> None:
        """Begin with what was told in earlier lives."""
        self._run_id, self._strategy = run_id, strategy
        self._events = list(told)
        self._started: dict[str, StartBranch] = {}

    @property
    def is_over(self) -> bool:
        """Whether its end was told."""
        return any(isinstance(one, ReasoningDone) for one in self._events)

    @property
    def open(self) -> dict[str, ReasoningBranch]:
        """As ``open_of``, of all that was told."""
        return open_of(self._events)

    @property
    def result(self) -> ReasoningResult:
        """What it has come to."""
        return ReasoningResult.of(self._events, self._run_id)

    def tell(self, event: ReasoningEvent) -> None:
        """Take note of an event."""
        self._events.append(event)

    def start(self, start: StartBranch) -> None:
        """Take note of what a branch may use."""
        self._started[str(start.branch.id)] = start

    def thought(self, came: ThoughtCame) -> ReasoningThought:
        """Return what tells of an open branch that has ended."""
        start = self._started.get(came.branch_id)
        tokens, cost_usd = (None, None) if start is None else (start.tokens, start.cost_usd)
        return ReasoningThought(
            run_id=self._run_id,
            strategy=self._strategy,
            thought_id=came.branch_id,
            parent_id=self.open[came.branch_id].parent_id,
            content="" if came.error is not None else mended(came.content)[:TEXT_CHARS_MAX],
            error=None if came.error is None else mended(came.error) or "failed",
            usage=charge(came, tokens or 0, cost_usd or 0.0),
        )

    def unheard(self, branch_id: str, status: RunStatus) -> ReasoningThought:
        """Return what tells of an open branch that nobody waits for: it may have used its part."""
        return self.thought(ThoughtCame(branch_id=branch_id, error=over(status), is_cut=True))

    def done(self, status: RunStatus, reason: str, elapsed_ms: int) -> ReasoningDone:
        """Return what tells the end, with the best answer so far."""
        return ReasoningDone(
            run_id=self._run_id,
            strategy=self._strategy,
            status=status,
            answer=best_of(self._events, self._run_id),
            reason=reason,
            elapsed_ms=elapsed_ms,
        )
