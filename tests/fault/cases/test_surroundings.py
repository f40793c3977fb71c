"""What surrounds agents: the zygote, the cgroups, the tree of sessions, the code that they load."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.reasons import Normal, Signal, StartFailed
from cmdc_runtime.testing import ToolCalls, ToolUse
from tests.ended import has_ended

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
WARM_S = 60.0
DEPTH = 3
STOP_S = 1.0
START_S = 1.0
KILLED = Signal(number=9, name="SIGKILL")
POISON = """
import signal, threading

def poison(*_):
    threading.Thread(target=threading.Event().wait, daemon=True).start()

signal.signal(signal.SIGUSR2, poison)
"""
"""Run by every interpreter of the daemon when it starts."""


@pytest.fixture(scope="module")
def code_path(tmp_path_factory):
    """A folder from which the daemon's processes import."""
    folder = tmp_path_factory.mktemp("code")
    (folder / "sitecustomize.py").write_text(POISON)
    with pytest.MonkeyPatch.context() as patch:
        known = os.environ.get("PYTHONPATH")
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), known])))
        yield folder


@pytest.fixture(scope="module")
def place(code_path, place):
    """A daemon that imports from there."""
    return place


def log_since(place, start):
    return place.log.read_text(errors="replace")[start:]


def log_size(place):
    return len(place.log.read_text(errors="replace"))


# --- the code ----------------------------------------------------------------------------------


def write_tool(path, answer):
    path.write_text(
        "import cmdc_runtime as cmdc\n\n\n"
        '@cmdc.tool(effects="read")\n'
        "def probe() -> str:\n"
        '    """Say which code this is."""\n'
        f"    return {answer!r}\n"
    )


@pytest.mark.fault_case("F69")
def test_import_that_hangs_costs_its_start_limit(client, agent, scripted, code_path):
    """The first start fails with the phase; of a restart the evidence has the line that hangs.

    Two processes hang there, and the next one goes on without the tool, and publishes that.
    """
    module = code_path / "gadget_slow.py"
    write_tool(module, "first")
    session = agent(
        tools=["gadget_slow:probe"],
        code="latest",
        start_timeout=START_S,
        max_restarts=1,
        max_seconds=60.0,
    )
    monitor = session.monitor(persistent=True)
    module.write_text("import threading\nthreading.Event().wait()  # a share that is gone\n")
    os.kill(session.agent_pid(), signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(cmdc.StartFailed) as caught:
        client.create_agent(model=scripted(), tools=["gadget_slow:probe"], start_timeout=START_S)
    took_s = time.monotonic() - began
    killed, *hung = [monitor.wait(TURN_S) for _ in range(3)]
    with session.subscribe(since=0, types=["record_set_aside"]) as stream:
        event = stream.get(TURN_S).event
    answer = session.run("Go on.", timeout=TURN_S).text
    late = StartFailed(stage="load", message=f"the agent was not up within {START_S:g} s")

    assert caught.value.reason == late
    assert START_S <= took_s < START_S + 4.0
    assert (killed.reason, killed.restarting) == (KILLED, True)
    assert [(down.reason, down.restarting) for down in hung] == [(late, True)] * 2
    assert all(f'File "{module}", line 2 in <module>' in down.evidence.stack for down in hung)
    assert (event.what, event.name) == ("tool", "gadget_slow:probe")
    assert answer == "fine"


# --- the zygote ---------------------------------------------------------------------------------


@pytest.mark.fault_case("F68")
def test_zygote_that_is_poisoned_is_replaced(place, client, agent):
    """No process is forked beside a second thread; agents live on, and every start succeeds."""
    sessions = [agent() for _ in range(2)]
    pids = [one.agent_pid() for one in sessions]
    old, before = zygote_pid(client), log_size(place)
    os.kill(old, signal.SIGUSR2)
    with ThreadPoolExecutor(4) as threads:  # more than there are spares
        sessions += threads.map(lambda _: agent(), range(4))
    answers = [one.run("1", timeout=WARM_S).text for one in sessions]
    said = log_since(place, before)

    assert answers == ["fine"] * 6
    assert [one.agent_pid() for one in sessions[:2]] == pids
    assert [one.status().incarnation for one in sessions] == [1] * 6
    assert zygote_pid(client) not in {None, old}
    assert "zygote.poisoned" in said
    assert f"pid={old}" in said


def zygote_pid(client):
    """Return the pid of the zygote, also of one that warms; None between two."""
    return next(node.pid for node in client.tree().children if node.id == "nursery")


# --- the tree ---------------------------------------------------------------------------------


@cmdc.tool
async def go_deaf(path: str) -> str:
    """Hear nothing any more: neither the daemon nor SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(path).touch()  # noqa: ASYNC240 - the loop is not to turn again
    threading.Event().wait()
    return "never"


@pytest.mark.fault_case("F67")
def test_subtree_that_hears_nothing_ends_in_one_deadline(place, agent, scripted, poll, tmp_path):
    """The time that a stop grants is that of the whole subtree, however deep it is."""
    deaf = tmp_path / "deaf"
    task = ToolCalls(ToolUse("task", {"description": "Look.", "subagent_type": "scout"}))
    model = scripted(*[task] * DEPTH, ToolCalls(ToolUse("go_deaf", {"path": str(deaf)})))
    scout = cmdc.SubAgent("scout", "Looks at things.")
    session = agent(model, tools=[go_deaf], subagents=[scout], max_depth=DEPTH, shutdown=20.0)
    session.prompt("Go.")
    assert poll(deaf.exists)
    ids = [session.id + ".1" * level for level in range(DEPTH + 1)]
    family = [psutil.Process(session.client.agent_pid(one)) for one in ids]
    monitors = [session.client.monitor(one) for one in ids]
    family[1].send_signal(signal.SIGSTOP)
    began = time.monotonic()
    session.stop(timeout=STOP_S)
    took_s = time.monotonic() - began
    left = [one for one in family if not has_ended(one)]
    downs = [monitor.wait(TURN_S) for monitor in monitors]

    assert left == []
    assert took_s < STOP_S + 1.0
    assert [down.restarting for down in downs] == [False] * (DEPTH + 1)
    assert downs[0].evidence.killed_by in {"", "daemon"}


# --- what cannot be cleared away ----------------------------------------------------------------


@pytest.fixture
def mounted():
    """Mount a directory on itself, so that the kernel says EBUSY when it is to be removed."""
    with contextlib.ExitStack() as stack:

        def mount(path):
            words = ["mount", "--bind", path, path]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"nothing can be mounted here: {done.stderr}")
            stack.callback(subprocess.run, ["umount", path], check=False, capture_output=True)

        yield mount


@pytest.mark.fault_case("F66")
def test_cgroup_that_cannot_be_removed_is_logged_and_tried_again(
    place, agent, bystander, mounted, poll
):
    """The session ends all the same, and the cell goes as soon as the kernel lets go of it."""
    places = [Path(one) for one in json.loads((place.place / "state/cells").read_text())]
    if not places:
        pytest.skip("no cgroups here")
    session = agent()
    monitor = session.monitor()
    rooms = [one / f"s-{session.id}.1" for one in places]
    (room, *_) = poll(lambda: [one for one in rooms if one.exists()])
    before = log_size(place)
    mounted(room)
    session.stop()
    assert poll(lambda: "cgroup.stuck" in log_since(place, before))
    answer = bystander.run("Still there?", timeout=TURN_S).text
    is_there = room.exists()
    subprocess.run(["umount", room], check=True)

    assert monitor.wait(TURN_S).reason == Normal()
    assert (answer, is_there) == ("fine", True)
    assert poll(lambda: not any(one.exists() for one in rooms))


@pytest.mark.fault_case("F66")
def test_runtime_directory_that_cannot_be_cleared_is_logged(own_daemon):
    """A daemon that may not remove its files ends as orderly as any; the next one removes them."""
    own_daemon.start()
    done = subprocess.run(["chattr", "+i", own_daemon.address], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no directory can be made immutable here: {done.stderr.decode()}")
    try:
        own_daemon.process.terminate()
        status = own_daemon.process.wait(TURN_S)
    finally:
        subprocess.run(["chattr", "-i", own_daemon.address], check=True)
    said = own_daemon.log.read_text()
    left = {path.name for path in own_daemon.address.iterdir()}
    own_daemon.start()
    own_daemon.process.terminate()
    own_daemon.process.wait(TURN_S)

    assert status == 0
    assert "directory.not_cleared" in said
    assert {"control.sock", "daemon.lock"} <= left
    assert list(own_daemon.address.iterdir()) == []
