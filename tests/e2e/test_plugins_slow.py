"""Plugins that take long, never return or fail: an abort waits for none, and the session lives."""

import asyncio
import threading
import time
from pathlib import Path

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import ToolCalls, ToolUse

TURN_S = 20.0
ANNOUNCED_S = 2.0
"""Tens of milliseconds on an idle machine; the bound is for a busy one."""
POLL_S = 0.02
SHORT_S = 0.2
LOOK = ToolCalls(ToolUse("look", {}))


@cmdc.tool(effects="read", isolation="task")
async def look() -> str:
    """Look."""
    return "seen"


def of(kind, found):
    return [event for event in found if isinstance(event, kind)]


def first_time(path):
    """Say whether this is done for the first time; note that it was done."""
    is_new = not Path(path).exists()
    Path(path).touch()
    return is_new


def blocking(hook, mark):
    """Return a plugin that never returns from the hook the first time, in a thread."""

    def heard(_self, _event, _context):
        if first_time(mark):
            threading.Event().wait()

    return type("Blocking", (cmdc.Plugin,), {hook: heard})


def sleeping(hook, mark):
    """Return a plugin that never returns from the hook the first time, in the loop."""

    async def heard(_self, _event, _context):
        if first_time(mark):
            await asyncio.Event().wait()

    return type("Sleeping", (cmdc.Plugin,), {hook: heard})


HOOKS = [
    "before_prompt", "before_request", "after_response", "before_tool", "after_tool",
    "after_tool_batch", "before_finish",
]  # fmt: skip


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("slow", [blocking, sleeping])
def test_an_abort_does_not_wait_for_a_plugin(agent, scripted, poll, tmp_path, slow, hook):  # noqa: PLR0913, PLR0917 - fixtures
    """It is reported at once and ends the wait; the session goes on with the same plugin."""
    mark = tmp_path / "mark"
    model = scripted(LOOK, default="fine")
    session = agent(model, tools=[look], plugins=[slow(hook, str(mark))])
    stream = session.subscribe(types=["agent_abort"])
    session.prompt("Go.")
    assert poll(mark.exists)
    began_s = time.monotonic()
    session.abort(reason="enough")
    reported = stream.get(TURN_S).event
    took_s = time.monotonic() - began_s

    assert reported.reason == "enough"
    assert took_s < ANNOUNCED_S
    assert session.status().state == "idle"
    assert session.run("Again.", timeout=TURN_S).text == "fine"


def test_a_late_answer_changes_nothing(agent, scripted, poll, tmp_path, events_until):
    """Neither what the plugin says then nor what it wrote into its state."""
    mark, gate = tmp_path / "mark", tmp_path / "gate"

    class Late(cmdc.Plugin):
        class State(msgspec.Struct):
            heard: int = 0

        def before_prompt(self, _event, _context):
            self.state.heard += 1
            if first_time(mark):
                while not gate.exists():
                    threading.Event().wait(POLL_S)
                mark.with_name("over").touch()
                return [cmdc.Emit("late"), cmdc.Intervene("late"), cmdc.Abort("late")]
            return cmdc.Emit("heard", self.state.heard)

    model = scripted("fine", "well")
    session = agent(model, plugins=[Late])
    stream = session.subscribe()
    session.prompt("Go.")
    assert poll(mark.exists)
    session.abort()
    gate.touch()
    assert poll((tmp_path / "over").exists)
    session.run("Again.", timeout=TURN_S)
    session.run("And again.", timeout=TURN_S)
    found = [*events_until(stream, "agent_end"), *events_until(stream, "agent_end")]

    assert [(one.name, one.payload) for one in of(events.PluginEvent, found)] == [
        ("heard", 1),
        ("heard", 2),
    ]
    assert [one.reason for one in of(events.AgentAbort, found)] == [None]
    assert all("late" not in str(request["messages"]) for request in model.requests)


def test_what_a_finished_call_says_late_is_not_for_the_next_cycle(
    agent, scripted, poll, tmp_path, plugin_of
):
    """The words of a plugin about a call that an abort has left running come too late."""
    mark, gate = tmp_path / "mark", tmp_path / "gate"

    def slow(_event, _context):
        first_time(mark)
        while not gate.exists():
            threading.Event().wait(POLL_S)
        return [cmdc.Emit("noted"), cmdc.Intervene("late"), cmdc.SwitchModel("openai/late")]

    model = scripted(LOOK, "fine")
    session = agent(
        model, tools=[look], plugins=[plugin_of(after_tool=slow)], interrupt_immune_tools=["look"]
    )
    stream = session.subscribe(types=["plugin_event"])
    session.prompt("Go.")
    assert poll(mark.exists)
    session.abort(kill_tools="none")
    gate.touch()
    assert stream.get(TURN_S).event.name == "noted"
    session.run("Again.", timeout=TURN_S)

    assert model.requests[1]["messages"][-1]["content"] == "Again."
    assert session.status().model == "openai/scripted"


# --- failures -----------------------------------------------------------------------------------


def too_long(_self, _event, _context):
    """Take longer than it may."""
    threading.Event().wait()


def broken(_self, _event, _context):
    """Raise."""
    raise ValueError("out of order")


def nonsense(_self, _event, _context):
    """Answer what is no answer."""
    return "fine"


FAILURES = pytest.mark.parametrize(
    ("failing", "why"),
    [(too_long, "0.2 s"), (broken, "out of order"), (nonsense, "str")],
    ids=["slow", "broken", "nonsense"],
)


def failing_plugin(method, fail, hook="before_prompt"):
    narrowed = cmdc.hook(timeout=SHORT_S)(method)
    return type("Bad", (cmdc.Plugin,), {"name": "bad", "fail": fail, hook: narrowed})


@FAILURES
def test_a_plugin_that_fails_is_reported_and_the_session_goes_on(
    agent, scripted, cycle_of, failing, why
):
    """Plugins behind it are asked as ever."""
    model = scripted("one")
    session = agent(model, plugins=[failing_plugin(failing, "open")])
    stream = session.subscribe()
    session.prompt("Go.")
    found = [one.event for one in cycle_of(stream)]
    (crashed,) = of(events.PluginCrashed, found)

    assert (crashed.plugin, crashed.hook) == ("bad", "before_prompt")
    assert why in crashed.error
    assert found[-1].kind == "agent_end"


@FAILURES
def test_a_guard_that_fails_ends_the_cycle(agent, scripted, cycle_of, failing, why):
    """Nothing that it should have looked at goes on."""
    model = scripted()
    session = agent(model, plugins=[failing_plugin(failing, "closed")])
    stream = session.subscribe()
    session.prompt("Go.")
    end = cycle_of(stream)[-1].event

    assert end.kind == "agent_abort"
    assert "bad" in end.reason
    assert why in end.reason
    assert model.requests == []


@FAILURES
def test_a_plugin_may_be_switched_off_by_its_failure(agent, scripted, events_until, failing, why):
    """It is reported once; the next cycle does without it."""
    session = agent(scripted("one", "two"), plugins=[failing_plugin(failing, "disable")])
    stream = session.subscribe()
    session.run("Go.", timeout=TURN_S)
    session.run("On.", timeout=TURN_S)
    found = [*events_until(stream, "agent_end"), *events_until(stream, "agent_end")]

    assert [why in one.error for one in of(events.PluginCrashed, found)] == [True]


def test_a_guard_that_fails_at_a_call_ends_the_cycle(agent, scripted, cycle_of):
    """The call does not run."""
    guard = failing_plugin(broken, "closed", "before_tool")
    session = agent(scripted(LOOK), tools=[look], plugins=[guard])
    stream = session.subscribe()
    session.prompt("Go.")
    found = [one.event for one in cycle_of(stream)]

    assert found[-1].kind == "agent_abort"
    assert of(events.ToolExecutionStart, found) == []


def test_a_guard_that_fails_at_the_start_refuses_the_session(client, scripted):
    """Better no session than one that nobody guards."""
    guard = failing_plugin(broken, "closed", "session_start")
    with pytest.raises(cmdc.StartFailed, match="out of order"):
        client.create_agent(model=scripted(), plugins=[guard])


def test_a_plugin_that_never_returns_does_not_keep_a_session(agent, scripted, tmp_path):
    """Its end is asked of it, and not waited for longer than a moment."""
    mark = tmp_path / "mark"

    def stuck(_self, _event, _context):
        mark.touch()
        threading.Event().wait()

    session = agent(scripted(), plugins=[type("Stuck", (cmdc.Plugin,), {"session_end": stuck})])
    monitor = session.monitor()
    session.stop()

    assert mark.exists()
    assert monitor.wait(TURN_S).reason == cmdc.reasons.Normal()


@pytest.mark.parametrize("slow", [blocking, sleeping])
def test_a_plugin_that_is_stuck_hears_of_the_end(agent, scripted, poll, tmp_path, slow):
    """What it was asked before is over by then; observers hear its answer."""
    mark = tmp_path / "mark"
    stuck = slow("before_prompt", str(mark))
    stuck.session_end = lambda _self, _event, _context: cmdc.Emit("goodbye")
    session = agent(scripted(), plugins=[stuck])
    stream = session.subscribe(types=["plugin_event"])
    session.prompt("Go.")
    assert poll(mark.exists)
    session.stop()

    assert stream.get(TURN_S).event.name == "goodbye"


class Leaving(cmdc.Plugin):
    """Leaves a call in the loop that fails behind it."""

    name = "leaving"

    async def before_prompt(self, event, context):
        asyncio.get_running_loop().call_soon(int, "no number")


def test_a_callback_that_fails_is_its_plugins_crash(cmdc_session):
    """The hook had ended by then, so nothing is stopped; it is reported whose it was."""
    session = cmdc_session(["fine"], plugins=[Leaving])
    with session.subscribe() as stream:
        reply = session.run("Go.", timeout=TURN_S)
        while not isinstance(event := stream.get(TURN_S).event, events.PluginCrashed):
            pass

    assert (event.plugin, event.hook) == ("leaving", "callback")
    assert "no number" in event.error
    assert reply.text == "fine"
