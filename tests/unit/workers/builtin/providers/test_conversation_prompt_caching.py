"""Which models are sent marks for Anthropic's cache, and which messages get one.

The providers' own transformations in litellm show what becomes of a mark; that of Anthropic is seen
on the wire by ``tests/integration/providers/test_prompt_caching.py``.
"""

import importlib
import json

import pytest

from cmdc_runtime.extensions.provider import ModelRequest, ToolSpec
from cmdc_runtime.messages import Message, ToolCall
from workers.builtin.providers import _conversation
from workers.builtin.providers._conversation import MARKS_MAX, PROVIDERS, marked, takes_marks

pytestmark = [
    # litellm and pydantic disagree about each other's newest versions; both work.
    pytest.mark.filterwarnings("ignore:Items? .* `ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]
MARK = {"type": "ephemeral"}
NOTED = {"cache_control": MARK}
SERVED = {
    "anthropic": "claude-sonnet-4-5",
    "azure_ai": "claude-sonnet-4-5",
    "bedrock": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "databricks": "databricks-claude-sonnet-4-5",
    "openrouter": "anthropic/claude-sonnet-4.5",
    "vertex_ai": "claude-sonnet-4-5@20250929",
}
CALL = ToolCall(call_id="c1", name="read", arguments={})
READ = ToolSpec(name="read", description="Read.", parameters={"type": "object", "properties": {}})


@pytest.fixture(scope="module")
def adapter():
    """Import the adapter, which takes seconds."""
    return importlib.import_module("workers.builtin.providers.litellm")


def conversation(model):
    """Return a request in which everything that may be is marked."""
    said = (
        Message.user("look"),
        Message.assistant("", (CALL,)),
        Message.tool_result("c1", "text"),
        Message.user("and now?"),
    )
    return ModelRequest(
        model=model,
        system="Be brief.",
        system_metadata=NOTED,
        tools=(READ,),
        messages=tuple(
            Message(
                role=one.role,
                content=one.content,
                tool_calls=one.tool_calls,
                call_id=one.call_id,
                metadata=NOTED,
            )
            for one in said
        ),
    )


@pytest.mark.parametrize(
    ("provider", "model_id", "is_so"),
    [
        ("anthropic", "claude-sonnet-4-5", True),
        ("anthropic", "the-next-one", True),
        ("", "claude-sonnet-4-5", True),
        ("", "", False),
        ("", "gpt-4o", False),
        ("openai", "gpt-4o", False),
        ("openai", "claude-behind-a-proxy", False),
        ("bedrock", "anthropic.claude-3-7-sonnet-20250219-v1:0", True),
        ("bedrock", "amazon.nova-pro-v1:0", False),
        ("openrouter", "anthropic/Claude-Sonnet-4.5", True),
        ("openrouter", "openai/gpt-4o", False),
        ("vertex_ai", "claude-sonnet-4-5@20250929", True),
        ("vertex_ai", "gemini-2.5-flash", False),
        ("gemini", "gemini-2.5-flash", False),
    ],
)
def test_marks_are_for_claude(provider, model_id, is_so):
    """By whomever it is served, if litellm sends marks on."""
    assert takes_marks(provider, model_id) is is_so


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
def test_litellm_sends_marks_on(adapter, provider):
    """In the words of each provider there are four: of the system prompt and of three messages."""
    library = adapter.litellm
    request = conversation(f"{provider}/{SERVED[provider]}")
    arguments = adapter.call_arguments(request)
    model, found, _, _ = library.get_llm_provider(arguments["model"])
    config = library.utils.ProviderConfigManager.get_provider_chat_config(
        model, library.LlmProviders(found)
    )
    given = {"tools": arguments["tools"], "max_tokens": 9}
    body = json.dumps(
        config.transform_request(
            model=model,
            messages=arguments["messages"],
            optional_params=config.map_openai_params(given, {}, model, drop_params=False),
            litellm_params={},
            headers={},
        )
    )

    assert found == provider
    assert body.count('"ephemeral"') + body.count('"cachePoint"') == 4


@pytest.mark.parametrize("model", ["openai:gpt-4o", "gemini:gemini-2.5-flash", "nobody:knows"])
def test_others_see_no_mark(adapter, model):
    """The same messages go out as if nothing were noted beside them."""
    request = conversation(model)
    plain = _conversation.openai_messages(request.system, request.messages)

    assert adapter.call_arguments(request)["messages"] == plain
    assert "cache_control" not in json.dumps(plain)


def test_only_what_is_noted_is_marked(adapter):
    """As it is noted; a message that is left out takes no other's mark along."""
    messages = (
        Message.assistant(""),
        Message(role="user", content="a", metadata={"cache_control": MARK | {"ttl": "1h"}}),
        Message(role="user", content="b", metadata={"seen": 1}),
    )
    request = ModelRequest(model="anthropic:claude-sonnet-4-5", messages=messages)

    assert adapter.call_arguments(request)["messages"] == [
        {"role": "user", "content": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"role": "user", "content": "b"},
    ]


@pytest.mark.parametrize("noted", [{}, {"cache_control": None}, {"cache_control": "ephemeral"}])
def test_what_is_no_mark_is_none(noted):
    """Whatever else a plugin notes, it does not break the request."""
    entry = {"role": "user", "content": "a"}

    assert marked([entry], [noted]) == [entry]


@pytest.mark.parametrize("content", ["", None])
def test_no_text_no_mark(content):
    """Anthropic refuses to cache an empty block."""
    entry = {"role": "tool", "content": content}

    assert marked([entry], [NOTED]) == [entry]


def test_there_are_never_too_many():
    """The first and the latest ones count; more would be refused."""
    entries = [{"role": "user", "content": str(number)} for number in range(7)]
    found = marked(entries, [NOTED] * 7)

    assert [one["content"] for one in found if "cache_control" in one] == ["0", "4", "5", "6"]
    assert len([one for one in found if "cache_control" in one]) == MARKS_MAX
    assert all("cache_control" not in entry for entry in entries)
