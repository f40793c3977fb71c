"""What plugins order of their session, ask of it, hear from it, and make of what it says."""

import os
import signal

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.messages import Message
from cmdc_runtime.testing import Hold, Text, Thinking

pytestmark = pytest.mark.process

TURN_S = 20.0
SECRET = "swordfish"


class Ordering(cmdc.Plugin):
    """Gives every order once, at the first prompt."""

    def before_prompt(self, event, context):
        """Order."""
        if context.memory_contents:
            return None
        mark = cmdc.MetadataUpdate(id=context.messages[-1].id, metadata={"seen": True})
        return cmdc.Emit(
            [
                cmdc.MemoryContents(contents={"AGENTS.md": "Use tabs."}),
                cmdc.UpdateSystemContext(key="Plan", text="1. sow"),
                cmdc.UpdateMessageMetadata(updates=(mark,)),
                cmdc.SyntheticToolResults(
                    results=(cmdc.SyntheticResult(call_id="lost", content="never came"),)
                ),
            ]
        )


HISTORY = [
    Message.user("Look."),
    msgspec.structs.replace(
        Message.assistant("", (cmdc.ToolCall(call_id="lost", name="look"),)), id="old-1"
    ),
]


def test_orders_are_carried_out_and_outlive_a_crash(agent, scripted, client, poll):
    """The system prompt, the history and the metadata are as ordered, in every later process."""
    model = scripted("one", "two")
    session = agent(model, plugins=[Ordering], messages=HISTORY)
    session.run("Go.", timeout=TURN_S)
    os.kill(session.agent_pid(), signal.SIGKILL)
    assert poll(lambda: client.status(session).incarnation == 2)
    session.run("On.", timeout=TURN_S)

    for request in model.requests:
        system, _user, _call, result, *_ = request["messages"]
        assert '<agent_memory name="AGENTS.md">\nUse tabs.\n</agent_memory>' in system["content"]
        assert system["content"].endswith("Plan:\n1. sow")
        assert result["content"] == "Error: never came"
    said = session.messages()
    assert [message.content for message in said if message.metadata.get("seen")] == ["Go."]
    assert [message.content for message in said if message.role == "tool_result"] == ["never came"]


# --- ask ----------------------------------------------------------------------------------------


class Judging(cmdc.Plugin):
    """Asks a model what to make of a prompt."""

    async def before_prompt(self, event, context):
        """Ask, and publish what came of it."""
        try:
            found = await context.session.complete(f"Judge: {event.text}", system="Be just.")
        except cmdc.PluginCallError as error:
            return cmdc.Emit("unjudged", str(error))
        return cmdc.Intervene(found.text)


def test_a_plugin_asks_a_model_for_itself(agent, scripted):
    """Apart from the conversation; the session pays for it."""
    model = scripted("fine", "done")
    session = agent(model, plugins=[Judging])
    with session.subscribe() as stream:
        session.run("Go.", timeout=TURN_S)
        found = [envelope.event for envelope in iter_until_end(stream)]

    judged, asked = model.requests
    assert [said["content"] for said in judged["messages"]] == ["Be just.", "Judge: Go."]
    assert asked["messages"][-1]["content"] == "fine"
    (reported,) = [event for event in found if isinstance(event, events.PluginModelCall)]
    assert (reported.plugin, reported.model) == ("judging", session.status().model)
    assert found[-1].usage == session.status().token_usage
    assert found[-1].usage.total_tokens > reported.usage.total_tokens > 0


def iter_until_end(stream):
    """Return the envelopes up to the end of the cycle."""
    found = [stream.get(TURN_S)]
    while found[-1].event.kind != "agent_end":
        found.append(stream.get(TURN_S))
    return found


def test_an_abort_ends_what_a_plugin_asks(agent, scripted):
    """At once: the question to the model is given up."""
    model = scripted((Hold(), "never"))
    session = agent(model, plugins=[Judging])
    with session.subscribe(types=["agent_abort"]) as stream:
        session.prompt("Go.")
        model.wait_held(TURN_S)
        session.abort(reason="enough")
        assert stream.get(TURN_S).event.reason == "enough"
    model.wait_abandoned(timeout=TURN_S)
    assert session.status().state == "idle"


class Delegating(cmdc.Plugin):
    """Has a subagent look at each answer."""

    async def before_finish(self, event, context):
        """Ask for a second opinion."""
        try:
            verdict = await context.session.delegate(
                f"Check: {context.last_assistant_reply}", context.subagents[0]
            )
        except cmdc.PluginCallError as error:
            verdict = f"none: {error}"
        return cmdc.Emit("checked", verdict)


def test_a_plugin_has_a_subagent_do_something(agent, scripted, events_until):
    """A session of its own below this one, which is counted and gone when it is done."""
    model = scripted("done", "fine")
    checker = cmdc.SubAgent("checker", "Checks.", plugins=[])
    session = agent(model, plugins=[Delegating], subagents=[checker])
    with session.subscribe() as stream:
        session.run("Go.", timeout=TURN_S)
        found = events_until(stream, "agent_end")

    assert model.requests[1]["messages"][-1]["content"] == "Check: done"
    kinds = [event.kind for event in found]
    assert kinds.index("subagent_start") < kinds.index("subagent_end") < kinds.index("plugin_event")
    (reported,) = [event for event in found if isinstance(event, events.PluginEvent)]
    assert reported.payload == "fine"


def test_a_subagent_of_a_plugin_ends_with_the_cycle(agent, scripted, client, poll):
    """An abort leaves nothing behind."""
    model = scripted("done", (Hold(), "never"))
    checker = cmdc.SubAgent("checker", "Checks.", plugins=[])
    session = agent(model, plugins=[Delegating], subagents=[checker])
    session.prompt("Go.")
    model.wait_held(TURN_S)
    session.abort()

    assert poll(lambda: [one.session_id for one in client.list_sessions()] == [session.id])
    assert session.status().state == "idle"


# --- hear and change ----------------------------------------------------------------------------


class Listening(cmdc.Plugin):
    """Publishes at the end of each cycle what it has heard."""

    heard: tuple[str, ...] = ()

    def observe(self, event, context):
        """Note it."""
        if isinstance(event, cmdc.PipelineRun):
            self.heard += (f"run:{event.hook}",)
        elif event.kind == "agent_start":
            raise ValueError("too early")
        else:
            self.heard += (event.kind,)

    def before_finish(self, event, context):
        """Say."""
        return cmdc.Emit("heard", list(self.heard))


def test_a_plugin_hears_what_is_published(agent, scripted, events_until):
    """In its order, runs of the pipeline too; a crash there is reported and costs nothing else."""
    session = agent(scripted("done"), plugins=[Listening])
    with session.subscribe() as stream:
        session.run("Go.", timeout=TURN_S)
        found = events_until(stream, "agent_end")
        session.prompt("Again.")

    (crash,) = [event for event in found if isinstance(event, events.PluginCrashed)]
    assert (crash.plugin, crash.hook) == ("listening", "observe")
    assert "too early" in crash.error
    (reported,) = [event for event in found if isinstance(event, events.PluginEvent)]
    assert [kind for kind in reported.payload if kind in {"prompt_received", "request_start"}] == [
        "prompt_received",
        "request_start",
    ]


class Hiding:
    """A filter that waits for whole words, and hides one."""

    def __init__(self):
        """Hold nothing back."""
        self.held = ""

    def feed(self, text):
        """Return the whole words."""
        if "burst" in text:
            raise ValueError("burst")
        words, mark, self.held = (self.held + text).rpartition(" ")
        return (words + mark).replace(SECRET, "***")

    def close(self):
        """Return the rest."""
        return self.held.replace(SECRET, "***")


class Hider(cmdc.Plugin):
    """Hides a word wherever the model says or thinks it."""

    def filter_output(self, channel, context):
        """Filter both."""
        return Hiding()


def streamed(found, kind):
    """Return the text of the deltas of a kind."""
    return "".join(event.delta for event in found if isinstance(event, kind))


def test_a_plugin_changes_what_is_said_before_anybody_sees_it(agent, scripted, events_until):
    """Cut anywhere, in text and in thoughts; what is kept is what was shown."""
    model = scripted(
        (Thinking("the swordfish", chunk_chars=3), Text("It is swordfish now", chunk_chars=4))
    )
    session = agent(model, plugins=[Hider])
    with session.subscribe() as stream:
        reply = session.run("Go.", timeout=TURN_S)
        found = events_until(stream, "agent_end")

    assert reply.text == "It is *** now"
    assert streamed(found, events.MessageDelta) == "It is *** now"
    assert streamed(found, events.ThinkingDelta) == "the ***"
    assert SECRET not in str(session.messages())


@pytest.mark.parametrize("fail", ["open", "closed"])
def test_a_filter_that_breaks(agent, scripted, events_until, fail):
    """The answer ends there where the plugin fails closed; else it passes as it is."""
    model = scripted(("all is well ", "burst ", SECRET))
    plugin = type("Hider", (Hider,), {"fail": fail})
    session = agent(model, plugins=[plugin])
    with session.subscribe() as stream:
        session.prompt("Go.")
        found = events_until(stream, "agent_end" if fail == "open" else "agent_abort")

    (crash,) = [event for event in found if isinstance(event, events.PluginCrashed)]
    assert (crash.plugin, crash.hook) == ("hider", "filter_output")
    shown = streamed(found, events.MessageDelta)
    if fail == "open":
        assert shown == f"all is well burst {SECRET}"
    else:
        assert shown == "all is well "
        assert "burst" in found[-1].reason
        last = session.messages()[-1]
        assert (last.content, last.metadata["interrupted"]) == ("all is well ", True)
    assert session.status().state == "idle"
