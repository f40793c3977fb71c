"""Starts by the dozen: a few at a time, none forgotten, none before its turn, one alarm for all.

``FAULT_FULL=1`` plays them with as many sessions as a daemon of two processors bears.
"""

import asyncio
import os
import signal

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.reasons import Signal
from tests.fault.conftest import Cradle
from tests.fault.test_frames import facts_of

IS_FULL = "FAULT_FULL" in os.environ
TURN_S = 600.0 if IS_FULL else 120.0
pytestmark = [
    pytest.mark.fault,
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(2 * TURN_S),
]

AT_ONCE = 3
KILLED = 200 if IS_FULL else 60
WAITING = 8
WANTED = 1_000 if IS_FULL else 40
DIED = Signal(number=9, name="SIGKILL")


class NarrowCradle(Cradle):
    """Daemons in which few become agents at a time, and few may wait for it."""

    def environment(self):
        return super().environment() | {
            "CMDC_STARTS_AT_ONCE": str(AT_ONCE),
            "CMDC_STARTS_WAITING": str(WAITING),
        }


@pytest.fixture(scope="module")
def new_cradle():
    """Directories for such a daemon."""
    found = NarrowCradle()
    yield found
    found.close()


def starts_of(place):
    """Return what the daemon says of its starts."""
    return facts_of(f"ipc://{place.address / 'control.sock'}").starts


@pytest.mark.fault_case("F19")
def test_agents_that_die_together_come_back_a_few_at_a_time(place, agent, scripted, bystander):
    """All of them, with one alarm for the crowd; who is at work is served meanwhile."""
    model = scripted(default="fine")
    sessions = [agent(model, restart_delay=(0.0, 0.1)) for _ in range(KILLED)]
    monitors = [session.monitor() for session in sessions]
    before = starts_of(place)
    for pid in [session.agent_pid() for session in sessions]:
        os.kill(pid, signal.SIGKILL)
    downs = [monitor.wait(TURN_S) for monitor in monitors]
    assert bystander.run("Still there?", timeout=TURN_S).text == "fine"
    texts = [session.run("And you?", timeout=TURN_S).text for session in sessions]
    after = starts_of(place)

    assert {(down.reason, down.restarting) for down in downs} == {(DIED, True)}
    assert texts == ["fine"] * KILLED
    assert {session.status().incarnation for session in sessions} == {2}
    assert (after.at_once, after.peak, after.waiting) == (AT_ONCE, AT_ONCE, 0)
    assert after.alarms == before.alarms + 1


@pytest.mark.fault_case("F20")
def test_who_finds_no_room_to_wait_is_told_when_to_come_again(place, scripted, bystander):
    """And is served then: who comes again when he is told to has his session in the end."""
    model = scripted(default="fine")

    async def wanted(client, refusals):
        while True:
            try:
                return await client.create_agent(model=model)
            except cmdc.Busy as busy:
                refusals.append(busy)
                await asyncio.sleep(busy.retry_after_s)  # tidy: what it was told

    async def storm():
        refusals = []
        async with cmdc.AsyncClient(place.address) as client:
            async with asyncio.timeout(TURN_S):
                coming = [wanted(client, refusals) for _ in range(WANTED)]
                sessions = await asyncio.gather(*coming)
            last = await sessions[-1].run("Go.", timeout=TURN_S)
            await asyncio.gather(*(one.stop() for one in sessions))
        return refusals, last.text

    refusals, text = asyncio.run(storm())
    found = starts_of(place)

    assert text == bystander.run("Still there?", timeout=TURN_S).text == "fine"
    assert len(refusals) >= WANTED - WAITING
    assert {one.waiting for one in refusals} == {WAITING}
    assert min(one.retry_after_s for one in refusals) >= 1.0
    assert (found.peak, found.waiting) == (AT_ONCE, 0)
