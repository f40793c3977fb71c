"""What commands bring is opened one command at a time, and each step is reported meanwhile."""

import asyncio
import threading

import pytest

from cmdc_runtime.commands import AttachPlugin, AttachTools
from cmdc_runtime.extensions import Tool
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.heartbeats import packed_step
from cmdc_runtime.packed_code import Packed, digest_of
from workers.performers.plugin_port import PluginLoader
from workers.performers.toolbox import CodeOpener, Toolbox
from workers.pipeline import Pipeline

ONE, TWO, GREETED = (
    Packed(kind="ref", label=name, ref=f"{__name__}:{name}") for name in ("One", "Two", "Greeted")
)
STEPS = {packed_step(digest_of(one)): one.label for one in (ONE, TWO, GREETED)} | {0: ""}
reported = []
"""Of each step its packed code, "" for none, and of each code what it does."""


class One(Tool):
    """A tool whose making and description are noted."""

    name = "one"

    def __init__(self):
        reported.append("made")

    def describe(self, tool_context):
        reported.append("described")
        return "It."

    def execute(self, arguments, context):
        return ""


class Two(One):
    """Another one."""

    name = "two"


class Greeted(Plugin):
    """A plugin whose greeting is noted."""

    def session_start(self, event, context):
        reported.append("greeted")


@pytest.fixture(autouse=True)
def _reported():
    reported.clear()


def opener():
    return CodeOpener(lambda step: reported.append(STEPS[step]))


def test_packed_code_is_at_its_step_while_its_code_runs():
    """Its making in a thread and its description in the loop; nothing is reported behind that."""
    box = Toolbox([], lambda _result: reported.append("posted"), opener())
    asyncio.run(box.load("c", AttachTools(tools=(ONE, TWO))))

    each = ["made", "described", ""]
    assert reported == ["One", *each, "Two", *each, "posted"]


def test_a_plugin_is_at_its_step_until_it_is_greeted():
    """Its command has no answer before."""
    pipeline = Pipeline((), lambda: PluginContext(session_id="s"))
    box = PluginLoader(pipeline, lambda _result: reported.append("posted"), opener())
    asyncio.run(box.load("c", AttachPlugin(plugin=GREETED)))

    assert reported == ["Greeted", "greeted", "", "posted"]


def test_what_cannot_be_opened_is_over():
    """The step does not stay for what comes behind it."""
    gone = Packed(kind="ref", label="gone", ref="no_such_module:x")
    steps = []
    box = Toolbox([], lambda _result: None, CodeOpener(steps.append))
    asyncio.run(box.load("c", AttachTools(tools=(gone,))))

    assert steps == [packed_step(digest_of(gone)), 0]


def test_a_command_waits_for_the_one_before_it():
    """One piece of packed code is to blame for a death, of whatever kind."""
    go = threading.Event()

    async def first(one, is_in):
        async with one.turn():
            with one.step(ONE):
                is_in.set()
                await one.run(lambda: go.wait(10.0))

    async def second(one):
        async with one.turn():
            with one.step(TWO):
                reported.append("second")

    async def scenario():
        one, is_in = opener(), asyncio.Event()
        waiting = [asyncio.create_task(first(one, is_in))]
        await is_in.wait()
        waiting.append(asyncio.create_task(second(one)))
        await asyncio.wait([waiting[1]], timeout=0.01)
        before = list(reported)
        go.set()
        await asyncio.gather(*waiting)
        return before

    before = asyncio.run(scenario())

    assert before == ["One"]
    assert reported == ["One", "", "Two", "second", ""]


def test_who_is_cancelled_leaves_its_turn():
    """A thread that never returns holds up nobody longer than its command."""
    go = threading.Event()

    async def stuck(one):
        async with one.turn():
            with one.step(ONE):
                await one.run(lambda: go.wait(10.0))

    async def scenario():
        one = opener()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await stuck(one)
        async with one.turn():
            reported.append("mine")
        go.set()

    asyncio.run(scenario())

    assert reported == ["One", "", "mine"]
