"""What the litellm adapter makes of requests, usages and exceptions, without a request."""

import importlib
from types import SimpleNamespace

import pytest

from cmdc_runtime.extensions.provider import (
    FailureKind,
    ModelRequest,
    ProviderError,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
    ToolSpec,
)
from cmdc_runtime.messages import Message, TokenUsage, ToolCall

pytestmark = [
    # litellm and pydantic disagree about each other's newest versions; both work.
    pytest.mark.filterwarnings("ignore:Items? .* `ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]
KEY = "value-that-nobody-may-see"


@pytest.fixture(scope="module")
def adapter():
    """Import the adapter, which takes seconds."""
    return importlib.import_module("workers.builtin.providers.litellm")


def request(**changes):
    return ModelRequest(**{"model": "openai:gpt-4o", "messages": (Message.user("hi"),)} | changes)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("openai:gpt-4o", "openai/gpt-4o"),
        ("openai/gpt-4o", "openai/gpt-4o"),
        ("gpt-4o", "gpt-4o"),
        ("ollama:llama3:8b", "ollama/llama3:8b"),
        ("ollama/llama3:8b", "ollama/llama3:8b"),
        ("openrouter:meta/llama:free", "openrouter/meta/llama:free"),
    ],
)
def test_the_first_colon_before_a_slash_parts_provider_and_model(adapter, model, name):
    """Both spellings of a model lead to litellm's."""
    assert adapter.litellm_model(model) == name


def test_a_conversation_takes_the_openai_shape(adapter):
    """Every role and part has its place; an assistant message that says nothing has none."""
    calls = (
        ToolCall(call_id="a", name="read", arguments={"path": "ä"}),
        ToolCall(call_id="b", name="read", malformed='{"path'),
    )
    messages = (
        Message.user("look"),
        Message.assistant("", calls, thinking="hm"),
        Message.tool_result("a", "text"),
        Message.tool_result("b", "Error: no JSON", is_error=True),
        Message.assistant(""),
        Message.system("be brief"),
        Message.assistant("done"),
    )

    assert adapter.openai_messages("sys", messages) == [
        {"role": "system", "content": "sys"},
        {"role": "user", "content": "look"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"path":"ä"}'},
                },
                {
                    "id": "b",
                    "type": "function",
                    "function": {
                        "name": "read",
                        "arguments": '{"malformed_json":"{\\"path"}',
                    },
                },
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "text"},
        {"role": "tool", "tool_call_id": "b", "content": "Error: no JSON"},
        {"role": "system", "content": "be brief"},
        {"role": "assistant", "content": "done"},
    ]


def test_what_the_adapter_stands_on_outranks_the_options(adapter):
    """Options reach litellm, except where they would switch off streaming or our own retries."""
    asked = request(
        max_tokens=9,
        tools=(ToolSpec(name="read", description="Read.", parameters={"type": "object"}),),
        provider_opts={"temperature": 0.5, "stream": False, "num_retries": 5, "model": "x"},
    )

    assert adapter.call_arguments(asked) == {
        "model": "openai/gpt-4o",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.5,
        "max_tokens": 9,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "read",
                    "description": "Read.",
                    "parameters": {"type": "object"},
                },
            }
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "num_retries": 0,
        "max_retries": 0,
        "_skip_mcp_handler": True,
    }


def test_absent_tools_and_bounds_are_not_sent(adapter):
    """Some providers refuse an empty list of tools or a bound of null."""
    assert not {"tools", "max_tokens"} & adapter.call_arguments(request()).keys()


def test_one_delta_may_hold_several_pieces(adapter):
    """Thinking, text and calls come out in this order; a choice that is not the first is none."""
    function = SimpleNamespace(name="read", arguments=None)
    piece = SimpleNamespace(index=1, id="c", function=function)
    first = SimpleNamespace(reasoning_content="hm", content="Hi", tool_calls=[piece])
    second = SimpleNamespace(content="other", tool_calls=None)
    delta = SimpleNamespace(
        choices=[SimpleNamespace(delta=first), SimpleNamespace(delta=second)],
    )

    assert list(adapter.chunks_of(delta)) == [
        ThinkingChunk(text="hm"),
        TextChunk(text="Hi"),
        ToolCallChunk(index=1, call_id="c", name="read"),
    ]


@pytest.mark.parametrize(
    "raw",
    [
        {
            "prompt_tokens": 1000,
            "completion_tokens": 100,
            "total_tokens": 1100,
            "prompt_tokens_details": {"cached_tokens": 400},
        },
        {
            "prompt_tokens": 1000,
            "completion_tokens": 100,
            "cache_read_input_tokens": 400,
            "prompt_tokens_details": {"cached_tokens": 400},
        },
    ],
    ids=["openai", "anthropic"],
)
def test_cached_tokens_are_told_and_cost_less(adapter, raw):
    """600 tokens at 2.50 $, 400 cached ones at 1.25 $ and 100 new ones at 10 $ per million."""
    usage = adapter.usage_of(raw, "openai:gpt-4o")

    assert usage.cost_usd == pytest.approx(0.0030)
    assert (usage.total_tokens, usage.cached_tokens) == (1100, 400)


@pytest.mark.parametrize(
    ("model", "cost_usd"),
    [
        ("openai:scripted", None),
        ("nobody", None),
        ("github_copilot/gpt-4o", None),
        ("ollama/llama3", 0.0),
    ],
)
def test_only_a_price_in_the_table_is_a_price(adapter, model, cost_usd):
    """A model without a known price costs None; 0 is what the table calls free."""
    usage = adapter.usage_of({"prompt_tokens": 3, "completion_tokens": 2}, model)

    assert usage == TokenUsage(
        prompt_tokens=3, completion_tokens=2, total_tokens=5, cost_usd=cost_usd
    )


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 40.0),
        ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(adapter, value, seconds):
    """A date is compared with the clock (60 s after the epoch here); nonsense is no wish."""
    assert adapter.retry_after_s({"retry-after": value}, 60.0) == seconds


def test_no_headers_are_no_wish(adapter):
    """Most failures come without."""
    assert adapter.retry_after_s(None, 60.0) is None
    assert adapter.retry_after_s({}, 60.0) is None


def litellm_error(adapter, name, message="oh", **attributes):
    error = getattr(adapter.litellm, name)(message=message, llm_provider="openai", model="m")
    for key, value in attributes.items():
        setattr(error, key, value)
    return error


@pytest.mark.parametrize(
    ("name", "attributes", "kind", "status"),
    [
        ("RateLimitError", {}, FailureKind.TRANSIENT, 429),
        ("AuthenticationError", {}, FailureKind.PERMANENT, 401),
        ("BadRequestError", {"status_code": 401}, FailureKind.PERMANENT, 401),
        ("BadRequestError", {}, FailureKind.PERMANENT, 400),
        ("NotFoundError", {}, FailureKind.PERMANENT, 404),
        ("ContextWindowExceededError", {}, FailureKind.OVERFLOW, 400),
        ("Timeout", {}, FailureKind.TIMEOUT, 408),
        ("APIConnectionError", {}, FailureKind.TRANSIENT, None),
        ("InternalServerError", {}, FailureKind.TRANSIENT, 500),
        ("ServiceUnavailableError", {}, FailureKind.TRANSIENT, 503),
    ],
)
def test_litellms_exceptions_have_their_kind(adapter, name, attributes, kind, status):
    """Class and status are read from what litellm really raises."""
    failure = adapter.translated(litellm_error(adapter, name, **attributes), frozenset())

    assert (failure.kind, failure.status) == (kind, status)
    assert failure.reason == f"{name}: oh"


def test_a_wrapped_failure_is_told_by_what_it_wraps(adapter):
    """An exception in the middle of a stream is judged by its cause."""
    inner = litellm_error(adapter, "RateLimitError", litellm_response_headers={"retry-after": "3"})
    wrapper = adapter.litellm.exceptions.MidStreamFallbackError
    outer = wrapper("broke", "m", "openai", original_exception=inner)
    failure = adapter.translated(outer, frozenset())

    assert (failure.kind, failure.status) == (FailureKind.TRANSIENT, 429)
    assert failure.retry_after_s == 3.0


def test_a_reason_is_one_short_line(adapter):
    """Line breaks, litellm's own words and endless bodies stay out of it."""
    error = ValueError("litellm.APIError: APIError: OpenAIException - first\n  second " + "x" * 999)
    reason = adapter.reason_of(error, frozenset())

    assert reason.startswith("ValueError: first second xxx")
    assert len(reason) == adapter.REASON_MAX_CHARS
    assert adapter.reason_of(TimeoutError(), frozenset()) == "TimeoutError"


SECRETS = {
    "api_key": ({"api_key": KEY}, f"bad key {KEY}"),
    "header": ({"extra_headers": {"Authorization": f"Basic {KEY}"}}, f"got 'Basic {KEY}'"),
    "environment": ({}, f"bad key {KEY}-env"),
    "bearer": ({}, f"header Bearer {KEY}"),
    "url": ({}, f"GET http://x/y?a=1&key={KEY}&b=2"),
    "prefix": ({}, f"Incorrect API key provided: sk-{KEY}"),
    "masked": ({}, "Incorrect API key provided: sk-nobod**************ysee"),
}


@pytest.mark.parametrize(("options", "text"), SECRETS.values(), ids=SECRETS)
def test_no_key_gets_into_an_error(adapter, monkeypatch, options, text):
    """Neither the reason nor the causes that a traceback prints hold a secret."""
    monkeypatch.setenv("SOME_API_KEY", f"{KEY}-env")
    with (
        pytest.raises(ProviderError) as caught,
        adapter._border(request(provider_opts=options)),
    ):
        raise ValueError(text)

    assert "nobod" not in str(caught.value)
    assert "[hidden]" in caught.value.reason
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_harmless_cause_is_kept(adapter):
    """Who debugs a failure sees where it came from."""
    cause = KeyError("x")
    with pytest.raises(ProviderError) as caught, adapter._border(request()):
        raise cause

    assert caught.value.__cause__ is cause
    assert caught.value.kind == FailureKind.PERMANENT


def test_a_code_tells_what_the_words_do_not(adapter):
    """A provider's error code is read from the cause that has it."""
    error = litellm_error(adapter, "BadRequestError", "no")
    error.__cause__ = ValueError("no")
    error.__cause__.code = "context_length_exceeded"

    assert adapter.translated(error, frozenset()).kind == FailureKind.OVERFLOW


def test_an_earlier_failure_does_not_colour_the_next(adapter):
    """A retry inside the handler of a time-out is judged by its own exception only."""
    error = ValueError("invalid")
    error.__context__ = ProviderError(FailureKind.TIMEOUT, "late")
    error.__context__.__context__ = TimeoutError()

    assert adapter.translated(error, frozenset()).kind == FailureKind.PERMANENT


def test_placeholders_are_no_secrets(adapter):
    """Hiding a key like ``x`` would blank out half of every text."""
    assert adapter.secrets_of(request(provider_opts={"api_key": "x"})).isdisjoint({"x"})
