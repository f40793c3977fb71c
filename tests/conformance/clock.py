"""A loop whose time passes only while nothing is under way.

Real processes and threads do their work in no time at all, so that what is left of a case's times
are those that somebody has asked a timer for: exact, however busy the machine is.
"""

import asyncio
import os
import selectors
import time
from collections.abc import Callable

BEGIN_S = 1000.0
BOUND_S = 30.0
"""In seconds of the machine, for what is under way to come to rest."""
YIELDS = 50
"""Looks before this process sleeps between two of them."""
LOOK_S = 0.001


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock of its own; ``is_quiet`` says that no process has work to do."""

    def __init__(self, is_quiet: Callable[[], bool], bound_s: float = BOUND_S):
        self.now_s = BEGIN_S
        self.jobs = 0
        """Work that was given to threads and has not come back."""
        self.bound_s = bound_s
        self._is_quiet = is_quiet
        super().__init__(_Patient(self))

    def time(self):
        """Return the time, in seconds."""
        return self.now_s

    def run_in_executor(self, executor, func, *args):
        """Have a thread do something, and let no time pass until it has."""
        job = super().run_in_executor(executor, func, *args)
        self.jobs += 1
        job.add_done_callback(self._job_done)
        return job

    def is_quiet(self):
        """Say whether nothing happens any more unless time passes."""
        return self.jobs == 0 and self._is_quiet()

    def _job_done(self, _job):
        self.jobs -= 1


class _Patient(selectors.DefaultSelector):
    """Waits for what is under way, however long it takes, and else for no time at all."""

    def __init__(self, loop):
        super().__init__()
        self._loop = loop

    def select(self, timeout=None):
        if timeout is not None and timeout <= 0:
            return super().select(0)
        until_s, looks = time.monotonic() + self._loop.bound_s, 0
        while True:
            if events := super().select(0):
                return events
            if self._loop.is_quiet():
                # What was said before everybody came to rest is there by now.
                if events := super().select(0):
                    return events
                self._loop.now_s += timeout or 0.0
                return [] if timeout else super().select(LOOK_S)
            assert time.monotonic() < until_s, f"no rest within {self._loop.bound_s:g} s"
            looks += 1
            if looks < YIELDS:
                os.sched_yield()
            elif events := super().select(LOOK_S):
                return events
