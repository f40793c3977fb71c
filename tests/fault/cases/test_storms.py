"""Starts by the dozen: a few at a time, none forgotten, none before its turn, one alarm for all.

Who is at work is served meanwhile as before: how long its commands take is compared with what they
took right before the storm. ``FAULT_FULL=1`` plays the storms with as many sessions as a daemon of
two processors bears, beside a hundred others.
"""

import asyncio
import os
import signal
import time

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.reasons import Signal
from tests.fault.cases.probe import probing
from tests.fault.conftest import OwnDaemon
from tests.fault.test_frames import facts_of

IS_FULL = "FAULT_FULL" in os.environ
TURN_S = 1_200.0 if IS_FULL else 120.0
pytestmark = [
    pytest.mark.fault,
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(2 * TURN_S),
]

AT_ONCE = 3
KILLED = 200 if IS_FULL else 60
WAITING = 8
WANTED = 1_000 if IS_FULL else 60
OTHERS = 100 if IS_FULL else 10
DIED = Signal(number=9, name="SIGKILL")
START_CPU_S = 0.2
"""Of a processor for each start: what the import of an application's tools costs."""
GROWTH_MAX = 5.0
"""Of the p99: 1 to 6 on two processors that others want, too; 8 to 16 where all start at once."""
ENOUGH_S = 0.1
"""No p99 below this is too long, whatever it was before."""
DAEMON_SHARE_MAX = 0.5
"""Of one processor, for the daemon itself."""


class Heavy(cmdc.Plugin):
    """Has a process compute before it is an agent."""

    async def session_start(self, event, context):
        ends_s = time.process_time() + START_CPU_S
        while time.process_time() < ends_s:
            pass


class NarrowDaemon(OwnDaemon):
    """Daemons in which few become agents at a time, and few may wait for it."""

    def environment(self):
        return super().environment() | {
            "CMDC_STARTS_AT_ONCE": str(AT_ONCE),
            "CMDC_STARTS_WAITING": str(WAITING),
        }


@pytest.fixture(scope="module")
def shared_daemon():
    """Directories for such a daemon."""
    found = NarrowDaemon()
    yield found
    found.close()


def starts_of(place):
    """Return what the daemon says of its starts."""
    return facts_of(f"ipc://{place.address / 'control.sock'}").starts


class Beside:
    """The sessions that are at work, the seconds of their commands, the daemon's share."""

    def __init__(self, place, probe):
        self._probe, self._daemon = probe, psutil.Process(place.process.pid)
        probe.lap()
        self.before = probe.lap()
        self._cpu_s, self._began_s = self._daemon_cpu_s(), time.monotonic()

    def _daemon_cpu_s(self):
        times = self._daemon.cpu_times()
        return times.user + times.system

    def check(self, what):
        """Fail if they are served much later than before the storm, which is over now."""
        share = (self._daemon_cpu_s() - self._cpu_s) / (time.monotonic() - self._began_s)
        amid = self._probe.lap()
        print(f"{what}: before {self.before}; amid {amid}; daemon {share:.0%} of a processor")
        assert amid.share_s(0.99) <= max(GROWTH_MAX * self.before.share_s(0.99), ENOUGH_S)
        assert share < DAEMON_SHARE_MAX


@pytest.fixture
def probe(place, agent, scripted):
    """Ask some sessions that have nothing to do with the storm, from before it until its end."""
    model = scripted(default="fine")
    sessions = [agent(model) for _ in range(OTHERS)]
    with probing(place, sessions) as found:
        yield found


@pytest.mark.fault_case("F19")
def test_agents_that_die_together_come_back_a_few_at_a_time(place, agent, scripted, probe):
    """All of them, with one alarm for the crowd; who is at work is served as before."""
    model = scripted(default="fine")
    sessions = [agent(model, plugins=[Heavy], restart_delay=(0.0, 0.1)) for _ in range(KILLED)]
    monitors = [session.monitor() for session in sessions]
    pids = [session.agent_pid() for session in sessions]
    before, beside = starts_of(place), Beside(place, probe)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    downs = [monitor.wait(TURN_S) for monitor in monitors]
    texts = [session.run("And you?", timeout=TURN_S).text for session in sessions]
    beside.check("F19")
    after = starts_of(place)

    assert {(down.reason, down.restarting) for down in downs} == {(DIED, True)}
    assert texts == ["fine"] * KILLED
    assert {session.status().incarnation for session in sessions} == {2}
    assert (after.at_once, after.peak, after.waiting) == (AT_ONCE, AT_ONCE, 0)
    assert after.alarms == before.alarms + 1


@pytest.mark.fault_case("F20")
def test_who_finds_no_room_to_wait_learns_when_to_come_again(place, scripted, bystander, probe):
    """And is served then: who comes again at that time has his session in the end."""
    model = scripted(default="fine")

    async def wanted(client, refusals):
        while True:
            try:
                return await client.create_agent(model=model, plugins=[Heavy])
            except cmdc.Busy as busy:
                refusals.append(busy)
                await asyncio.sleep(busy.retry_after_s)  # tidy: what the refusal says

    async def storm():
        refusals = []
        async with cmdc.AsyncClient(place.address) as client:
            async with asyncio.timeout(TURN_S):
                coming = [wanted(client, refusals) for _ in range(WANTED)]
                sessions = await asyncio.gather(*coming)
            await asyncio.to_thread(beside.check, "F20")
            last = await sessions[-1].run("Go.", timeout=TURN_S)
            await asyncio.gather(*(one.stop() for one in sessions))
        return refusals, last.text

    beside = Beside(place, probe)
    refusals, text = asyncio.run(storm())
    found = starts_of(place)

    assert text == bystander.run("Still there?", timeout=TURN_S).text == "fine"
    assert len(refusals) >= WANTED - WAITING
    assert {one.waiting for one in refusals} == {WAITING}
    assert min(one.retry_after_s for one in refusals) >= 1.0
    assert (found.peak, found.waiting) == (AT_ONCE, 0)
