"""Moments that a session waits for: when a time is over, and when it may give up its process.

A deadline is that to decide an approval, of the running cycle, or of who waits for one. Deadlines
are moments of the wall clock, so that they hold across processes: whichever process asked a person
or began the cycle, the one that runs when the time is over posts it. Who waits is asked for anew in
each process.

``IdleTimer`` reports to the daemon that a session is idle; the daemon decides whether it sleeps.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from cmdc_runtime.clock import now_ms
from workers.core.inputs import ApprovalExpired, CycleExpired, Result, WaitExpired
from workers.core.state import Memory

# --- deadlines ------------------------------------------------------------------------------------

_LOOK_S_MAX: Final = 3600.0
"""A timer is set for no longer: the wall clock may be put forward meanwhile."""

Due: TypeAlias = ApprovalExpired | CycleExpired | WaitExpired
"""What is posted when a time is over; ``at_ms`` is when that is."""


class Deadlines:
    """Watches the deadlines of one session by one timer, for the next that is due."""

    def __init__(self, post: Callable[[Result], None]) -> None:
        """Watch nothing yet."""
        self._post = post
        self._timer: asyncio.TimerHandle | None = None
        self._next: Due | None = None

    def watch(self, memory: Memory) -> bool:
        """Watch the deadlines that there are now; return whether there is one."""
        due = min(_dues(memory), key=lambda one: one.at_ms, default=None)
        if due != self._next:
            self.stop()
            self._next = due
            self._set()
        return due is not None

    def stop(self) -> None:
        """Watch nothing any more."""
        self._next = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self) -> None:
        if self._next is None:
            return
        left_s = max(0.0, (self._next.at_ms - now_ms()) / 1000)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(left_s, _LOOK_S_MAX), self._look)

    def _look(self) -> None:
        due, now = self._next, now_ms()
        if due is None:
            return
        if now < due.at_ms:
            self._set()
            return
        self._next = None
        self._post(replace(due, at_ms=now))


def _dues(memory: Memory) -> Iterator[Due]:
    for one in memory.approvals:
        if one.due_at_ms is not None:
            yield ApprovalExpired(one.id, one.due_at_ms)
    if memory.cycle is not None and memory.cycle_due_ms is not None:
        yield CycleExpired(memory.cycle.command_id, memory.cycle_due_ms)
    waits = (one.due_ms for one in memory.waiters if one.due_ms is not None)
    if (first_ms := min(waits, default=None)) is not None:
        yield WaitExpired(first_ms)


# --- sleep ----------------------------------------------------------------------------------------

MOVE_S: Final = 0.2
"""Idle for so long, a session that needs another process gives its own up."""


class IdleTimer:
    """Calls ``on_idle`` when a session was idle for ``after_s`` seconds, and again while it is."""

    def __init__(
        self,
        after_s: float | None,
        is_quiet: Callable[[], bool],
        on_idle: Callable[[], None],
        is_misplaced: Callable[[], bool] = lambda: False,
    ) -> None:
        """``after_s`` None never lets it sleep; nor does work that ``is_quiet`` knows to go on.

        A session that ``is_misplaced`` gives its process up as soon as it can, whatever it is to do
        otherwise: it needs one of another kind.
        """
        self._after_s = after_s
        self._is_quiet = is_quiet
        self._on_idle = on_idle
        self._is_misplaced = is_misplaced
        self._timer: asyncio.TimerHandle | None = None

    def look(self, *, is_idle: bool, is_activity: bool = True) -> None:
        """Begin to count anew, or stop counting: something has just happened.

        What is no activity leaves the count of an idle session as it is.
        """
        if is_idle and not is_activity and self._timer is not None:
            return
        self.stop()
        after_s = MOVE_S if is_idle and self._is_misplaced() else self._after_s
        if is_idle and after_s is not None:
            self._timer = asyncio.get_running_loop().call_later(after_s, self._due)

    def stop(self) -> None:
        """Count no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        # The daemon may know of a command that is on its way: then it says nothing, and the
        # command starts the count again; else we ask again later.
        if self._is_quiet():
            self._on_idle()
        self.look(is_idle=True)
