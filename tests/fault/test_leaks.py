"""Sessions come and go, and processes die, by the hundred: the daemon stays as it was.

``make leaks N=10000`` is the long form.
"""

import contextlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from cmdc_runtime.testing import ScriptedModel
from supervisor.core.limits import FULL_IDLE_S

pytestmark = [pytest.mark.fault, pytest.mark.process]

COUNT = int(os.environ.get("LEAKS_N", "300"))
WARM = COUNT if COUNT > 1_000 else 60
"""Starts, and restarts, before the first measurement.

What is remembered on purpose has its size then: the answers of the last 4,096 questions, the last
1,000 ends, the recording of the tree (50,000 inputs, five or so for each), the log of the journal
between two checkpoints. The short form measures while these fill: 0.3 to 2 kB for each start.
"""
SIDE_BY_SIDE = 4
TURN_S = 60.0
FDS_MORE_MAX = 6
"""A spare on its way, or a connection that is being closed."""
RSS_MORE_MAX = 8 * 2**20
"""What an allocator keeps, and what is remembered on purpose and is not at its bound yet."""
LONG_S = 3_600.0


@pytest.fixture(scope="module")
def client(shared_daemon):
    """A client of a daemon of this file's own."""
    shared_daemon.start()
    with shared_daemon.client() as found:
        yield found


class Measure:
    """How much of everything a daemon has."""

    def __init__(self, own_daemon):
        daemon = psutil.Process(own_daemon.process.pid)
        self.fds = daemon.num_fds()
        self.threads = daemon.num_threads()
        self.rss = daemon.memory_info().rss
        self.processes = len(daemon.children(recursive=True))
        self.files = sorted(path.name for path in Path(own_daemon.address).iterdir())
        self.cgroups = sorted(_cgroups(own_daemon))

    def grown(self, before):
        """Return what is more than it was."""
        found = []
        if self.fds > before.fds + FDS_MORE_MAX:
            found.append(f"descriptors: {before.fds}, then {self.fds}")
        if self.threads > before.threads:
            found.append(f"threads: {before.threads}, then {self.threads}")
        if self.rss > before.rss * 1.05 + RSS_MORE_MAX:
            found.append(f"resident: {before.rss >> 20} MiB, then {self.rss >> 20} MiB")
        if self.processes > before.processes:
            found.append(f"processes: {before.processes}, then {self.processes}")
        found += [f"a file: {name}" for name in self.files if name not in before.files]
        return found + [f"a cgroup: {name}" for name in self.cgroups if name not in before.cgroups]


def _cgroups(own_daemon):
    record = Path(own_daemon.place, "state", "cells")
    places = record.read_text().splitlines() if record.exists() else []
    with contextlib.suppress(FileNotFoundError):
        for place in places:
            yield from (one.name for one in Path(place).iterdir() if one.is_dir())


def at_rest(own_daemon, poll, sessions):
    """Return a measure of a daemon that has all that it wants beside so many sessions.

    That is its spares, and the zygote with litellm, which it makes when it has long forked none.
    """
    wanted = 2 + own_daemon.spares + sessions
    assert poll(lambda: Measure(own_daemon).processes == wanted, FULL_IDLE_S + TURN_S)
    return Measure(own_daemon)


def settled(own_daemon, poll, before):
    """Return what has grown once everything that ends by itself has ended."""
    poll(lambda: not Measure(own_daemon).grown(before))
    return Measure(own_daemon).grown(before)


@pytest.mark.timeout(LONG_S if COUNT > 1_000 else 240)
def test_sessions_that_come_and_go_leave_nothing(client, shared_daemon, poll):
    """Descriptors, threads, memory, files, cgroups and processes are as before."""
    with ScriptedModel([], default="fine") as model, ThreadPoolExecutor(SIDE_BY_SIDE) as pool:

        def live(_):
            with client.create_agent(model=model) as session:
                session.status()

        list(pool.map(live, range(WARM)))
        before = at_rest(shared_daemon, poll, 0)
        list(pool.map(live, range(COUNT)))

        assert settled(shared_daemon, poll, before) == []
        assert client.list_sessions() == []


@pytest.mark.timeout(LONG_S if COUNT > 1_000 else 240)
def test_processes_that_die_and_come_back_leave_nothing(client, shared_daemon, poll):
    """So are they after as many restarts, each of which has one Down."""
    budget = {"max_restarts": 1_000_000, "restart_delay": (0.0, 0.0)}
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(ScriptedModel([], default="fine"))
        sessions = [
            stack.enter_context(client.create_agent(model=model, **budget))
            for _ in range(SIDE_BY_SIDE)
        ]
        pool = stack.enter_context(ThreadPoolExecutor(SIDE_BY_SIDE))

        def kill(session, times):
            monitor = session.monitor(persistent=True)
            for _ in range(times):
                pid = session.status().pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                monitor.wait(TURN_S)
            session.demonitor(monitor.ref)
            return session.status().restarts

        first = list(pool.map(kill, sessions, [WARM // SIDE_BY_SIDE] * SIDE_BY_SIDE))
        before = at_rest(shared_daemon, poll, SIDE_BY_SIDE)
        last = list(pool.map(kill, sessions, [COUNT // SIDE_BY_SIDE] * SIDE_BY_SIDE))

        assert [one - two for one, two in zip(last, first, strict=True)] == [
            COUNT // SIDE_BY_SIDE
        ] * SIDE_BY_SIDE
        assert settled(shared_daemon, poll, before) == []
