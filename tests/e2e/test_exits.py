"""Why processes end, who is notified, and what becomes of the session."""

import asyncio
import ctypes
import gc
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.reasons import (
    Exception as Raised,
)
from cmdc_runtime.reasons import (
    ExitCode,
    NoProcess,
    Normal,
    RestartIntensityExceeded,
    Shutdown,
    Signal,
)
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse
from workers.core.tags import TextPlace

TURN_S = 20.0
KILLED = Signal(number=9, name="SIGKILL")
MANY = 50


@cmdc.tool(effects="write", isolation="thread")
def leave(code: int) -> str:
    """End the process without a word."""
    os._exit(code)


@cmdc.tool(effects="write", isolation="thread")
def segfault() -> str:
    """Read what is at address 0."""
    return str(ctypes.string_at(0))


@cmdc.tool(effects="write")
async def break_loop() -> str:
    """Let a callback of the agent's own code fail, which nobody catches."""
    asyncio.get_running_loop().call_soon(TextPlace.after, None, "nobody catches this")
    await asyncio.Event().wait()
    return "never"


@cmdc.tool(effects="write")
async def quit_task() -> str:
    """Ask the interpreter to end."""
    raise SystemExit(5)


@cmdc.tool(effects="write")
def quit_thread() -> str:
    """Ask the interpreter to end."""
    raise SystemExit(5)


@cmdc.tool(effects="write")
def fail() -> str:
    """Have a bug."""
    raise KeyError("a bug")


@cmdc.tool(effects="write")
async def leave_failing_task() -> str:
    """Leave a task behind that fails when nobody looks."""

    async def fail() -> None:
        raise KeyError("a bug")

    task = asyncio.create_task(fail())
    await asyncio.wait([task])
    del task
    gc.collect()
    return "left"


@cmdc.tool(effects="write")
async def leave_waiting_task() -> str:
    """Leave a task behind that nobody will ever wake, nor hold."""

    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    del task
    gc.collect()
    return "left"


@cmdc.tool(effects="write")
async def complain() -> str:
    """Do what libraries do about a client that was not closed."""
    asyncio.get_running_loop().call_exception_handler({"message": "Unclosed client session"})
    return "left"


class Odd(BaseException):
    """No exception that anybody catches."""


def odd(*_: object) -> None:
    """Fail as the code of a library may."""
    raise Odd("not for us")


def wrong(*_: object) -> None:
    """Fail as most code does."""
    raise LookupError("nothing there")


def left_in_loop(context: cmdc.Context) -> "asyncio.Future[None]":
    """Put into the loop what fails there, and return what is done when the last has failed."""
    loop = asyncio.get_running_loop()
    for call in (wrong, odd, partial(int, "x"), partial(context.session.emit, 5)):
        loop.call_soon(call)
    loop.call_later(0, wrong)
    done = loop.create_future()
    done.add_done_callback(wrong)
    done.set_result(None)
    reading, writing = os.pipe()
    last = loop.create_future()
    loop.add_reader(reading, lambda: (loop.remove_reader(reading), last.set_result(None), wrong()))
    os.write(writing, b"x")
    return last


@cmdc.tool(effects="write")
async def litter(context: cmdc.Context) -> str:
    """Leave callbacks behind that fail."""
    await asyncio.wait_for(left_in_loop(context), TURN_S)
    return "left"


class Litterer(cmdc.Plugin):
    """Leaves callbacks behind that fail."""

    async def before_prompt(self, event, context):
        loop = asyncio.get_running_loop()
        loop.call_soon(wrong)
        loop.call_soon_threadsafe(wrong)


@cmdc.tool(effects="write")
def fail_with(key: str) -> str:
    """Have a bug while holding a key."""
    held = [key]
    raise LookupError("there it is" if held else "")


def kill(session):
    os.kill(session.agent_pid(), signal.SIGKILL)


def wait_for_incarnation(session, number, poll):
    assert poll(lambda: (session.status().incarnation, session.status().state) == (number, "idle"))


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        pytest.param(ToolUse("leave", {"code": 3}), ExitCode(code=3), id="exit-3"),
        pytest.param(ToolUse("leave", {"code": 78}), ExitCode(code=78), id="as-bad-options"),
        pytest.param(ToolUse("leave", {"code": 0}), ExitCode(code=0), id="exit-0"),
        pytest.param(
            ToolUse("segfault", {}), Signal(number=11, name="SIGSEGV"), id="segmentation-fault"
        ),
    ],
)
def test_end_of_a_process_has_its_reason(agent, scripted, use, reason):
    """What the kernel says of an end is what monitors hear, and the session lives on."""
    model = scripted(ToolCalls(use), "back")
    session = agent(model, tools=[leave, segfault])
    monitor = session.monitor()
    stream = session.subscribe(types=[cmdc.events.AgentRecovered])
    session.prompt("Go.")
    down = monitor.wait(TURN_S)

    assert (down.reason, down.incarnation, down.restarting) == (reason, 1, True)
    assert stream.get(TURN_S).event.reason == reason
    assert session.collect_reply(timeout=TURN_S) == "back"


def test_uncaught_exception_is_reported_with_its_traceback(agent, scripted):
    """Python's own last words cross the wire: type, message and where it was raised."""
    model = scripted(ToolCalls(ToolUse("break_loop", {})), "back")
    session = agent(model, tools=[break_loop])
    monitor = session.monitor()
    session.prompt("Go.")
    reason = monitor.wait(TURN_S).reason

    assert isinstance(reason, Raised)
    assert reason.type == "AttributeError"
    assert TextPlace.after.__code__.co_filename in reason.traceback
    assert session.collect_reply(timeout=TURN_S) == "back"


@pytest.mark.parametrize("name", ["quit_task", "quit_thread", "fail"])
def test_tool_that_raises_ends_its_call_and_nothing_else(agent, scripted, name):
    """Whatever a tool raises, ``SystemExit`` included, is a result that the model reads."""
    model = scripted(ToolCalls(ToolUse(name, {})), "I see.")
    session = agent(model, tools=[quit_task, quit_thread, fail])
    reply = session.run("Go.", timeout=TURN_S)

    assert reply.text == "I see."
    (result,) = [message for message in reply.messages if message.role == "tool_result"]
    assert result.is_error
    assert session.status().incarnation == 1


@pytest.mark.parametrize("name", ["leave_failing_task", "leave_waiting_task", "complain"])
def test_litter_of_a_tool_ends_nothing(agent, scripted, name):
    """What a tool or a library leaves behind in the loop is logged, and the agent lives."""
    model = scripted(ToolCalls(ToolUse(name, {})), "I see.")
    session = agent(model, tools=[leave_failing_task, leave_waiting_task, complain])
    reply = session.run("Go.", timeout=TURN_S)

    (result,) = [message for message in reply.messages if message.role == "tool_result"]
    assert (reply.text, result.content) == ("I see.", "left")
    assert session.status().incarnation == 1


def test_log_shows_a_failure_and_no_secret_of_it(agent, scripted, cmdc_daemon):
    """A traceback in the log has lines of code, but neither arguments nor variables."""
    use = ToolUse("fail_with", {"key": "secret-argument"})
    session = agent(scripted(ToolCalls(use), "I see."), tools=[fail_with])
    session.run("My secret prompt.", timeout=TURN_S)
    session.stop()
    log = cmdc_daemon.log_text()

    assert "LookupError: there it is" in log
    assert [word for word in ("secret-argument", "secret prompt") if word in log] == []


def test_one_shot_monitor_hears_once_and_a_persistent_one_each_time(agent, scripted, poll):
    """A monitor gets exactly one Down; a persistent one gets one for each incarnation."""
    session = agent(scripted(default="fine"))
    once, other = session.monitor(), session.monitor()
    always = session.monitor(persistent=True)
    for incarnation in (1, 2):
        wait_for_incarnation(session, incarnation, poll)
        kill(session)
    wait_for_incarnation(session, 3, poll)
    session.stop()
    heard = [always.wait(TURN_S) for _ in range(3)]

    assert [(down.reason, down.incarnation, down.restarting) for down in heard] == [
        (KILLED, 1, True),
        (KILLED, 2, True),
        (Normal(), 3, False),
    ]
    for monitor in (once, other):
        first = monitor.wait(TURN_S)
        assert (first.ref, first.incarnation) == (monitor.ref, 1)
        assert monitor.wait(0) == first  # there is no other one
    assert always.wait(0) == heard[-1]


def test_callback_runs_once_for_each_down(client, agent, scripted, poll):
    """A callback gets each notice of its monitor once, and may use the client."""
    session = agent(scripted(default="fine"))
    heard = []
    session.monitor(lambda down: heard.append((down.incarnation, client.session_id(session))))
    kill(session)
    wait_for_incarnation(session, 2, poll)
    kill(session)
    wait_for_incarnation(session, 3, poll)

    assert poll(lambda: heard) == [(1, session.id)]


def test_demonitored_session_is_not_heard_of(agent, scripted, poll, client):
    """After ``demonitor`` no notice comes."""
    session = agent(scripted(default="fine"))
    heard = []
    monitor = session.monitor(heard.append)
    session.demonitor(monitor)
    witness = session.monitor()
    kill(session)
    witness.wait(TURN_S)

    assert heard == []
    with pytest.raises(cmdc.UsageError):
        monitor.wait(0)


def test_monitor_of_no_session_is_answered_at_once(client):
    """Who monitors what is not there learns so by a Down."""
    down = client.monitor("never-seen").wait(TURN_S)

    assert (down.reason, down.restarting) == (NoProcess(), False)


def test_monitor_of_an_ended_session_gets_its_last_reason(client, agent, scripted):
    """Who comes too late gets the reason all the same."""
    session = agent(scripted(default="fine"))
    session.stop(reason="maintenance")
    down = client.monitor(session).wait(TURN_S)

    assert (down.reason, down.restarting) == (Shutdown(detail="maintenance"), False)


def test_restart_intensity_ends_the_session(agent, scripted):
    """The kill that is one too many within the period ends the session, and its calls say so."""
    session = agent(scripted(default="fine"), restart_delay=(0.0, 0.0))
    monitor = session.monitor(persistent=True)
    stream = session.subscribe()
    kill(session)
    recovered = []
    for _ in range(3):
        recovered.append(stream.get(TURN_S).event.incarnation)
        kill(session)
    downs = [monitor.wait(TURN_S) for _ in range(4)]
    spent = RestartIntensityExceeded(restarts=3, seconds=5.0, last=KILLED)

    assert [down.restarting for down in downs] == [True, True, True, False]
    assert downs[-1].reason == spent
    for call in (session.status, session.agent_pid, session.stop):
        with pytest.raises(cmdc.SessionNotAlive) as caught:
            call()
        assert caught.value.reason == spent
    with pytest.raises(cmdc.SessionNotAlive) as caught:
        session.prompt("Anybody?")
    assert caught.value.reason == spent
    assert recovered == [2, 3, 4]
    assert list(stream) == []


def test_temporary_session_is_not_restarted(agent, scripted):
    """``restart="temporary"`` means that the first end is the last."""
    session = agent(scripted(default="fine"), restart="temporary")
    monitor = session.monitor()
    kill(session)
    down = monitor.wait(TURN_S)

    assert (down.reason, down.restarting) == (KILLED, False)
    with pytest.raises(cmdc.SessionNotAlive):
        session.status()


def test_pending_call_learns_that_the_session_ended(agent, scripted):
    """A caller that waits for a reply learns why there will be none."""
    model = scripted((Hold(), "never"))
    session = agent(model, restart="temporary")
    session.prompt("Go.")
    model.wait_held()
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(session.collect_reply)
        assert session.status().state == "running"
        kill(session)
        error = reply.exception(TURN_S)

    assert isinstance(error, cmdc.SessionNotAlive)
    assert error.reason == KILLED


@pytest.mark.parametrize(
    ("asked", "reason"), [("normal", Normal()), ("enough", Shutdown(detail="enough"))]
)
def test_stop_is_no_crash(agent, scripted, asked, reason):
    """``stop`` ends the session for good; its reason is the caller's."""
    session = agent(scripted(default="fine"))
    monitor = session.monitor()
    session.stop(reason=asked)

    assert (monitor.wait(TURN_S).reason, monitor.wait(0).restarting) == (reason, False)


def test_stop_between_two_processes_has_the_callers_reason(agent, scripted, poll):
    """A session that is just being restarted stops as any other: its reason is the caller's."""
    session = agent(scripted(default="fine"), restart_delay=(30.0, 30.0))
    kill(session)
    wait_for_incarnation(session, 2, poll)
    kill(session)
    assert poll(lambda: session.agent_pid() is None)
    monitor = session.monitor()
    session.stop()

    assert monitor.wait(TURN_S).reason == Normal()


def test_stopped_process_is_unresponsive_and_can_be_stopped(agent, scripted):
    """A process that hangs is kept apart from a dead one, and ``stop`` ends it by force."""
    session = agent(scripted(default="fine"))
    monitor = session.monitor()
    os.kill(session.agent_pid(), signal.SIGSTOP)
    session.stop(timeout=0.4)

    assert monitor.wait(TURN_S).reason == KILLED


def test_fifty_sessions_survive_the_end_of_all_their_processes(agent, scripted):
    """Fifty sessions answer, all of their processes are killed at once, and all answer again."""
    model = scripted(default="fine")
    with ThreadPoolExecutor(8) as pool:
        sessions = list(pool.map(lambda _: agent(model), range(MANY)))
        first = list(pool.map(lambda one: one.run("1", timeout=60.0).text, sessions))
        monitors = [session.monitor() for session in sessions]
        pids = [session.agent_pid() for session in sessions]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        second = list(pool.map(lambda one: one.run("2", timeout=60.0).text, sessions))
        after = [session.agent_pid() for session in sessions]
        list(pool.map(lambda one: one.stop(), sessions))

    assert (first, second) == (["fine"] * MANY, ["fine"] * MANY)
    assert [monitor.wait(TURN_S).reason for monitor in monitors] == [KILLED] * MANY
    assert len({*pids, *after}) == 2 * MANY


def test_what_is_left_in_the_loop_ends_nothing(agent, scripted):
    """Callbacks of a tool or a plugin that fail, however they came into the loop."""
    model = scripted(ToolCalls(ToolUse("litter", {})), "done", "again")
    session = agent(model, tools=[litter], plugins=[Litterer])
    pid, monitor = session.agent_pid(), session.monitor()

    assert session.run("Go.", timeout=TURN_S).text == "done"
    with pytest.raises(TimeoutError):
        monitor.wait(0)
    assert session.run("And?", timeout=TURN_S).text == "again"
    assert (session.agent_pid(), session.status().incarnation) == (pid, 1)
