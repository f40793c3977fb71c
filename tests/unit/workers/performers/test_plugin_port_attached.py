"""Plugins that come while a session lives: opened in a thread, greeted, and put in their place."""

import asyncio
import threading

import msgspec
import pytest
from structlog.testing import capture_logs

from cmdc_runtime.commands import AttachPlugin
from cmdc_runtime.extensions.actions import Abort, Emit, Intervene
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import BeforePrompt
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.packing import pack_plugin
from workers.core.inputs import PluginLoaded
from workers.core.state import PluginFacts
from workers.core.step import ChangePlugins
from workers.performers import plugin_port as module
from workers.performers.plugin_port import PluginLoader
from workers.pipeline import Pipeline

CONTEXT = PluginContext(session_id="s-1")
PROMPT = BeforePrompt("go")
GATE = threading.Event()
WAIT_S = 10.0


class Saying(Plugin):
    fail = "open"
    """Says a word and how often it has."""

    class Config(msgspec.Struct, frozen=True):
        word: str = "hi"
        mood: str = "good"

    class State(msgspec.Struct):
        said: int = 0

    def session_start(self, event, context):
        match self.config.mood:
            case "bad":
                return Abort("not today")
            case "broken":
                raise ValueError("oh")
            case "eager":
                self.state.said += 10
        return Emit("here", self.config.word)

    def before_prompt(self, event, context):
        self.state.said += 1
        return Intervene(f"{self.config.word} {self.state.said}")


class Late(Plugin):
    """Takes its time to be made."""

    def __init__(self):
        super().__init__()
        if threading.current_thread() is not threading.main_thread():
            GATE.wait(WAIT_S)

    def before_prompt(self, event, context):
        """Say nothing."""


def packed(mood="good", word="hi"):
    return pack_plugin((Saying, {"word": word, "mood": mood}), "plugin")


class Bench:
    """A pipeline, its box, and what is posted; a plugin that is loaded is taken if it may be."""

    def __init__(self, *plugins, takes=True):
        self.pipeline = Pipeline(plugins, lambda: CONTEXT)
        self.posted, self.takes = [], takes
        self.box = PluginLoader(self.pipeline, self.post)

    def post(self, result):
        self.posted.append(result)
        wanted = self.takes and result.plugin is not None and result.verdict.abort is None
        self.box.change(ChangePlugins(result.id, wanted, ()))

    async def load(self, packed, command_id="c"):
        await self.box.load(command_id, AttachPlugin(plugin=packed))
        return self.posted[-1]

    async def said(self):
        return (await self.pipeline.run(PROMPT)).interventions


def run(work):
    with capture_logs():
        return asyncio.run(work)


def test_a_plugin_is_greeted_and_then_asked():
    """What it said at its start comes with it."""

    async def scenario():
        bench = Bench()
        before = await bench.said()
        loaded = await bench.load(packed())
        return before, loaded, await bench.said()

    before, loaded, after = run(scenario())
    assert isinstance(loaded, PluginLoaded)
    assert loaded.plugin == PluginFacts(
        "saying", frozenset({"session_start", "before_prompt"}), loaded.command.plugin
    )
    assert loaded.verdict.emitted == (("here", "hi"),)
    assert (before, after) == ((), ("hi 1",))


@pytest.mark.parametrize("mood", ["bad", "broken"])
def test_who_fails_at_the_start_says_so(mood):
    """An abort refuses; a crash of one that fails open is reported with it."""

    async def scenario():
        bench = Bench()
        return await bench.load(packed(mood)), await bench.said()

    loaded, said = run(scenario())
    if mood == "bad":
        assert loaded.verdict.abort.reason == "not today"
        assert said == ()
    else:
        assert loaded.verdict.crashed == (("saying", "session_start", "ValueError: oh"),)
        assert said == ("hi 1",)


def test_what_cannot_be_opened_is_a_problem():
    """The text names it."""

    async def scenario():
        return await Bench().load(Packed(kind="ref", label="x", ref="no_such_module:x"))

    loaded = run(scenario())
    assert loaded.plugin is None
    assert "no_such_module" in loaded.problem


def test_what_takes_too_long_to_open_is_a_problem(monkeypatch):
    """The session goes on."""
    monkeypatch.setattr(module, "LOAD_S", 0.02)

    async def scenario():
        return await Bench().load(Packed(kind="ref", label="late", ref=f"{__name__}:Late"))

    try:
        loaded = run(scenario())
    finally:
        GATE.set()
    assert loaded.problem == "late: not loaded within 0.02 s"


@pytest.mark.parametrize(("mood", "said"), [("good", "ho 2"), ("eager", "ho 12")])
def test_an_update_goes_on_with_what_the_old_one_knew(mood, said):
    """What it learnt while the new one was greeted too, unless that changed it itself."""

    async def scenario():
        bench = Bench(Saying())
        await bench.said()
        await bench.load(packed(mood, "ho"))
        return await bench.said()

    assert run(scenario()) == (said,)


def test_what_is_refused_is_not_asked():
    """The tables said no."""

    async def scenario():
        bench = Bench(takes=False)
        await bench.load(packed())
        return await bench.said()

    assert run(scenario()) == ()


def test_a_detached_plugin_is_asked_no_more():
    """Nor is it in the hooks."""

    async def scenario():
        bench = Bench(Saying())
        bench.box.change(ChangePlugins("c", attached=False, detached=("saying",)))
        return await bench.said(), bench.pipeline.hooks

    assert run(scenario()) == ((), frozenset())
