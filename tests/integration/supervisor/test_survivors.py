"""Which agents of a dead daemon are found, and that no stranger is taken for one."""

import subprocess
import sys

import msgspec
import psutil
import pytest

from cmdc_runtime.runtime_dir import (
    REGISTRY,
    own_registration,
    register,
    registrations,
    unregister,
)
from cmdc_runtime.wire.frames import WIRE_VERSION
from supervisor.adapters.orphans import find_survivors
from supervisor.adapters.pidfd import exit_status
from tests.ended import has_ended

pytestmark = pytest.mark.process

AGENT = """
import sys
from pathlib import Path
from cmdc_runtime.runtime_dir import own_registration, register
register(Path(sys.argv[1]), own_registration("w-1", "s-1", 3))
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def agent(tmp_path):
    """A process that is on the roll."""
    with subprocess.Popen(
        [sys.executable, "-c", AGENT, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        yield process
        process.stdin.close()


def change(directory, **changes):
    """Change what the roll says of the agent."""
    (entry,) = registrations(directory)
    register(directory, msgspec.structs.replace(entry, **changes))


def test_an_agent_that_lives_is_found(agent, tmp_path):
    """With its pid, and a pidfd that shows how it ends."""
    (left,) = find_survivors(tmp_path)

    assert (left.pid, left.entry.session_id, left.entry.incarnation) == (agent.pid, "s-1", 3)
    assert left.speaks
    left.send_signal(9)
    agent.wait(10)
    assert exit_status(left.pid, left.pidfd) is not None
    left.close()
    left.close()


def test_a_dead_agent_is_struck_off(agent, tmp_path):
    """Also where its pid is another process's by now, or the machine was booted since."""
    for changes in ({"start_ticks": 1}, {"boot_id": "another"}):
        change(tmp_path, **changes)
        assert find_survivors(tmp_path) == []
        assert list(registrations(tmp_path)) == []
        register(tmp_path, own_registration("w-1", "s-1", 3))
    agent.kill()
    agent.wait(10)
    change(tmp_path, pid=agent.pid)
    assert find_survivors(tmp_path) == []


def test_an_agent_of_another_version_is_found_and_can_be_ended(agent, tmp_path):
    """It can't be spoken with; it ends before another process of its session starts."""
    change(tmp_path, wire=WIRE_VERSION + 1)
    (left,) = find_survivors(tmp_path)

    assert not left.speaks
    left.end()
    assert agent.wait(10) == -9


LEADER = """
import os, subprocess, sys
from pathlib import Path
from cmdc_runtime.runtime_dir import own_registration, register
os.setsid()
register(Path(sys.argv[1]), own_registration("w-1", "s-1", 3))
mark = {"CMDC_SESSION_ID": "s-1", "CMDC_INCARNATION": "3"}
own = subprocess.Popen(["sleep", "300"], env=os.environ | mark)
other = subprocess.Popen(["sleep", "300"])
print(own.pid, other.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def family(tmp_path):
    """An agent with a command that bears its mark, and a process that does not."""
    command = [sys.executable, "-c", LEADER, tmp_path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        pids = [int(word) for word in process.stdout.readline().split()]
        found = [psutil.Process(pid) for pid in pids]
        yield (process, *found)
        process.kill()
        for one in found:
            if one.is_running():
                one.kill()


def test_what_an_agent_has_started_ends_with_it(family, tmp_path):
    """All of its POSIX session: its command must not run on beside the next process."""
    process, own, other = family
    (left,) = find_survivors(tmp_path)

    assert left.end() is None
    assert process.wait(10) == -9
    assert (has_ended(own), has_ended(other)) == (True, True)


def test_what_a_dead_agent_has_left_is_ended(family, tmp_path):
    """What bears its mark; its number may be a stranger's session by now."""
    process, own, other = family
    process.kill()
    process.wait(10)

    assert find_survivors(tmp_path) == []
    assert (has_ended(own), has_ended(other)) == (True, False)


def test_what_is_no_entry_is_removed(tmp_path):
    """A file that somebody cut, and one that names another agent."""
    register(tmp_path, own_registration("w-1", "s-1", 1))
    folder = tmp_path / REGISTRY
    (folder / "w-2").write_bytes((folder / "w-1").read_bytes()[:20])
    (folder / "w-3").write_bytes((folder / "w-1").read_bytes())

    assert [one.worker_id for one in registrations(tmp_path)] == ["w-1"]
    assert not (folder / "w-2").exists()
    unregister(tmp_path, "w-1")
    unregister(tmp_path, "w-1")
    assert list(registrations(tmp_path)) == []
    assert folder.stat().st_mode & 0o777 == 0o700


def test_who_died_over_its_signature_is_struck_off_too(tmp_path):
    """Nothing of it is left in the folder."""
    register(tmp_path, own_registration("w-1", "s-1", 1))
    (tmp_path / REGISTRY / ".w-1").write_bytes(b"half")
    unregister(tmp_path, "w-1")

    assert list((tmp_path / REGISTRY).iterdir()) == []
