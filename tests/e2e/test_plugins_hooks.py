"""Every hook in a running session: where plugins are asked, and what they are given there."""

import os
import signal
import threading
from pathlib import Path

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Error, Hold, Text, ToolCalls, ToolUse

TURN_S = 20.0
POLL_S = 0.02
SOON_S = 0.2
QUICK = {"retry_base_delay": 0.01, "retry_max_delay": 0.05}


class Recorder(cmdc.Plugin):
    """Publishes all that it hears."""

    def handle_event(self, event, context):
        """Publish the hook, its fields, and what was seen of the session."""
        seen = {"turn": context.turn, "incarnation": context.incarnation, "model": context.model}
        return cmdc.Emit("heard", {**msgspec.to_builtins(event), "seen": seen})


@cmdc.tool(effects="read", isolation="task")
async def add(a: int, b: int) -> str:
    """Add."""
    return str(a + b)


@cmdc.tool(effects="read", isolation="task", max_retries=1)
async def explode() -> str:
    """Fail."""
    raise ValueError("no luck")


def wait_for(path):
    never = threading.Event()
    while not Path(path).exists():
        never.wait(POLL_S)


def kinds(heard):
    return [one["kind"] for one in heard]


def hear_until(stream, kind):
    """Return what the recorder published, up to this hook."""
    heard = []
    while not heard or heard[-1]["kind"] != kind:
        event = stream.get(TURN_S).event
        if getattr(event, "name", None) == "heard":
            heard.append(event.payload)
    return heard


@pytest.fixture
def recorded(agent, scripted):
    """Make sessions with a recorder, each with its stream from the first event on."""

    def create(*steps, **options):
        model = steps[0] if hasattr(steps[0], "model_source") else scripted(*steps)
        session = agent(model, plugins=[Recorder], **options)
        return session, session.subscribe(since=0)

    return create


def test_every_hook_of_a_cycle_in_its_place(recorded):
    """From the start of the process to its end, with all that the hooks have to report."""
    calls = ToolCalls(ToolUse("add", {"a": 1, "b": 2}, "c-1"), ToolUse("explode", {}, "c-2"))
    session, stream = recorded(calls, "three", tools=[add, explode], max_parallel_tools=1)
    session.run("Add.", timeout=TURN_S)
    session.stop()
    heard = hear_until(stream, "session_end")
    by_kind = {one["kind"]: one for one in heard}

    # fmt: off
    assert kinds(heard) == [
        "session_start", "before_prompt", "before_request", "after_response",
        "before_tool", "after_tool",
        "before_tool", "on_tool_error", "on_tool_error", "after_tool",
        "after_tool_batch", "before_request", "after_response", "before_finish",
        "after_turn", "session_end",
    ]
    # fmt: on
    assert by_kind["before_prompt"]["text"] == "Add."
    assert [len(one["messages"]) for one in heard if one["kind"] == "before_request"] == [1, 4]
    assert [call["name"] for call in heard[3]["message"]["tool_calls"]] == ["add", "explode"]
    assert (heard[4]["name"], heard[4]["call_id"]) == ("add", "c-1")
    assert heard[4]["args"] == {"a": 1, "b": 2}
    assert (heard[5]["result"], heard[5]["is_error"]) == ("3", False)
    assert [(one["call_id"], one["attempt"]) for one in heard[7:9]] == [("c-2", 1), ("c-2", 2)]
    assert all("no luck" in one["error"] for one in heard[7:9])
    assert (heard[9]["name"], heard[9]["is_error"]) == ("explode", True)
    batch = by_kind["after_tool_batch"]["results"]
    assert [(one["call_id"], one["is_error"]) for one in batch] == [("c-1", False), ("c-2", True)]
    assert batch[0]["result"] == heard[5]["result"]
    assert [one["seen"]["turn"] for one in (heard[0], heard[1], heard[3], heard[12])] == [
        0,
        0,
        1,
        2,
    ]
    assert {one["seen"]["model"] for one in heard} == {"openai/scripted"}


def test_the_end_of_a_cycle_reports_all_of_it(recorded):
    """What it added, what it used and how long it took: of this cycle, not of those before."""
    session, stream = recorded("one", "two")
    session.run("First.", timeout=TURN_S)
    reply = session.run("Second.", timeout=TURN_S)
    first, second = (hear_until(stream, "after_turn")[-1] for _ in range(2))

    assert (second["outcome"], second["abort_reason"]) == ("finished", None)
    assert [said["content"] for said in second["messages_diff"]] == ["Second.", "two"]
    assert second["token_usage_diff"] == msgspec.to_builtins(reply.usage)
    assert first["ended_at_ms"] <= second["started_at_ms"] <= second["ended_at_ms"]
    assert second["duration_ms"] == second["ended_at_ms"] - second["started_at_ms"]


def test_plugins_hear_of_an_aborted_cycle_once(recorded, scripted, events_until):
    """With the reason of whoever aborted it; the answer that was cut is part of it."""
    model = scripted((Text("half of it"), Hold()))
    session, stream = recorded(model)
    session.prompt("Go.")
    events_until(stream, "message_delta")
    session.abort(reason="enough")
    session.stop()
    ends = [one for one in hear_until(stream, "session_end") if one["kind"] == "after_turn"]

    assert [(one["outcome"], one["abort_reason"]) for one in ends] == [("aborted", "enough")]
    assert [said["content"] for said in ends[0]["messages_diff"]] == ["Go.", "half of it"]


def test_plugins_hear_of_a_failed_cycle_once(recorded):
    """It counts as aborted, for the reason that the provider gave."""
    session, stream = recorded(Error(401, "who are you"), max_retries=0)
    session.prompt("Go.")
    heard = hear_until(stream, "after_turn")
    session.stop()

    assert heard[-1]["outcome"] == "aborted"
    assert "who are you" in heard[-1]["abort_reason"]
    assert kinds(hear_until(stream, "session_end")) == ["session_end"]


def test_plugins_hear_of_each_request(recorded):
    """One that is sent again after a failure is another one."""
    session, stream = recorded(Error(503, "busy"), "there", **QUICK)
    session.run("Go.", timeout=TURN_S)
    heard = kinds(hear_until(stream, "before_finish"))

    assert heard.count("before_request") == 2
    assert heard.count("after_response") == 1


def test_a_crash_is_no_end_of_the_session(recorded, poll):
    """The next process starts it anew, and plugins hear of that."""
    session, stream = recorded("one", "two")
    session.run("First.", timeout=TURN_S)
    heard = hear_until(stream, "after_turn")
    os.kill(first := session.agent_pid(), signal.SIGKILL)
    assert poll(lambda: session.agent_pid() not in {None, first})
    session.run("Second.", timeout=TURN_S)
    session.stop()
    heard += hear_until(stream, "session_end")
    starts = [one["seen"]["incarnation"] for one in heard if one["kind"] == "session_start"]

    assert starts == [1, 2]
    assert kinds(heard).count("session_end") == 1
    assert kinds(heard).count("after_turn") == 2


def test_sleep_is_no_end_of_the_session(recorded, poll):
    """Plugins hear of each process that starts, and of the end once it comes."""
    session, stream = recorded("one", "two", hibernate_after=SOON_S)
    session.run("First.", timeout=TURN_S)
    assert poll(lambda: session.agent_pid() is None)
    session.run("Second.", timeout=TURN_S)
    session.stop()
    heard = kinds(hear_until(stream, "session_end"))

    assert heard.count("session_start") == 2
    assert heard.count("session_end") == 1


def test_a_session_sleeps_whatever_plugins_hear_of_its_cycles(agent, scripted, poll, plugin_of):
    """Even when they have nothing to say to them."""
    quiet = plugin_of(after_turn=None)
    session = agent(scripted("one"), plugins=[quiet], hibernate_after=SOON_S)
    session.run("First.", timeout=TURN_S)

    assert poll(lambda: session.agent_pid() is None)


def test_a_session_that_is_stopped_at_once_has_reported_its_last_cycle(recorded):
    """Also where a cycle ends the process."""
    session, stream = recorded(
        *[ToolCalls(ToolUse("add", {"a": 1, "b": 2}))] * 2,
        tools=[add],
        max_turns=1,
        exit_on=["max_turns_exceeded"],
    )
    session.prompt("Add.")
    heard = hear_until(stream, "after_turn")

    assert heard[-1]["abort_reason"] == "max_turns_exceeded"


def test_the_end_of_a_cycle_comes_before_the_next_one(agent, scripted, plugin_of, tmp_path):
    """Every plugin hears of it first, however long one before it takes."""
    gate = str(tmp_path / "gate")
    slow = plugin_of("slow", 1, after_turn=lambda *_: wait_for(gate))
    order = plugin_of(
        "order",
        2,
        before_prompt=lambda event, _: cmdc.Emit("heard", {"kind": event.text}),
        after_turn=cmdc.Emit("heard", {"kind": "end"}),
    )
    model = scripted((Hold(), "one"), "two")
    session = agent(model, plugins=[slow, order])
    stream = session.subscribe(since=0)
    session.prompt("first")
    model.wait_held()
    session.prompt("second")
    model.release()
    heard = hear_until(stream, "first")
    while stream.get(TURN_S).event.kind != "agent_start":
        pass
    (tmp_path / "gate").touch()
    heard += hear_until(stream, "second")

    assert kinds(heard) == ["first", "end", "second"]


def test_plugins_hear_of_steering(recorded, scripted):
    """Before it is queued; what is said to an idle session is a prompt."""
    model = scripted((Hold(), "one"), "two", "three")
    session, stream = recorded(model)
    session.prompt("Go.")
    model.wait_held()
    session.steer("left")
    model.release()
    session.collect_reply(timeout=TURN_S)
    heard = hear_until(stream, "after_turn")
    session.steer("right")
    later = hear_until(stream, "after_turn")

    assert [one["text"] for one in heard if one["kind"] == "before_steering"] == ["left"]
    assert "before_steering" not in kinds(later)
    assert [one["text"] for one in later if one["kind"] == "before_prompt"] == ["right"]
