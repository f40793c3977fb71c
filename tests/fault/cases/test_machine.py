"""The machine below: its clock steps, pids come again, descriptors run out, no log is read."""

import ast
import asyncio
import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import psutil
import pytest
import zmq

import cmdc_runtime as cmdc
from cmdc_runtime.reasons import Normal, Signal, StartFailed
from cmdc_runtime.requests import GetFacts
from cmdc_runtime.testing import ToolCalls, ToolUse
from supervisor.adapters.self_check import ask_reaper
from tests.fault.cases.wall_clock import WallClock
from tests.fault.test_frames import facts_of

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
END_S = 15.0
ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
HOUR_S, DAY_S, YEAR_S = 3600, 86_400, 365 * 86_400
STEPS_S = (HOUR_S, -DAY_S, YEAR_S, -YEAR_S, 0)
QUICK_S = 0.6
TOOL_S = 0.2
SHORT_LINES = 4
SHORT_LOG = f"""
import runpy
from supervisor import logs
logs.LINES_QUEUED_MAX = {SHORT_LINES}
runpy.run_module("supervisor", run_name="__main__", alter_sys=True)
"""
SHORT_LOG_DAEMON = [
    *(sys.executable, "-P", "-c", SHORT_LOG),
    *("--log-level", "debug", "--log-format", "json"),
]
FEW = 3
"""Descriptors: fewer than any process has, so that there are no new ones."""
KILLED = Signal(number=9, name="SIGKILL")


@pytest.fixture(scope="module")
def clock(tmp_path_factory):
    """Let the daemon of this file have a wall clock of its own; None without a C compiler."""
    if (compiler := shutil.which("cc")) is None:
        yield None
        return
    found = WallClock(compiler, tmp_path_factory.mktemp("clock"))
    with pytest.MonkeyPatch.context() as patch:
        for name, text in found.variables.items():
            patch.setenv(name, text)
        yield found


@pytest.fixture(scope="module")
def place(clock, place):
    """The daemon with the clock."""
    return place


@cmdc.tool(timeout=TOOL_S)
def wait_for_ever() -> str:
    """Do not come back."""
    signal.pause()
    return "never"


@cmdc.tool
def open_all() -> str:
    """Open files until there are no more descriptors."""
    held = []
    while True:
        held.append(Path("/dev/null").open())  # noqa: SIM115 - the point of it


# --- clocks ------------------------------------------------------------------------------------


@pytest.mark.fault_case("F50")
def test_steps_of_the_wall_clock_restart_nothing_and_hold_up_nothing(agent, scripted, clock):
    """Heartbeats, restarts, time limits and stops are counted by the monotonic clock."""
    if clock is None:
        pytest.skip("a wall clock of its own needs a C compiler")
    call = ToolCalls(ToolUse("wait_for_ever", {}))
    model = scripted(*[call, "late"] * len(STEPS_S), default="fine")
    session = agent(
        model, tools=[wait_for_ever], unresponsive_after=QUICK_S, restart_delay=(0.1, 0.1)
    )
    quiet = agent(unresponsive_after=QUICK_S)
    monitors = [session.monitor(persistent=True), quiet.monitor()]
    quiet_pid = quiet.agent_pid()
    shown_s, took_s = [], []
    for shift_s in STEPS_S:
        clock.put(shift_s)
        began = time.monotonic()
        assert session.run("Go.", timeout=TURN_S).text == "late"
        took_s.append(time.monotonic() - began)
        shown_s.append(session.status().timestamp_ms / 1000 - time.time())
    for shift_s in (YEAR_S, -YEAR_S):
        clock.put(shift_s)
        os.kill(session.agent_pid(), signal.SIGKILL)
        assert monitors[0].wait(TURN_S).reason == KILLED
        assert session.run("Go on.", timeout=TURN_S).text == "fine"
    clock.put(-DAY_S)
    session.stop()
    clock.put(0)
    quiet_pids = quiet_pid, quiet.agent_pid()
    quiet.stop()

    assert shown_s == pytest.approx(STEPS_S, abs=60.0)  # the steps were seen
    assert min(took_s) >= TOOL_S
    assert max(took_s) < TOOL_S + END_S
    assert quiet_pids[0] == quiet_pids[1]
    assert [one.wait(TURN_S).reason for one in monitors] == [Normal(), Normal()]


WALL = {
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "localtime"),
    ("time", "gmtime"),
    ("time", "strftime"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
}
READS_WALL = {
    "cmdc_runtime/clock.py": "the one place that the others ask for the time of a stamp",
    "cmdc_runtime/cli/terminal.py": "shows stamps as a clock does",
    "cmdc_runtime/mcp_oauth.py": "when a login ends is kept, for other processes too",
    "workers/builtin/providers/_failures.py": "a server may say until which date to wait",
    "workers/builtin/sandboxes/local.py": "the name of a file",
    "workers/builtin/tools/shell.py": "the name of a file",
    "workers/builtin/plugins/telemetry.py": "the stamp of a span",
    "workers/builtin/plugins/event_logger.py": "the stamp of a line",
    "workers/builtin/plugins/model_router.py": "chooses by the hour of the day, as it is asked to",
    "workers/builtin/plugins/auto_checkpoint.py": "drops checkpoints by their age in days",
}
COUNTS_WITH_STAMPS = {
    "workers/performers/deadlines.py": "a deadline for people holds across processes and daemons",
    "supervisor/upkeep/pruning.py": "what has ended is kept for days, across daemons",
    "cmdc_runtime/cli/listing.py": "shows how long ago it was that a session was active",
    "workers/builtin/tools/reason.py": "the time of a run holds across processes and daemons",
}


@cache
def trees():
    """Return the source of the packages, by file."""
    packages = [ROOT / name for name in ("cmdc_runtime", "supervisor", "workers")]
    paths = [path for package in packages for path in package.rglob("*.py")]
    return {str(path.relative_to(ROOT)): ast.parse(path.read_bytes()) for path in paths}


def called(node):
    """Return a call's object and method, or nothing and the function."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)):
            return owner, name
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=owner), attr=name)):
            return owner, name
        case ast.Call(func=ast.Name(id=name)):
            return "", name
        case _:
            return None


def operands(node):
    match node:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case _:
            return []


@pytest.mark.fault_case("F50")
def test_logic_reads_no_wall_clock():
    """Who may read it is listed with the reason, and nobody calculates with what was read."""
    readers, calculators = set(), set()
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if called(node) in WALL:
                readers.add(path)
            if any(called(operand) == ("", "now_ms") for operand in operands(node)):
                calculators.add(path)

    assert readers == READS_WALL.keys()
    assert calculators == COUNTS_WITH_STAMPS.keys()


# --- pids --------------------------------------------------------------------------------------

SIGNALS_BY_NUMBER = {
    "workers/toolhost/host.py": "own children that are not reaped, and the groups they lead",
    "workers/builtin/sandboxes/_guardian.py": "the group of an own child that is not reaped",
    "workers/mcp/launcher.py": "own children, of whom it alone reaps the dead",
}
KILLS = {("os", "kill"), ("os", "killpg"), ("", "kill"), ("", "killpg")}
STARTS = {("subprocess", "Popen"), ("subprocess", "run"), ("_CONTEXT", "Process")}
OWN_PROCESSES = {
    "supervisor/adapters/zygote.py": "the zygote, an own child that is signalled by its pidfd",
    "workers/zygote.py": "an own child that is not reaped, where it got no pidfd",
    "workers/builtin/sandboxes/_candidates.py": "ripgrep, an own child that is waited for",
    "workers/builtin/sandboxes/_commands.py": "an own child, killed before it is reaped",
    "workers/builtin/sandboxes/bubblewrap.py": "bwrap, to see whether it works; waited for",
    "workers/mcp/process.py": "the launcher, an own child, signalled before it is reaped",
    "supervisor/stopping.py": "systemctl, which it waits for",
}


def asks(call):
    """Say whether a kill only asks if the process is there."""
    return isinstance(call.args[-1], ast.Constant) and call.args[-1].value == 0


@pytest.mark.fault_case("F54")
def test_signals_are_sent_through_pidfds():
    """By a number only to an own child that nobody has reaped, so that it is nobody else's."""
    by_number, starters = set(), set()
    for path, tree in trees().items():
        if path.startswith("cmdc_runtime/"):
            continue
        for node in ast.walk(tree):
            if called(node) in KILLS and not asks(node):
                by_number.add(path)
            if called(node) in STARTS:
                starters.add(path)
            if isinstance(node, ast.ImportFrom) and node.module in {"os", "psutil", "subprocess"}:
                by_number.add(path)

    assert by_number == SIGNALS_BY_NUMBER.keys()
    assert starters <= OWN_PROCESSES.keys()


@pytest.mark.fault_case("F54")
def test_process_with_the_pid_of_a_dead_one_is_left_alone():
    """However a dead process is to be ended once more, its number hits nobody else."""
    words = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a pid namespace with few pids needs root")
    folders = [str(ROOT), str(ROOT / "tests/integration/supervisor")]
    done = subprocess.run(
        [*words, sys.executable, "-P", HERE / "reused_pid.py"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
        capture_output=True,
        text=True,
        timeout=TURN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])

    assert outcome == {
        "reused": True,
        "killed": True,
        "signalled": False,
        "swept": 0,
        "ended": 0,
        "stranger": "T",
    }


# --- descriptors ---------------------------------------------------------------------------------


@contextlib.contextmanager
def descriptors_of(pid, count):
    """Let a process have no more descriptors than ``count``; those that it has stay."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@pytest.mark.fault_case("F55")
def test_daemon_out_of_descriptors_stays_in_control(place, client, agent, scripted, poll):
    """Sessions go on and can be stopped, new ones are refused with the reason; then all is well."""
    sessions = [agent() for _ in range(3)]
    monitors = [one.monitor() for one in sessions]
    model = scripted(default="fine")
    # A process that was just forked would have to be let in at the moment of the fault.
    assert poll(lambda: client._run(facts).spares == place.spares)
    before = len(place.log.read_text())
    with contextlib.closing(place.client()) as late, ThreadPoolExecutor(1) as thread:
        with descriptors_of(place.process.pid, FEW):
            assert poll(lambda: "accept_gate.shut" in place.log.read_text()[before:])
            newcomer = thread.submit(late.list_sessions)
            answers = [one.run("1", timeout=TURN_S).text for one in sessions]
            refusals = [refusal(client, model) for _ in range(4)]  # with the spares, too
            os.kill(sessions[0].agent_pid(), signal.SIGKILL)
            killed = monitors[0].wait(TURN_S)
            sessions[1].stop()
            known = client.tree().state
            has_waited = not newcomer.done()
        seen = {one.session_id for one in newcomer.result(TURN_S)}
    assert sessions[0].run("2", timeout=TURN_S).text == "fine"
    with client.create_agent(model=model) as another:
        assert another.run("1", timeout=TURN_S).text == "fine"
    lived = sessions[2].status().incarnation
    are_spares_back = poll(lambda: client._run(facts).spares == place.spares)

    assert answers == ["fine"] * 3
    assert all(isinstance(one, StartFailed) and one.stage == "spawn" for one in refusals[2:])
    assert "descriptors are in use" in refusals[-1].message
    assert (killed.reason, killed.restarting) == (KILLED, True)
    assert monitors[1].wait(TURN_S).reason == Normal()
    assert (known, lived) == ("up", 1)
    assert has_waited
    assert are_spares_back
    assert {sessions[0].id, sessions[2].id} <= seen


async def facts(calls):
    connection = await calls._connector.connected()
    return await connection.ask(GetFacts())


def refusal(client, model):
    """Return why an agent is not started; None where it is, and then it is stopped."""
    try:
        client.create_agent(model=model).stop()
    except cmdc.StartFailed as error:
        return error.reason
    return None


@pytest.mark.fault_case("F55")
def test_daemon_out_of_descriptors_is_no_hanging_one():
    """What asks the loop for its watchdog needs a descriptor, and blames nobody for having none."""

    async def work():
        with descriptors_of(os.getpid(), FEW):
            await ask_reaper()

    asyncio.run(asyncio.wait_for(work(), TURN_S))


@pytest.mark.fault_case("F55")
def test_tool_out_of_descriptors_fails_alone(agent, scripted, audit):
    """It is reported to the model, and the session and its next call have all of theirs."""
    audit.log_says = ("tool.crashed",)
    model = scripted(ToolCalls(ToolUse("open_all", {})), "I see.", default="fine")
    session = agent(model, tools=[open_all], max_open_files=64)
    monitor = session.monitor()
    assert session.run("Go.", timeout=TURN_S).text == "I see."
    result = session.messages()[-2].content
    assert session.run("On.", timeout=TURN_S).text == "fine"
    session.stop()

    assert "Too many open files" in result
    assert monitor.wait(TURN_S).reason == Normal()


# --- the log -----------------------------------------------------------------------------------


@pytest.mark.fault_case("F57")
@pytest.mark.parametrize("end", ["full", "gone", "/dev/full"])
def test_log_that_nobody_takes_holds_up_nothing(own_daemon, poll, end):
    """A pipe that is full, a reader that is gone, a full disk: requests and the stop go on."""
    writer, reader = log_to(end)
    log_into(own_daemon, writer, own_daemon.command("--log-level", "debug"))
    assert poll((own_daemon.address / "control.sock").exists)
    with own_daemon.client() as client:
        slowest_s = 0.0
        for _ in range(2):
            shout(own_daemon.address / "control.sock", 1_000)
            began = time.monotonic()
            assert client.tree().state == "up"
            slowest_s = max(slowest_s, time.monotonic() - began)
    rss_bytes = psutil.Process(own_daemon.process.pid).memory_info().rss
    began = time.monotonic()
    own_daemon.process.send_signal(signal.SIGTERM)
    status = own_daemon.process.wait(END_S)
    took_s = time.monotonic() - began
    if reader is not None:
        os.close(reader)

    assert status == 0
    assert slowest_s < 1.0
    assert took_s < 6.0
    assert rss_bytes < 200 * 2**20


@pytest.mark.fault_case("F57")
@pytest.mark.parametrize("end", ["full", "gone", "/dev/full"])
def test_what_a_log_that_nobody_takes_loses_is_counted(own_daemon, poll, end):
    """The daemon's answer says how many lines that were, however they were lost."""
    writer, reader = log_to(end)
    if end == "full":
        fill(writer)
    log_into(own_daemon, writer, SHORT_LOG_DAEMON)
    control = own_daemon.address / "control.sock"
    assert poll(control.exists)
    for lost in range(2):  # the second time it goes on counting
        for _ in range(2 * SHORT_LINES):
            shout(control, 1)
        assert poll(lambda lost=lost: lost_lines(control) > lost * SHORT_LINES)
    if reader is not None:
        os.close(reader)


@pytest.mark.fault_case("F57")
def test_what_the_log_has_lost_is_counted_and_logged_when_it_is_read_again(own_daemon, poll):
    """Nobody reads: requests are answered, and among the answers is how many lines are lost."""
    reader, writer = os.pipe()
    fill(writer)
    log_into(own_daemon, writer, SHORT_LOG_DAEMON)
    control = own_daemon.address / "control.sock"
    assert poll(control.exists)
    for _ in range(2 * SHORT_LINES):
        shout(control, 1)
    assert poll(lambda: lost_lines(control) > 0)
    with own_daemon.client() as client:
        began = time.monotonic()
        assert client.tree().state == "up"
        took_s = time.monotonic() - began
    heard = []
    reading = threading.Thread(target=lambda: read_all(reader, heard))
    reading.start()
    assert poll(lambda: dropped_lines(heard) == lost_lines(control))
    own_daemon.process.send_signal(signal.SIGTERM)
    status = own_daemon.process.wait(END_S)
    reading.join(END_S)

    assert (status, took_s < 1.0) == (0, True)


def log_to(end):
    """Return where a log goes that nobody takes, and what reads it, if anything does."""
    if end == "/dev/full":
        return os.open(end, os.O_WRONLY), None
    reader, writer = os.pipe()
    if end == "gone":
        os.close(reader)
        return writer, None
    return writer, reader


def log_into(own_daemon, writer, command):
    """Start the daemon by a command, with its log there; it is closed here."""
    own_daemon.process = subprocess.Popen(
        command,
        env=own_daemon.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=writer,
        start_new_session=True,
    )
    os.close(writer)


def read_all(pipe, heard):
    """Put the lines of a pipe into a list, as they come, until nobody writes any more."""
    with os.fdopen(pipe) as lines:
        heard.extend(lines)


def fill(pipe):
    """Write to a pipe until no more goes into it."""
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(pipe, b"\n"):
            pass
    os.set_blocking(pipe, True)


def lost_lines(control):
    """Return how many lines the daemon says that it has lost."""
    return facts_of(f"ipc://{control}").lost_log_lines


def dropped_lines(heard):
    """Return how many lines the log says that it has lost."""
    dropped = [json.loads(line) for line in list(heard) if '"log.dropped"' in line]
    return sum(one["lines"] for one in dropped)


def shout(path, count):
    """Send messages that are each worth a line in the log."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 1_000
        dealer.connect(f"ipc://{path}")
        for _ in range(count):
            dealer.send(b"junk")
