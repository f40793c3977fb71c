"""Whether ZeroMQ has passed on what this daemon has sent: the end of the daemon would stop it else.

A sent message is with ZeroMQ's thread, which writes it to the peer's connection when it gets to it;
on a busy machine that takes as long as it may. Only that thread can tell. So the daemon asks itself
a question over its own control socket, which takes the same thread (the daemon's context has one),
behind all that it had to do.
"""

import asyncio
from typing import Final

import structlog

from supervisor.adapters.awake import awake_timeout
from supervisor.adapters.self_check import Caller
from supervisor.core.limits import FLUSH_PACE_S, FLUSH_ROUND_S_MAX

log = structlog.get_logger()

ROUNDS: Final = 2
"""Answers behind a message until it is passed on. Within its first round ZeroMQ's thread may have
taken the question before the message; it looks after every connection once before the second."""


class FlushBarrier:
    """Asks while somebody has a mark that is not passed, at most one question at a time.

    A question without an answer within ``FLUSH_ROUND_S_MAX`` counts as answered: agents keep what
    is not passed on, within a bound, and must not end because the daemon is slow to hear itself.
    """

    def __init__(self, caller: Caller) -> None:
        """Ask with ``caller``, which is the barrier's own: it closes it."""
        self._caller = caller
        self._begun = 0
        """Rounds, each a question and its answer."""
        self._done = 0
        self._wanted = 0
        self._is_closed = False
        self._task: asyncio.Task[None] | None = None

    def mark(self) -> int:
        """Return a mark of now: ``is_flushed`` says it of all that was sent before."""
        mark = self._begun + ROUNDS
        self._wanted = max(self._wanted, mark)
        if not self._is_closed and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._ask(), name="flush-barrier")
        return mark

    def is_flushed(self, mark: int) -> bool:
        """Say whether all that was sent before the mark is passed on."""
        return self._done >= mark

    async def close(self) -> None:
        """Ask nothing more; what is not passed on by now is never said to be."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._caller.close()

    async def _ask(self) -> None:
        while self._done < self._wanted:
            self._begun += 1
            try:
                async with awake_timeout(FLUSH_ROUND_S_MAX):
                    await self._caller.ask_router()
            except TimeoutError:
                log.warning("flush_barrier.silent", for_s=FLUSH_ROUND_S_MAX)
            self._done = self._begun
            await asyncio.sleep(FLUSH_PACE_S)
