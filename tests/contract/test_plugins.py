"""One contract over all built-in plugins: a new module in the folder is held to it by being there.

It needs one line in ``AGREED`` and a light reference in ``cmdc_runtime.plugins``.
"""

import asyncio
import importlib
import pkgutil

import msgspec
import pytest

from cmdc_runtime import plugins as references
from cmdc_runtime import stores
from cmdc_runtime.extensions.admission import as_plugin
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import (
    HOOKS,
    AfterResponse,
    AfterTool,
    AfterToolBatch,
    AfterTurn,
    BeforeCompact,
    BeforeFinish,
    BeforePrompt,
    BeforeRequest,
    BeforeSteering,
    BeforeTool,
    OnToolError,
    SessionEnd,
    SessionStart,
)
from cmdc_runtime.extensions.plugin import Plugin, hooks_of
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.packing import BuiltIn, pack_plugin
from workers.builtin import plugins as package
from workers.loader import load_plugins
from workers.pipeline import Pipeline

NAMES = sorted(
    module.name for module in pkgutil.iter_modules(package.__path__) if module.name[0] != "_"
)
# fmt: off
AGREED = {
    # name         priority  fail       hooks
    "auto_checkpoint": (980, "open",    {"after_turn", "session_end"}),
    "content_policy": (90,   "open",    {"before_request"}),
    "cost_guard": (120,      "closed",  {"before_request"}),
    "episodic_memory": (
        150, "open", {"after_turn", "before_prompt", "session_end", "session_start"},
    ),
    "event_logger": (990,    "open",    {"on_tool_error", "session_end", "session_start"}),
    "human_approval": (60,   "closed",  {"before_prompt", "before_tool"}),
    "large_result_offload": (300, "open", {"after_tool", "before_tool", "session_end"}),
    "memory_flush": (800,    "open",    {"before_compact"}),
    "memory_loader": (30,    "open",    {"after_tool", "before_tool", "session_start"}),
    "model_router": (110,    "open",    {"before_request"}),
    "output_filter": (900,   "closed",  {"after_response"}),
    "patch_tool_calls": (15, "open",    {"before_request"}),
    "planning": (200,        "open",    {"after_response", "before_prompt"}),
    "prompt_cache": (130,    "open",    {"before_request"}),
    "reasoning": (
        210, "open", {"after_response", "after_turn", "before_finish", "before_prompt"},
    ),
    "recovery": (350,        "open",    {"after_tool", "before_prompt", "on_tool_error"}),
    "reflection": (400,      "open",    {"after_response", "before_finish", "before_prompt"}),
    "security_guard": (10,   "closed",  {"before_tool"}),
    "skill_guard": (20,      "closed",  {"before_tool"}),
    "skills": (
        25, "closed",
        {"after_tool", "before_compact", "before_request", "before_tool", "session_start"},
    ),
    "telemetry": (995,       "open",    {"session_end"}),
}
# fmt: on
OPTIONS = {
    "episodic_memory": {"memory_store": stores.InMemory()},
    "recovery": {"backoff_base_ms": 0},  # it would wait
}
"""What plugins with required options are given here."""
MESSAGES = (Message.system("Be brief."), Message.user("hi"), Message.assistant("hello"))
RESULT = AfterTool("shell", "call_1", "ok", is_error=False)
SAMPLES = (
    SessionStart(),
    BeforePrompt("hi"),
    BeforeRequest(MESSAGES),
    AfterResponse(MESSAGES[2]),
    BeforeTool("shell", "call_1", {"command": "ls"}),
    OnToolError("shell", "call_1", "no", 1),
    RESULT,
    AfterToolBatch((RESULT,)),
    BeforeFinish(),
    BeforeCompact(MESSAGES),
    BeforeSteering("stop"),
    AfterTurn("finished", None, MESSAGES, TokenUsage(), 1, 2, 1),
    SessionEnd(),
)
CONTEXT = PluginContext(session_id="s-1", model="openai:gpt", turn=1, total_tokens=5, cost_usd=0.1)


def light_references():
    """Return the classes that applications are given, by the names of the plugins."""
    found = (thing for thing in vars(references).values() if isinstance(thing, type))
    return {
        thing.short_name: thing
        for thing in found
        if issubclass(thing, BuiltIn) and thing is not BuiltIn
    }


def class_of(name):
    """Return the class of a built-in plugin."""
    return importlib.import_module(f"{package.__name__}.{name}").create


def made(name):
    """Return the plugin as a session gets it, with its default options."""
    [plugin] = load_plugins([pack_plugin(reference(name), "plugins[0]")])
    return plugin


def reference(name):
    """Return what an application gives, with the options that the plugin can't do without."""
    return light_references()[name](**OPTIONS.get(name, {}))


def test_every_built_in_is_agreed_and_has_a_light_reference():
    """The folder, the table above and what applications are given name the same plugins."""
    assert sorted(AGREED) == NAMES
    assert sorted(light_references()) == NAMES
    assert sorted(references.__all__) == sorted(
        reference.__name__ for reference in light_references().values()
    )


def test_samples_are_every_hook():
    """There is a sample of each hook."""
    assert {sample.kind for sample in SAMPLES} == set(HOOKS)


@pytest.mark.parametrize("name", NAMES)
def test_name_and_file_agree(name):
    """The plugin is named as its module, and so as its short name, and is of the public class."""
    assert made(name).name == name
    assert issubclass(class_of(name), Plugin)


@pytest.mark.parametrize("name", NAMES)
def test_priority_failure_and_hooks_are_as_agreed(name):
    """When a plugin is asked, and what its failure means, are promises, so they stand here."""
    plugin = made(name)

    assert (plugin.priority, plugin.fail, hooks_of(plugin)) == AGREED[name]


@pytest.mark.parametrize("name", NAMES)
def test_light_reference_is_the_config(name):
    """Options, bounds and defaults stand once, and each option is one that can travel."""
    light = light_references()[name]

    assert class_of(name).Config is light
    assert made(name).config == reference(name)
    assert msgspec.json.schema(light)["$defs"][light.__name__]["properties"]


@pytest.mark.parametrize("name", NAMES)
def test_short_name_and_options_are_enough(name):
    """A plugin may be given by its short name, as by its reference."""
    [plugin] = load_plugins([pack_plugin((name, OPTIONS.get(name, {})), "plugins[0]")])

    assert as_plugin(plugin).config == made(name).config


@pytest.mark.parametrize("name", NAMES)
def test_every_hook_is_survived(name, tmp_path, monkeypatch):
    """With its default options a plugin answers each hook it hears, as its hook allows."""
    monkeypatch.chdir(tmp_path)  # where a plugin may write
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")  # nothing is sent anywhere
    pipeline = Pipeline([made(name)], lambda: CONTEXT)

    async def run_all():
        return [await pipeline.run(sample) for sample in SAMPLES]

    verdicts = asyncio.run(run_all())

    assert [verdict.crashed for verdict in verdicts] == [()] * len(SAMPLES)
    assert [verdict.ignored for verdict in verdicts] == [()] * len(SAMPLES)


@pytest.mark.parametrize("name", NAMES)
def test_plugin_says_what_it_does(name):
    """A person reads in the reference what the plugin does, and in the class how."""
    assert light_references()[name].__doc__
    assert class_of(name).__doc__
