"""The places in which processes become agents: a few at a time, the others wait for their turn.

A place is taken before a worker is asked for, and is free again when it is an agent or has ended,
at the latest ``START_PLACE_S`` later: what takes longer than that waits for something, and computes
nothing. What is decided here is decided in ``core.starts``.
"""

import asyncio
import itertools
import os

import structlog

from cmdc_runtime.requests import StartFacts
from supervisor.core.limits import START_PLACE_S
from supervisor.core.starts import CROWD_EACH, Alarm, Places, paced, places_for, retry_after_s

log = structlog.get_logger()


class Starts:
    """All starts of the daemon, under way and waiting."""

    def __init__(self, at_once: int = 0) -> None:
        """Have none; ``at_once`` may be under way together, 0 is what the processors bear."""
        self.places = Places(at_once or places_for(os.cpu_count() or 1))
        self.alarm = Alarm(CROWD_EACH * self.places.at_once)
        self._tickets = itertools.count()
        self._called: dict[int, asyncio.Future[None]] = {}
        self._under_way: dict[int, tuple[float, asyncio.TimerHandle]] = {}
        self._start_s = 0.0

    def retry_after_s(self, waiting: int) -> float:
        """Return in how many seconds so many will have started, about."""
        return retry_after_s(waiting, self.places.at_once, self._start_s)

    def facts(self) -> StartFacts:
        """Return how they stand."""
        places = self.places
        return StartFacts(
            at_once=places.at_once,
            waiting=places.waiting,
            peak=places.peak,
            alarms=self.alarm.count,
        )

    async def enter(self, *, is_first: bool) -> None:
        """Return when there is a place for one start; ``is_first``: somebody waits for it."""
        ticket = next(self._tickets)
        if self.places.ask(ticket, is_first=is_first):
            return
        called = self._called[ticket] = asyncio.get_running_loop().create_future()
        self._look()
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():
                self.leave()
            self.places.give_up(ticket)
            self._look()
            raise
        finally:
            del self._called[ticket]

    def leave(self) -> None:
        """Give back a place that no process came to."""
        while (ticket := self.places.free()) is not None:
            called = self._called[ticket]
            if not called.done():  # else it has just been cancelled, and takes no place
                called.set_result(None)
                break
        self._look()

    def give(self, pid: int) -> None:
        """Leave a place to a process, until it is ``over``."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(START_PLACE_S, self.over, pid)
        self._under_way[pid] = loop.time(), timer

    def over(self, pid: int) -> None:
        """Record that a process is an agent, or has ended; of any other nothing follows."""
        if (found := self._under_way.pop(pid, None)) is None:
            return
        began_s, timer = found
        timer.cancel()
        self._start_s = paced(self._start_s, asyncio.get_running_loop().time() - began_s)
        self.leave()

    def _look(self) -> None:
        if not self.alarm.turns(self.places.waiting):
            return
        if self.alarm.is_on:
            log.warning("starts.crowded", waiting=self.places.waiting, at_once=self.places.at_once)
        else:
            log.info("starts.caught_up", at_once=self.places.at_once)
