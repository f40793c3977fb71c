"""What is left of a run whose strategy is not asked any more: it hangs, or decides otherwise now.

``Remains`` knows the run by its events alone: which branches have come to nothing yet, what the
best answer is by the rule of all strategies, and how the rest is published. An answer is cut where
it becomes an event, since one that was paid for may not be lost for its length.
"""

import sys
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import msgspec

from cmdc_runtime import foreign
from cmdc_runtime.events import ReasoningBranch, ReasoningDone, ReasoningThought
from cmdc_runtime.events.reasoning import TEXT_CHARS_MAX, over
from cmdc_runtime.extensions.reasoning import ReasoningStrategy, RunStatus, Thought, drained
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.lines import one_line
from cmdc_runtime.plain import mended
from cmdc_runtime.reasoning.limits import PLAIN_BYTES_MAX
from cmdc_runtime.reasoning.result import ReasoningEvent, ReasoningResult
from cmdc_runtime.reasons import LINE_CHARS_MAX
from workers.reasoning.inputs import MisuseError, StartBranch, ThoughtCame, charge, plain

# --- answers --------------------------------------------------------------------------------------

NotedAnswer: TypeAlias = tuple[Any, tuple[str, ...]]  # Any: plain data of the strategy
"""An answer, and lines for people about it."""
CUT: Final = "the answer was cut"
"""What the line begins with that says it."""


def noted_answer(value: object, what: str = "the answer") -> NotedAnswer:
    """Return an answer as events have it; of what is too long and no text, the JSON's beginning.

    Raises:
        MisuseError: it is no plain data.
    """
    found = plain(value, what, sys.maxsize)
    if isinstance(found, str):
        body, of = found.encode(), ""
    elif len(msgspec.msgpack.encode(found)) <= PLAIN_BYTES_MAX:
        return found, ()
    else:
        body, of = msgspec.json.encode(found), " of its JSON"
    if len(body) <= PLAIN_BYTES_MAX:
        return found, ()
    text = body[:PLAIN_BYTES_MAX].decode(errors="ignore")
    note = f"{CUT}: it is the first {len(text.encode()):,} of {len(body):,} bytes{of}"
    return text, (note,)


def best_answer(
    strategy: ReasoningStrategy,
    thoughts: tuple[Thought, ...],
    state: Any,  # Any: the strategy's own
) -> NotedAnswer:
    """Return the best answer so far: what the strategy says, else by the rule of all strategies."""
    try:
        best = foreign.call(lambda: strategy.best(thoughts, state))
        drained(strategy)
        return noted_answer(best, "the best answer")
    except (ForeignError, MisuseError) as error:
        best, notes = noted_answer(ReasoningStrategy().best(thoughts, None))
        so = "" if best is None else ", so the best thought is the answer"
        why = one_line(str(error), LINE_CHARS_MAX)
        return best, (f"the strategy's best() failed{so}: {why}", *notes)


# --- remains --------------------------------------------------------------------------------------


def best_of(events: Iterable[ReasoningEvent], run_id: str) -> Any:  # Any: text, or None
    """Return the best answer that events report, by the rule of a strategy without one."""
    thoughts = ReasoningResult.of(events, run_id).thoughts
    return ReasoningStrategy().best(thoughts, None)


def open_of(events: Iterable[ReasoningEvent]) -> dict[str, ReasoningBranch]:
    """Return the branches that were asked for, and whose thoughts nobody has published."""
    found: dict[str, ReasoningBranch] = {}
    for event in events:
        if isinstance(event, ReasoningBranch):
            found[event.branch_id] = event
        elif isinstance(event, ReasoningThought):
            found.pop(event.thought_id, None)
    return found


class Remains:
    """One run as far as it is published."""

    def __init__(self, run_id: str, strategy: str, earlier: Iterable[ReasoningEvent] = ()) -> None:
        """Begin with what was published in earlier lives."""
        self._run_id, self._strategy = run_id, strategy
        self._events = list(earlier)
        self._started: dict[str, StartBranch] = {}

    @property
    def is_over(self) -> bool:
        """Whether its end was published."""
        return any(isinstance(one, ReasoningDone) for one in self._events)

    @property
    def open(self) -> dict[str, ReasoningBranch]:
        """As ``open_of``, of all that was published."""
        return open_of(self._events)

    @property
    def result(self) -> ReasoningResult:
        """What it has come to."""
        return ReasoningResult.of(self._events, self._run_id)

    def record(self, event: ReasoningEvent) -> None:
        """Record an event."""
        self._events.append(event)

    def start(self, start: StartBranch) -> None:
        """Record what a branch may use."""
        self._started[str(start.branch.id)] = start

    def thought(self, came: ThoughtCame) -> ReasoningThought:
        """Return what reports an open branch that has ended."""
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
        """Return what reports an open branch that nobody waits for: it may have used its part."""
        return self.thought(ThoughtCame(branch_id=branch_id, error=over(status), is_cut=True))

    def done(self, status: RunStatus, reason: str, elapsed_ms: int) -> ReasoningDone:
        """Return what reports the end, with the best answer so far."""
        return ReasoningDone(
            run_id=self._run_id,
            strategy=self._strategy,
            status=status,
            answer=best_of(self._events, self._run_id),
            reason=reason,
            elapsed_ms=elapsed_ms,
        )
