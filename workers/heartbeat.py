"""A worker's heartbeat: its main loop writes into its slot of shared memory that it turns.

Nothing but the loop itself writes here, where it looks for events and where it waits for them. A
loop that is blocked, that gets no turn since some C code keeps the interpreter, or that has ended,
falls silent, whatever the process's other threads do. What was written last stays in the slot when
the process ends, and says what it was doing.

A thousand idle agents must cost next to nothing, and what waking up costs is the code and memory
that a sleeping process has to fetch again. So the heartbeats of an idle loop are written inside its
wait for events, in a few lines, where a timer would have the whole loop turn; and a calm process
writes half as often while it waits. When something happens there always is a heartbeat of less than
one period ago, so that what it then does has the same time as anything else.
"""

import asyncio
import mmap
import os
import resource
import select
import selectors
import time
from pathlib import Path
from typing import Final
from weakref import WeakSet

import msgspec
import structlog

from cmdc_runtime import foreign
from cmdc_runtime.heartbeats import REBUILDING, SLOT_BYTES, Activity, Slot, Usage
from cmdc_runtime.process import EXIT_OK

log = structlog.get_logger()

CALM: Final = frozenset({"spare", "idle"})
"""States in which nothing is under way: what was used needs no other look."""
CALM_PERIODS: Final = 2
"""Periods between two heartbeats of a calm process that waits: three of them in its limit."""

_BYTES_PER_RSS: Final = 1024
"""``ru_maxrss`` is in kibibytes on Linux (getrusage(2))."""
_US_PER_S: Final = 1_000_000
_NS_PER_S: Final = 1_000_000_000
_NS_PER_MS: Final = 1_000_000
_NEVER_NS: Final = 2**63 - 1


class Heartbeat:
    """One process's slot of the heartbeats. All of it runs in the thread of the main loop.

    The loop has to be made by ``new_loop``: ``asyncio.Runner(loop_factory=heartbeat.new_loop)``.
    """

    __slots__ = (
        "_is_calm",
        "_last_index",
        "_page",
        "_period_ns",
        "_slot",
        "_written",
        "due_ns",
        "fd",
    )

    def __init__(self, fd: int) -> None:
        """Write into the slot whose memory ``fd`` is, and keep that.

        Raises:
            OSError: it is no descriptor of memory.
            ValueError: it is too small for a slot.
        """
        os.set_inheritable(fd, False)  # noqa: FBT003 - os takes it so
        self.fd = fd
        """The memory, to be brought to the next daemon."""
        self._page, self._slot = _mapped(fd, 0)
        self._written = Activity()
        self._is_calm = False
        self._last_index = 0
        self._period_ns = 0
        self.due_ns = _NEVER_NS
        """When to write next."""

    def use_own_memory(self) -> None:
        """Go on in the memory that this process has; raises OSError."""
        self._go_on(*_mapped(self.fd, 0))

    def move(self, board: Path, slot: int) -> None:
        """Go on in a slot of the heartbeats of an earlier release's daemon.

        Raises:
            OSError: there is no board.
            ValueError: the board has no such slot.
        """
        fd = os.open(board, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._go_on(*_mapped(fd, slot))
        finally:
            os.close(fd)

    def _go_on(self, page: mmap.mmap, slot: Slot) -> None:
        self._page, self._slot = page, slot
        self._slot.index(self._last_index)
        self._slot.set_activity(self._written)
        self.write(time.monotonic_ns())

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """Return an event loop like any other, whose heartbeats are written from ``start`` on."""
        return WorkerLoop(_Selector(self))

    def start(self, period_s: float) -> None:
        """Write now and every ``period_s`` seconds: for the first time, or with a new period."""
        self._period_ns = round(period_s * _NS_PER_S)
        self.write(time.monotonic_ns())

    def note(self, state: str, turns: int, tools: tuple[str, ...], last_index: int) -> None:
        """Write what the process is doing, as far as it differs from what was written last."""
        if last_index != self._last_index:
            self._last_index = last_index
            self._slot.index(last_index)
        written = self._written
        if state != written.state or turns != written.turns or tools != written.tools:
            self._written = Activity(state, turns, tools, written.opening)
            self._is_calm = state in CALM
            self._slot.set_activity(self._written)

    def write_code_step(self, step: int) -> None:
        """Write which packed code is being opened beside the activity, by its step; 0 for none."""
        self._written = msgspec.structs.replace(self._written, opening=step)
        self._slot.set_activity(self._written)

    @property
    def is_at_step(self) -> bool:
        """Whether a step is written down, which a death would now be blamed on."""
        return self._written.state == REBUILDING or self._written.opening > 0

    def stop(self) -> None:
        """Write no more; what was written stays. Idempotent."""
        self.due_ns = _NEVER_NS

    def write(self, now_ns: int) -> None:
        """Write that the loop turns, and what the process has used."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        usage = Usage(
            max_rss_bytes=used.ru_maxrss * _BYTES_PER_RSS,
            user_us=round(used.ru_utime * _US_PER_S),
            system_us=round(used.ru_stime * _US_PER_S),
        )
        self._slot.write_heartbeat(now_ns, usage)
        self.due_ns = now_ns + self._period_ns

    def late_ns(self) -> int:
        """Return when to write at the latest while the loop waits."""
        return self.due_ns + (CALM_PERIODS - 1) * self._period_ns * self._is_calm

    def write_again(self, now_ns: int) -> int:
        """Write that the loop turns, where it has done nothing meanwhile; return ``late_ns``."""
        if self._is_calm:
            self._slot.repeat_heartbeat(now_ns)
            self.due_ns = now_ns + self._period_ns
        else:
            self.write(now_ns)  # a thread may be at work
        return self.late_ns()


def _mapped(fd: int, slot: int) -> tuple[mmap.mmap, Slot]:
    """Return the mapped page with a slot, and the slot."""
    start = slot * SLOT_BYTES
    offset = start % mmap.ALLOCATIONGRANULARITY
    page = mmap.mmap(fd, offset + SLOT_BYTES, offset=start - offset)
    return page, Slot(memoryview(page)[offset:])


class WorkerLoop(asyncio.SelectorEventLoop):
    """An event loop that no task ends but the one it runs for.

    A task that a tool or a library has started may end with ``SystemExit``. Whoever awaits it
    is called with that; asyncio would end the whole process, too. The task that the loop runs for
    must not end so, since nobody would get its result.

    It is of one process. A task or a callback may fork, and the child that goes on in it ends where
    it comes back to the loop.
    """

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        """Look for events with ``selector``."""
        super().__init__(selector)
        _loops.add(self)

    def end_copy(self) -> None:
        """Have this process end when it comes back here, ahead of all that is due."""
        # asyncio's own: nothing else comes before what is due already.
        self._ready.appendleft(asyncio.Handle(os._exit, (EXIT_OK,), self))  # type: ignore[attr-defined]

    def run_forever(self) -> None:
        """Run until the loop is stopped."""
        while True:
            try:
                return super().run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                log.error("task.exited", exception=foreign.traceback_of(error))


_loops: Final[WeakSet[WorkerLoop]] = WeakSet()


def _after_fork() -> None:
    for loop in _loops:
        loop.end_copy()


os.register_at_fork(after_in_child=_after_fork)


class _Selector(selectors.EpollSelector):
    """Finds the loop's events, and writes its heartbeats meanwhile.

    It waits for its own descriptor, which is readable when there is an event, and so wakes up to
    write without making a list of events for the loop.
    """

    def __init__(self, heartbeat: Heartbeat) -> None:
        super().__init__()
        self._heartbeat = heartbeat
        self._events = select.poll()
        self._events.register(self.fileno(), select.POLLIN)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the events that there are within ``timeout`` seconds, or the first that come."""
        found = self._wait(timeout)
        now_ns = time.monotonic_ns()
        if now_ns >= self._heartbeat.due_ns:
            self._heartbeat.write(now_ns)
        return found

    def _wait(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        heartbeat, now_ns = self._heartbeat, time.monotonic_ns()
        until_ns = _NEVER_NS if timeout is None else now_ns + int(timeout * _NS_PER_S)
        late_ns = heartbeat.late_ns()
        if until_ns <= late_ns:
            return super().select(timeout)
        while late_ns < until_ns:
            if self._events.poll(max(0, late_ns - now_ns) / _NS_PER_MS):
                return super().select(0)
            now_ns = time.monotonic_ns()
            late_ns = heartbeat.write_again(now_ns)
        return super().select(max(0.0, (until_ns - now_ns) / _NS_PER_S))
