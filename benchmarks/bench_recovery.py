"""How soon are many monitors notified, and many agents there again, that were killed at once?

1, 10, 100 (and with BIG=1 1,000) idle sessions, each with a monitor; all of their processes get
SIGKILL in one go, and each is asked for its status at once. *down* is the Down, *ready* the status
of the next process. The baseline of the last Down is as many raw forks of a process of the same
size, killed at once, until the last pidfd is readable; that of the last status is as many forks of
one that has only litellm imported, each of which answers a ping.

Expected: 10 ms for one; with the number of sessions both grow in proportion, since two cores take
the old processes down and fork the new ones one after the other.
"""  # noqa: D400 - a question

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.daemon import Daemon
from benchmarks.metrics import Metric, at_most, measured
from benchmarks.processes import Peer
from benchmarks.settings import Settings
from benchmarks.wire import Wire, wait_ended
from cmdc_runtime.commands import GetStatus, Status
from cmdc_runtime.ids import SessionId, new_monitor_ref
from cmdc_runtime.reasons import Down
from cmdc_runtime.requests import Monitor

DOWN = at_most(1.0)
BACK = at_most(1.0)
RESTARTS_MAX = 100_000
ALONE = 1


@dataclass(slots=True)
class Times:
    """Milliseconds since the first kill; one of each session."""

    downs: list[float] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject."""
    with ExitStack() as stack:
        sized = stack.enter_context(Peer("benchmarks.frozen", "workers.preload"))
        raw = stack.enter_context(Peer("benchmarks.frozen", "litellm"))
        daemon = stack.enter_context(Daemon())
        daemon.await_warm()
        wire = stack.enter_context(Wire(daemon.runtime_dir))
        sessions: list[SessionId] = []
        for count in (ALONE, *settings.crowds):
            sessions += _crowd(wire, count - len(sessions))
            rounds = settings.fewer if count < max(settings.crowds, default=ALONE) else ALONE
            yield from _measure(_Place(daemon, wire, sized, raw), sessions, rounds)


@dataclass(frozen=True, slots=True)
class _Place:
    daemon: Daemon
    wire: Wire
    sized: Peer
    raw: Peer

    def kill_all(self, sessions: Sequence[SessionId], times: Times) -> None:
        """Kill every process of these sessions, and note when each one's Down and answer came."""
        self.daemon.await_spares(self.wire)
        pids = [self._pid(session_id) for session_id in sessions]
        start = time.perf_counter()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for session_id in sessions:
            self.wire.post_command(session_id, GetStatus())
        for at_s, arrived in self.wire.arrivals(2 * len(sessions)):
            took_ms = (at_s - start) * 1e3
            (times.downs if isinstance(arrived, Down) else times.ready).append(took_ms)
        if len(times.downs) != len(times.ready):
            raise RuntimeError(f"{len(times.downs)} have a Down, {len(times.ready)} are back")

    def kill_raw(self, count: int) -> float:
        """Return how long it takes until the last of as many raw forks has ended, in ms."""
        pids = self.sized.ask("hold", count=count)
        pidfds = [os.pidfd_open(pid) for pid in pids]
        try:
            start = time.perf_counter()
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            for pidfd in pidfds:
                wait_ended(pidfd)
            return (time.perf_counter() - start) * 1e3
        finally:
            for pidfd in pidfds:
                os.close(pidfd)
            self.sized.ask("release")

    def fork_raw(self, count: int) -> float:
        """Return how long as many raw forks take until all have answered, in ms; they are gone."""
        took_ms: float = self.raw.ask("crowd", count=count)
        self.raw.ask("release")
        return took_ms

    def _pid(self, session_id: SessionId) -> int:
        status: Status = self.wire.status(session_id)
        if status.pid is None:
            raise RuntimeError(f"session {session_id} has no process")
        return status.pid


def _measure(place: _Place, sessions: list[SessionId], rounds: int) -> Iterator[Metric]:
    count = len(sessions)
    times = Times()
    last_down: list[float] = []
    last_ready: list[float] = []
    raw: list[float] = []
    forks: list[float] = []
    for _ in range(rounds):
        one = Times()
        raw.append(place.kill_raw(count))
        forks.append(place.fork_raw(count))
        place.kill_all(sessions, one)
        last_down.append(max(one.downs))
        last_ready.append(max(one.ready))
        times.downs += one.downs
        times.ready += one.ready
    yield measured(f"recovery.down_of_{count}", "ms", times.downs)
    yield measured(f"recovery.ready_of_{count}", "ms", times.ready)
    yield measured(f"recovery.last_down_of_{count}", "ms", last_down, baseline=raw, bar=DOWN)
    yield measured(f"recovery.last_ready_of_{count}", "ms", last_ready, baseline=forks, bar=BACK)


def _crowd(wire: Wire, count: int) -> list[SessionId]:
    """Start sessions that may die often, each with a monitor."""
    sessions = wire.crowd(
        count, max_restarts=RESTARTS_MAX, max_seconds=3_600.0, restart_delay=(0.0, 0.0)
    )
    for session_id in sessions:
        wire.ask(Monitor(session_id=session_id, ref=new_monitor_ref(), persistent=True))
    return sessions
