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
from cmdc_runtime.prctl import set_child_subreaper
from supervisor.adapters.orphans import reap_adopted

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
    printed = json.loads(done.stdout)

    assert printed["early"] == []
    assert printed["late"] == [printed["grandchild"]]
    assert printed["own"] == 5


# A daemon with an agent that has no cgroup. The agent starts a command of its tools: a shell that
# forks twice, calls setsid, and starts another program that has no mark of its own any more. A
# command of another session does the same. The daemon itself was started by a tool, as its
# variables say, and has a child that has these from it.
HIDDEN = """
import json, os, subprocess, sys
from supervisor.adapters.cgroups import Cgroups
from cmdc_runtime.prctl import set_child_subreaper
from supervisor.adapters.orphans import end_strangers
from supervisor.core.cgroups import Limits, base_name, cgroup_name

AGENT = '''
import os, subprocess, sys
def hide(session_id):
    mark = {"CMDC_SESSION_ID": session_id, "CMDC_INCARNATION": "1", "PATH": os.environ["PATH"]}
    command = "(setsid sh -c \'env -i sleep 600 & echo $! $$; exec sleep 600\' &)"
    done = subprocess.Popen(["sh", "-c", command], env=mark, stdout=subprocess.PIPE, text=True)
    line = done.stdout.readline()
    done.wait()
    return line.split()
os.setsid()
print(*hide("a"), *hide("b"), flush=True)
sys.stdin.read()
'''

def alive(pids):
    states = [open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] for pid in pids
              if os.path.exists(f"/proc/{pid}/stat")]
    return sum(state != "Z" for state in states)

set_child_subreaper()
zygote = subprocess.Popen(["sleep", "600"], env={**os.environ, "CMDC_SESSION_ID": "a"})
known = {zygote.pid}
cgroups = Cgroups.survey(base_name("/nowhere"), versions=(), known=lambda: known)
cgroup = cgroups.open(cgroup_name("a", 1), Limits())
pipe = subprocess.PIPE
agent = subprocess.Popen([sys.executable, "-c", AGENT], stdin=pipe, stdout=pipe, text=True)
known.add(agent.pid)
cgroup.admit(agent.pid)
pids = [int(word) for word in agent.stdout.readline().split()]
ours, others = pids[:2], pids[2:]
facts = {"started": alive(pids), "found": len(cgroup.pids() & {*pids, agent.pid})}
facts["killed"] = cgroup.kill()
facts["status"] = agent.wait()
facts["ours"], facts["others"] = alive(ours), alive(others)
facts["strangers"] = end_strangers({zygote.pid})
facts["left"], facts["zygote"] = alive(pids), zygote.poll()
zygote.kill()
zygote.wait()
print(json.dumps(facts))
"""


@pytest.mark.fault
def test_who_hides_from_the_session_is_found_by_its_mark_and_else_at_the_end():
    """A double fork with setsid does not survive its session, nor the daemon what has no mark.

    Nobody is taken for another session's, and the daemon's own children are never touched.
    """
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
        env=os.environ | {"CMDC_SESSION_ID": "x", "CMDC_INCARNATION": "1"},
    )

    assert json.loads(done.stdout) == {
        "started": 4,
        "found": 3,
        "killed": True,
        "status": -9,
        "ours": 0,
        "others": 2,
        "strangers": 2,
        "left": 0,
        "zygote": None,
    }


# A zygote that dies leaves its child to the subreaper, which then knows how that ended.
ADOPTER = """
import asyncio, os, signal, sys
sys.path.insert(0, sys.argv[1])
from supervisor.adapters.zygote import Zygote, ZygoteOptions
from cmdc_runtime.prctl import set_child_subreaper
from supervisor.adapters.pidfd import Reaper

async def main():
    set_child_subreaper()
    lost = asyncio.Event()
    options = ZygoteOptions(preload="light_preload", needs=())
    zygote, reaper = Zygote(options, on_lost=lambda _: lost.set()), Reaper()
    child = await zygote.fork({"do": "stay"}, module="zygote_children")
    ended = asyncio.get_running_loop().create_future()
    reaper.watch(child, ended.set_result)
    os.kill(zygote.pid, signal.SIGKILL)
    if sys.argv[2] == "after":
        await lost.wait()
    child.send_signal(signal.SIGTERM)
    print((await asyncio.wait_for(ended, 10)).status)
    await zygote.close()

asyncio.run(main())
"""


@pytest.mark.fault
@pytest.mark.parametrize("when", ["after", "while"])
def test_the_subreaper_learns_the_status_that_a_dead_zygote_cannot_report(when):
    """After the zygote's death its children are ours, so their ends can be waited for."""
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


# A daemon whose tool host is dead. What came to it: a copy of the host, which has its command line;
# a program that a call has started; one that the session's shell has started, which is set free;
# and one of another session's call.
CALLS = """
import json, os, subprocess, sys
from cmdc_runtime.prctl import set_child_subreaper
from supervisor.adapters.orphans import end_calls

HOST = (
    "import os, signal; os.setsid(); print(os.getpid(), flush=True); os.close(1); signal.pause()"
)

def orphan(program, **mark):
    environ = {"PATH": os.environ["PATH"], "CMDC_INCARNATION": "1"} | mark
    middle = ["sh", "-c", '"$@" & exit', "sh", *program]
    done = subprocess.run(middle, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout)

set_child_subreaper()
shell = ["sh", "-c", "echo $$; exec setsid sleep 600 >&-"]
pids = {
    "copy": orphan([sys.executable, "-c", HOST, "h-1"]),
    "titled copy": orphan([sys.executable, "-c", HOST, "cmdc tool host h-1"]),
    "other host's": orphan([sys.executable, "-c", HOST, "h-2"]),
    "call's": orphan(shell, CMDC_SESSION_ID="a", CMDC_CALL_ID="c-1"),
    "shell's": orphan(shell, CMDC_SESSION_ID="a"),
    "other call's": orphan(shell, CMDC_SESSION_ID="b", CMDC_CALL_ID="c-1"),
}
known = orphan(shell, CMDC_SESSION_ID="a", CMDC_CALL_ID="c-1")
killed = end_calls("h-1", ("a", 1), {known})

def lives(pid):
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return ended is None

left = [name for name, pid in pids.items() if lives(pid)]
print(json.dumps({"killed": killed, "left": left, "known": lives(known)}))
for pid in (*pids.values(), known):
    os.kill(pid, 9)
"""


def test_orphans_of_a_dead_hosts_calls_are_known_by_its_name_or_their_marks():
    """What is of the session, but of no call, stays for its end; so does what is of another one."""
    done = subprocess.run(
        [sys.executable, "-c", CALLS],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    printed = json.loads(done.stdout)

    assert printed["killed"] == 3
    assert printed["left"] == ["other host's", "shell's", "other call's"]
    assert printed["known"]
