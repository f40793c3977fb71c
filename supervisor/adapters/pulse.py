"""Looks at the heartbeat board, and tells who is silent; ``supervisor.core.pulse`` judges.

A look is one pass over memory. It runs in the daemon's loop, so a daemon that is blocked does not
look, and the judge takes that into account. A callback that raises is logged, and costs nobody else
a look.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import structlog

from supervisor.adapters.board import Board
from supervisor.core.pulse import AskForStack, Judge, Verdict

log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)


class Pulse(Generic[K]):
    """Watches processes by their slots; ``key`` is the owner's name for a process."""

    def __init__(
        self, board: Board, on_stack: Callable[[K], None], on_silent: Callable[[K, int], None]
    ) -> None:
        """Watch nobody yet.

        ``on_stack`` is called for a process that should write its stacks, ``on_silent`` a moment
        later, with the milliseconds, for one that must be killed: once each, in the loop, and
        neither may block. A process that beats in between is forgiven, and may be told of again.
        """
        self._board = board
        self._on_stack = on_stack
        self._on_silent = on_silent
        self._judge: Judge[K] = Judge()
        self._is_wanted = asyncio.Event()

    def watch(self, key: K, slot: int, limit_s: float) -> None:
        """Expect a beat of the process in ``slot`` every ``limit_s`` seconds, from now on.

        One that is watched already is judged anew, by these numbers.
        """
        self._judge.watch(key, slot, limit_s, time.monotonic_ns())
        self._is_wanted.set()

    def unwatch(self, key: K) -> None:
        """Expect nothing more; to be called before the slot is released. Idempotent."""
        self._judge.unwatch(key)
        if not len(self._judge):
            self._is_wanted.clear()

    async def run(self) -> None:
        """Look again and again, until cancelled; while nobody is watched, wait."""
        while True:
            await self._is_wanted.wait()
            self._look()
            await asyncio.sleep(self._judge.interval_s)

    def _look(self) -> None:
        now_ns = time.monotonic_ns()  # before the beats: what is written in between is no older
        for verdict in self._judge.look(now_ns, self._board.beats()):
            try:
                self._tell(verdict)
            except Exception:
                log.exception("verdict.not_told", verdict=type(verdict).__name__)

    def _tell(self, verdict: Verdict[K]) -> None:
        if isinstance(verdict, AskForStack):
            self._on_stack(verdict.key)
        else:
            self._on_silent(verdict.key, verdict.silent_ms)
