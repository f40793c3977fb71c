"""A clock that jumps: timers fire in their order, exactly on time, and nobody waits for them."""

import asyncio
import selectors

import pytest


class JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for the next timer it moves the clock there."""

    def __init__(self):
        super().__init__()
        self.now = 0.0

    def select(self, timeout=None):
        """Return what is ready now; without a timer wait for it, as a thread may make it so."""
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self.now += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop by the clock of its selector."""

    def __init__(self):
        self.clock = JumpingSelector()
        super().__init__(self.clock)

    def time(self):
        """Return the seconds that were jumped over."""
        return self.clock.now


@pytest.fixture
def run():
    """Return a function that runs a coroutine by the clock that jumps."""

    def run_it(coroutine):
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            return runner.run(coroutine)

    return run_it
