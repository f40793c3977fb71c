"""Limits, kills and counts, with the cgroups of this machine and with real processes in them."""

import os
import select
import time
from pathlib import Path

import pytest

from supervisor.adapters import cell_places
from supervisor.adapters.cells import Cell, Room
from supervisor.core.cells import Controller, Limits, Usage, Version, cell_name

pytestmark = pytest.mark.process

WAIT_S = 10.0
LIMIT_BYTES = 48 * 2**20
KILL_S_MAX = 2.0
NAME = cell_name("s1", 1)

HUNGRY = "input(); x = bytearray(200 << 20); input()"
BOMB = """
import os
input()
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
# It forks twice, calls setsid in between, and tells who is left.
HIDING = """
import os, signal
input()
hidden, told = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(told, b"%d" % os.getpid())
        signal.pause()
    os._exit(0)
os.wait()
print(int(os.read(hidden, 20)), flush=True)
input()
"""


# --- limits -----------------------------------------------------------------------------------


def test_the_kernel_counts_who_it_killed_for_want_of_memory(stage, cells):
    """The one over its limit dies, the count goes up in its cell, and the next cell feels nothing.

    The signal alone would not tell: anybody may send it.
    """
    stage.need(cells, "memory", *Version)
    full = cells.open(NAME, Limits(memory_bytes=LIMIT_BYTES))
    other = cells.open(cell_name("s2", 1), Limits(memory_bytes=LIMIT_BYTES))
    with stage.program(HUNGRY) as hungry, stage.program("input()") as neighbour:
        assert full.admit(hungry.pid)
        assert other.admit(neighbour.pid)
        stage.begin(hungry)
        status = hungry.wait(WAIT_S)
        usage, calm = full.usage(), other.usage()

        assert status == -9
        assert usage.oom_kills == 1
        assert LIMIT_BYTES // 2 < usage.memory_peak_bytes <= LIMIT_BYTES
        assert full.is_empty()
        assert calm.oom_kills == 0
        assert calm.processes == 1
        assert neighbour.poll() is None


@pytest.mark.slow
def test_a_share_of_the_cores_is_held(stage, cells):
    """A process that turns as fast as it can gets what it was given."""
    stage.need(cells, "cpu", *Version)
    cell = cells.open(NAME, Limits(cpu_cores=0.1))
    with stage.program("input()\nwhile True: pass") as busy:
        cell.admit(busy.pid)
        stage.begin(busy)
        stage.poll_for(lambda: cpu_ticks(busy.pid) >= 2)
        at, ticks = time.monotonic(), cpu_ticks(busy.pid)
        stage.poll_for(lambda: time.monotonic() - at > 0.3)
        share = (cpu_ticks(busy.pid) - ticks) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - at)

        assert share < 0.5


def cpu_ticks(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.fault
@pytest.mark.parametrize(
    "versions", [tuple(Version), (Version.V1,)], ids=["best", "each by its pidfd"]
)
def test_a_fork_bomb_ends_at_its_limit_and_is_killed(stage, name, versions):
    """It gets no more processes than allowed, and none is left soon after the kill."""
    with stage.surveyed(name, versions=versions) as cells:
        stage.need(cells, "processes", *Version)
        cell = cells.open(NAME, Limits(processes=30))
        with stage.program(BOMB) as bomb:
            cell.admit(bomb.pid)
            stage.begin(bomb)
            stage.poll_for(lambda: cell.usage().processes == 30)
            begun = time.monotonic()
            is_empty = cell.kill()
            took_s = time.monotonic() - begun

            assert is_empty
            assert took_s < KILL_S_MAX
            assert cell.pids() == frozenset()
            assert cell.close()


@pytest.mark.fault
@pytest.mark.parametrize("versions", [(Version.V2,), (Version.V1,)], ids=["v2", "v1"])
def test_who_forked_twice_and_left_the_session_dies_with_its_cell(stage, name, versions):
    """No process leaves a cgroup by any number of forks."""
    with stage.surveyed(name, versions=versions) as cells:
        stage.need(cells, "kill", *versions)
        cell = cells.open(NAME, Limits())
        with stage.program(HIDING) as hiding:
            cell.admit(hiding.pid)
            stage.begin(hiding)
            hidden = int(hiding.stdout.readline())
            pidfd = os.pidfd_open(hidden)
            seen = cell.pids()
            is_empty = cell.kill()

            assert seen == {hiding.pid, hidden}
            assert is_empty
            assert has_ended(pidfd)
            assert cell.is_empty()
            os.close(pidfd)


def has_ended(pidfd):
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(WAIT_S * 1e3))


def test_a_cgroup_made_inside_goes_with_the_cell(stage, cells):
    """A program with the right to do so may make cgroups below its own; nothing hides there."""
    stage.need(cells, "kill", *Version)
    cell = cells.open(NAME, Limits())
    inner = cell.rooms[0].path / "inner"
    with stage.program("input()") as process:
        cell.admit(process.pid)
        inner.mkdir()
        cell_places.admit(inner, process.pid)

        assert cell.pids() == {process.pid}
        assert not cell.is_empty()
        assert cell.kill()
        assert cell.close()
        assert not inner.exists()


# --- what goes wrong --------------------------------------------------------------------------


def test_who_has_ended_is_not_admitted(stage, cells):
    """That a process ended a moment ago is nobody's mistake."""
    cell = cells.open(NAME, Limits())
    with stage.program("pass") as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert not cell.admit(process.pid)
    assert not cell.admit(process.pid)


def test_a_cell_that_is_busy_is_remembered_and_removed_later(stage, cells):
    """What the kernel does not let go of now is told, and tried again; it ends nothing."""
    stage.need(cells, "kill", *Version)
    cell = cells.open(NAME, Limits())
    path = cell.rooms[0].path
    with stage.program("input()") as process:
        cell.admit(process.pid)
        is_removed = cell.close()
        busy = cells.quarantined

        assert not is_removed
        assert path in busy
        assert process.poll() is None
        assert cells.retry() == frozenset()
        assert process.wait(WAIT_S) == -9
        assert not path.exists()


def test_a_name_that_is_taken_leaves_the_cell_without_that_hierarchy(stage, cells):
    """A cell that can't be made is no reason not to start: it says what it does not guard."""
    stage.need(cells, "processes", *Version)
    first = cells.open(NAME, Limits(processes=30))
    second = cells.open(NAME, Limits(processes=30))

    assert first.guards == {Controller.PROCESSES}
    assert second.guards == frozenset()
    assert first.close()


def test_a_cell_whose_directory_is_gone_gives_it_up(stage, cells):
    """Whoever removed it: the process goes on, and the limit is for the watch from now on."""
    stage.need(cells, "processes", *Version)
    cell = cells.open(NAME, Limits(processes=30))
    for room in cell.rooms:
        cell_places.remove(room.path)
    with stage.program("input()") as process:
        assert cell.admit(process.pid)
        assert cell.guards == frozenset()
        assert cell.kill()
        assert process.wait(WAIT_S) == -9


# --- what is told -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "files", "usage"),
    [
        (
            Version.V2,
            {
                "memory.current": "5\n",
                "memory.peak": "7\n",
                "memory.events": "oom 9\noom_kill 2\n",
                "inner/memory.events": "oom_kill 1\n",
            },
            Usage(memory_bytes=5, memory_peak_bytes=7, oom_kills=2, processes=2),
        ),
        (
            Version.V2,
            {"memory.current": "5\n", "memory.events": "oom_kill 0\n"},
            Usage(memory_bytes=5, oom_kills=0, processes=2),
        ),
        (
            Version.V1,
            {
                "memory.usage_in_bytes": "5\n",
                "memory.max_usage_in_bytes": "7\n",
                "memory.oom_control": "under_oom 0\noom_kill 2\n",
                "inner/memory.oom_control": "oom_kill 1\n",
            },
            Usage(memory_bytes=5, memory_peak_bytes=7, oom_kills=3, processes=2),
        ),
        (Version.V1, {}, Usage(processes=2)),
    ],
    ids=["v2", "v2 before 5.19", "v1", "none"],
)
def test_usage_is_read_from_the_files_of_either_version(version, files, usage, tmp_path):
    """Of v2 the count is that of all below, of v1 each directory has its own.

    The files stand in a plain directory, as the kernel writes them: no machine has both.
    """
    (tmp_path / "inner").mkdir()
    for file, text in (files | {"cgroup.procs": "12\n", "inner/cgroup.procs": "13\n"}).items():
        (tmp_path / file).write_text(text)
    room = Room(tmp_path, version, frozenset({Controller.MEMORY}))
    cell = Cell(NAME, Limits(), [room], known=tuple, on_stuck=print)

    assert cell.usage() == usage


@pytest.mark.parametrize("makes_place", [True, False])
def test_a_place_of_a_cell_is_ended_without_the_rest(stage, cells, makes_place):
    """Whoever hides in there included; the limits of the cell hold for all."""
    stage.need(cells, "kill", *Version)
    cell = cells.open(NAME, Limits())
    with stage.program("input()") as agent, stage.program(HIDING) as host:
        assert cell.admit(agent.pid)
        assert cell.admit(host.pid, "host-1" if makes_place else "")
        stage.begin(host)
        hidden = int(host.stdout.readline())
        is_empty, left = cell.end_place("host-1"), cell.pids()

        assert is_empty
        assert left == ({agent.pid} if makes_place else {agent.pid, host.pid, hidden})
