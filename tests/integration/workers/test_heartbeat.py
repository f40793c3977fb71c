"""A worker's heartbeat: it comes from the loop, says what is true, and is there from the start."""

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from itertools import pairwise

import pytest
import zmq

from cmdc_runtime.heartbeats import Activity
from cmdc_runtime.process import EXIT_CRASHED
from cmdc_runtime.wire.codec import raw
from cmdc_runtime.wire.frames import Assign, FromWorker, Ready, Terminate
from cmdc_runtime.wire.sockets import Role
from supervisor.adapters.heartbeats import HeartbeatTable
from supervisor.adapters.router import Router
from workers.heartbeat import Heartbeat
from workers.watchdog import Watchdog
from workers.worker import Worker

WAIT_S = 20.0
POLL_S = 0.01
PERIOD_S = 0.02

WORKER = """
import sys
from workers.worker import main
slot_fd, address, daemon_pid = sys.argv[1:]
boot = {"worker_id": "w1", "address": address, "daemon_pid": daemon_pid}
main(boot | {"slot_fd": int(slot_fd)})
"""


@pytest.fixture
def table(tmp_path):
    """Return a table of the test's own."""
    found = HeartbeatTable(tmp_path / "table", 4)
    yield found
    found.close()


def poll_for(condition):
    """Return the first true answer of ``condition``, within the time for it."""
    never, deadline = threading.Event(), time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        never.wait(POLL_S)
    return found


class Beating:
    """A loop with a heartbeat on a slot of the table."""

    def __init__(self, table):
        self.table, self.slot = table, table.take()
        self.heartbeat = Heartbeat(table.lend(self.slot))

    def run(self, scenario):
        """Return what becomes of a coroutine in that loop."""
        with asyncio.Runner(loop_factory=self.heartbeat.new_loop) as runner:
            return runner.run(scenario)

    def read(self):
        return self.table.read(self.slot)

    def watch(self, until):
        """Return a future of the main loop that a thread sets when a beat is as it should be.

        The loop has nothing to do meanwhile.
        """
        return asyncio.get_running_loop().run_in_executor(
            None, poll_for, lambda: until(self.read())
        )


@pytest.fixture
def beating(table):
    """Return a loop with a heartbeat."""
    found = Beating(table)
    yield found
    os.close(found.heartbeat.fd)


async def ticks(count):
    """Return after so many turns of the loop, each a timer."""
    for _ in range(count):
        await asyncio.sleep(PERIOD_S / 4)  # tidy: the loop's own timers are what is tested


@pytest.mark.parametrize("state", ["idle", "running"])
def test_a_loop_that_has_nothing_to_do_beats_every_period(beating, state):
    """At once, and then in its wait for events; what was used is read anew unless it is calm."""

    async def scenario():
        before = time.monotonic_ns()
        beating.heartbeat.note(state, 0, (), 0)
        beating.heartbeat.start(PERIOD_S)
        first = beating.read()
        assert before <= first.heartbeat_ns <= time.monotonic_ns()
        await beating.watch(lambda beat: beat.heartbeat_ns >= before + 5 * PERIOD_S * 1e9)
        return first

    first = beating.run(scenario())
    last = beating.read()

    assert first.usage.max_rss_bytes > 2**20
    assert first.usage.user_us > 0
    assert last.usage.user_us + last.usage.system_us >= first.usage.user_us
    assert state == "idle" or last.usage != first.usage


def test_a_calm_loop_beats_half_as_often_while_it_waits(beating):
    """But no later than after one period when something wakes it."""
    period_ns = 0.1 * 1e9

    async def scenario():
        patience = []
        for state in ("spare", "streaming", "idle"):
            beating.heartbeat.note(state, 0, (), 0)
            beating.heartbeat.start(0.1)
            patience.append(beating.heartbeat.late_ns() - beating.read().heartbeat_ns)
        due_ns = beating.read().heartbeat_ns + period_ns
        await beating.watch(lambda _: time.monotonic_ns() >= due_ns)
        return patience, due_ns, beating.read().heartbeat_ns

    patience, due_ns, heartbeat_ns = beating.run(scenario())

    assert patience == [2 * period_ns, period_ns, 2 * period_ns]
    assert heartbeat_ns >= due_ns


def test_a_loop_that_is_busy_beats_every_period(beating):
    """It never waits for long enough, so it beats where it looks for events."""

    async def scenario():
        beating.heartbeat.start(PERIOD_S)
        seen = set()
        async with asyncio.timeout(WAIT_S):
            while len(seen) < 4:
                await asyncio.sleep(0)
                seen.add(beating.read().heartbeat_ns)
        return sorted(seen)

    seen = beating.run(scenario())

    assert all(later - earlier >= PERIOD_S * 1e9 for earlier, later in pairwise(seen))


def test_timers_go_off_when_they_are_due_whatever_the_period(beating):
    """Shorter ones, longer ones, and those of a loop that does not beat at all."""

    async def scenario():
        loop, late = asyncio.get_running_loop(), []
        for period_s in (None, 0.01, 3600.0):
            if period_s is not None:
                beating.heartbeat.start(period_s)
            for delay_s in (0.0, 0.005, 0.025):
                due = loop.time() + delay_s
                await asyncio.sleep(delay_s)  # tidy: the timer is what is tested
                late.append(loop.time() - due)
        return late

    late = beating.run(scenario())

    assert min(late) >= -0.001
    assert sorted(late)[len(late) // 2] < 0.1


def test_an_event_wakes_the_loop_at_once(beating):
    """The wait for the next beat is no wait for anything else."""

    async def scenario():
        beating.heartbeat.start(3600.0)
        loop, (ours, theirs) = asyncio.get_running_loop(), socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            async with asyncio.timeout(WAIT_S):
                waiting = asyncio.ensure_future(loop.sock_recv(ours, 1))
                loop.call_later(PERIOD_S, theirs.send, b"x")
                return await waiting

    assert beating.run(scenario()) == b"x"


def test_a_stopped_heartbeat_leaves_what_was_written(beating):
    """The loop goes on, and the last beat stays as it was."""

    async def scenario():
        beating.heartbeat.start(PERIOD_S)
        await ticks(8)
        beating.heartbeat.stop()
        beating.heartbeat.stop()
        last = beating.read()
        await ticks(8)
        return last

    last = beating.run(scenario())

    assert last.heartbeat_ns > 0
    assert beating.read() == last


def test_a_loop_that_is_blocked_has_no_heartbeat(beating):
    """No thread beats for it, whatever else goes on in the process."""

    async def scenario():
        beating.heartbeat.start(PERIOD_S)
        last = beating.read().heartbeat_ns
        select.poll().poll(10 * PERIOD_S * 1000)
        blocked = beating.read().heartbeat_ns
        await beating.watch(lambda beat: beat.heartbeat_ns > last)
        return last, blocked

    last, blocked = beating.run(scenario())

    assert blocked == last
    assert beating.read().heartbeat_ns >= last + 10 * PERIOD_S * 1e9


def test_a_new_period_counts_at_once(beating):
    """An agent with a short limit must not be late with its first beat."""

    async def scenario():
        beating.heartbeat.start(3600.0)
        first = beating.read().heartbeat_ns
        beating.heartbeat.start(PERIOD_S)
        now = beating.read().heartbeat_ns
        await beating.watch(lambda beat: beat.heartbeat_ns > now)
        return first, now

    first, now = beating.run(scenario())

    assert first < now


def test_what_is_noted_is_read_and_only_changes_are_written(beating):
    """The text is not written again for a newer index or for the same words."""
    table, slot, heartbeat = beating.table, beating.slot, beating.heartbeat
    heartbeat.note("running", 1, ("shell c1",), 5)
    text = table.read(slot).activity
    written = bytes(table._memory[slot][48:])
    heartbeat._slot.set_activity = pytest.fail
    heartbeat.note("running", 1, ("shell c1",), 6)

    assert text == Activity("running", 1, ("shell c1",))
    assert table.read(slot).last_index == 6
    assert bytes(table._memory[slot][48:]) == written


def test_what_is_opened_stands_beside_whatever_is_noted_meanwhile(beating):
    """The agent does other things while a thread of it opens packed code."""
    table, slot, heartbeat = beating.table, beating.slot, beating.heartbeat
    heartbeat.note("idle", 0, (), 5)
    heartbeat.write_code_step(2**32)
    heartbeat.note("running", 1, ("shell c1",), 6)
    during = table.read(slot).activity
    heartbeat.write_code_step(0)

    assert during == Activity("running", 1, ("shell c1",), 2**32)
    assert table.read(slot).activity == Activity("running", 1, ("shell c1",))


def test_a_worker_that_is_assigned_beats_as_often_as_its_session_needs(beating, tmp_path):
    """And says that it is starting, with the index of the session's newest event."""
    assign = Assign(
        session_id="s1",
        incarnation=2,
        restarts=1,
        next_index=42,
        agent=raw(None),
        parent_id=None,
        group_id=None,
        last_reason=None,
        unresponsive_after=0.5,
    )

    async def scenario():
        address, ready = f"ipc://{tmp_path}/w.sock", asyncio.Event()

        def take(_peer, frame, _more):
            if isinstance(frame, Ready):
                ready.set()

        with zmq.Context() as context:
            router = Router(context, Role.WORKERS, FromWorker, take)
            router.bind(address)
            try:
                boot = {"address": address, "worker_id": "w1"}
                daemon_fd = os.pidfd_open(os.getpid())
                worker = Worker(boot, Watchdog(daemon_fd), daemon_fd, beating.heartbeat)
                running = asyncio.create_task(worker.run())
                async with asyncio.timeout(WAIT_S):
                    await ready.wait()
                spare = beating.read()
                worker._on_frame(assign)
                found = beating.read()
                soon_ns = beating.heartbeat.late_ns()
                worker._on_frame(Terminate(reason="normal"))
                return spare, found, soon_ns, await running
            finally:
                router.close()
                os.close(daemon_fd)

    spare, found, soon_ns, code = beating.run(scenario())

    assert spare.activity == Activity("spare")
    assert spare.heartbeat_ns < found.heartbeat_ns == soon_ns - 0.1 * 1e9
    assert (found.activity, found.last_index) == (Activity("starting"), 41)
    assert code == 0


@pytest.mark.slow
@pytest.mark.process
def test_a_worker_beats_as_a_spare_and_writes_its_stacks_when_asked(table, tmp_path):
    """It lives on afterwards, and what it was stays on the table when it has ended."""
    slot = table.take()
    fd = table.lend(slot)
    words = [str(fd), f"ipc://{tmp_path}/w.sock", str(os.getpid())]
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, *words], stderr=subprocess.PIPE, text=True, pass_fds=[fd]
    )
    os.close(fd)
    try:
        heartbeat_ns = poll_for(lambda: worker.poll() is not None or table.read(slot).heartbeat_ns)
        assert worker.poll() is None
        worker.send_signal(signal.SIGQUIT)
        stack = iter(worker.stderr.readline, "")
        assert any("(most recent call first)" in line for line in stack)
        assert any("in run_until_complete" in line for line in stack)
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=WAIT_S)
    finally:
        worker.kill()
        worker.communicate(timeout=WAIT_S)

    assert worker.returncode == EXIT_CRASHED
    assert table.read(slot).activity == Activity("spare")
    assert table.read(slot).heartbeat_ns >= heartbeat_ns
