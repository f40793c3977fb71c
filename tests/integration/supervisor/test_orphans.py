"""Sweeping and reaping what dead agents leave behind, with real sessions."""

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from supervisor.adapters.orphans import sweep

pytestmark = pytest.mark.process

WAIT_S = 10.0

# An agent: leader of a session, with a child of its own process group, one in another process
# group, and one that called setsid.
AGENT = """
import os, signal, subprocess, sys
sleep = ["sleep", "600"]
same = subprocess.Popen(sleep)
group = subprocess.Popen(sleep, process_group=0)
escaped = subprocess.Popen(sleep, start_new_session=True)
print(same.pid, group.pid, escaped.pid, flush=True)
signal.pause()
"""


@contextmanager
def agent():
    """Yield an agent and the pidfds of its children; end them all."""
    leader = subprocess.Popen(
        [sys.executable, "-c", AGENT], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    pidfds = [os.pidfd_open(int(pid)) for pid in leader.stdout.readline().split()]
    leader.stdout.close()
    try:
        yield leader, pidfds
    finally:
        leader.kill()
        leader.wait()
        for pidfd in pidfds:
            end(pidfd)
            os.close(pidfd)


def end(pidfd):
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def has_ended(pidfd, wait_s=WAIT_S):
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(wait_s * 1e3))


@pytest.mark.fault
def test_a_sweep_kills_the_session_of_a_dead_agent_and_nothing_else():
    """All process groups of the session go; who called setsid is another session."""
    with agent() as (leader, (same, group, escaped)):
        leader.kill()
        leader.wait()
        killed = sweep({leader.pid})

        assert killed == 2
        assert has_ended(same, 0.0)
        assert has_ended(group, 0.0)
        assert not has_ended(escaped, 0.0)
        assert sweep({leader.pid}) == 0


def test_a_sweep_spares_the_session_of_a_living_leader():
    """Its number may have been given to a new agent since the old one died."""
    with agent() as (leader, (same, *_)):
        assert sweep({leader.pid}) == 0
        assert not has_ended(same, 0.0)


# The middle process starts a grandchild and ends; the grandchild comes to us and ends too. Our own
# child has ended as well and waits for its Popen.
SUBREAPER = """
import json, os, select, subprocess, sys
from supervisor.adapters.orphans import reap_adopted, set_child_subreaper

set_child_subreaper()
own = subprocess.Popen([sys.executable, "-c", "raise SystemExit(5)"])
os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOWAIT)
middle = subprocess.run(
    ["sh", "-c", "sleep 600 >&- & echo $!"], stdout=subprocess.PIPE, text=True, check=True
)
grandchild = int(middle.stdout)
early = reap_adopted({own.pid})
os.kill(grandchild, 9)
os.waitid(os.P_PID, grandchild, os.WEXITED | os.WNOWAIT)
late = reap_adopted({own.pid})
print(json.dumps({"grandchild": grandchild, "early": early, "late": late, "own": own.wait()}))
"""


def test_orphans_come_to_the_subreaper_which_reaps_only_what_nobody_waits_for():
    """A living orphan stays, an ended one is reaped, and a known child keeps its status."""
    done = subprocess.run(
        [sys.executable, "-c", SUBREAPER],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    told = json.loads(done.stdout)

    assert told["early"] == []
    assert told["late"] == [told["grandchild"]]
    assert told["own"] == 5


# A nursery that dies leaves its child to the subreaper, which then knows how that ended.
ADOPTER = """
import asyncio, os, signal, sys
sys.path.insert(0, sys.argv[1])
from supervisor.adapters.nursery import Nursery, NurseryOptions
from supervisor.adapters.orphans import set_child_subreaper
from supervisor.adapters.reaper import Reaper

async def main():
    set_child_subreaper()
    lost = asyncio.Event()
    options = NurseryOptions(preload="light_preload", needs=())
    nursery, reaper = Nursery(options, on_lost=lambda _: lost.set()), Reaper()
    child = await nursery.fork({"do": "stay"}, module="nursery_children")
    ended = asyncio.get_running_loop().create_future()
    reaper.watch(child, ended.set_result)
    os.kill(nursery.pid, signal.SIGKILL)
    if sys.argv[2] == "after":
        await lost.wait()
    child.send_signal(signal.SIGTERM)
    print((await asyncio.wait_for(ended, 10)).status)
    await nursery.close()

asyncio.run(main())
"""


@pytest.mark.fault
@pytest.mark.parametrize("when", ["after", "while"])
def test_the_subreaper_learns_the_status_that_a_dead_nursery_cannot_tell(when):
    """After the nursery's death its children are ours, so their ends can be waited for."""
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", ADOPTER, here, when],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
        env=os.environ | {"PYTHONPATH": here},
    )

    assert done.stdout.splitlines()[-1] == "-15"
