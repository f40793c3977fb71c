"""The daemon's own watch on memory and process counts, with real processes and no cgroup."""

import asyncio
import contextlib
import subprocess
import sys

import pytest

from cmdc_runtime.process_table import look_up
from supervisor.adapters.cgroups import Cgroups
from supervisor.core.cgroups import Limits, base_name, cgroup_name
from supervisor.processes.containment import Footprint, pss_bytes

pytestmark = pytest.mark.process

WAIT_S = 10.0
LOOK_S = 0.02
MIB = 2**20

HUNGRY = "input(); x = bytearray(100 << 20); input()"
CROWDED = """
import threading
input()
for _ in range(8):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
input()
"""
# Both have touched all of it when a line is written.
SHARING = """
import mmap, os, sys
shared = mmap.mmap(-1, 64 << 20)
shared.write(b"x" * (64 << 20))
reading, writing = os.pipe()
if os.fork() == 0:
    sum(shared[::4096])
    os.write(writing, b"x")
    sys.stdin.read()
    os._exit(0)
os.read(reading, 1)
print(flush=True)
sys.stdin.read()
os.wait()
"""


class Reports:
    """Records what is over its limit."""

    def __init__(self):
        self.memory = asyncio.Queue()
        self.processes = asyncio.Queue()

    def watch(self):
        return Footprint(
            on_memory=lambda *reports: self.memory.put_nowait(reports),
            on_processes=lambda *reports: self.processes.put_nowait(reports),
            look_s=LOOK_S,
        )


@contextlib.contextmanager
def session(code, limits):
    """Yield a program with a session of its own and its cgroup, which is no cgroup."""
    cgroups = Cgroups.survey(base_name("/nowhere"), versions=())
    cgroup = cgroups.open(cgroup_name("s1", 1), limits)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, start_new_session=True
    ) as process:
        cgroup.admit(process.pid)
        yield process, cgroup
        assert cgroup.kill()


@contextlib.asynccontextmanager
async def running(footprint):
    task = asyncio.create_task(footprint.run())
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def hear(queue):
    async with asyncio.timeout(WAIT_S):
        return await queue.get()


def begin(process):
    process.stdin.write(b"\n")
    process.stdin.flush()


def test_a_session_over_its_memory_is_reported_once():
    """The key comes with what the session uses and what it may use; then it is left alone."""

    async def scenario():
        reports = Reports()
        watch = reports.watch()
        with session(HUNGRY, Limits(memory_bytes=50 * MIB)) as (process, cgroup):
            watch.watch("one", cgroup)
            async with running(watch):
                begin(process)
                key, used, limit = await hear(reports.memory)
                with session(HUNGRY, Limits(memory_bytes=50 * MIB)) as (later, other):
                    watch.watch("two", other)
                    begin(later)
                    second = await hear(reports.memory)

        assert (key, limit) == ("one", 50 * MIB)
        assert 50 * MIB < used < 200 * MIB
        assert second[0] == "two"
        assert reports.memory.empty()
        assert reports.processes.empty()

    asyncio.run(scenario())


def test_threads_of_a_session_count():
    """What the kernel would count is counted, and one too many is reported."""

    async def scenario():
        reports = Reports()
        watch = reports.watch()
        with session(CROWDED, Limits(processes=6)) as (process, cgroup):
            watch.watch("one", cgroup)
            async with running(watch):
                begin(process)
                key, used, limit = await hear(reports.processes)

        assert (key, limit) == ("one", 6)
        assert used > 6

    asyncio.run(scenario())


def test_who_is_forgotten_or_has_no_limit_is_not_looked_at():
    """A session without a limit costs nothing, and one that has ended is nobody's business."""

    async def scenario():
        reports = Reports()
        watch = reports.watch()
        with (
            session(HUNGRY, Limits(cpu_cores=1.0)) as (_, free),
            session("input()", Limits(processes=1)) as (_, bound),
        ):
            watch.watch("free", free)
            watch.watch("bound", bound)
            watched = set(watch._watched)
            watch.forget("bound")
            watch.forget("bound")

            assert watched == {"bound"}
            assert watch._watched == {}

    asyncio.run(scenario())


def test_shared_memory_counts_by_its_share():
    """PSS of one that shares pages with its child is less than what it has resident."""
    with subprocess.Popen(
        [sys.executable, "-c", SHARING], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        pss, rss = pss_bytes(process.pid), look_up(process.pid).rss_bytes
        process.stdin.close()

        assert rss > 64 * MIB
        assert pss < rss - 16 * MIB
    assert pss_bytes(process.pid) is None
