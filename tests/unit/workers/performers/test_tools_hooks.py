"""Plugins and one call: what they say before it, at its failures and after it."""

import asyncio

import pytest

from cmdc_runtime.extensions.actions import (
    Abort,
    BlockTool,
    Emit,
    Intervene,
    ReplaceToolArgs,
    ReplaceToolResult,
)
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterTool, BeforeTool, OnToolError
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.messages import ToolCall
from workers.core.inputs import PluginsAborted, PluginsReported, ToolRefused
from workers.core.verdict import Aborted, Verdict
from workers.performers.tools import AllowedCall, ToolHooks
from workers.pipeline import Pipeline
from workers.toolhost.wire import Refused, Returned

CALL = ToolCall(call_id="a", name="tool", arguments={"x": 1})
WORK = 7


class Saying(Plugin):
    """Answers each hook of a call with the same actions, and remembers what it heard."""

    def __init__(self, *actions):
        super().__init__()
        self.actions, self.heard = list(actions), []

    async def before_tool(self, event, _context):
        self.heard.append(event)
        return self.actions

    async def on_tool_error(self, event, _context):
        self.heard.append(event)
        return self.actions

    async def after_tool(self, event, _context):
        self.heard.append(event)
        return self.actions


def ask(plugin, method, *arguments):
    """Return what the hooks make of it, and what they posted."""
    posted = []
    pipeline = Pipeline([plugin], lambda: PluginContext(session_id="s"))
    hooks = ToolHooks(pipeline, posted.append)
    found = asyncio.run(getattr(hooks, method)(WORK, CALL, *arguments))
    return found, [drop_time(one) for one in posted]


def drop_time(posted):
    """Return a result with the time that it had, which no test knows, left out."""
    if isinstance(posted, ToolRefused):
        return (ToolRefused, posted.work, posted.call_id, posted.reason)
    if isinstance(posted, PluginsAborted):
        return (PluginsAborted, posted.work, posted.abort)
    return posted


ENDED = Returned(text="one")
FAILED = Refused(text="Error: no")
ASKED = [("before", ()), ("failed", (FAILED, 2)), ("after", (ENDED,))]


@pytest.mark.parametrize("plugins", [None, Pipeline([], lambda: None)], ids=["none", "empty"])
def test_without_plugins_a_call_goes_its_way(plugins):
    """Nothing is posted."""
    posted = []
    hooks = ToolHooks(plugins, posted.append)

    assert asyncio.run(hooks.before(WORK, CALL)) == AllowedCall(CALL)
    assert asyncio.run(hooks.failed(WORK, CALL, FAILED, 1)) is True
    assert asyncio.run(hooks.after(WORK, CALL, ENDED)) is ENDED
    assert posted == []


@pytest.mark.parametrize(
    ("method", "arguments", "event"),
    [
        ("before", (), BeforeTool("tool", "a", {"x": 1})),
        ("failed", (FAILED, 2), OnToolError("tool", "a", "Error: no", 2)),
        ("after", (ENDED,), AfterTool("tool", "a", "one", is_error=False)),
        ("after", (FAILED,), AfterTool("tool", "a", "Error: no", is_error=True)),
    ],
)
def test_plugins_hear_of_the_call(method, arguments, event):
    """With what there is to know at that point."""
    plugin = Saying()
    _, posted = ask(plugin, method, *arguments)

    assert (plugin.heard, posted) == ([event], [])


@pytest.mark.parametrize(("method", "arguments"), ASKED)
def test_an_abort_ends_the_call_for_the_runner(method, arguments):
    """The tables read by whom and why."""
    found, posted = ask(Saying(Abort("no")), method, *arguments)

    assert not found
    assert posted == [(PluginsAborted, WORK, Aborted("saying", "no"))]


@pytest.mark.parametrize(("method", "arguments"), ASKED)
def test_what_plugins_say_besides_is_posted_first(method, arguments):
    """With the batch that it is about; the decision itself is not in it."""
    _, posted = ask(Saying(Emit("news", 1), Abort("no")), method, *arguments)

    assert posted[0] == PluginsReported(Verdict(emitted=(("news", 1),)), WORK)
    assert len(posted) == 2


def test_a_blocked_call_is_refused():
    """The tables say why to the model."""
    found, posted = ask(Saying(BlockTool("not here")), "before")

    assert found is None
    assert posted == [(ToolRefused, WORK, "a", "not here")]


def test_a_call_gets_other_arguments():
    """They take the place even of those that were no JSON."""
    found, posted = ask(Saying(ReplaceToolArgs({"x": 2})), "before")

    found = found.call
    assert (found.arguments, found.malformed, found.call_id) == ({"x": 2}, None, "a")
    assert posted == []


@pytest.mark.parametrize("ending", [ENDED, FAILED], ids=["returned", "failed"])
def test_the_model_reads_another_result(ending):
    """A failure stays a failure, and what came with a result stays with it."""
    found, _ = ask(Saying(ReplaceToolResult("two")), "after", ending)

    assert (type(found), found.text) == (type(ending), "two")


def test_the_effect_of_a_tool_stays_with_another_result():
    """The plugin has changed what the model reads, and nothing else."""
    found, _ = ask(Saying(ReplaceToolResult("two")), "after", Returned(text="1", effect=("e", 1)))

    assert (found.text, found.effect) == ("two", ("e", 1))


@pytest.mark.parametrize(
    ("ending", "is_error", "found"),
    [
        (Returned(text="1", effect=("e", 1)), True, Refused(text="two")),
        (Returned(text="1", effect=("e", 1)), False, Returned(text="two", effect=("e", 1))),
        (FAILED, False, Returned(text="two")),
        (FAILED, True, Refused(text="two")),
    ],
    ids=["now failed", "still fine", "now fine", "still failed"],
)
def test_a_plugin_says_whether_a_call_failed(ending, is_error, found):
    """What a failed call wanted besides its text is not done."""
    assert ask(Saying(ReplaceToolResult("two", is_error)), "after", ending)[0] == found


def test_words_for_the_model_are_posted_with_the_result():
    """The call goes on."""
    found, posted = ask(Saying(Intervene("mind")), "after", ENDED)

    assert found is ENDED
    assert posted == [PluginsReported(Verdict(interventions=("mind",)), WORK)]
