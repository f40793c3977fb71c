"""The daemon dies, hangs, is stopped, doubled or replaced: what is reported, and what goes on."""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.reasons import Normal, Other, Signal, Unresponsive
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse
from supervisor.adapters.journal.schema import VERSION
from tests.fault.cases.held import main_thread_held
from tests.fault.cases.journals import make_first, stamp
from tests.fault.cases.moments import ALL_MOMENTS, MOMENTS, begin

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
END_S = 15.0
STOP_S = 5.0
"""For an orderly stop; agents that end when they are asked to need tenths of a second."""
GONE_S = 3.0
"""For all processes of a dead daemon; an agent ends its work and its tools first."""
PAUSE_S = 1.8
"""More than three limits of an agent that must beat within ``QUICK_S``."""
QUICK_S = 0.6
IS_FULL = "FAULT_FULL" in os.environ
DUMP = "most recent call first"
"""In the stacks that an agent is asked for when it is thought to hang."""
RESTARTED = Other(detail="the daemon was restarted")
KILLED = Signal(number=9, name="SIGKILL")


@cmdc.tool
def linger(path: str) -> str:
    """Leave word, start something, and stay."""
    child = subprocess.Popen(["sleep", "300"])
    with Path(path).open("a") as file:
        file.write(f"{child.pid}\n")
    signal.pause()
    return "never"


@cmdc.tool
def restart_daemon(pid: int) -> str:
    """Ask the daemon to end, as a service manager does, and wait for what comes."""
    os.kill(pid, signal.SIGTERM)
    signal.pause()
    return "never"


def collect(monitor, count):
    """Return so many notices of a monitor."""
    return [monitor.wait(TURN_S) for _ in range(count)]


def ends_of(downs):
    return [(down.incarnation, down.reason, down.restarting) for down in downs]


def said_by(role, session):
    """Return what somebody said, as the session remembers it."""
    return [one.content for one in session.messages() if one.role == role]


def log_since(place, start):
    return place.log.read_text(errors="replace")[start:]


# --- killed -----------------------------------------------------------------------------------


@pytest.mark.fault_case("F24")
def test_agents_of_a_killed_daemon_end_with_one_down_each(place, agent, audit, scripted, tmp_path):
    """Idle, at every point of a turn and under load: each has one Down, and goes on."""
    audit.daemon_died = True
    started = tmp_path / "started"
    call = ToolCalls(ToolUse("linger", {"path": str(started)}))
    running, streaming = scripted((Hold(), "never"), "one"), scripted(("half ", Hold()), "two")
    sessions = {
        "idle": agent(),
        "running": agent(running),
        "streaming": agent(streaming),
        "executing_tools": agent(scripted(call, "three"), tools=[linger]),
    }
    crowd = [agent() for _ in range(4)]
    monitors = {one: one.monitor(persistent=True) for one in (*sessions.values(), *crowd)}
    for session in list(sessions.values())[1:]:
        session.prompt("Go.")
    running.wait_held()
    streaming.wait_held()
    assert place.poll(lambda: started.exists() and started.read_text())
    assert place.poll(lambda: all(one.status().state == name for name, one in sessions.items()))
    for session in crowd:
        for number in range(5):
            session.prompt(str(number))
    known = psutil.Process(place.process.pid).children(recursive=True)
    place.kill()
    _, left = psutil.wait_procs(known, GONE_S)
    strangers = place.left()
    place.start()
    replies = [one.collect_reply(timeout=TURN_S) for one in list(sessions.values())[1:]]
    crowd_replies = [one.collect_reply(timeout=TURN_S) for one in crowd]
    heard = [said_by("user", one) for one in crowd]
    sessions["idle"].run("Go.", timeout=TURN_S)
    for session in monitors:
        session.stop()
    ends = [ends_of(collect(monitor, 2)) for monitor in monitors.values()]

    assert (left, strangers) == ([], [])
    assert replies == ["one", "two", "three"]
    assert crowd_replies == ["fine"] * 4
    assert heard == [[str(number) for number in range(5)]] * 4
    assert ends == [[(1, RESTARTED, True), (2, Normal(), False)]] * 8
    assert len(started.read_text().split()) == 1  # what may have had an effect is not run again
    assert not psutil.pid_exists(int(started.read_text()))


@pytest.mark.fault_case("F26", "F29")
def test_daemon_that_is_killed_while_it_recovers(place, agent, audit, scripted):
    """However often, at whatever point, whatever lies about: the last one has all of the first."""
    audit.daemon_died = True
    model = scripted((Hold(), "never"), default="done")
    owing, idle = agent(model), agent()
    monitors = [one.monitor(persistent=True) for one in (owing, idle)]
    owing.prompt("Once.")
    model.wait_held()
    place.kill()
    moments = ALL_MOMENTS if IS_FULL else MOMENTS
    for number in range(20 if IS_FULL else 5):
        begin(place)
        is_there = moments[number % len(moments)]
        assert place.poll(partial(is_there, place))
        place.kill()
    with remains(place) as still_there:
        place.start()
        unswept = still_there()
    reply = owing.collect_reply(timeout=TURN_S)
    idle.run("Still there?", timeout=TURN_S)
    found = said_by("user", owing), said_by("assistant", owing)
    last = [one.status().incarnation for one in (owing, idle)]
    for one in (owing, idle):
        one.stop()
    ends = [ends_of(collect(*pair)) for pair in zip(monitors, last, strict=True)]

    assert unswept == []
    assert reply == "done"
    assert found == (["Once."], ["done"])
    for downs, incarnation in zip(ends, last, strict=True):
        restarted = [(number, RESTARTED, True) for number in range(1, incarnation)]
        assert downs == [*restarted, (incarnation, Normal(), False)]


@contextlib.contextmanager
def remains(place):
    """Lay out what a dead daemon may leave, and return what of it is still there when asked.

    The pid in its lock is that of a process that is none of it; in its cgroups something runs.
    """
    assert place.poll(lambda: not place.left())
    lock = place.address / "daemon.lock"
    lock.write_text(lock.read_text().replace(str(place.process.pid), str(os.getpid())))
    litter = [place.address / name for name in ("h-1-1", "pymp-dead", "cmdc-zygote-dead")]
    litter[0].touch()
    for folder in litter[1:]:
        folder.mkdir()
        (folder / "file").touch()
    cells = [Path(one) for one in json.loads((place.place / "state/cells").read_text())]
    rooms = [cell / "s-dead.1" for cell in cells]
    with subprocess.Popen(["sleep", "300"]) as sleeper:
        for room in rooms:
            room.mkdir(parents=True)
            (room / "cgroup.procs").write_text(str(sleeper.pid))
        yield (
            lambda: (
                [path for path in (*litter, *rooms) if path.exists()]
                + (["a process"] if rooms and sleeper.wait(END_S) != -signal.SIGKILL else [])
            )
        )
        sleeper.kill()


# --- away --------------------------------------------------------------------------------------


@contextlib.contextmanager
def stopped(pid):
    """Stop a whole process."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.fault_case("F25")
def test_no_agent_is_charged_with_the_time_of_a_stopped_daemon(place, agent):
    """It knows that it was away, and says so; then it sees who is silent as sharply as before."""
    session, frozen = (agent(unresponsive_after=QUICK_S) for _ in range(2))
    pids = [session.agent_pid(), frozen.agent_pid()]
    monitors = [session.monitor(), frozen.monitor()]
    before = len(place.log.read_text(errors="replace"))
    with stopped(place.process.pid):
        back_at = time.monotonic() + PAUSE_S
        assert place.poll(lambda: time.monotonic() > back_at)
    assert place.poll(lambda: "process.paused" in log_since(place, before))
    answer = session.run("Still there?", timeout=TURN_S).text
    found = [session.agent_pid(), frozen.agent_pid()]
    said = log_since(place, before)
    os.kill(frozen.agent_pid(), signal.SIGSTOP)
    down = monitors[1].wait(TURN_S)
    session.stop()

    assert (answer, found) == ("fine", pids)
    assert DUMP not in said
    assert isinstance(down.reason, Unresponsive)
    assert (down.incarnation, down.evidence.pid) == (1, pids[1])
    assert monitors[0].wait(TURN_S).reason == Normal()
    assert place.poll(lambda: frozen.status().incarnation == 2)


@pytest.mark.fault_case("F27")
def test_no_agent_is_charged_with_a_loop_that_stands_still(place, agent):
    """The daemon's other thread logs it meanwhile, with the stack; then all goes on."""
    session = agent(unresponsive_after=QUICK_S)
    pid, monitor = session.agent_pid(), session.monitor()
    before = len(place.log.read_text(errors="replace"))
    with main_thread_held(place.process.pid):
        assert place.poll(lambda: "self_check.stalled" in log_since(place, before))
    assert place.poll(lambda: "self_check.recovered" in log_since(place, before))
    answer, found = session.run("Still there?", timeout=TURN_S).text, session.agent_pid()
    said = log_since(place, before)
    session.stop()

    assert (answer, found) == ("fine", pid)
    assert "part=loop" in said
    assert "run_forever" in said  # the stack says where it stands
    assert DUMP not in said
    assert monitor.wait(TURN_S).reason == Normal()


# --- doubled, and started among the remains of another ------------------------------------------


@pytest.mark.fault_case("F28")
def test_second_daemon_is_refused_and_the_first_keeps_its_sockets(place, client):
    """It says whose directory it is, touches nothing, and ends with a status of its own."""
    names = ("daemon.lock", "control.sock", "events.sock", "workers.sock", "output.sock")
    before = [(place.address / name).lstat().st_ino for name in names]
    second = run_to_end(place)

    assert second.returncode == 3
    assert f"process {place.process.pid}" in second.stderr
    assert "choose another runtime directory" in second.stderr
    assert "Traceback" not in second.stderr
    assert [(place.address / name).lstat().st_ino for name in names] == before
    assert client.tree().children


def run_to_end(place):
    """Start a daemon that is going to be refused; return what it said."""
    return subprocess.run(
        place.command(),
        env=place.environment(),
        capture_output=True,
        text=True,
        timeout=TURN_S,
        check=False,
    )


# --- stopped -----------------------------------------------------------------------------------


@pytest.mark.fault_case("F30")
def test_stop_amid_a_mass_restart_wins(place, agent, audit):
    """What restarts and what waits for its restart ends with the daemon; the next one has all."""
    audit.daemon_died = True
    sessions = [agent(restart_delay=(20.0, 20.0)) for _ in range(8)]
    monitors = [one.monitor(persistent=True) for one in sessions]
    late = sessions[:3]
    for one in late:
        os.kill(one.agent_pid(), signal.SIGKILL)
    assert place.poll(
        lambda: all(one.status().incarnation == 2 and one.agent_pid() for one in late)
    )
    for one in sessions:  # three of them for the second time: they wait for 20 s
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.agent_pid(), signal.SIGKILL)
    began = time.monotonic()
    place.process.send_signal(signal.SIGTERM)
    status = place.process.wait(END_S)
    took_s = time.monotonic() - began
    left = place.left()
    place.start()  # and once more, before anything of it is up
    began = time.monotonic()
    place.process.send_signal(signal.SIGTERM)
    early = place.process.wait(END_S)
    early_s = time.monotonic() - began
    place.start()
    answers = [one.run("Still there?", timeout=TURN_S).text for one in sessions]
    last = [one.status().incarnation for one in sessions]
    for one in sessions:
        one.stop()
    ends = [collect(*pair) for pair in zip(monitors, last, strict=True)]

    assert (status, early, left) == (0, 0, [])
    assert max(took_s, early_s) < STOP_S
    assert answers == ["fine"] * 8
    for downs, incarnation in zip(ends, last, strict=True):
        assert [down.incarnation for down in downs] == [*range(1, incarnation + 1)]
        assert {down.reason for down in downs[:-1]} <= {KILLED, RESTARTED}


# --- replaced ----------------------------------------------------------------------------------


@pytest.mark.fault_case("F31", "F32")
def test_upgrade_that_a_session_asks_for(place, agent, audit, own_daemon, scripted):
    """It cuts short nothing that is written; an older daemon refuses the journal and leaves it."""
    audit.daemon_died = True
    call = ToolCalls(ToolUse("restart_daemon", {"pid": place.process.pid}))
    session = agent(scripted("fine", call, default="done"), tools=[restart_daemon])
    stream, monitor = session.subscribe(), session.monitor(persistent=True)
    session.run("1", timeout=TURN_S)
    session.prompt("Upgrade.")
    status = place.process.wait(TURN_S)
    left = place.left()
    shutil.copytree(place.place / "state", own_daemon.place / "state")
    journal = place.place / "state/journal.sqlite3"
    stamp(journal, VERSION + 1)
    before = journal.read_bytes()
    refused = run_to_end(place)
    after = journal.read_bytes()
    stamp(journal, VERSION)
    place.start()
    upgraded = upgrade(own_daemon)
    reply = session.collect_reply(timeout=TURN_S)
    events = [stream.get(TURN_S)]
    while events[-1].index < session.last_index():
        events.append(stream.get(TURN_S))
    results = said_by("tool_result", session)
    session.stop()

    assert (status, left) == (0, [])
    assert (refused.returncode, after == before) == (1, True)
    assert f"has format {VERSION + 1}" in refused.stderr
    assert "start the newer program" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert f"session:{session.id}" in upgraded
    assert reply == "done"
    assert gaps(events) == []
    assert ["may or may not have taken effect" in text for text in results] == [True]
    assert ends_of(collect(monitor, 2)) == [(1, RESTARTED, True), (2, Normal(), False)]


def upgrade(own_daemon):
    """Turn its journal into one of the first format, and return what a daemon finds there."""
    journal = own_daemon.place / "state/journal.sqlite3"
    make_first(journal)
    own_daemon.start()
    with own_daemon.client() as client:
        (sessions,) = (one for one in client.tree().children if one.id == "sessions")
    own_daemon.process.terminate()
    assert own_daemon.process.wait(END_S) == 0
    with contextlib.closing(sqlite3.connect(journal)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)
    return [one.id for one in sessions.children]


def gaps(envelopes):
    """Return the envelopes before which events are missing that none names as lost."""
    found, expected = [], envelopes[0].index
    for one in envelopes:
        lost = one.event if one.event.kind == "events_lost" else None
        if (one.index if lost is None else lost.first) != expected:
            found.append(one)
        expected = (one.index if lost is None else lost.last) + 1
    return found
