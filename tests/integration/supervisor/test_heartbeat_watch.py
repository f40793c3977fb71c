"""Silent processes are found, whatever keeps their main loop from turning; others are not."""

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from supervisor.adapters.heartbeats import HeartbeatTable, HeartbeatWatch

pytestmark = [pytest.mark.process, pytest.mark.fault, pytest.mark.slow]

SCRIPT = Path(__file__).parent / "beating_process.py"
WAIT_S = 20.0
LIMIT_S = 0.6
PATIENT_S = 5.0
"""The limit of those who must not be found, however busy the machine is."""
PERIOD_S = 0.1
GAP_S = 1.4
"""More than the judge may be late without counting as away, by a limit of ``LIMIT_S``."""


class Containment:
    """Processes with a heartbeat table, and what was reported of them."""

    def __init__(self, folder):
        self.heartbeats = HeartbeatTable(folder / "board", 8)
        self.heartbeat_watch = HeartbeatWatch(self.heartbeats, self._ask, self._kill)
        self.processes, self.slots = {}, {}
        self.asked, self.silent = asyncio.Queue(), asyncio.Queue()
        self.reported = []

    def start(self, key, way="beat"):
        """Start a process that goes that way; it beats when this returns."""
        slot = self.slots[key] = self.heartbeats.take()
        fd = self.heartbeats.lend(slot)
        words = [str(fd), str(PERIOD_S), way]
        self.processes[key] = subprocess.Popen(
            [sys.executable, str(SCRIPT), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[fd],
        )
        os.close(fd)

    def ready(self):
        """Return when all of them beat."""
        for process in self.processes.values():
            assert process.stdout.readline() == b"beating\n"

    def watch(self, key, limit_s=LIMIT_S):
        self.heartbeat_watch.watch(key, self.slots[key], limit_s)

    def go(self, key):
        """Send it on its way."""
        self.processes[key].stdin.write(b"go\n")
        self.processes[key].stdin.flush()

    def signal(self, key, number):
        self.processes[key].send_signal(number)

    async def beaten(self, key, since):
        """Return when the process has beaten again; everybody else has a turn meanwhile."""
        heartbeat_ns = since
        while heartbeat_ns == since:
            await asyncio.sleep(0)
            heartbeat_ns = self.heartbeats.read(self.slots[key]).heartbeat_ns

    def _ask(self, key):
        self.reported.append(("ask", key))
        self.signal(key, signal.SIGQUIT)
        self.asked.put_nowait(key)

    def _kill(self, key, silent_ms):
        self.reported.append(("silent", key))
        self.signal(key, signal.SIGKILL)
        self.silent.put_nowait((key, silent_ms))

    def end(self, key):
        """Wait for its end, and return its status and what it wrote to standard error."""
        process = self.processes.pop(key)
        _, errors = process.communicate(timeout=WAIT_S)
        self.heartbeat_watch.unwatch(key)
        self.heartbeats.release(self.slots.pop(key))
        return process.returncode, errors.decode()

    def close(self):
        for process in self.processes.values():
            process.kill()
            process.communicate(timeout=WAIT_S)
        self.heartbeats.close()


@contextlib.asynccontextmanager
async def containment(folder):
    """Yield a containment whose heartbeat is looked at."""
    found = Containment(folder)
    looking = asyncio.create_task(found.heartbeat_watch.run())
    try:
        async with asyncio.timeout(WAIT_S):
            yield found
        assert not looking.done()
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        found.close()


def test_whatever_keeps_a_main_loop_from_turning_is_found(tmp_path):
    """A stopped process, a loop blocked in Python or in C, and one that is over but for a thread.

    Each can still write its stacks but the stopped one; who beats, or goes on in time, lives.
    """
    ways = {"stopped": "beat", "spinning": "spin", "holding": "hold", "leaving": "leave"}

    async def scenario():
        async with containment(tmp_path) as here:
            for key, way in ways.items():
                here.start(key, way)
            here.start("well")
            here.ready()
            here.watch("well", PATIENT_S)
            for key in ways:
                here.watch(key)
                here.go(key)
            here.signal("stopped", signal.SIGSTOP)
            silent = dict([await here.silent.get() for _ in ways])
            here.signal("well", 0)
            return here.reported, silent, {key: here.end(key) for key in ways}

    reported, silent, ends = asyncio.run(scenario())

    assert sorted(key for what, key in reported if what == "ask") == sorted(ways)
    assert sorted(key for what, key in reported if what == "silent") == sorted(ways)
    assert min(silent.values()) >= (LIMIT_S + 1.0) * 1000
    assert {status for status, _ in ends.values()} == {-signal.SIGKILL}
    assert "in spin" in ends["spinning"][1]
    assert "in hold" in ends["holding"][1]
    assert "in stay" in ends["leaving"][1]
    assert ends["stopped"][1] == ""


def test_a_stopped_process_that_goes_on_in_time_is_forgiven(tmp_path):
    """It writes its stacks late, which is no harm."""

    async def scenario():
        async with containment(tmp_path) as here:
            here.start("a")
            here.ready()
            here.signal("a", signal.SIGSTOP)
            here.watch("a", LIMIT_S)
            await here.asked.get()
            stopped = here.heartbeats.read(here.slots["a"]).heartbeat_ns
            here.signal("a", signal.SIGCONT)
            await here.beaten("a", since=stopped)
            here.watch("a", PATIENT_S)
            here.signal("a", signal.SIGINT)
            return here.reported, here.end("a")

    reported, (status, stacks) = asyncio.run(scenario())

    assert reported == [("ask", "a")]
    assert status == 0
    assert "most recent call first" in stacks


def test_a_pause_of_the_judge_itself_is_charged_to_nobody(tmp_path):
    """All stood still together: each has a whole period from when the judge is back."""

    async def scenario():
        async with containment(tmp_path) as here:
            here.start("a")
            here.ready()
            here.watch("a", LIMIT_S)
            await asyncio.sleep(0)  # the first look
            here.signal("a", signal.SIGSTOP)
            never = select.poll()
            never.poll(GAP_S * 1000)  # blocks the loop, as a stopped daemon is
            for _ in range(3):
                await asyncio.sleep(0)  # the look that is late
            before = here.heartbeats.read(here.slots["a"]).heartbeat_ns
            here.signal("a", signal.SIGCONT)
            await here.beaten("a", since=before)
            return here.reported

    assert asyncio.run(scenario()) == []


def test_a_callback_that_raises_costs_nobody_else_a_look(tmp_path):
    """It is logged as what it is, a bug, and the next process is reported."""

    async def scenario():
        heartbeats, reported = HeartbeatTable(tmp_path / "board", 2), asyncio.Queue()

        def ask(key):
            reported.put_nowait(key)
            raise LookupError("a bug")

        watching = HeartbeatWatch(heartbeats, ask, lambda *_: None)
        looking = asyncio.create_task(watching.run())
        for key in "ab":
            watching.watch(key, heartbeats.take(), 0.1)
        async with asyncio.timeout(WAIT_S):
            asked = [await reported.get() for _ in "ab"]
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        heartbeats.close()
        return asked

    with capture_logs() as logged:
        asked = asyncio.run(scenario())

    assert asked == ["a", "b"]
    assert [entry["event"] for entry in logged if entry["log_level"] == "error"] == [
        "verdict.not_reported"
    ] * 2


def test_nobody_is_looked_at_while_nobody_is_watched(tmp_path):
    """An idle daemon does not wake up for it."""

    async def scenario():
        heartbeats = HeartbeatTable(tmp_path / "board", 1)
        watching = HeartbeatWatch(heartbeats, lambda _: None, lambda *_: None)
        watching._look = pytest.fail
        looking = asyncio.create_task(watching.run())
        watching.watch("a", heartbeats.take(), 5.0)
        watching.unwatch("a")
        for _ in range(3):
            await asyncio.sleep(0)
        is_over = looking.done()
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        heartbeats.close()
        return is_over

    assert not asyncio.run(scenario())
