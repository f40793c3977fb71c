"""Tools that stop their own session, fork without end, leave things behind, or shout."""

import contextlib
import json
import os
import secrets
import signal
import time
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.reasons import Normal, Shutdown
from cmdc_runtime.testing import ToolCalls, ToolUse
from tests.ended import has_ended

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
KILL_S = 2.0
"""For all that a tool has started to be gone, once its session is to end."""
PROCESSES_MAX = 64
FUSE = 400
"""Processes that the bomb starts in all, should nobody keep it from that."""
IS_FULL = "FAULT_FULL" in os.environ
ORPHANS = 10_000 if IS_FULL else 1_000
FLOOD_BYTES = (1_000 if IS_FULL else 50) * 2**20
FLOOD_S = 200.0 if IS_FULL else TURN_S


def tool_results(session):
    return [one.content for one in session.messages() if one.role == "tool_result"]


def call(name, **arguments):
    return ToolCalls(ToolUse(name, {key: str(value) for key, value in arguments.items()}))


# --- from inside a session -----------------------------------------------------------------------


@cmdc.tool
def ask_for_stop(address: str, *, context: cmdc.Context) -> str:
    """Ask the daemon to stop the session that this call is of, and then the application."""
    try:
        with cmdc.Client(address) as client:
            client.stop(context.session_id, reason="asked by a tool", timeout=20.0)
    except cmdc.CmdcError as error:
        context.session.emit("stop me", f"{type(error).__name__}: {error}")
    signal.pause()
    return "never"


@pytest.mark.fault_case("F31")
def test_session_that_stops_itself_ends_in_order(place, agent, scripted):
    """A tool may not; what the application does at its word is taken, durable and bounded."""
    model = scripted(call("ask_for_stop", address=place.address))
    session = agent(model, tools=[ask_for_stop])
    monitor, stream = session.monitor(), session.subscribe()
    session.prompt("Stop.")
    error = next(one.event.payload for one in stream if getattr(one.event, "name", "") == "stop me")
    began = time.monotonic()
    session.stop(reason="asked from inside")
    down = monitor.wait(TURN_S)
    took_s = time.monotonic() - began
    with pytest.raises(cmdc.SessionNotAlive) as caught:
        session.status()

    assert "AccessDenied: it comes from a process that a tool of session" in error
    assert (down.reason, down.restarting) == (Shutdown(detail="asked from inside"), False)
    assert caught.value.reason == down.reason
    assert took_s < 4.0


# --- processes without end ---------------------------------------------------------------------


@cmdc.tool
def bomb(full: str) -> str:
    """Fork and fork, leave the group, and go on when there are no more processes to be had."""
    fuse, light = os.pipe()
    os.write(light, b"x" * FUSE)
    os.set_blocking(fuse, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.read(fuse, 1)
            try:
                if os.fork() == 0 and os.getpid() % 2:
                    os.setsid()
            except BlockingIOError:
                Path(full).touch()
                os.write(light, b"x")
    while True:
        signal.pause()


@pytest.mark.fault_case("F51")
def test_fork_bomb_is_held_and_ends_with_its_session(place, agent, bystander, scripted, tmp_path):
    """It gets as many processes as the option says; others are served, and a stop ends them all."""
    cells = [Path(one) for one in json.loads((place.place / "state/cells").read_text())]
    limited = [one for one in cells if (one / "pids.max").exists()]
    if not limited:
        pytest.skip("no cgroup limits processes here, and a bomb is faster than a watch")
    full = tmp_path / "full"
    model = scripted(call("bomb", full=full))
    session = agent(model, tools=[bomb], max_processes=PROCESSES_MAX)
    monitor = session.monitor()
    cell = limited[0] / f"s-{session.id}.1"
    session.prompt("Go.")
    assert place.poll(full.exists)
    at_most = pids_in(cell)
    began = time.monotonic()
    answer = bystander.run("Still there?", timeout=TURN_S).text
    bystander_s = time.monotonic() - began
    began = time.monotonic()
    session.stop()
    stop_s = time.monotonic() - began

    assert PROCESSES_MAX // 2 < len(at_most) <= PROCESSES_MAX
    assert (answer, bystander_s < 2.0) == ("fine", True)
    assert stop_s < KILL_S + 2.0  # the agent is asked politely first
    assert place.poll(lambda: not any(psutil.pid_exists(pid) for pid in at_most))
    assert monitor.wait(TURN_S).reason == Normal()


def pids_in(cell):
    """Return the processes of a session: its agent's, and those in the places of its tool hosts."""
    lists = [path.read_text() for path in cell.rglob("cgroup.procs")]
    return [int(word) for text in lists for word in text.split()]


@pytest.mark.fault_case("F52")
@pytest.mark.parametrize("disguise", ["", "env -i "], ids=["marked", "without environment"])
def test_tool_that_leaves_a_daemon_behind(place, agent, scripted, tmp_path, disguise):
    """Its call ends with its process, whoever holds its output; the rest goes with the session."""
    name = f"4{secrets.randbelow(10**8)}"
    command = f"({disguise}setsid setsid sleep {name} &) ; {disguise}setsid sleep {name} & echo up"
    session = agent(
        scripted(call("shell", command=command), default="done"),
        tools=[cmdc.tools.Shell],
        working_dir=tmp_path,
    )
    began = time.monotonic()
    reply = session.run("Go.", timeout=TURN_S).text
    took_s = time.monotonic() - began
    assert place.poll(lambda: len(sleepers(name)) == 2)
    before = len(place.log.read_text(errors="replace"))
    session.stop()
    left = sleepers(name)
    is_logged = place.poll(lambda: "killed=2" in place.log.read_text(errors="replace")[before:])

    assert reply == "done"
    assert took_s < 5.0
    assert left == []
    assert is_logged


def sleepers(name):
    """Return the living processes that sleep for so many seconds."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline() == ["sleep", name] and not has_ended(process):
                found.append(process)
    return found


@cmdc.tool
def bereave(count: str) -> str:
    """Leave orphans, which end when they have lost their parent, and children nobody waits for."""
    for number in range(int(count)):
        held, holder = os.pipe()
        parent = os.fork()
        if parent:
            os.close(held)
            os.close(holder)
            if number % 2:
                os.waitpid(parent, 0)
            continue
        if number % 2 and os.fork() == 0:
            os.close(holder)
            os.read(held, 1)  # until the other one who has it is gone
        os._exit(0)
    return "done"


@pytest.mark.fault_case("F53")
def test_orphans_by_the_thousand_leave_no_zombie(place, agent, bystander, scripted, poll):
    """The daemon reaps whom nobody else does, and answers meanwhile."""
    session = agent(scripted(call("bereave", count=ORPHANS), default="done"), tools=[bereave])
    before = zombies()
    session.prompt("Go.")
    slowest_s = slowest_answer(bystander, lambda: session.status().state == "idle", poll)
    reply = session.collect_reply(timeout=TURN_S)

    assert reply == "done"
    assert tool_results(session) == ["done"]
    assert poll(lambda: zombies() <= before)
    assert slowest_s < 1.0


def slowest_answer(session, is_over, poll):
    """Ask a session again and again until something else is over; return the longest wait."""
    took_s = []

    def look():
        began = time.monotonic()
        session.status()
        took_s.append(time.monotonic() - began)
        return is_over()

    assert poll(look, FLOOD_S)
    return max(took_s)


def zombies():
    """Count the zombies of this machine that have our user."""
    return sum(
        1 for one in psutil.process_iter(["status"]) if one.info["status"] == psutil.STATUS_ZOMBIE
    )


# --- output --------------------------------------------------------------------------------------


@cmdc.tool
def flood(size: str) -> str:
    """Write lines, bytes that are no text, and a line without an end."""
    quarter = int(size) // 4
    lines, junk, endless = b"x" * 99 + b"\n", os.urandom(100), b"y" * 100
    for stream, piece in ((1, lines), (2, junk), (1, endless), (2, lines)):
        rest = quarter
        while rest > 0:
            rest -= os.write(stream, piece * 600)
    return "done"


@pytest.mark.fault_case("F56")
def test_flood_of_output_is_counted_and_costs_nobody_else(place, agent, bystander, scripted, poll):
    """The daemon's memory, its log and the answers of others stay as they are."""
    session = agent(scripted(call("flood", size=FLOOD_BYTES), default="done"), tools=[flood])
    daemon = psutil.Process(place.process.pid)
    rss_bytes, log_bytes = daemon.memory_info().rss, place.log.stat().st_size
    highest = [rss_bytes]

    def is_over():
        highest.append(daemon.memory_info().rss)
        return session.status().state == "idle"

    session.prompt("Go.")
    slowest_s = slowest_answer(bystander, is_over, poll)
    reply = session.collect_reply(timeout=TURN_S)
    session.stop()
    text = place.log.read_bytes()[log_bytes:]

    assert reply == "done"
    assert poll(lambda: dropped(place, log_bytes) > FLOOD_BYTES * 0.8)
    assert max(highest) - rss_bytes < 40 * 2**20
    assert slowest_s < 1.0
    assert len(text) < 4 * 2**20
    assert b"\x1b" not in text.replace(b"\x1b[", b"")
    text.decode()


def dropped(place, start):
    """Return how many bytes of output the log says are not in it."""
    words = place.log.read_bytes()[start:].decode().split()
    counts = [int(word.removeprefix("bytes=")) for word in words if word.startswith("bytes=")]
    return sum(counts)
