"""An agent's process dies or is starved in each of the ways in which that happens."""

import asyncio
import atexit
import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.events import SubagentStart, SupervisorReport
from cmdc_runtime.reasons import (
    ExitCode,
    Normal,
    RestartIntensityExceeded,
    Signal,
)
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse
from tests.fault.cases.poison import poisoned
from workers.core.tags import TextPlace

pytestmark = [pytest.mark.fault, pytest.mark.process]

TURN_S = 30.0
KILLED = Signal(number=9, name="SIGKILL")
GRACE_S = 0.6


@cmdc.tool(effects="write", isolation="thread")
def segfault() -> str:
    """Read what is at address 0."""
    return str(ctypes.string_at(0))


@cmdc.tool(effects="write", isolation="thread")
def abort() -> str:
    """Have the C library end the process."""
    ctypes.CDLL(None).abort()
    return "never"


@cmdc.tool(effects="write", isolation="thread")
def leave_at_once() -> str:
    """End the process without a word."""
    os._exit(0)


@cmdc.tool(effects="write")
async def leave_loop() -> str:
    """Let the loop itself meet an exit, as a signal handler or a callback may."""
    asyncio.get_running_loop().call_soon(sys.exit)
    await asyncio.sleep(0)
    return "still here"


@cmdc.tool(effects="write")
async def break_loop() -> str:
    """Let a callback of the agent's own code fail, which nobody is there for."""
    asyncio.get_running_loop().call_soon(TextPlace.after, None, "no place")
    await asyncio.Event().wait()
    return "never"


@cmdc.tool(effects="write", isolation="thread")
def quit_thread() -> str:
    """Ask the interpreter to end."""
    sys.exit(0)


@cmdc.tool(effects="write")
async def quit_task() -> str:
    """Ask the interpreter to end."""
    sys.exit(0)


@cmdc.tool(effects="write")
async def litter() -> str:
    """Leave behind what keeps an interpreter from ending."""

    def explode() -> None:
        raise KeyError("at exit")

    for hang in (explode, threading.Event().wait):
        atexit.register(hang)
        threading.Thread(target=threading.Event().wait, daemon=False).start()
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    return "left"


@cmdc.tool(effects="read", isolation="thread")
def poison() -> str:
    """Be killed, whenever it is asked."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@cmdc.tool(effects="write")
async def turn_deaf(path: str) -> str:
    """Hear neither the daemon nor SIGTERM, but note it."""
    signal.signal(signal.SIGTERM, lambda *_: print("SIGTERM", file=sys.stderr))
    stand_still(path)
    return "never"


def stand_still(path):
    """Leave word, and never return."""
    Path(path).touch()
    threading.Event().wait()


class Faller(cmdc.Plugin):
    """Is killed while the session is being stopped."""

    def session_end(self, event, context):
        os.kill(os.getpid(), signal.SIGKILL)


def call(name, **arguments):
    return ToolCalls(ToolUse(name, arguments))


def ends_of(monitor, count):
    """Return so many notices of a persistent monitor as incarnation, reason and what follows."""
    downs = [monitor.wait(TURN_S) for _ in range(count)]
    return [(down.incarnation, down.reason, down.restarting) for down in downs]


# --- killed -----------------------------------------------------------------------------------


@pytest.mark.fault_case("F03")
def test_idle_agent_that_is_killed_is_restarted(agent):
    """Its end is reported with who did it, and the next process answers a command meanwhile."""
    session = agent()
    assert session.run("1", timeout=TURN_S).text == "fine"
    monitor = session.monitor()
    os.kill(session.agent_pid(), signal.SIGKILL)
    down = monitor.wait(TURN_S)
    assert session.run("2", timeout=TURN_S).text == "fine"

    assert down.reason == KILLED
    assert (down.restarting, down.next_attempt_ms, down.evidence.killed_by) == (True, 0, "outside")
    assert down.evidence.state == "idle"


@pytest.mark.fault_case("F10")
def test_agent_that_is_killed_while_it_is_stopped_stays_ended(agent, client, scripted):
    """Its end is reported as what it was, no process follows, and the stop is still in order."""
    below = scripted((Hold(), "never"))
    task = call("task", description="Wait.", subagent_type="scout")
    session = agent(
        scripted(task, "never"),
        subagents=[cmdc.SubAgent("scout", "Waits.", model=below)],
        plugins=[Faller],
        restart="permanent",
    )
    stream = session.subscribe(types=[SubagentStart])
    session.prompt("Go.")
    child = stream.get(TURN_S).event.child_session_id
    below.wait_held()
    heard = []
    monitors = [client.monitor(one, heard.append) for one in (child, session)]
    session.stop()
    downs = [monitor.wait(TURN_S) for monitor in monitors]

    assert [down.session_id for down in sorted(downs, key=lambda down: down.at_ms)] == [
        child,
        session.id,
    ]
    assert (downs[1].reason, downs[1].restarting) == (KILLED, False)
    assert downs[1].evidence.killed_by == "outside"
    with pytest.raises(cmdc.SessionNotAlive) as caught:
        session.status()
    assert caught.value.reason == KILLED


@pytest.mark.fault_case("F22")
def test_agent_that_ignores_every_request_to_end_is_killed_once(
    agent, client, scripted, poll, tmp_path
):
    """It gets the request, SIGTERM and SIGKILL in their time, and has one Down."""
    deaf = tmp_path / "deaf"
    session = agent(scripted(call("turn_deaf", path=str(deaf))), tools=[turn_deaf])
    heard = []
    monitor = session.monitor(heard.append, persistent=True)
    session.prompt("Go.")
    assert poll(deaf.exists)
    with client.subscribe("_supervisor", types=[SupervisorReport]) as reports:
        before_s = time.monotonic()
        session.stop(timeout=GRACE_S)
        took_s = time.monotonic() - before_s
        while (report := reports.get(TURN_S).event).report != "shutdown_error":
            pass
    down = monitor.wait(TURN_S)

    assert GRACE_S <= took_s < GRACE_S + 5.0
    assert (down.reason, down.restarting, down.evidence.killed_by) == (KILLED, False, "daemon")
    assert down.evidence.output.split() == ["SIGTERM"]
    assert poll(lambda: heard) == [down]
    assert (report.child, report.reason) == ("agent", str(KILLED))


# --- native code, and exits of the interpreter ------------------------------------------------


@pytest.mark.fault_case("F16")
def test_crash_in_native_code_is_reported_with_its_stack(agent, scripted):
    """The signal is the reason, and what faulthandler wrote says whose fault it is."""
    model = scripted(call("segfault"), "back", call("abort"), "back")
    session = agent(model, tools=[segfault, abort])
    monitor = session.monitor(persistent=True)
    notices = []
    for _ in range(2):
        assert session.run("Go.", timeout=TURN_S).text == "back"
        notices.append(monitor.wait(TURN_S))

    assert [down.reason for down in notices] == [
        Signal(number=11, name="SIGSEGV"),
        Signal(number=6, name="SIGABRT"),
    ]
    for down, tool, fault in zip(
        notices, ("segfault", "abort"), ("Segmentation fault", "Aborted"), strict=True
    ):
        evidence = down.evidence
        assert (down.restarting, evidence.killed_by, evidence.core_dumped) == (True, "", False)
        assert [name.split()[0] for name in evidence.tools] == [tool]
        assert evidence.stack.startswith(f"Fatal Python error: {fault}")
        assert f" in {tool}" in evidence.stack


@pytest.mark.fault_case("F17")
def test_exit_without_a_goodbye_is_a_crash(agent, audit, scripted):
    """Status 0 alone is no normal end; a tool's ``sys.exit``, wherever, ends its call at most."""
    both = ToolCalls(*(ToolUse(name, {}) for name in ("quit_thread", "quit_task")))
    model = scripted(both, "back", call("leave_at_once"), "back", call("leave_loop"), "back")
    session = agent(model, tools=[quit_thread, quit_task, leave_at_once, leave_loop])
    audit.log_says = (session.id, "Traceback")  # of an exit that nobody is there for
    monitor = session.monitor(persistent=True)
    replies = [session.run("Go.", timeout=TURN_S) for _ in range(3)]
    down = monitor.wait(TURN_S)
    after = session.status()

    assert [reply.text for reply in replies] == ["back"] * 3
    results = [one for one in replies[0].messages if one.role == "tool_result"]
    assert [one.is_error for one in results] == [True, True]
    assert (down.reason, down.restarting) == (ExitCode(code=0), True)
    assert replies[2].messages[-2].content == "still here"
    assert (after.pid is not None, after.restarts) == (True, 1)


@pytest.mark.fault_case("F17")
@pytest.mark.parametrize("way", ["stop", "crash"])
def test_what_hangs_at_exit_holds_nobody_up(agent, audit, scripted, way):
    """Handlers at exit that raise or hang, and threads that never end, cost no time at all."""
    model = scripted(call("litter"), "fine", call("break_loop"), "back")
    session = agent(model, tools=[litter, break_loop])
    audit.log_says = (session.id,)
    assert session.run("Go.", timeout=TURN_S).text == "fine"
    monitor = session.monitor()
    before_s = time.monotonic()
    if way == "stop":
        session.stop(timeout=20.0)
    else:
        assert session.run("Leave.", timeout=TURN_S).text == "back"
    took_s = time.monotonic() - before_s
    down = monitor.wait(TURN_S)

    assert took_s < 5.0
    assert down.reason.type == "AttributeError" if way == "crash" else down.reason == Normal()
    assert down.evidence.killed_by == ""


# --- a cycle that kills -----------------------------------------------------------------------


@pytest.mark.fault_case("F18")
def test_cycle_that_kills_each_process_is_given_up(agent, scripted):
    """Poison costs as many processes as the options say; then the session is idle and usable."""
    model = scripted(default=poisoned("poison"))
    session = agent(model, tools=[poison], max_cycle_crashes=3, restart_delay=(0.0, 0.0))
    monitor = session.monitor(persistent=True)
    with pytest.raises(cmdc.AgentAborted) as caught:
        session.run("Poison.", timeout=TURN_S)

    assert caught.value.reason == f"crashed({KILLED})"
    assert ends_of(monitor, 3) == [(number, KILLED, True) for number in (1, 2, 3)]
    assert session.run("Again.", timeout=TURN_S).text == "fine"


@pytest.mark.fault_case("F18")
def test_poison_beyond_the_restart_budget_ends_only_its_session(agent, client, scripted):
    """The session is over with what it died of last, and what it had said can still be read."""
    session = agent(
        scripted(default=poisoned("poison")),
        tools=[poison],
        max_cycle_crashes=10,
        max_restarts=2,
        max_seconds=60.0,
        restart_delay=(0.0, 0.0),
    )
    monitor = session.monitor(persistent=True)
    spent = RestartIntensityExceeded(restarts=2, seconds=60.0, last=KILLED)
    with pytest.raises(cmdc.SessionNotAlive) as caught:
        session.run("Poison.", timeout=TURN_S)
    with client.subscribe(session, since=0) as stream:
        past = [envelope.event.kind for envelope in stream]

    assert caught.value.reason == spent
    assert ends_of(monitor, 3) == [(1, KILLED, True), (2, KILLED, True), (3, spent, False)]
    assert past.count("prompt_received") == 1
