"""Which steps of rebuilding a session its processes have died at, and which are left out. Pure.

A process says on the heartbeat table which step it takes next, so that its death, however hard,
counts for it. What has killed ``DEATHS_MAX`` processes is left out by the next one.

Such deaths cost no restart, since each brings the session nearer to a process that comes through.
They have two bounds: that of each step, and that of all steps together.
"""

from dataclasses import dataclass, field
from typing import Final

from cmdc_runtime.heartbeats import DROPPED_STEP, GREETING_STEP, PACKED_STEP, RESUME_STEP

DEATHS_MAX: Final = 2
"""Processes that die of one step before it is left out: one death may be anything's doing."""
STEPS_MAX: Final = 8
"""Steps that are left out at one start; a journal with more of them is not worth the processes."""
SPARED_MAX: Final = DEATHS_MAX * STEPS_MAX
"""Deaths in a row, whatever their steps, that cost no restart."""


@dataclass(slots=True)
class Falls:
    """The deaths of one session's processes since one came through."""

    deaths: dict[int, int] = field(default_factory=dict)
    total: int = 0
    """All of them, those included that a step is no longer counted for."""

    def note(self, step: int | None, *, was_up: bool = False) -> None:
        """Record that a process died at this step, or, with None, that it had come through.

        One that ``was_up`` and died of packed code had come through, but for packed code: a command
        brings them again. Other steps have other numbers by then.
        """
        if step is None:
            self.deaths.clear()
            self.total = 0
            return
        self.total += 1
        if was_up and _is_packed_code(step):
            self.deaths = {one: many for one, many in self.deaths.items() if _is_packed_code(one)}
        if step == DROPPED_STEP:  # what is gone on with next is another cycle: it has not done it
            self.deaths.pop(RESUME_STEP, None)
        self.deaths[step] = self.deaths.get(step, 0) + 1

    @property
    def set_aside(self) -> tuple[int, ...]:
        """The steps to be left out."""
        return tuple(sorted(step for step, count in self.deaths.items() if count >= DEATHS_MAX))

    def spares(self, step: int | None) -> bool:
        """Whether the death at this step, of which note was taken, costs no restart.

        One more than ``DEATHS_MAX`` shows that leaving the step out does not help.
        """
        is_early = step is not None and self.deaths[step] <= DEATHS_MAX
        return is_early and self.total <= SPARED_MAX

    @property
    def may_try_again(self) -> bool:
        """Whether another process is worth a try."""
        return sum(self.deaths.values()) <= DEATHS_MAX * STEPS_MAX


def _is_packed_code(step: int) -> bool:
    return PACKED_STEP <= step < GREETING_STEP
