"""Plugins that come, change and go while a session lives: as a whole, and for good."""

import asyncio
import os
import signal

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import aio
from cmdc_runtime.testing import ToolCalls, ToolUse

pytestmark = pytest.mark.process

TURN_S = 20.0


class Counting(cmdc.Plugin):
    """Says to the model how many prompts it has heard."""

    class Config(msgspec.Struct, frozen=True):
        """The word to count with."""

        word: str = "prompt"

    class State(msgspec.Struct):
        """How many."""

        seen: int = 0

    def session_start(self, event, context):
        """Say so; a rude word is refused."""
        if self.config.word == "rude":
            return cmdc.Abort("mind your words")
        return cmdc.Emit("counting_started", {"word": self.config.word})

    def before_prompt(self, event, context):
        """Count."""
        self.state.seen += 1
        return cmdc.Intervene(f"{self.config.word} {self.state.seen}")


def newest(model):
    """Return what the latest request ends with."""
    return model.requests[-1]["messages"][-1]["content"]


def test_a_plugin_is_attached_updated_and_detached(agent, scripted, events_until):
    """From the next hook on; an update keeps what the plugin knows, a detachment forgets it."""
    model = scripted(*["done"] * 5)
    session = agent(model)
    with session.subscribe() as stream:
        assert session.attach_plugin(Counting) == "counting"
        found = events_until(stream, "plugin_event", "counting_started")
        assert [event.kind for event in found[-2:]] == ["plugin_attached", "plugin_event"]
        session.run("One.", timeout=TURN_S)
        assert newest(model) == "prompt 1"

        assert session.update_plugin(Counting(word="number")) == "counting"
        session.run("Two.", timeout=TURN_S)
        assert newest(model) == "number 2"

        session.detach_plugin("counting")
        session.run("Three.", timeout=TURN_S)
        assert newest(model) == "Three."
        kinds = [event.kind for event in events_until(stream, "plugin_detached")]
        assert "plugin_updated" in kinds

    session.attach_plugin(Counting)
    session.run("Four.", timeout=TURN_S)
    assert newest(model) == "prompt 1"


def test_what_was_attached_is_there_after_a_crash(agent, scripted, client, poll):
    """With its options, its code and its state."""
    model = scripted("done", "done")
    session = agent(model)
    session.attach_plugin((Counting, {"word": "try"}))
    session.run("One.", timeout=TURN_S)
    os.kill(session.agent_pid(), signal.SIGKILL)
    assert poll(lambda: client.status(session).incarnation == 2)
    session.run("Two.", timeout=TURN_S)

    assert newest(model) == "try 2"


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda s: s.attach_plugin(Counting), cmdc.AlreadyAttached, "'counting'"),
        (lambda s: s.attach_plugin("cost_gard"), cmdc.InvalidOptions, "cost_gard"),
        (lambda s: s.attach_plugin(7), cmdc.InvalidOptions, "7 is no plugin"),
        (lambda s: s.update_plugin((Counting, {"word": "rude"})), cmdc.InvalidOptions, "mind your"),
        (lambda s: s.update_plugin((Counting, {"wrd": 1})), cmdc.InvalidOptions, "'wrd'"),
        (lambda s: s.update_plugin("cost_guard"), cmdc.PluginNotFound, "plugins: counting"),
        (lambda s: s.detach_plugin("gone"), cmdc.PluginNotFound, "'gone'"),
    ],
    ids=["twice", "unknown", "no plugin", "refused", "option", "no update", "not there"],
)
def test_what_cannot_be_changed_stays(agent, scripted, change, error, text):
    """The error names what is wrong, and the plugins go on as they were."""
    model = scripted("done")
    session = agent(model, plugins=[Counting])
    with pytest.raises(error, match=text):
        change(session)
    session.run("Go.", timeout=TURN_S)

    assert newest(model) == "prompt 1"


def test_a_subagent_has_the_plugins_of_now(agent, scripted):
    """A guard that came later guards below, too."""
    task = ToolCalls(ToolUse("task", {"description": "Dig.", "subagent_type": "digger"}))
    model = scripted(task, "dug", "done")
    digger = cmdc.SubAgent("digger", "Digs.")
    session = agent(model, tools=[cmdc.tools.Task], subagents=[digger])
    session.attach_plugin(Counting)
    session.run("Go.", timeout=TURN_S)

    assert model.requests[1]["messages"][-1]["content"] == "prompt 1"


def test_coroutines_do_the_same(cmdc_daemon, scripted):
    """The calls of ``aio`` are those of the session."""
    model = scripted("done")

    async def scenario():
        async with cmdc.AsyncClient(cmdc_daemon.address) as client:
            session = await client.create_agent(model=model)
            try:
                named = await session.attach_plugin(Counting)
                await session.update_plugin((Counting, {"word": "x"}))
                await session.run("Go.", timeout=TURN_S)
                await session.detach_plugin(named)
            finally:
                await session.stop()

    asyncio.run(scenario())

    assert newest(model) == "x 1"
    assert {aio.attach_plugin.__name__, aio.detach_plugin.__name__} == {
        "attach_plugin",
        "detach_plugin",
    }
