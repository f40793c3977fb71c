"""Posts ``ApprovalExpired`` when the time to decide is over, whichever process asked."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from cmdc_runtime.clock import now_ms
from workers.core.inputs import ApprovalExpired, Result
from workers.core.state import Approval

_LOOK_S_MAX: Final = 3600.0
"""A timer is set for no longer: the wall clock may be put forward meanwhile."""


class Deadlines:
    """Watches the approvals of one session by one timer, for the next that is due."""

    def __init__(self, post: Callable[[Result], None]) -> None:
        """Watch nothing yet."""
        self._post = post
        self._timer: asyncio.TimerHandle | None = None
        self._next: tuple[int, str] | None = None

    def watch(self, approvals: Iterable[Approval]) -> bool:
        """Watch these from now on; return whether one of them has a deadline."""
        due = min(
            ((one.due_ms, one.id) for one in approvals if one.due_ms is not None), default=None
        )
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
        left_s = max(0.0, (self._next[0] - now_ms()) / 1000)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(left_s, _LOOK_S_MAX), self._look)

    def _look(self) -> None:
        if self._next is None:
            return
        due_ms, approval_id = self._next
        now = now_ms()
        if now < due_ms:
            self._set()
            return
        self._next = None
        self._post(ApprovalExpired(approval_id, now))
