"""Which steps of rebuilding a session its processes have died at, and which are left out. Pure.

A process says on the heartbeat board which step it takes next, so that its death, however hard,
can be blamed on it. What has killed ``DEATHS_MAX`` processes is left out by the next one.
"""

from dataclasses import dataclass, field
from typing import Final

from cmdc_runtime.board import DROPPED_STEP, RESUME_STEP

DEATHS_MAX: Final = 2
"""Processes that die of one step before it is left out: one death may be anything's doing."""
STEPS_MAX: Final = 8
"""Steps that are left out at one start; a journal with more of them is not worth the processes."""


@dataclass(slots=True)
class Falls:
    """The deaths of one session's processes since one came through."""

    deaths: dict[int, int] = field(default_factory=dict)

    def note(self, step: int | None) -> None:
        """Take note that a process died at this step, or, with None, that it had come through."""
        if step is None:
            self.deaths.clear()
            return
        if step == DROPPED_STEP:  # what is gone on with next is another cycle: it is not to blame
            self.deaths.pop(RESUME_STEP, None)
        self.deaths[step] = self.deaths.get(step, 0) + 1

    @property
    def doomed(self) -> tuple[int, ...]:
        """The steps to be left out."""
        return tuple(sorted(step for step, count in self.deaths.items() if count >= DEATHS_MAX))

    @property
    def may_try_again(self) -> bool:
        """Whether another process is worth a try."""
        return sum(self.deaths.values()) <= DEATHS_MAX * STEPS_MAX
