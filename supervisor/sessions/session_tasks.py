"""The timers and tasks of one owner, held so that none is forgotten.

A task that raises is a bug of ours: it is logged, its owner is notified, and nobody else is harmed.
"""

from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from cmdc_runtime.ids import SessionId
from supervisor.adapters.tasks import AwakeTimer, BackgroundTasks

log = structlog.get_logger()


class SessionTasks:
    """The timers and tasks of one session; ``on_bug`` is called after a task has raised."""

    def __init__(self, session_id: SessionId, on_bug: Callable[[], None]) -> None:
        """Start with none."""
        self._session_id = session_id
        self._on_bug = on_bug
        self._timers: list[AwakeTimer] = []
        self._tasks = BackgroundTasks(self._failed)

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call ``call`` in ``delay_s`` seconds of ours, unless the timers are cancelled before."""
        self._timers.append(AwakeTimer(delay_s, call))

    def cancel_timers(self) -> None:
        """Let no timer that was set so far go off."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:  # Any: asyncio's own shape
        """Run ``work`` as a task."""
        self._tasks.spawn(work, f"session-{self._session_id}")

    def _failed(self, _task: str, error: BaseException) -> None:
        log.error("session.failed", session_id=self._session_id, exc_info=error)
        self._on_bug()
