"""The prompt cache: what is marked for whom and unmarked, and that it reports changes alone."""

import msgspec
import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions.actions import Emit
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import BeforeRequest
from cmdc_runtime.messages import Message, ToolCall
from workers.builtin.plugins.prompt_cache import PromptCache

CLAUDE = "anthropic:claude-sonnet-4-5"
MARK = {"cache_control": {"type": "ephemeral"}}
UNMARK = {"cache_control": None}
LONG = "word " * 80
"""100 tokens, as they are estimated."""


def said(role, id_, content="x", **more):
    return Message(id=id_, role=role, content=content, **more)


def calls(id_, *call_ids, content=""):
    made = tuple(ToolCall(call_id=one, name="read") for one in call_ids)
    return said("assistant", id_, content, tool_calls=made)


def result(id_, call_id, content="text"):
    return said("tool_result", id_, content, call_id=call_id)


CHAT = (said("user", "u1", LONG), said("assistant", "a1"), said("user", "u2"))
ROUNDS = (
    said("user", "u1", LONG),
    calls("a1", "c1", "c2"),
    result("r1", "c1"),
    result("r2", "c2"),
    calls("a2", "c3", content="More."),
    result("r3", "c3"),
    said("assistant", "a3"),
    said("user", "u2"),
    calls("a4", "c4"),
    result("r4", "c4"),
    result("r5", "c5"),
)


def ask(plugin, messages, model=CLAUDE):
    """Return what changes before a request: metadata by the id of the message."""
    context = PluginContext(session_id="s-1", model=model, messages=tuple(messages))
    emitted = plugin.before_request(BeforeRequest(()), context)
    if emitted is None:
        return {}
    assert isinstance(emitted, Emit)
    return {update.id: update.metadata for update in emitted.name.updates}


def after(messages, changes):
    """Return the conversation as the session has it when the order is carried out."""
    merged = [message.metadata | changes.get(message.id, {}) for message in messages]
    return tuple(
        msgspec.structs.replace(
            message, metadata={key: value for key, value in noted.items() if value is not None}
        )
        for message, noted in zip(messages, merged, strict=True)
    )


@pytest.mark.parametrize(
    ("messages", "points", "marked"),
    [
        (CHAT, 1, {"m-0"}),
        (CHAT, 2, {"m-0", "u2"}),
        (CHAT, 3, {"m-0", "u2"}),
        (CHAT, 4, {"m-0", "u2"}),
        (ROUNDS, 1, {"m-0"}),
        (ROUNDS, 2, {"m-0", "u2"}),
        (ROUNDS, 3, {"m-0", "u2", "r2"}),
        (ROUNDS, 4, {"m-0", "u2", "r2", "r5"}),
        (ROUNDS[:6], 4, {"m-0", "u1", "r2", "r3"}),
        (ROUNDS[:4], 4, {"m-0", "u1", "r2"}),
        (ROUNDS[:3], 4, {"m-0", "u1", "r1"}),
        (ROUNDS[:2], 4, {"m-0", "u1"}),
        ((), 4, {"m-0"}),
    ],
)
def test_the_most_important_are_marked(messages, points, marked):
    """System prompt, last user message, end of the first round, latest result: in this order."""
    found = ask(PromptCache(max_cache_points=points), messages)

    assert found == dict.fromkeys(marked, MARK)


@pytest.mark.parametrize(
    ("min_tokens", "marked"),
    [(0, {"u2", "r2"}), (100, {"u2", "r2"}), (110, {"u2"}), (10_000, set())],
)
def test_what_is_too_short_is_not_marked(min_tokens, marked):
    """The conversation up to the end of the message counts; the system prompt is not measured."""
    messages = [*ROUNDS[:4], said("assistant", "a2", LONG), said("user", "u2")]
    found = ask(PromptCache(min_tokens=min_tokens), messages)

    assert found == dict.fromkeys({"m-0", *marked}, MARK)


def test_arguments_of_calls_count_as_length():
    """They are part of what is sent."""
    call = ToolCall(call_id="c1", name="write", arguments={"content": LONG})
    messages = [
        said("user", "u1"),
        said("assistant", "a1", "", tool_calls=(call,)),
        result("r1", "c1"),
    ]

    assert ask(PromptCache(), messages) == {"m-0": MARK, "r1": MARK}


def test_a_message_without_text_cannot_be_marked():
    """The one before it is; a round that ends with an empty result ends before it."""
    messages = [*ROUNDS[:3], result("r2", "c2", ""), said("user", "u2", "")]

    assert set(ask(PromptCache(), messages)) == {"m-0", "u1", "r1"}


@pytest.mark.parametrize(
    ("model", "is_marked"),
    [
        ("anthropic:claude-sonnet-4-5", True),
        ("anthropic/claude-sonnet-4-5", True),
        ("claude-sonnet-4-5", True),
        ("bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0", True),
        ("bedrock/anthropic.claude-3-7-sonnet-20250219-v1:0", True),
        ("bedrock:converse/anthropic.claude-3-7-sonnet-20250219-v1:0", True),
        ("vertex_ai:claude-sonnet-4-5@20250929", True),
        ("openrouter:anthropic/claude-sonnet-4.5", True),
        ("openrouter/anthropic/claude-sonnet-4.5:beta", True),
        ("openai:gpt-4o", False),
        ("openai/claude-behind-a-proxy", False),
        ("gemini:gemini-2.5-flash", False),
        ("vertex_ai:gemini-2.5-flash", False),
        ("openrouter:openai/gpt-4o", False),
        ("bedrock:amazon.nova-pro-v1:0", False),
        ("ollama/llama3:8b", False),
        ("", False),
    ],
)
def test_it_is_for_claude(model, is_marked):
    """However the model is written and whoever serves it, as far as marks get there."""
    assert bool(ask(PromptCache(), CHAT, model)) is is_marked


def test_nothing_is_ordered_where_nothing_changes():
    """Each order is kept in the journal, so the second request of a turn costs none."""
    plugin = PromptCache()
    marked = after(ROUNDS, ask(plugin, ROUNDS))

    assert plugin.state.is_system_marked
    assert ask(plugin, marked) == {}


def test_marks_move_with_the_conversation():
    """Those that are no longer wanted go, so that there are never too many."""
    plugin = PromptCache()
    messages = after(ROUNDS[:6], ask(plugin, ROUNDS[:6]))
    messages = (*messages, *ROUNDS[6:])

    assert ask(plugin, messages) == {"u1": UNMARK, "u2": MARK}
    assert ask(plugin, after(messages, {"u1": UNMARK, "u2": MARK})) == {}


def test_marks_of_others_go_too():
    """All marks together may not be more than there can be; another kind of mark is left."""
    other = {"cache_control": {"type": "ephemeral", "ttl": "1h"}, "seen": 1}
    messages = (
        msgspec.structs.replace(CHAT[0], metadata=other),
        CHAT[1],
        msgspec.structs.replace(CHAT[2], metadata=other),
    )

    assert ask(PromptCache(), messages) == {"m-0": MARK, "u1": UNMARK}


def test_another_model_leaves_the_marks():
    """They are not sent to it, and are there when Claude is back."""
    plugin = PromptCache()
    marked = after(CHAT, ask(plugin, CHAT))

    assert ask(plugin, marked, "openai:gpt-4o") == {}
    assert ask(plugin, marked) == {}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_cache_points": 0}, "'max_cache_points': Expected `int` >= 1"),
        ({"max_cache_points": 5}, "'max_cache_points': Expected `int` <= 4"),
        ({"min_tokens": -1}, "'min_tokens': Expected `int` >= 0"),
        ({"points": 3}, "there is no option 'points'"),
    ],
)
def test_bad_options_are_named(options, problem):
    """Each with its bound."""
    with pytest.raises(InvalidOptions, match=problem):
        PromptCache(**options)


def test_defaults():
    """Three marks, behind 100 tokens."""
    config = PromptCache().config

    assert (config.max_cache_points, config.min_tokens) == (3, 100)
