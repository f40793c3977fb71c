"""How a journal stands, as the loop sees it, and who is notified when that changes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from supervisor.core.storage import Condition

FINE: Final = "open"


def _nobody(_condition: Condition) -> None:
    pass


@dataclass(slots=True)
class Health:
    """Written by the journal in the loop; ``on_change`` is called there after each change."""

    condition: Condition = Condition.OPEN
    cause: str = ""
    """What is wrong and what helps, for a person; empty while nothing is."""
    on_change: Callable[[Condition], None] = field(default=_nobody)

    @property
    def has_failed(self) -> bool:
        """Whether nothing is stored any more, and the daemon has to end."""
        return self.condition is Condition.FAILED

    def __str__(self) -> str:
        """Return it for people: ``open``, or the condition and its cause."""
        return FINE if self.condition is Condition.OPEN else f"{self.condition}: {self.cause}"

    def turn(self, condition: Condition, cause: str) -> None:
        """Record a change and notify; a store that has failed stays so."""
        if self.has_failed or (condition, cause) == (self.condition, self.cause):
            return
        self.condition, self.cause = condition, cause
        self.on_change(condition)
