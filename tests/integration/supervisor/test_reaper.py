"""The reaper against real children: every end is reported once, with the truth about its status."""

import asyncio
import gc
import os
import signal
import time
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from supervisor.adapters import pidfd as module
from supervisor.adapters.pidfd import ExitStatus, Reaper
from supervisor.adapters.zygote import Zygote, ZygoteOptions
from supervisor.core.exits import ExitRecord

pytestmark = pytest.mark.process

HERE = Path(__file__).parent
WAIT_S = 10.0


@pytest.fixture(autouse=True)
def import_path(monkeypatch):
    """Let zygote and children import this folder's modules."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.syspath_prepend(str(HERE))


@asynccontextmanager
async def zygote_and_reaper(on_lost=None):
    options = ZygoteOptions(preload="light_preload", needs=())
    zygote, reaper = Zygote(options, on_lost=on_lost), Reaper()
    try:
        await zygote.warm()
        yield zygote, reaper
    finally:
        reaper.close()
        await zygote.close()


def fork(zygote, do, **boot):
    return zygote.fork({"do": do, **boot}, module="zygote_children")


class Ends:
    """What the reaper reported, in order."""

    def __init__(self):
        self.reported = asyncio.Queue()

    def __call__(self, exited):
        self.reported.put_nowait(exited)

    async def of(self, count):
        """Wait for so many and see that there are no more."""
        async with asyncio.timeout(WAIT_S):
            reported = [await self.reported.get() for _ in range(count)]
        assert self.reported.empty()
        return reported


async def until(is_true):
    """Wait for a condition of the operating system; the loop goes on meanwhile."""
    deadline = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.001)  # tidy: polls what the kernel alone knows


def open_fds():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("status", [0, 7, 78, 255])
def test_an_exit_code_is_reported_as_it_was(status):
    """All of them, as the kernel has them."""

    async def scenario():
        async with zygote_and_reaper() as (zygote, reaper):
            ends = Ends()
            child = await fork(zygote, "end", status=status)
            reaper.watch(child, ends)
            return child.pid, await ends.of(1)

    pid, reported = asyncio.run(scenario())

    assert [(exited.pid, exited.status) for exited in reported] == [(pid, status)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_signal_is_reported_as_its_negative_number(number):
    """The convention of subprocess."""

    async def scenario():
        async with zygote_and_reaper() as (zygote, reaper):
            ends = Ends()
            child = await fork(zygote, "stay")
            reaper.watch(child, ends)
            assert reaper.pids == {child.pid}
            assert child.send_signal(number)
            reported = await ends.of(1)
            return child, reaper.pids, reported[0].status

    child, pids, status = asyncio.run(scenario())

    assert status == -number
    assert pids == frozenset()
    assert not child.send_signal(signal.SIGKILL)


@pytest.fixture
def silent_kernel(monkeypatch):
    """Be on a kernel, or in a sandbox, that shows the parent alone how a process ended."""
    monkeypatch.setattr(module, "exit_status", lambda *_: None)


@pytest.mark.parametrize("number", [signal.SIGKILL, None], ids=["killed", "ended"])
@pytest.mark.usefixtures("silent_kernel")
def test_the_zygote_reports_what_the_kernel_does_not(number):
    """It is the parent, and has waited for the process."""

    async def scenario():
        async with zygote_and_reaper() as (zygote, reaper):
            ends = Ends()
            child = await fork(zygote, "end" if number is None else "stay", status=255)
            reaper.watch(child, ends)
            if number is not None:
                child.send_signal(number)
            return [exited.status for exited in await ends.of(1)]

    assert asyncio.run(scenario()) == [255 if number is None else -9]


@pytest.mark.fault
def test_a_lost_zygote_makes_nobody_look_dead_and_loses_no_status():
    """The zygote reports nothing any more; the pidfd does not lie."""

    async def scenario():
        lost = asyncio.Event()
        async with zygote_and_reaper(on_lost=lambda _: lost.set()) as (zygote, reaper):
            ends = Ends()
            child = await fork(zygote, "stay")
            reaper.watch(child, ends)
            os.kill(zygote.pid, signal.SIGKILL)
            await asyncio.wait_for(lost.wait(), WAIT_S)
            assert ends.reported.empty()
            child.send_signal(signal.SIGTERM)
            return [exited.status for exited in await ends.of(1)]

    assert asyncio.run(scenario()) == [-15]


@pytest.mark.fault
def test_a_stopped_zygote_neither_delays_an_end_nor_loses_its_status():
    """The process stays a zombie until it goes on; the kernel reports its status all the same."""

    async def scenario():
        async with zygote_and_reaper() as (zygote, reaper):
            ends = Ends()
            child = await fork(zygote, "stay")
            reaper.watch(child, ends)
            os.kill(zygote.pid, signal.SIGSTOP)
            child.send_signal(signal.SIGKILL)
            reported = await ends.of(1)
            waited_s = asyncio.get_running_loop().time() - reported[0].exited_at
            state = psutil.Process(child.pid).status()
            os.kill(zygote.pid, signal.SIGCONT)
            return reported[0].status, state, waited_s

    status, state, waited_s = asyncio.run(scenario())

    assert (status, state) == (-9, psutil.STATUS_ZOMBIE)
    assert waited_s < module.STATUS_WAIT_ALONE_S


@pytest.mark.fault
@pytest.mark.usefixtures("silent_kernel")
def test_a_status_that_nobody_reports_delays_the_end_by_a_bounded_time_only(monkeypatch):
    """A stopped zygote cannot wait for its child; the end is reported all the same."""
    monkeypatch.setattr(module, "STATUS_WAIT_S", 0.2)

    async def scenario():
        async with zygote_and_reaper() as (zygote, reaper):
            ends = Ends()
            child = await fork(zygote, "stay")
            reaper.watch(child, ends)
            os.kill(zygote.pid, signal.SIGSTOP)
            child.send_signal(signal.SIGKILL)
            reported = await ends.of(1)
            waited_s = asyncio.get_running_loop().time() - reported[0].exited_at
            os.kill(zygote.pid, signal.SIGCONT)
            return reported[0].status, waited_s

    status, waited_s = asyncio.run(scenario())

    assert status is None
    assert waited_s >= 0.2


@pytest.mark.fault
@pytest.mark.usefixtures("silent_kernel")
def test_a_status_that_died_with_the_zygote_is_not_waited_for_long():
    """Nobody can report it any more: the child is init's now, unless it is ours."""

    async def scenario():
        lost = asyncio.Event()
        async with zygote_and_reaper(on_lost=lambda _: lost.set()) as (zygote, reaper):
            ends = Ends()
            child = await fork(zygote, "stay")
            reaper.watch(child, ends)
            os.kill(zygote.pid, signal.SIGKILL)
            await asyncio.wait_for(lost.wait(), WAIT_S)
            child.send_signal(signal.SIGKILL)
            reported = await ends.of(1)
            return reported[0].status, asyncio.get_running_loop().time() - reported[0].exited_at

    status, waited_s = asyncio.run(scenario())

    assert status is None
    assert module.STATUS_WAIT_ALONE_S <= waited_s < module.STATUS_WAIT_S


def test_an_end_that_two_report_is_reported_once():
    """The zygote's word comes while the kernel's is taken: whoever is first, there is one end."""

    async def scenario():
        async with zygote_and_reaper() as (zygote, reaper):
            ends = Ends()
            child = await fork(zygote, "end", status=7)
            await until(lambda: child.status() is not None)  # the zygote has reported already
            reaper.watch(child, ends)
            first = await ends.of(1)
            await asyncio.sleep(0)  # what else the loop has to say
            assert ends.reported.empty()
            return first[0]

    reported = asyncio.run(scenario())

    assert reported == ExitRecord(7, pid=reported.pid, exited_at=reported.exited_at)


def test_a_core_is_reported_with_the_end(monkeypatch):
    """As the kernel says it; ``test_pidfd`` has a real one."""
    monkeypatch.setattr(module, "exit_status", lambda *_: ExitStatus(-11, core_dumped=True))

    async def scenario():
        async with zygote_and_reaper() as (zygote, reaper):
            ends = Ends()
            child = await fork(zygote, "stay")
            reaper.watch(child, ends)
            child.send_signal(signal.SIGSEGV)
            return await ends.of(1)

    reported = asyncio.run(scenario())

    assert [(exited.status, exited.core_dumped) for exited in reported] == [(-11, True)]


def test_a_child_that_stops_and_goes_on_has_not_ended():
    """Only its end is reported."""

    async def scenario():
        async with zygote_and_reaper() as (zygote, reaper):
            ends = Ends()
            child = await fork(zygote, "stay")
            reaper.watch(child, ends)
            process = psutil.Process(child.pid)
            child.send_signal(signal.SIGSTOP)
            await until(lambda: process.status() == psutil.STATUS_STOPPED)
            child.send_signal(signal.SIGCONT)
            await until(lambda: process.status() == psutil.STATUS_SLEEPING)
            assert ends.reported.empty()
            child.send_signal(signal.SIGTERM)
            return [exited.status for exited in await ends.of(1)]

    assert asyncio.run(scenario()) == [-15]


def test_close_leaves_the_processes_alone_and_reports_nothing():
    """What lives on is for the next daemon to adopt."""

    async def scenario():
        async with zygote_and_reaper() as (zygote, reaper):
            ends = Ends()
            child = await fork(zygote, "stay")
            reaper.watch(child, ends)
            reaper.close()
            process = psutil.Process(child.pid)
            assert process.is_running()
            process.kill()
            process.wait(WAIT_S)
            return ends.reported.empty()

    assert asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.fault
def test_two_hundred_forks_and_kills_leave_no_descriptor_and_no_process():
    """Every child is reported once, and nothing of it is left in the daemon or the zygote."""

    async def scenario():
        async with zygote_and_reaper() as (zygote, reaper):
            gc.collect()  # what earlier tests left in cycles
            before = open_fds()
            ends, pids = Ends(), set()
            for _ in range(200):
                child = await fork(zygote, "stay")
                reaper.watch(child, ends)
                pids.add(child.pid)
                child.send_signal(signal.SIGKILL)
            reported = await ends.of(200)
            assert {exited.pid for exited in reported} == pids
            assert {exited.status for exited in reported} == {-signal.SIGKILL}
            assert open_fds() == before
            # The last of them may be zombies for a moment more.
            await until(lambda: psutil.Process(zygote.pid).children() == [])

    asyncio.run(scenario())
