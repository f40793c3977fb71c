"""Who gets a worker when the nursery has none to give: those who can wait do, within bounds."""

import asyncio
from types import SimpleNamespace

import pytest

from cmdc_runtime.errors import Overloaded
from supervisor import workforce as module
from supervisor.adapters.nursery import NurseryFailed, NurseryLost
from supervisor.core.limits import HIRES_PATIENT_MAX
from supervisor.workforce import Workforce
from tests.unit.supervisor.desk import play, settle

LOST = NurseryLost("it died")


class Forking(Workforce):
    """A workforce whose forks do what the test says."""

    def __init__(self, *problems):
        nursery = SimpleNamespace(warmed=asyncio.Event())
        super().__init__(nursery, None, None, "ipc://x", 0)
        self.problems = list(problems)
        self.forks = self.at_once = self.most = 0
        self.may_fork = asyncio.Event()
        self.may_fork.set()

    async def _fork(self):
        self.forks = number = self.forks + 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.may_fork.wait()
        finally:
            self.at_once -= 1
        if self.problems:
            raise self.problems.pop(0)
        return SimpleNamespace(pid=number, has_ended=False)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    """Try again at once."""
    monkeypatch.setattr(module, "FORK_RETRY_S", 0.0)


def always():
    return True


def never():
    return False


@pytest.mark.parametrize("problem", [LOST, NurseryFailed("preload", "no"), Overloaded("full")])
def test_who_does_not_wait_is_told_at_once(problem):
    """A first start fails with what is wrong; a nursery that dies over it has one more try."""

    async def scenario():
        forking = Forking(problem, problem)
        with pytest.raises(type(problem)):
            await forking.hire(never)
        return forking.forks

    assert play(scenario) == (2 if problem is LOST else 1)


def test_who_waits_has_a_worker_from_the_next_nursery():
    """While there is none nothing is forked: its post warms it at its own pace."""

    async def scenario():
        forking = Forking(LOST, LOST)
        hiring = asyncio.create_task(forking.hire(always))
        await settle()
        before = forking.forks
        forking.nursery.warmed.set()
        worker = await hiring
        return before, worker.pid

    assert play(scenario) == (0, 3)


def test_who_waits_for_nothing_any_more_forks_nothing():
    """A session that was stopped while there was no nursery does not cost a process."""

    async def scenario():
        forking = Forking()
        wanted = [True]
        hiring = asyncio.create_task(forking.hire(lambda: bool(wanted)))
        await settle()
        wanted.clear()
        forking.nursery.warmed.set()
        with pytest.raises(NurseryLost):
            await hiring
        return forking.forks

    assert play(scenario) == 0


def test_those_who_wait_do_not_fill_the_nurserys_queue():
    """Thousands of sessions of an earlier daemon leave room for one that is started now."""

    async def scenario():
        forking = Forking()
        forking.nursery.warmed.set()
        forking.may_fork.clear()
        hiring = [asyncio.create_task(forking.hire(always)) for _ in range(3 * HIRES_PATIENT_MAX)]
        await settle()
        waiting = forking.at_once
        first = asyncio.create_task(forking.hire(never))
        await settle()
        forking.may_fork.set()
        workers = await asyncio.gather(first, *hiring)
        return waiting, forking.most, len({worker.pid for worker in workers})

    assert play(scenario) == (
        HIRES_PATIENT_MAX,
        HIRES_PATIENT_MAX + 1,
        3 * HIRES_PATIENT_MAX + 1,
    )


def test_spares_are_not_forked_while_there_is_no_nursery(monkeypatch):
    """Each fork would try to start one, whatever the back-off of its post says."""
    monkeypatch.setattr(module, "SPARE_RETRY_S", 0.0)

    async def scenario():
        forking = Forking(NurseryFailed("preload", "no"))
        forking.spares_wanted = 1
        keeping = asyncio.create_task(forking.keep_spares())
        await settle()
        before = forking.forks
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        return before

    assert play(scenario) == 1
