"""Hooks: their names, and that the contract's parts name the same ones."""

import dataclasses

import pytest

from cmdc_runtime.exports import MODULE_OF
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import HOOKS, BeforePrompt, BeforeTool, Hook
from cmdc_runtime.extensions.plugin import Plugin

NAMES = {
    "session_start": (),
    "session_end": (),
    "after_turn": (
        "outcome",
        "abort_reason",
        "messages_diff",
        "token_usage_diff",
        "started_at_ms",
        "ended_at_ms",
        "duration_ms",
    ),
    "before_prompt": ("text",),
    "before_request": ("messages",),
    "after_response": ("message",),
    "before_tool": ("name", "call_id", "args"),
    "on_tool_error": ("name", "call_id", "error", "attempt"),
    "after_tool": ("name", "call_id", "result", "is_error"),
    "after_tool_batch": ("results",),
    "before_finish": (),
    "before_compact": ("messages",),
    "before_steering": ("text",),
}


def test_hooks_are_those_of_the_contract():
    """There are 13 hooks with the fields that the contract names, and none is forgotten."""
    assert {kind: hook.__struct_fields__ for kind, hook in HOOKS.items()} == NAMES
    assert set(HOOKS.values()) == set(Hook.__subclasses__())


def test_every_hook_has_a_method():
    """The method that hears a hook has the hook's name."""
    assert [kind for kind in HOOKS if not callable(getattr(Plugin, kind, None))] == []


def test_every_hook_is_given_out():
    """A plugin's author names the class in annotations: it needs its name in ``exports.py``."""
    assert [hook for hook in HOOKS.values() if hook.__name__ not in MODULE_OF] == []


def test_kind_is_not_the_name_of_the_tool():
    """A hook about a tool has the tool's name in ``name`` and its own in ``kind``."""
    hook = BeforeTool("shell", "call_1", {})

    assert (hook.kind, hook.name) == ("before_tool", "shell")


def test_hooks_and_context_are_frozen():
    """Nobody changes what the next plugin gets."""
    with pytest.raises(AttributeError):
        BeforePrompt("hi").text = "bye"
    with pytest.raises(dataclasses.FrozenInstanceError):
        PluginContext(session_id="s-1").turn = 2
