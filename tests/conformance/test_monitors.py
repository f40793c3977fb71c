"""Who watches a process: what is heard of its end, when, and how often."""

import os
import signal
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.reasons import Exception as Raised
from cmdc_runtime.reasons import ExitCode, NoProcess, OutOfMemory, Shutdown, Signal
from cmdc_runtime.testing import Hold, Text, ToolCalls, ToolUse
from supervisor.core import exits
from tests.conformance.script import (
    ENDS,
    EXIT_CODE,
    KILLED,
    RAISED,
    Life,
    below,
    case,
    child,
    one_for_all,
    one_for_one,
    rest_for_one,
)
from tests.fault.streams.test_ends import indexes_now
from workers.core.tags import TextPlace

TURN_S = 30.0
OFTEN = 40
RACES = 4
STAYING = 10
LEAVING = 200
"""Removed one after the other, which takes longer than a Down to come."""


def downs(stage):
    """Return the Downs in order: of whom, and whether another process follows."""
    return [(note.who, note.fact.restarting) for note in stage.log if note.what == "down"]


# --- the engine: one notice for each end -------------------------------------------------------


@case("D07")
def test_each_end_has_one_down(stage):
    """Every process that ended has one Down, whoever ended it and in which company."""
    inner = rest_for_one(child("x"), child("y"))
    stage.start(one_for_all(child("a"), below("inner", inner), child("b")))
    stage.crash("x", path=("inner",))
    stage.until_up("x2", "y2", path=("inner",))
    stage.crash("b")
    stage.until_up("a2", "inner/x3", "inner/y3", "b2")
    stage.stop()

    assert sorted(who for who, _ in downs(stage)) == sorted(stage.noted("launch"))
    assert [who for who, restarting in downs(stage) if not restarting] == [
        *("inner/y2", "inner/x2", "b2", "inner/y3", "inner/x3", "a2"),
    ]


@case("D07", "X11")
@pytest.mark.parametrize("make", [one_for_all, rest_for_one])
@pytest.mark.parametrize("how", ["terminate_child", "delete_child", "stop"])
def test_who_was_to_come_back_and_does_not_has_one_more_down(sim, make, how):
    """Those who wait for any member of a group restart learn that it is called off."""
    sim.start(make(child("a", restart_delay=(5.0, 5.0)), child("b"), max_restarts=9))
    sim.crash("a")
    sim.until_up("b2")
    sim.crash("a")
    sim.wait(lambda: sim.states() == {"a": "restarting", "b": "down"}, "the back-off")
    before = sim.down("b2").restarting
    if how == "stop":
        sim.stop()
    else:
        sim.ask_for(how, "b" if how == "delete_child" else "a")

    assert before is True
    assert (sim.down("b2").restarting, sim.down("b2").asked) == (False, True)


@case("D07")
def test_a_restart_that_is_ignored_has_a_down(stage):
    """It says of who was to come back, and wants no process, that nobody follows."""
    stage.start(one_for_one(child("a", Life(), Life(start="ignore"))))
    stage.crash("a")
    stage.wait(lambda: "a2" in stage.noted("ignored"), "the ignored start")

    assert downs(stage) == [("a1", True), ("a2", False)]
    assert isinstance(stage.down("a2").reason, Shutdown)


@case("D09")
def test_status_zero_alone_is_no_normal_end(stage):
    """A process that leaves with 0 and without a goodbye has crashed, and is restarted."""
    stage.start(one_for_one(child("a", restart="transient")))
    stage.crash("a", "silent_zero")
    stage.until_up("a2")

    assert stage.down("a1").reason == ExitCode(code=0)


def take_turns(proc, lock, *, company):
    """Have each process of a child need the lock that the last one had, or its company."""
    lock.touch()
    proc.start(one_for_one(child("a", Life(lock=str(lock), company=company)), max_restarts=OFTEN))
    for generation in range(1, OFTEN):
        proc.pass_time(0.01)
        proc.crash("a")
        proc.until_up(f"a{generation + 1}")


@case("D05")
@pytest.mark.process
def test_what_a_process_had_is_free_when_its_down_comes(proc, tmp_path):
    """Again and again the next process has the lock at once that the last one held."""
    take_turns(proc, tmp_path / "lock", company=False)

    assert proc.reported("start_error") == []


@case("D05")
@pytest.mark.process
def test_what_its_company_had_is_free_when_its_down_comes(proc_in_cells, tmp_path):
    """Where there are cgroups that holds for the processes that it has started, too."""
    take_turns(proc_in_cells, tmp_path / "lock", company=True)

    assert proc_in_cells.reported("start_error") == []


@case("D08")
@pytest.mark.parametrize(
    ("known", "reason", "by"),
    [
        ({"status": -9}, KILLED, "outside"),
        ({"status": -9, "asked": exits.Asked.SIGKILL}, KILLED, "daemon"),
        ({"status": -9, "oom_kills": 1}, OutOfMemory(), "kernel"),
        ({"status": -9, "oom_kills": 1, "asked": exits.Asked.SIGKILL}, KILLED, "daemon"),
        ({"status": -11}, Signal(number=11, name="SIGSEGV"), ""),
        ({"status": EXIT_CODE}, ExitCode(code=EXIT_CODE), ""),
        ({"status": 1, "said": RAISED}, RAISED, ""),
        ({"status": 0, "said": ENDS["normal"][2]}, ENDS["normal"][2], ""),
    ],
)
def test_the_kernel_says_who_killed_a_process(known, reason, by):
    """That memory ran out is known by the kernel's count, and never by signal 9 alone."""
    record = exits.ExitRecord(**known)

    assert (exits.classify(record), exits.killed_by(record)) == (reason, by)


# --- real sessions -----------------------------------------------------------------------------


@cmdc.tool(effects="write", isolation="thread")
def leave(code: int) -> str:
    """End the process without a word."""
    os._exit(code)


@cmdc.tool(effects="write")
async def break_loop() -> str:
    """Let a callback of the agent's own code fail, which nobody catches."""
    import asyncio  # noqa: PLC0415 - it runs in the agent

    asyncio.get_running_loop().call_soon(TextPlace.after, None, "nobody catches this")
    await asyncio.Event().wait()
    return "never"


@cmdc.tool(effects="write", isolation="thread")
def hold_port(port: int) -> str:
    """Listen on a port of this machine until the process ends."""
    listener = socket.create_server(("127.0.0.1", port))
    listener.detach()
    return "listening"


@case("D01", "D02", "D08")
@pytest.mark.process
def test_each_monitor_has_a_down_of_its_own(cmdc_session, cmdc_daemon):
    """Two monitors of one session hear of its end under their own references; a late one too."""
    session = cmdc_session(["fine"], restart="temporary")
    monitors = [session.monitor(), session.monitor()]
    os.kill(session.agent_pid(), signal.SIGKILL)
    heard = [monitor.wait(TURN_S) for monitor in monitors]
    with cmdc_daemon.client() as client:
        late = client.monitor(session.id).wait(TURN_S)
        never = client.monitor("conformance-never-seen").wait(TURN_S)

    assert [down.ref for down in heard] == [monitor.ref for monitor in monitors]
    assert monitors[0].ref != monitors[1].ref
    assert [(down.reason, down.evidence.killed_by) for down in heard] == [(KILLED, "outside")] * 2
    assert (late.reason, late.restarting) == (KILLED, False)
    assert (never.reason, never.restarting) == (NoProcess(), False)


@case("D03")
@pytest.mark.process
def test_nothing_is_heard_after_demonitor_however_close_the_end(
    cmdc_session, cmdc_daemon, scripted
):
    """Removals go on while a process dies: none is heard of later, and who stays hears once."""
    heard = Counter()
    at_return = {}
    meet = threading.Barrier(2)

    def callback(down):
        client.list_sessions()  # takes as long as a removal: some are to wait, and one to run
        heard[down.ref] += 1

    def remove(client, session, monitors):
        meet.wait(TURN_S)
        for monitor in monitors:
            client.demonitor(session, monitor)
            at_return[monitor.ref] = heard[monitor.ref]

    with cmdc_daemon.client() as client, ThreadPoolExecutor(1) as pool:
        session = cmdc_session(
            scripted(default="fine"), restart_delay=(0.0, 0.0), max_restarts=OFTEN
        )
        staying, leaving = [], []
        for incarnation in range(1, RACES + 1):
            stay = [client.monitor(session.id, callback) for _ in range(STAYING)]
            leave = [client.monitor(session.id, callback) for _ in range(LEAVING)]
            removal = pool.submit(remove, client, session.id, leave)
            meet.wait(TURN_S)
            os.kill(session.agent_pid(), signal.SIGKILL)
            assert {one.wait(TURN_S).incarnation for one in stay} == {incarnation}
            removal.result(TURN_S)
            staying, leaving = staying + stay, leaving + leave
            session.run("Are you back?", timeout=TURN_S)
        last = threading.Event()  # callbacks run in their order: behind this one there is none
        client.monitor(session.id, lambda _down: last.set())
        session.stop()
        assert last.wait(TURN_S)

    assert [heard[one.ref] for one in staying] == [1] * RACES * STAYING
    assert [heard[one.ref] for one in leaving] == [at_return[one.ref] for one in leaving]
    assert set(at_return.values()) <= {0, 1}
    for one in leaving:
        with pytest.raises(cmdc.UsageError, match="removed"):
            one.wait(0)


@case("D04", "D08")
@pytest.mark.process
def test_every_event_of_a_process_comes_before_its_down(cmdc_session, scripted):
    """The last index that a Down names is the last event that the process published."""
    model = scripted((*(Text(f"{number} ") for number in range(200)), Hold(), "never"))
    session = cmdc_session(model, restart="temporary")
    witness, stream = session.subscribe(), session.subscribe()
    monitor = session.monitor()
    session.prompt("Count.")
    text = ""
    while not text.endswith("199 "):  # a stopped process may not have published all
        text += getattr(witness.get(TURN_S).event, "delta", "")
    os.kill(session.agent_pid(), signal.SIGSTOP)
    session.stop(timeout=0.2)
    down = monitor.wait(TURN_S)
    indexes = indexes_now(stream)

    assert (down.reason, down.evidence.killed_by) == (KILLED, "daemon")
    assert indexes == [*range(1, len(indexes) + 1)]
    assert down.evidence.last_index is not None
    assert down.evidence.last_index <= indexes[-1]
    assert list(stream) == []


@case("D07", "D09", "C30")
@pytest.mark.process
@pytest.mark.parametrize(
    ("tool", "given", "kind"), [(leave, {"code": 0}, ExitCode), (break_loop, {}, Raised)]
)
def test_an_end_with_much_evidence_is_one_down(cmdc_session, scripted, tool, given, kind):
    """A status and last words are one end; status 0 without a goodbye is a crash."""
    model = scripted(ToolCalls(ToolUse(tool.name, given)), default="fine")
    session = cmdc_session(model, tools=[tool], restart="transient")
    monitor = session.monitor(persistent=True)
    session.prompt("Go.")
    first = monitor.wait(TURN_S)
    session.collect_reply(timeout=TURN_S)
    session.stop()
    last = monitor.wait(TURN_S)

    assert isinstance(first.reason, kind)
    assert (first.incarnation, first.restarting) == (1, True)
    assert (last.incarnation, last.restarting) == (2, False)


@case("D05", "C70")
@pytest.mark.process
def test_a_port_is_free_when_the_down_is_there(cmdc_session, scripted):
    """Whoever hears of the end may use at once what the process had."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    model = scripted(ToolCalls(ToolUse("hold_port", {"port": port})), "listening", default="fine")
    session = cmdc_session(model, tools=[hold_port])
    session.run("Listen.", timeout=TURN_S)
    monitor = session.monitor()
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("127.0.0.1", port))
    os.kill(session.agent_pid(), signal.SIGKILL)
    down = monitor.wait(TURN_S)
    with socket.create_server(("127.0.0.1", port)):
        pass
    session.run("Again.", timeout=TURN_S)

    assert (down.incarnation, session.status().incarnation) == (1, 2)
