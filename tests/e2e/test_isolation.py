"""Tools in processes of their own, in a session of a real daemon: they die alone."""

import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.reasons import Signal
from cmdc_runtime.testing import ToolCalls, ToolUse
from tests.ended import has_ended

pytestmark = pytest.mark.process

TURN_S = 20.0
TICK_S = 0.01
ANSWER = "Done."
KILLED = Signal(number=9, name="SIGKILL")
PATIENCE_S = 10.0


@cmdc.tool
def crash() -> str:
    """Read what is not there."""
    ctypes.string_at(0)
    return "never"


@cmdc.tool(effects="read")
def where(number: int) -> str:
    """Return the number and the processes that the call runs in."""
    return f"{number} {os.getpid()} {os.getppid()}"


@cmdc.tool(effects="write")
def write_on(log: str) -> str:
    """Write for ever, and let a child do so too."""
    line = f"while :; do echo child >> {log}; sleep {TICK_S}; done"
    child = subprocess.Popen(["sh", "-c", line])
    Path(f"{log}.pids").write_text(f"{os.getpid()} {child.pid}")
    while True:
        with Path(log).open("a") as file:
            file.write("call\n")
        time.sleep(TICK_S)  # tidy: the tool of the test writes at a pace


@cmdc.tool(effects="read")
def report(*, context: cmdc.Context) -> str:
    """Publish something to observers."""
    context.session.emit("progress", {"done": 0.5})
    return "reported"


def pids_of(log):
    path = Path(f"{log}.pids")
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def results(session):
    return [one.content for one in session.messages() if one.role == "tool_result"]


def only(kind, envelopes):
    return [envelope.event for envelope in envelopes if isinstance(envelope.event, kind)]


def begin_to_write(session, log, poll):
    """Have the session call ``write_on``; return the pids of what writes."""
    session.prompt("Write.")
    assert poll(lambda: len(pids_of(log)) == 2)
    assert poll(lambda: log.exists() and {"call", "child"} <= set(log.read_text().split()))
    return pids_of(log)


def test_a_segfault_is_an_error_result_and_the_session_lives(agent, scripted):
    """The model reads the reason; the agent is the same process as before."""
    session = agent(scripted(ToolCalls(ToolUse("crash", {})), ANSWER), tools=[crash])
    before = session.agent_pid()

    assert session.run("Go.", timeout=TURN_S).text == ANSWER
    (text,) = results(session)
    assert text.startswith("Error: the tool's process died: killed by signal 11 (SIGSEGV")
    assert session.agent_pid() == before
    assert session.status().restarts == 0


def test_results_of_a_batch_come_in_call_order(agent, scripted):
    """Each call has a process, and all of them the session's one host."""
    calls = [ToolUse("where", {"number": number}) for number in range(6)]
    session = agent(scripted(ToolCalls(*calls), ANSWER), tools=[where])
    session.run("Go.", timeout=TURN_S)
    reported = [text.split() for text in results(session)]

    assert [number for number, _, _ in reported] == [str(number) for number in range(6)]
    assert len({pid for _, pid, _ in reported}) == 6
    assert len({host for _, _, host in reported}) == 1


def test_nothing_writes_beside_the_next_incarnation(agent, scripted, cycle_of, tmp_path, poll):
    """When an agent is killed, its calls and all that they started are gone before the restart."""
    log = tmp_path / "log"
    model = scripted(ToolCalls(ToolUse("write_on", {"log": str(log)})), ANSWER)
    session = agent(model, tools=[write_on])
    stream = session.subscribe()
    monitor = session.monitor()
    pids = begin_to_write(session, log, poll)
    os.kill(session.agent_pid(), signal.SIGKILL)
    down = monitor.wait(TURN_S)
    running, size = [pid for pid in pids if not has_ended(pid)], log.stat().st_size
    found = cycle_of(stream)

    assert (down.reason, running) == (KILLED, [])
    assert log.stat().st_size == size
    (recovered,) = only(cmdc.events.AgentRecovered, found)
    assert recovered.incarnation == 2
    assert "may or may not have taken effect" in results(session)[0]


def test_a_killed_host_ends_its_calls_with_its_reason(agent, scripted, tmp_path, poll):
    """The model reads how the host died, and the next call has another."""
    log = tmp_path / "log"
    model = scripted(
        ToolCalls(ToolUse("write_on", {"log": str(log)})),
        ToolCalls(ToolUse("where", {"number": 1})),
        ANSWER,
    )
    session = agent(model, tools=[write_on, where])
    pids = begin_to_write(session, log, poll)
    host = psutil.Process(pids[0]).ppid()
    os.kill(host, signal.SIGKILL)
    reply = session.collect_reply(timeout=TURN_S)
    lost, reported = results(session)

    assert reply == ANSWER
    assert "ended with this call in it: killed by signal 9 (SIGKILL)\nIt may or may not" in lost
    assert [pid for pid in pids if not has_ended(pid)] == []
    assert reported.split()[2] != str(host)


def test_an_abort_kills_a_call_with_all_that_it_started(agent, scripted, tmp_path, poll):
    """The session is idle at once, and nothing writes any more."""
    log = tmp_path / "log"
    model = scripted(ToolCalls(ToolUse("write_on", {"log": str(log)})), ANSWER)
    session = agent(model, tools=[write_on])
    pids = begin_to_write(session, log, poll)
    start = time.monotonic()
    session.abort()
    took_s = time.monotonic() - start

    assert session.status().state == "idle"
    assert took_s < PATIENCE_S
    assert poll(lambda: all(map(has_ended, pids)))


def test_a_stop_leaves_nothing_of_a_call(agent, scripted, tmp_path, poll):
    """Neither the call nor its child nor the host is there when the stop has returned."""
    log = tmp_path / "log"
    model = scripted(ToolCalls(ToolUse("write_on", {"log": str(log)})))
    session = agent(model, tools=[write_on])
    pids = begin_to_write(session, log, poll)
    host = psutil.Process(pids[0]).ppid()
    session.stop()

    assert [pid for pid in (*pids, host) if not has_ended(pid)] == []


def test_observers_hear_what_a_call_reports(agent, scripted, cycle_of):
    """An event of a process comes before the call's result."""
    session = agent(scripted(ToolCalls(ToolUse("report", {})), ANSWER), tools=[report])
    stream = session.subscribe()
    session.prompt("Report.")
    found = cycle_of(stream)
    kinds = [envelope.event.kind for envelope in found]

    assert only(cmdc.events.PluginEvent, found) == [
        cmdc.events.PluginEvent(name="progress", payload={"done": 0.5})
    ]
    assert kinds.index("plugin_event") < kinds.index("tool_execution_end")
