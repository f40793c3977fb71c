"""A reasoning strategy at work: its branches and thoughts are a tree, published as it grows.

``run_id`` is the same in all events of a run. A branch and its thought have one id, so
``parent_id`` and the ids make the tree. The Reasoning plugin emits the same fields for its chains,
as ``PluginEvent``.
"""

from typing import Any, Final, Literal, TypeAlias

import msgspec

from cmdc_runtime.events.base import Event
from cmdc_runtime.lines import one_line
from cmdc_runtime.messages import TokenUsage

TEXT_CHARS_MAX: Final = 100_000
"""Of a prompt, a thought or an answer as it is published; the conversation has all of it."""
ROLE: Final = "role"
"""The key in a branch's metadata that says what it is for."""
JUDGE: Final = "judge"
"""The role of a branch that scores others, and has no answer."""


def over(status: str) -> str:
    """Return the ``error`` of a branch that its run, which has this status, did not wait for."""
    return f"the run is over: {status}"


class ReasoningBranch(Event, frozen=True, kw_only=True):
    """A strategy asked for a branch: a question to a model, in a session of its own.

    ``revision`` counts the revisions of the run, this one included, where the branch runs again
    with feedback.
    """

    content_fields = ("prompt", "metadata")
    span = "reason"

    run_id: str
    strategy: str
    branch_id: str
    parent_id: str | None = None
    prompt: str
    model: str | None = None
    metadata: dict[str, Any] = msgspec.field(
        default_factory=dict
    )  # Any: plain data of the strategy
    revision: int = 0

    def _line(self) -> str:
        return f"branch {self.branch_id}: {one_line(self.prompt)}"


class ReasoningThought(Event, frozen=True, kw_only=True):
    """A thought is there: a branch has ended, or the strategy has put it there itself.

    ``error`` says why a branch has no content: it failed, crashed or was ended. ``usage`` is what
    the branch took. ``metadata`` is what a strategy's own thought brings; that of a branch comes
    with the branch.
    """

    content_fields = ("content", "error", "metadata")
    span = "reason"

    run_id: str
    strategy: str
    thought_id: str
    parent_id: str | None = None
    content: str
    error: str | None = None
    usage: TokenUsage = TokenUsage()
    metadata: dict[str, Any] = msgspec.field(
        default_factory=dict
    )  # Any: plain data of the strategy

    def _line(self) -> str:
        return (
            f"thought {self.thought_id}: {one_line(self.content)}"
            if self.error is None
            else f"thought {self.thought_id} failed: {one_line(self.error)}"
        )


class ReasoningScore(Event, frozen=True, kw_only=True):
    """A thought was scored, the greater the better."""

    level = "debug"
    content_fields = ("detail",)
    span = "reason"

    run_id: str
    strategy: str
    thought_id: str
    score: float
    detail: dict[str, Any] = msgspec.field(
        default_factory=dict
    )  # Any: plain data of whoever scored

    def _line(self) -> str:
        return f"thought {self.thought_id} scores {self.score:g}"


class ReasoningPrune(Event, frozen=True, kw_only=True):
    """Thoughts were given up; branches of them that still ran are ended."""

    level = "debug"
    content_fields = ("reason",)
    span = "reason"

    run_id: str
    strategy: str
    thought_ids: tuple[str, ...]
    reason: str = ""

    def _line(self) -> str:
        return f"given up: {', '.join(self.thought_ids)}" + (
            f" ({one_line(self.reason)})" if self.reason else ""
        )


class ReasoningDone(Event, frozen=True, kw_only=True):
    """The run is over; where it was cut off or has failed, ``answer`` is the best one so far.

    ``reason`` says more about a status other than "done". ``elapsed_ms`` is None where nobody took
    the time. ``notes`` are lines about what the answer lacks, whatever the status: how many
    branches the budget left out, that the answer was cut and how long it was, and that the
    strategy's ``best`` has failed.
    """

    content_fields = ("answer", "reason", "notes")
    span = "reason"

    run_id: str
    strategy: str
    status: Literal["done", "failed", "aborted", "timeout", "budget_exceeded", "max_steps_exceeded"]
    answer: Any = None  # Any: plain data of the strategy
    reason: str | None = None
    elapsed_ms: int | None = None
    notes: tuple[str, ...] = ()

    def _line(self) -> str:
        more = "; ".join(one_line(one) for one in (self.reason, *self.notes) if one)
        return f"reasoning {self.strategy} {self.status}: {one_line(str(self.answer))}" + (
            f" ({more})" if more else ""
        )


ReasoningEvent: TypeAlias = (
    ReasoningBranch | ReasoningDone | ReasoningPrune | ReasoningScore | ReasoningThought
)
"""Each of these."""
