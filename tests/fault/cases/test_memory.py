"""A session takes memory until there is none: its own limit is met, or the machine is full.

The daemon of these cases is a large process from its start on, so that the kernel would take it
where it goes by size alone.
"""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.reasons import OutOfMemory
from tests.fault.cases.poison import poisoned
from tests.fault.conftest import OwnDaemon

pytestmark = [pytest.mark.fault, pytest.mark.process]

TURN_S = 30.0
LIMIT_BYTES = 64 * 2**20
CHUNK_BYTES = 4 * 2**20
DAEMON_BYTES = 512 * 2**20
LARGE = f"""
import runpy
kept = b"x" * {DAEMON_BYTES}
runpy.run_module("supervisor", run_name="__main__", alter_sys=True)
"""
AHEAD_BYTES = 100 * 2**20
"""How far the daemon is ahead of the session by size."""
BALLAST_BYTES = 1280 * 2**20
"""Of memory that is nobody's: scores are shares of all memory, and with this much of it the daemon
is behind the bystander by its score, too."""
BALLAST = f"""
import os, sys
fd = os.memfd_create("ballast")
sys.stdin.readline()
for _ in range({BALLAST_BYTES} // 2**20):
    os.write(fd, b"x" * 2**20)
print("there", flush=True)
sys.stdin.readline()
"""
MEMORY = Path("/sys/fs/cgroup/memory")


class LargeDaemon(OwnDaemon):
    """Daemons that are large processes."""

    def command(self, *flags):
        return [sys.executable, "-P", "-c", LARGE, *flags]


@pytest.fixture(scope="module")
def shared_daemon():
    """Directories for such a daemon."""
    found = LargeDaemon()
    yield found
    found.close()


@cmdc.tool(effects="read", isolation="thread")
def hoard() -> str:
    """Take memory until there is none."""
    kept = []
    while True:
        kept.append(b"x" * CHUNK_BYTES)


def memory_cgroup(pid):
    """Return the cgroup v1 in which a process uses memory, None where there is no such thing."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    paths = (line.split(":", 2)[2] for line in lines if line.split(":", 2)[1] == "memory")
    return next((MEMORY / path.strip("/") for path in paths), None)


@pytest.fixture
def memory(bystander):
    """The cgroup below which each session of the daemon has its own."""
    cell = memory_cgroup(bystander.agent_pid())
    if cell is None or not cell.parent.name.startswith("cmdc-"):
        pytest.skip("the daemon has no memory controller of cgroup v1")
    return cell.parent


@pytest.mark.fault_case("F14")
def test_session_over_its_memory_limit_is_reported_and_its_poison_is_given_up(
    agent, scripted, memory
):
    """The kernel's count is the proof; the second time the cycle is given up, not the session."""
    model = scripted(default=poisoned("hoard"))
    session = agent(model, tools=[hoard], memory_limit=LIMIT_BYTES, restart_delay=(0.0, 0.0))
    monitor = session.monitor(persistent=True)
    with pytest.raises(cmdc.AgentAborted) as caught:
        session.run("Go.", timeout=TURN_S)
    downs = [monitor.wait(TURN_S) for _ in range(2)]

    for down in downs:
        assert isinstance(down.reason, OutOfMemory)
        assert down.reason.limit_bytes == LIMIT_BYTES
        assert LIMIT_BYTES * 0.9 < down.reason.rss_bytes <= LIMIT_BYTES
        assert (down.evidence.killed_by, down.evidence.oom_kills) == ("kernel", 1)
        assert down.evidence.tools == ("hoard call_1_0",)
    assert caught.value.reason == f"crashed({downs[1].reason})"
    assert session.run("Again.", timeout=TURN_S).text == "fine"


def headroom(daemon, eater):
    """Return the bytes after which the eater is still smaller than the daemon, by so much."""
    large, small = (psutil.Process(pid).memory_info().rss for pid in (daemon, eater))
    return large - small - AHEAD_BYTES


@pytest.fixture
def full(memory):
    """The cgroup, with much in it that the kernel can neither take back nor kill for."""
    line = [sys.executable, "-c", BALLAST]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        (memory / "cgroup.procs").write_text(str(holder.pid))
        holder.stdin.write("go\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "there\n"
        yield memory
        holder.kill()


@pytest.mark.fault_case("F15")
def test_full_machine_takes_the_session_that_eats_and_not_the_daemon(agent, scripted, full, audit):
    """Daemon and sessions share a cgroup that gets full, as if it were the machine.

    The daemon is the largest process in it, and is spared for its lower score alone.
    The kernel may take the next largest, too, while it gives back what the first one had: its log
    has shown a second choice 3 ms later, with the usage below the limit again.
    """
    bystander, daemon = audit.bystander, audit.own_daemon.process.pid
    session = agent(scripted(default=poisoned("hoard")), tools=[hoard], max_cycle_crashes=1)
    monitor, spared = session.monitor(), bystander.monitor()
    incarnation = bystander.status().incarnation
    scores = [
        int(Path(f"/proc/{pid}/oom_score_adj").read_text())
        for pid in (daemon, session.agent_pid(), bystander.agent_pid())
    ]
    home, limit = memory_cgroup(daemon), full / "memory.limit_in_bytes"
    (full / "cgroup.procs").write_text(str(daemon))
    used_bytes = int((full / "memory.usage_in_bytes").read_text())
    limit.write_text(str(used_bytes + headroom(daemon, session.agent_pid())))
    try:
        session.prompt("Go.")
        down = monitor.wait(TURN_S)
    finally:
        limit.write_text("-1")
        (home / "cgroup.procs").write_text(str(daemon))

    assert scores[0] < scores[1] == scores[2]
    assert audit.own_daemon.process.poll() is None
    assert isinstance(down.reason, OutOfMemory)
    assert (down.reason.limit_bytes, down.evidence.killed_by) == (0, "kernel")
    assert session.run("Again.", timeout=TURN_S).text == "fine"
    assert bystander.run("Still there?", timeout=TURN_S).text == "fine"
    audit.bystander_died = bystander.status().incarnation > incarnation
    if audit.bystander_died:
        assert spared.wait(TURN_S).evidence.killed_by == "kernel"
    else:
        bystander.demonitor(spared)
