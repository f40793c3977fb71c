"""An agent's process lives and does nothing: it is found, reported with its stack, and replaced.

One that not even SIGKILL ends is reported, too. The daemon of these cases gives up on it sooner
than others do, which is all that is different about it.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import runtime_dir
from cmdc_runtime.reasons import Unkillable, Unresponsive
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse
from tests.fault.conftest import OwnDaemon

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
QUICK_S = 0.6
"""The limit of these agents; a stack may be written in the second after it."""
FOUND_S = 5.0
"""For a silent agent to be found and killed: 1.6 s, and the machine may be busy."""
UNKILLABLE_S = 1.0
"""In place of 10 s."""
IMPATIENT = f"""
import runpy
from supervisor.core.tree import messages
messages.UNKILLABLE_AFTER_S = {UNKILLABLE_S}
runpy.run_module("supervisor", run_name="__main__", alter_sys=True)
"""
FREEZER = Path("/sys/fs/cgroup/freezer")
STOP_S = 40.0
"""For a daemon with such a process to end: the unit's time limit leaves it more."""


@cmdc.tool(effects="write", isolation="thread")
def keep_interpreter() -> str:
    """Let no other thread run, as C code may."""
    ctypes.PyDLL(None).sleep(1000)  # tidy: the hang itself
    return "never"


@cmdc.tool(effects="write")
async def spin() -> str:
    """Compute without an end."""
    while True:
        pass


@cmdc.tool(effects="write")
async def stand_still() -> str:
    """Leave the loop for good, while another thread says that all is well."""

    def say() -> None:
        never = threading.Event()
        while not never.wait(0.05):
            print("all is well", file=sys.stderr)

    threading.Thread(target=say, daemon=True).start()
    threading.Event().wait()
    return "never"


class ImpatientDaemon(OwnDaemon):
    """Daemons that give up on a process soon after SIGKILL, and whose agents wait for the next."""

    grace = TURN_S

    def command(self, *flags):
        return [sys.executable, "-P", "-c", IMPATIENT, *flags]


@pytest.fixture(scope="module")
def shared_daemon():
    """Directories for such a daemon."""
    found = ImpatientDaemon()
    yield found
    found.close()


def hung(agent, scripted, tool):
    """Start a session whose tool never returns, and its monitor; "back" is what it says then."""
    model = scripted(ToolCalls(ToolUse(tool.name, {})), "back")
    session = agent(model, tools=[tool], unresponsive_after=QUICK_S)
    monitor = session.monitor()
    session.prompt("Go.")
    return session, monitor


def found(monitor, tool):
    """Return the evidence of the end of a process that hung in a tool."""
    down = monitor.wait(FOUND_S)

    assert isinstance(down.reason, Unresponsive)
    assert down.reason.silent_ms >= QUICK_S * 1000
    assert (down.restarting, down.evidence.killed_by) == (True, "daemon")
    assert down.evidence.state == "executing_tools"
    assert down.evidence.tools == (f"{tool.name} call_1_0",)
    assert f" in {tool.name}" in down.evidence.stack
    return down.evidence


@pytest.mark.fault_case("F11")
def test_stopped_agents_are_found_and_replaced(agent, scripted):
    """One is idle, one in a turn: what it was doing is reported, and what it owed is done."""
    model = scripted((Hold(), "never"), default="fine")
    idle = agent(unresponsive_after=QUICK_S)
    busy = agent(model, unresponsive_after=QUICK_S)
    monitors = [session.monitor() for session in (idle, busy)]
    busy.prompt("1")
    model.wait_held()
    for session in (idle, busy):
        os.kill(session.agent_pid(), signal.SIGSTOP)
    downs = [monitor.wait(FOUND_S) for monitor in monitors]

    assert [type(down.reason) for down in downs] == [Unresponsive, Unresponsive]
    assert [down.evidence.killed_by for down in downs] == ["daemon", "daemon"]
    assert [down.evidence.state for down in downs] == ["idle", "running"]
    assert busy.collect_reply(timeout=TURN_S) == "fine"
    assert [one.run("2", timeout=TURN_S).text for one in (idle, busy)] == ["fine", "fine"]


@pytest.mark.fault_case("F12")
def test_agents_whose_interpreter_is_kept_busy_are_found_with_their_stack(agent, scripted):
    """C code that keeps the lock, and Python code without an end: the stack names the tool."""
    sessions = [hung(agent, scripted, tool) for tool in (keep_interpreter, spin)]
    for (session, monitor), tool in zip(sessions, (keep_interpreter, spin), strict=True):
        found(monitor, tool)
        assert session.collect_reply(timeout=TURN_S) == "back"


@pytest.mark.fault_case("F13")
def test_thread_that_lives_does_not_speak_for_a_loop_that_does_not(agent, scripted):
    """What counts is that the loop turns, whatever other threads say."""
    session, monitor = hung(agent, scripted, stand_still)
    evidence = found(monitor, stand_still)

    assert "all is well" in evidence.output
    assert session.collect_reply(timeout=TURN_S) == "back"


# --- what SIGKILL does not end ------------------------------------------------------------------


@pytest.fixture
def freeze(poll):
    """Keep processes from everything, their own end included, until ``thaw`` or the test's end."""
    cell = FREEZER / f"cmdc-test-{os.getpid()}"
    try:
        cell.mkdir()
    except OSError as error:
        pytest.skip(f"only the freezer of cgroup v1 makes a process unkillable here: {error}")

    def put(pid):
        (cell / "cgroup.procs").write_text(str(pid))
        (cell / "freezer.state").write_text("FROZEN")
        return lambda: (cell / "freezer.state").write_text("THAWED")

    yield put
    (cell / "freezer.state").write_text("THAWED")
    assert poll(lambda: not (cell / "cgroup.procs").read_text())
    cell.rmdir()


@pytest.mark.fault_case("F23")
def test_unkillable_agent_is_reported_and_holds_nobody_up(agent, freeze):
    """Its stop ends with the truth, nothing takes its place, and it is reaped when it does end."""
    session, other = agent(), agent()
    monitor, pid = session.monitor(persistent=True), session.agent_pid()
    thaw = freeze(pid)
    before_s = time.monotonic()
    session.stop(timeout=0.0)
    took_s = time.monotonic() - before_s
    down = monitor.wait(TURN_S)

    assert UNKILLABLE_S <= took_s < UNKILLABLE_S + FOUND_S
    assert isinstance(down.reason, Unkillable)
    assert (down.reason.state, down.restarting, down.evidence.pid) == ("D", False, pid)
    with pytest.raises(cmdc.SessionNotAlive) as caught:
        session.status()
    assert caught.value.reason == down.reason
    assert other.run("Still there?", timeout=TURN_S).text == "fine"
    thaw()


@pytest.mark.fault_case("F23")
def test_silent_agent_that_cannot_be_killed_is_reported(agent, freeze):
    """It hangs, SIGKILL does nothing, and the session ends with that truth."""
    session = agent(unresponsive_after=0.6)
    monitor, pid = session.monitor(persistent=True), session.agent_pid()
    thaw = freeze(pid)
    down = monitor.wait(TURN_S)

    assert isinstance(down.reason, Unkillable)
    assert (down.restarting, down.evidence.pid) == (False, pid)
    with pytest.raises(cmdc.SessionNotAlive) as caught:
        session.prompt("Anybody?")
    assert caught.value.reason == down.reason
    thaw()


@pytest.mark.fault_case("F23")
def test_nothing_takes_the_place_of_one_that_the_next_daemon_cannot_end(
    place, audit, agent, freeze
):
    """It can't be taken over and SIGKILL does not end it: its session is over, and says so."""
    audit.daemon_died = True
    session, other = agent(), agent()
    monitor, pid = session.monitor(persistent=True), session.agent_pid()
    thaw = freeze(pid)
    place.kill()
    (entry,) = (one for one in runtime_dir.registrations(place.address) if one.pid == pid)
    runtime_dir.register(place.address, msgspec.structs.replace(entry, wire=entry.wire - 1))
    place.start()
    down = monitor.wait(TURN_S)

    assert (type(down.reason), down.restarting) == (Unkillable, False)
    with pytest.raises(cmdc.SessionNotAlive) as caught:
        session.prompt("Anybody?")
    assert caught.value.reason == down.reason
    assert other.run("Still there?", timeout=TURN_S).text == "fine"
    thaw()


@pytest.mark.fault_case("F23")
def test_daemon_with_an_unkillable_agent_ends_in_time(place, audit, agent, freeze):
    """A stop waits for it only so long, and the next daemon clears up."""
    audit.daemon_died = True
    session = agent()
    thaw = freeze(session.agent_pid())
    before_s = time.monotonic()
    place.process.send_signal(signal.SIGTERM)
    status = place.process.wait(STOP_S)
    took_s = time.monotonic() - before_s
    thaw()
    place.start()

    assert (status, took_s < STOP_S) == (0, True)
