"""A ward while its process ends: nothing is opened, watched or counted for what is gone."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from cmdc_runtime.requests import Supervision
from supervisor.core.cells import Controller, Usage
from supervisor.core.exits import Asked, Evidence, classify
from supervisor.wards import Ward
from tests.unit.supervisor.desk import play

LIMITED = Supervision(memory_limit=2**30)
GATE_S = 5.0


class Cell:
    """A cell in which each step waits until the test lets it go on."""

    def __init__(self, *, rooms=("room",), guards=frozenset({Controller.MEMORY})):
        self.name, self.rooms, self.guards = "cell", list(rooms), guards
        self.done = []
        self.kills = 0
        self.gates = {}

    def admit(self, pid):
        return self._step("admit", outcome=True)

    def kill(self):
        return self._step("kill", outcome=True)

    def is_empty(self):
        return True

    def usage(self):
        self.done.append("usage")
        return Usage(oom_kills=self.kills)

    def close(self):
        return self._step("close", outcome=True)

    def opened(self):
        self._step("open", outcome=True)
        return self

    def hold(self, step):
        """Hold a step up; returns what lets it go on."""
        reached, gate = threading.Event(), threading.Event()
        self.gates[step] = reached, gate
        return reached, gate

    def _step(self, step, *, outcome):
        reached, gate = self.gates.get(step, (threading.Event(), None))
        reached.set()
        if gate is not None:
            gate.wait(GATE_S)
        self.done.append(step)
        return outcome


class Watch:
    """Who is watched, of the pulse and the footprint alike."""

    def __init__(self):
        self.watched = set()

    def watch(self, ward, *_more):
        self.watched.add(ward)

    def unwatch(self, ward):
        self.watched.discard(ward)

    forget = unwatch


class House:
    """What wards have in common, without a file."""

    def __init__(self, cell):
        self.cells = SimpleNamespace(
            open=lambda _name, _limits: cell.opened(), unenforced=lambda _limits: ()
        )
        self.pulse, self.footprint, self.limited = Watch(), Watch(), set()
        self.named = []
        self.outputs = SimpleNamespace(
            name=lambda worker_id, **_bound: self.named.append(worker_id),
            forget=self.named.remove,
            drained=self._drained,
            tail=lambda _worker_id, _bytes: "",
        )
        beat = SimpleNamespace(
            heartbeat_ns=0,
            last_index=0,
            activity=SimpleNamespace(state="", turns=0, tools=(), opening=0),
            usage=SimpleNamespace(max_rss_bytes=0, user_us=0, system_us=0),
        )
        self.board = SimpleNamespace(read=lambda _slot: beat, release=lambda _slot: None)
        self.bringing, self.tasks = {}, []

    async def _drained(self, _worker_id, _bound_s):
        pass

    def spawn(self, work):
        self.tasks.append(asyncio.ensure_future(work))

    @property
    def is_rid_of_it(self):
        """Whether nobody knows the process any more."""
        return not (self.pulse.watched or self.footprint.watched or self.limited or self.named)


async def reached(event):
    assert await asyncio.to_thread(event.wait, GATE_S)


@pytest.mark.parametrize("step", ["open", "admit"])
def test_process_that_ends_while_its_cell_is_made(step):
    """It is not watched, and the cell is closed whichever of the two is done first."""

    async def scenario():
        cell = Cell()
        house = House(cell)
        ward = Ward(house, "w-1", 0)
        is_there, gate = cell.hold(step)
        ward.assign(7, "s", 1, LIMITED)
        await reached(is_there)
        ward.ended()
        burial = asyncio.ensure_future(bury(ward))
        for _ in range(5):
            await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(burial, *house.tasks)
        return cell.done[-1], "admit" in cell.done, house.is_rid_of_it

    assert play(scenario) == ("close", step == "admit", True)


async def bury(ward):
    inquest = await ward.inquest(7, 1.0)
    await ward.close()
    return inquest


def test_what_comes_after_the_end_is_watched_by_nobody():
    """A frame that was read last does not make a dead process one that must beat."""

    async def scenario():
        cell = Cell()
        house = House(cell)
        ward = Ward(house, "w-1", 0)
        ward.assign(7, "s", 1, Supervision())
        ward.ended()
        ward.expect(7, 30.0)
        ward.idle()
        await bury(ward)
        await ward.close()
        await asyncio.gather(*house.tasks)
        return cell.done, house.is_rid_of_it

    assert play(scenario) == ([], True)


@pytest.mark.parametrize(
    ("looks", "at_end", "told"),
    [
        ((), 1, "OutOfMemory"),
        ((0, 1), 1, "OutOfMemory"),  # the last look was on the dying process itself
        ((1, 1), 1, "Signal"),  # a tool's, in an earlier turn
        ((1, 1), 2, "OutOfMemory"),
    ],
)
def test_oom_kill_counts_unless_the_process_has_survived_it(looks, at_end, told):
    """A look that comes while a large process dies does not take the evidence away."""

    async def scenario():
        cell = Cell()
        ward = Ward(House(cell), "w-1", 0)
        ward.assign(7, "s", 1, LIMITED)
        await asyncio.gather(*ward.house.tasks)
        for kills in looks:
            ward.count_ooms(kills)
        cell.kills = at_end
        ward.ended()
        inquest = await bury(ward)
        return classify(Evidence(-9, asked=Asked.NOTHING, oom_kills=inquest.oom_kills))

    assert type(play(scenario)).__name__ == told


def test_cell_without_cgroups_is_not_asked_for_each_process():
    """It would read the whole process table for each of those that die at once."""

    async def scenario():
        cell = Cell(rooms=(), guards=frozenset())
        house = House(cell)
        ward = Ward(house, "w-1", 0)
        ward.assign(7, "s", 1, LIMITED)
        await asyncio.gather(*house.tasks)
        ward.kill()
        ward.ended()
        await bury(ward)
        await asyncio.gather(*house.tasks)
        return cell.done

    assert play(scenario) == ["open", "admit", "close"]


def test_only_counted_memory_is_looked_at():
    """Where no cgroup counts OOM kills there is nothing to look at each second."""

    async def limited(guards):
        house = House(Cell(guards=guards))
        ward = Ward(house, "w-1", 0)
        ward.assign(7, "s", 1, LIMITED)
        await asyncio.gather(*house.tasks)
        return len(house.limited)

    assert play(lambda: limited(frozenset({Controller.MEMORY}))) == 1
    assert play(lambda: limited(frozenset())) == 0
