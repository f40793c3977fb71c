"""Plugins across processes: what they remember is back, and what was asked is asked again."""

import os
import signal
import threading
from pathlib import Path

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse

TURN_S = 20.0
SOON_S = 0.2
LOOK = ToolCalls(ToolUse("look", {}))


@cmdc.tool(effects="read", isolation="task")
async def look() -> str:
    """Look."""
    return "seen"


class Counter(cmdc.Plugin):
    """Counts the prompts of the session."""

    class State(msgspec.Struct):
        prompts: int = 0

    def before_prompt(self, event, context):
        """Count one more, and say how many there were."""
        self.state.prompts += 1
        return cmdc.Emit("count", [self.state.prompts, context.incarnation])


def counts(stream, number):
    return [stream.get(TURN_S).event.payload for _ in range(number)]


def kill(session):
    os.kill(session.agent_pid(), signal.SIGKILL)


def test_what_a_plugin_remembers_survives_a_crash(agent, scripted, poll):
    """It is written down with each change."""
    session = agent(scripted(default="fine"), plugins=[Counter])
    stream = session.subscribe(since=0, types=["plugin_event"])
    for text in ("a", "b"):
        session.run(text, timeout=TURN_S)
    first = session.agent_pid()
    kill(session)
    assert poll(lambda: session.agent_pid() not in {None, first})
    session.run("c", timeout=TURN_S)

    assert counts(stream, 3) == [[1, 1], [2, 1], [3, 2]]


def test_what_a_plugin_remembers_survives_sleep(agent, scripted, poll):
    """The next process goes on with it."""
    session = agent(scripted(default="fine"), plugins=[Counter], hibernate_after=SOON_S)
    stream = session.subscribe(since=0, types=["plugin_event"])
    session.run("a", timeout=TURN_S)
    assert poll(lambda: session.agent_pid() is None)
    session.run("b", timeout=TURN_S)

    assert counts(stream, 2) == [[1, 1], [2, 2]]


def test_what_a_plugin_learns_at_the_end_of_a_cycle_survives(agent, scripted, poll):
    """Nothing waits for it there, and it is written down all the same."""

    class Tally(cmdc.Plugin):
        class State(msgspec.Struct):
            cycles: int = 0

        def after_turn(self, _event, _context):
            self.state.cycles += 1
            return cmdc.Emit("cycles", self.state.cycles)

    session = agent(scripted(default="fine"), plugins=[Tally])
    stream = session.subscribe(since=0, types=["plugin_event"])
    session.run("a", timeout=TURN_S)
    reported = counts(stream, 1)
    first = session.agent_pid()
    kill(session)
    assert poll(lambda: session.agent_pid() not in {None, first})
    session.run("b", timeout=TURN_S)

    assert reported + counts(stream, 1) == [1, 2]


HOOKS = [
    "before_prompt", "before_request", "after_response", "before_tool", "after_tool",
    "after_tool_batch", "before_finish",
]  # fmt: skip


@pytest.mark.parametrize("hook", HOOKS)
def test_who_was_being_asked_at_a_crash_is_asked_again(agent, scripted, poll, tmp_path, hook):
    """No crash gets around a plugin; the cycle ends as it would have."""
    mark = str(tmp_path / "mark")

    def heard(self, event, context):
        if context.incarnation == 1:
            Path(mark).touch()
            threading.Event().wait()
        return cmdc.Emit("asked", [event.kind, context.incarnation])

    session = agent(
        scripted(LOOK, default="fine"),
        tools=[look],
        plugins=[type("Asked", (cmdc.Plugin,), {hook: heard})],
    )
    stream = session.subscribe(since=0, types=["plugin_event"])
    session.prompt("Go.")
    assert poll(Path(mark).exists)
    kill(session)

    assert session.collect_reply(timeout=TURN_S) == "fine"
    assert counts(stream, 1) == [[hook, 2]]
    roles = [said.role for said in session.messages()][1:]
    assert roles == ["user", "assistant", "tool_result", "assistant"]


def test_a_guard_of_prompts_is_not_avoided_by_a_crash(agent, scripted, poll, tmp_path):
    """What it would have refused it still refuses."""
    mark = tmp_path / "mark"

    class Guard(cmdc.Plugin):
        def before_prompt(self, event, context):
            if context.incarnation == 1:
                mark.touch()
                threading.Event().wait()
            return cmdc.Abort(f"no {event.text}")

    model = scripted()
    session = agent(model, plugins=[Guard])
    session.prompt("Secrets?")
    assert poll(mark.exists)
    kill(session)
    with pytest.raises(cmdc.CmdcError, match=r"no Secrets\?"):
        session.collect_reply(timeout=TURN_S)

    assert model.requests == []


def test_steering_that_was_being_judged_at_a_crash_is_judged_again(agent, scripted, poll, tmp_path):
    """Its sender learns of the one decision that counts."""
    mark = tmp_path / "mark"

    class Guard(cmdc.Plugin):
        def before_steering(self, _event, context):
            if context.incarnation == 1:
                mark.touch()
                threading.Event().wait()
            return cmdc.Abort(f"said {context.incarnation}")

    model = scripted((Hold(), "one"), default="one")
    session = agent(model, plugins=[Guard])
    session.prompt("Go.")
    model.wait_held()
    reported = []
    sender = threading.Thread(target=lambda: reported.append(refusal(session)))
    sender.start()
    assert poll(mark.exists)
    kill(session)
    sender.join(TURN_S)

    assert [text.rpartition(": ")[2] for text in reported] == ["said 2"]


def refusal(session):
    """Return why steering was refused, None where it was not."""
    try:
        session.steer("left")
    except cmdc.SteeringRejected as error:
        return str(error)
    return None


def test_words_of_a_plugin_survive_a_crash(agent, scripted, plugin_of):
    """The model reads them once, in the same place."""
    model = scripted((Hold(), "never"), "fine")
    session = agent(model, plugins=[plugin_of(before_prompt=cmdc.Intervene("mind"))])
    session.prompt("Go.")
    model.wait_held()
    kill(session)

    assert session.collect_reply(timeout=TURN_S) == "fine"
    assert [said["content"] for said in model.requests[1]["messages"]][1:] == ["Go.", "mind"]


def test_a_model_that_a_plugin_switched_to_survives_a_crash(agent, scripted, plugin_of):
    """The request that is sent again goes there too."""
    model = scripted((Hold(), "never"), "fine")
    switch = plugin_of(
        before_request=lambda _, context: (
            cmdc.SwitchModel("openai/other") if context.incarnation == 1 else None
        )
    )
    session = agent(model, plugins=[switch])
    session.prompt("Go.")
    model.wait_held()
    kill(session)

    assert session.collect_reply(timeout=TURN_S) == "fine"
    assert [request["model"] for request in model.requests] == ["other", "other"]
