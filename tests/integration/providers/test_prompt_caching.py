"""Marks for Anthropic's prompt cache, from the plugin that asks for them to the wire and back."""

import json

import msgspec
import pytest

from cmdc_runtime.extensions.actions import SYSTEM_MESSAGE_ID
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import BeforeRequest
from cmdc_runtime.extensions.provider import TextChunk, ToolSpec
from cmdc_runtime.messages import Message, ToolCall
from workers.builtin.plugins.prompt_cache import PromptCache

MARK = {"type": "ephemeral"}
READ = ToolSpec(name="read", description="Read.", parameters={"type": "object", "properties": {}})
CALLS = (
    ToolCall(call_id="c1", name="read", arguments={"path": "a"}),
    ToolCall(call_id="c2", name="read", arguments={"path": "b"}),
)
ROUNDS = (
    Message.user("look " * 100),
    Message.assistant("Looking.", CALLS),
    Message.tool_result("c1", "text of a"),
    Message.tool_result("c2", "text of b"),
    Message.assistant("Both are text."),
    Message.user("and c?"),
    Message.assistant("", (ToolCall(call_id="c3", name="read", arguments={"path": "c"}),)),
    Message.tool_result("c3", "text of c"),
)


def noted(messages, **options):
    """Return the fields of a request whose messages and system prompt the plugin has marked."""
    context = PluginContext(
        session_id="s-1", model="anthropic:claude-sonnet-4-5", messages=messages
    )
    emitted = PromptCache(**options).before_request(BeforeRequest(messages), context)
    [(_, order)] = emitted.events()
    metadata = {update.id: update.metadata for update in order["updates"]}
    return {
        "system": "Be brief.",
        "system_metadata": metadata.get(SYSTEM_MESSAGE_ID, {}),
        "messages": tuple(
            msgspec.structs.replace(one, metadata=metadata.get(one.id, {})) for one in messages
        ),
        "tools": (READ,),
    }


@pytest.fixture
def sent(ask, llmock):
    """Send a request; return its body as it came over the wire."""

    def sent_(wire, **fields):
        llmock.plan({"type": "reply", "text": "fine"})
        chunks, failure = ask(llmock, wire, **fields)
        assert failure is None
        assert TextChunk(text="fine") in chunks
        return llmock.seen()[-1]

    return sent_


def test_anthropic_gets_the_marks_in_its_blocks(sent):
    """The system prompt, the last user's block, the end of the first round, and nothing else."""
    body = sent("anthropic", **noted(ROUNDS))
    first, _, results, _, last, _, latest = body["messages"]

    assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": MARK}]
    assert last["content"] == [{"type": "text", "text": "and c?", "cache_control": MARK}]
    assert results["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": "text of a"},
        {
            "type": "tool_result",
            "tool_use_id": "c2",
            "content": "text of b",
            "cache_control": MARK,
        },
    ]
    assert "cache_control" not in json.dumps([first, latest])
    assert json.dumps(body).count("cache_control") == 3


@pytest.mark.parametrize("points", [1, 2, 3, 4])
def test_there_are_as_many_marks_as_allowed(sent, points):
    """Never more; the fourth is the latest result."""
    body = sent("anthropic", **noted(ROUNDS, max_cache_points=points))

    assert json.dumps(body).count("cache_control") == points
    assert ("cache_control" in json.dumps(body["messages"][-1])) is (points == 4)


@pytest.mark.parametrize("wire", ["openai", "gemini"])
def test_others_get_none(sent, wire):
    """The very same messages, after a switch of the model, go out without a trace of it."""
    body = json.dumps(sent(wire, **noted(ROUNDS)))

    assert "cache" not in body.lower()
    assert "text of b" in body
