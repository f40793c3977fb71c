"""The nodes of a run's tree as the machine keeps them, and the end that it is at."""

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from cmdc_runtime.extensions.reasoning import Branch, RunStatus, Thought

Phase: TypeAlias = Literal["waiting", "running", "ending", "ended"]
ACTIVE: Final = ("running", "ending")
CUT_OFF: Final = ("timeout", "budget_exceeded", "max_steps_exceeded", "failed")
"""How a run ends that is answered with the best thought so far, where there is one."""


@dataclass(slots=True)
class Node:
    """A branch, or a thought of the strategy's own."""

    id: str
    branch: Branch | None = None
    root: str = ""
    """The id without revisions."""
    base: str = ""
    """The prompt without feedback."""
    phase: Phase = "ended"
    thought: Thought | None = None
    """There when the node is ending or ended."""
    is_pruned: bool = False
    revision: int = 0
    """Which one of the run it belongs to; 0: to none."""


@dataclass(slots=True)
class End:
    """How the run ends."""

    status: RunStatus
    answer: Any = None  # Any: plain data of the strategy
    reason: str | None = None
    notes: tuple[str, ...] = ()
    """About the answer."""
