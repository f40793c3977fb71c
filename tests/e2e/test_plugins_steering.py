"""Plugins and steering: it is judged before it counts, and ends nothing before that."""

import asyncio
import threading

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse

TURN_S = 20.0
POLL_S = 0.02


def think(asked, gate):
    """Say that it was asked, and wait until it may answer."""
    asked.touch()
    never = threading.Event()
    while not gate.exists():
        never.wait(POLL_S)


@cmdc.tool(effects="read", isolation="task")
async def wait() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return "never"


@pytest.fixture
def busy(agent, scripted):
    """Make sessions whose model is about to answer, with the model."""

    def create(plugin, *answers):
        model = scripted((Hold(), "one"), *answers)
        session = agent(model, plugins=[plugin])
        stream = session.subscribe(since=0)
        session.prompt("Go.")
        model.wait_held()
        return session, model, stream

    return create


def texts(request):
    return [said.get("content") for said in request["messages"]][1:]


def test_a_plugin_may_reject_steering(busy, plugin_of, events_until):
    """Its sender reads why and observers hear of it; the cycle goes on as if nothing was said."""
    session, model, stream = busy(plugin_of(before_steering=cmdc.Abort("not now")))
    with pytest.raises(cmdc.SteeringRejected, match="not now"):
        session.steer("left")
    reported = events_until(stream, "steering_received")[-1]
    model.release()

    assert (reported.status, reported.text) == ("rejected", "left")
    assert session.collect_reply(timeout=TURN_S) == "one"
    assert len(model.requests) == 1


def test_rejected_steering_ends_no_call(agent, scripted, plugin_of, events_until):
    """A call that it would have ended runs on."""
    model = scripted(ToolCalls(ToolUse("wait", {})))
    session = agent(model, tools=[wait], plugins=[plugin_of(before_steering=cmdc.Abort("no"))])
    stream = session.subscribe(since=0)
    session.prompt("Go.")
    events_until(stream, "tool_execution_start")
    with pytest.raises(cmdc.SteeringRejected):
        session.steer("left")

    assert [one.name for one in session.status().pending_tools] == ["wait"]


def test_steering_ends_calls_when_plugins_let_it(agent, scripted, plugin_of, events_until):
    """As it does without plugins."""
    model = scripted(ToolCalls(ToolUse("wait", {})), "turned")
    session = agent(model, tools=[wait], plugins=[plugin_of(before_steering=None)])
    stream = session.subscribe(since=0)
    session.prompt("Go.")
    events_until(stream, "tool_execution_start")
    session.steer("left")

    assert session.collect_reply(timeout=TURN_S) == "turned"
    assert texts(model.requests[1])[-1] == "left"


def test_a_plugin_may_add_to_steering(busy, plugin_of, events_until):
    """What it says is part of the steering, for observers and for the model."""
    session, model, stream = busy(plugin_of(before_steering=cmdc.Intervene("slowly")), "two")
    session.steer("left")
    reported = events_until(stream, "steering_received")[-1]
    model.release()

    assert session.collect_reply(timeout=TURN_S) == "two"
    assert (reported.status, reported.text) == ("queued", "left\n\nslowly")
    assert texts(model.requests[1]) == ["Go.", "one", "left\n\nslowly"]


def test_what_is_said_to_an_idle_session_is_a_prompt(agent, scripted, plugin_of, events_until):
    """Plugins hear of a prompt, and have nothing to reject."""
    plugin = plugin_of(
        before_steering=cmdc.Abort("no"),
        before_prompt=lambda event, _: cmdc.Emit("prompt", event.text),
    )
    session = agent(scripted("one"), plugins=[plugin])
    stream = session.subscribe(since=0)
    session.steer("left")

    assert events_until(stream, "plugin_event", "prompt")[-1].payload == "left"
    assert session.collect_reply(timeout=TURN_S) == "one"


def test_steering_keeps_its_order_while_plugins_think(busy, events_until):
    """Each is judged in its turn, and what plugins remember of it stays."""

    class Counting(cmdc.Plugin):
        class State(msgspec.Struct):
            heard: int = 0

        async def before_steering(self, _event, _context):
            self.state.heard += 1
            return cmdc.Intervene(f"({self.state.heard})")

    session, model, stream = busy(Counting, "two")
    for text in ("a", "b", "c"):
        session.steer(text)
    with pytest.raises(cmdc.QueueFull):
        session.steer("d")
    model.release()
    session.collect_reply(timeout=TURN_S)
    received = [one for one in events_until(stream, "agent_end") if one.kind == "steering_received"]

    assert [event.status for event in received] == ["queued"] * 3 + ["rejected_full"]
    assert texts(model.requests[1])[-1] == "a\n\n(1)\n\nb\n\n(2)\n\nc\n\n(3)"


def test_steering_that_is_judged_when_its_cycle_is_over_opens_one(busy, plugin_of, tmp_path, poll):
    """It is never lost, and its sender waits for that."""
    asked, gate = tmp_path / "asked", tmp_path / "gate"
    session, model, _ = busy(plugin_of(before_steering=lambda *_: think(asked, gate)), "two")
    sender = threading.Thread(target=session.steer, args=("left",))
    sender.start()
    assert poll(asked.exists)
    model.release()
    assert session.collect_reply(timeout=TURN_S) == "one"
    assert sender.is_alive()
    gate.touch()
    sender.join(TURN_S)

    assert session.collect_reply(timeout=TURN_S) == "two"
    assert texts(model.requests[1]) == ["Go.", "one", "left"]
