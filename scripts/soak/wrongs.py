"""What can be wrong after a crash, in the words of the promise that it breaks."""

from enum import StrEnum
from typing import NamedTuple


class Wrong(StrEnum):
    """A promise that was broken; the names are those of the counts in a soak's last line."""

    PROMPT = "lost_acknowledged_prompts"
    WRITE = "doubled_write_tools"
    HISTORY = "invalid_histories"
    INDEX = "holes_or_repeats_in_indexes"
    REBUILT = "lost_or_changed_memories"
    END = "ends_not_told_once"
    OTHER = "other_problems"


class Problem(NamedTuple):
    """One thing that is wrong with one session."""

    kind: Wrong
    text: str

    def __str__(self) -> str:
        """Return it as a line."""
        return f"{self.kind}: {self.text}"
