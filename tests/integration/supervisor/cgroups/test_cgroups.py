"""Limits, kills and counts, with the cgroups of this machine and with real processes in them."""

import os
import select
import time
from pathlib import Path

import pytest

from supervisor.adapters import cgroup_roots
from supervisor.adapters.cgroups import Cgroup, CgroupPart
from supervisor.core.cgroups import Controller, Limits, Usage, Version, cgroup_name

pytestmark = pytest.mark.process

WAIT_S = 10.0
LIMIT_BYTES = 48 * 2**20
KILL_S_MAX = 2.0
NAME = cgroup_name("s1", 1)

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
# It forks twice, calls setsid in between, and prints who is left.
HIDING = """
import os, signal
input()
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(writing, b"%d" % os.getpid())
        signal.pause()
    os._exit(0)
os.wait()
print(int(os.read(reading, 20)), flush=True)
input()
"""


# --- limits -----------------------------------------------------------------------------------


def test_the_kernel_counts_who_it_killed_for_want_of_memory(stage, cgroups):
    """The one over its limit dies, the count goes up in its cgroup, and the next one feels nothing.

    The signal alone would prove nothing: anybody may send it.
    """
    stage.need(cgroups, "memory", *Version)
    full = cgroups.open(NAME, Limits(memory_bytes=LIMIT_BYTES))
    other = cgroups.open(cgroup_name("s2", 1), Limits(memory_bytes=LIMIT_BYTES))
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
def test_a_share_of_the_cores_is_held(stage, cgroups):
    """A process that turns as fast as it can gets what it was given."""
    stage.need(cgroups, "cpu", *Version)
    cgroup = cgroups.open(NAME, Limits(cpu_cores=0.1))
    with stage.program("input()\nwhile True: pass") as busy:
        cgroup.admit(busy.pid)
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
    with stage.surveyed(name, versions=versions) as cgroups:
        stage.need(cgroups, "processes", *Version)
        cgroup = cgroups.open(NAME, Limits(processes=30))
        with stage.program(BOMB) as bomb:
            cgroup.admit(bomb.pid)
            stage.begin(bomb)
            stage.poll_for(lambda: cgroup.usage().processes == 30)
            begun = time.monotonic()
            is_empty = cgroup.kill()
            took_s = time.monotonic() - begun

            assert is_empty
            assert took_s < KILL_S_MAX
            assert cgroup.pids() == frozenset()
            assert cgroup.close()


@pytest.mark.fault
@pytest.mark.parametrize("versions", [(Version.V2,), (Version.V1,)], ids=["v2", "v1"])
def test_who_forked_twice_and_left_the_session_dies_with_its_cgroup(stage, name, versions):
    """No process leaves a cgroup by any number of forks."""
    with stage.surveyed(name, versions=versions) as cgroups:
        stage.need(cgroups, "kill", *versions)
        cgroup = cgroups.open(NAME, Limits())
        with stage.program(HIDING) as hiding:
            cgroup.admit(hiding.pid)
            stage.begin(hiding)
            hidden = int(hiding.stdout.readline())
            pidfd = os.pidfd_open(hidden)
            seen = cgroup.pids()
            is_empty = cgroup.kill()

            assert seen == {hiding.pid, hidden}
            assert is_empty
            assert has_ended(pidfd)
            assert cgroup.is_empty()
            os.close(pidfd)


def has_ended(pidfd):
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(WAIT_S * 1e3))


def test_a_cgroup_made_inside_goes_with_the_outer_one(stage, cgroups):
    """A program with the right to do so may make cgroups below its own; nothing hides there."""
    stage.need(cgroups, "kill", *Version)
    cgroup = cgroups.open(NAME, Limits())
    inner = cgroup.parts[0].path / "inner"
    with stage.program("input()") as process:
        cgroup.admit(process.pid)
        inner.mkdir()
        cgroup_roots.admit(inner, process.pid)

        assert cgroup.pids() == {process.pid}
        assert not cgroup.is_empty()
        assert cgroup.kill()
        assert cgroup.close()
        assert not inner.exists()


# --- what goes wrong --------------------------------------------------------------------------


def test_who_has_ended_is_not_admitted(stage, cgroups):
    """That a process ended a moment ago is nobody's mistake."""
    cgroup = cgroups.open(NAME, Limits())
    with stage.program("pass") as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert not cgroup.admit(process.pid)
    assert not cgroup.admit(process.pid)


def test_a_cgroup_that_is_busy_is_remembered_and_removed_later(stage, cgroups):
    """What the kernel does not let go of now is reported, and tried again; it ends nothing."""
    stage.need(cgroups, "kill", *Version)
    cgroup = cgroups.open(NAME, Limits())
    path = cgroup.parts[0].path
    with stage.program("input()") as process:
        cgroup.admit(process.pid)
        is_removed = cgroup.close()
        busy = cgroups.quarantined

        assert not is_removed
        assert path in busy
        assert process.poll() is None
        assert cgroups.retry() == frozenset()
        assert process.wait(WAIT_S) == -9
        assert not path.exists()


def test_a_name_that_is_taken_leaves_the_cgroup_without_that_hierarchy(stage, cgroups):
    """A cgroup that can't be made is no reason not to start: it says what it does not guard."""
    stage.need(cgroups, "processes", *Version)
    first = cgroups.open(NAME, Limits(processes=30))
    second = cgroups.open(NAME, Limits(processes=30))

    assert first.guards == {Controller.PROCESSES}
    assert second.guards == frozenset()
    assert first.close()


def test_a_cgroup_whose_directory_is_gone_gives_it_up(stage, cgroups):
    """Whoever removed it: the process goes on, and the limit is for the watch from now on."""
    stage.need(cgroups, "processes", *Version)
    cgroup = cgroups.open(NAME, Limits(processes=30))
    for part in cgroup.parts:
        cgroup_roots.remove(part.path)
    with stage.program("input()") as process:
        assert cgroup.admit(process.pid)
        assert cgroup.guards == frozenset()
        assert cgroup.kill()
        assert process.wait(WAIT_S) == -9


# --- what is reported -------------------------------------------------------------------------


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
    part = CgroupPart(tmp_path, version, frozenset({Controller.MEMORY}))
    cgroup = Cgroup(NAME, Limits(), [part], known=tuple, on_stuck=print)

    assert cgroup.usage() == usage


@pytest.mark.parametrize("makes_place", [True, False])
def test_a_place_of_a_cgroup_is_ended_without_the_rest(stage, cgroups, makes_place):
    """Whoever hides in there included; the limits of the cgroup hold for all."""
    stage.need(cgroups, "kill", *Version)
    cgroup = cgroups.open(NAME, Limits())
    with stage.program("input()") as agent, stage.program(HIDING) as host:
        assert cgroup.admit(agent.pid)
        assert cgroup.admit(host.pid, "host-1" if makes_place else "")
        stage.begin(host)
        hidden = int(host.stdout.readline())
        is_empty, left = cgroup.end_subgroup("host-1"), cgroup.pids()

        assert is_empty
        assert left == ({agent.pid} if makes_place else {agent.pid, host.pid, hidden})
