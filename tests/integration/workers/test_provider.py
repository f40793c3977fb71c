"""The provider against real HTTP, by itself and by litellm: scripted answers in OpenAI's format."""

import asyncio
import contextlib
import importlib

import pytest

from cmdc_runtime.extensions.provider import (
    FailureKind,
    FinishChunk,
    ModelRequest,
    ProviderError,
    TextChunk,
    ToolCallChunk,
    ToolSpec,
    UsageChunk,
)
from cmdc_runtime.messages import Message, TokenUsage, ToolCall
from cmdc_runtime.testing import (
    Disconnect,
    Error,
    Hold,
    ScriptedModel,
    Stall,
    Text,
    Thinking,
    ToolCalls,
    ToolUse,
    Truncate,
)
from workers.builtin.providers import default
from workers.builtin.wires import http
from workers.core.assemble import assemble

pytestmark = [
    pytest.mark.slow,
    # litellm and pydantic disagree about each other's newest versions; both work.
    pytest.mark.filterwarnings("ignore:Items? .* `ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]

READ = ToolSpec(name="read", description="Read.", parameters={"type": "object", "properties": {}})
USAGE = TokenUsage(prompt_tokens=10, completion_tokens=4, total_tokens=14)
CANCEL_S_MAX = 0.5
"""Generous on a busy machine; it takes about 1 ms."""


@pytest.fixture(scope="module")
def runner():
    """One loop for all tests, as in an agent: connections are kept per loop."""
    litellm = importlib.import_module("workers.builtin.providers.litellm").litellm
    with asyncio.Runner() as runner:
        yield runner
        runner.run(http.close())
        runner.run(litellm.close_litellm_async_clients())


@pytest.fixture(params=[{}, {"via": "litellm"}], ids=["lean", "litellm"])
def way(request):
    """The options that say how a model is asked."""
    return request.param


@pytest.fixture
def ask(runner, way):
    """Ask a scripted model once; return the chunks and the failure, if it failed."""

    def ask_(model, **changes):
        name, options = model.model_source()
        options |= changes.pop("provider_opts", {}) | way
        fields = {"model": name, "messages": (Message.user("hi"),), "provider_opts": options}
        return runner.run(collect(default.create(), ModelRequest(**fields | changes)))

    return ask_


async def collect(provider, request):
    chunks = []
    try:
        async with contextlib.aclosing(provider.stream(request)) as stream:
            async for chunk in stream:
                chunks.append(chunk)  # noqa: PERF401 - what came before a failure counts
    except ProviderError as error:
        return chunks, error
    return chunks, None


def test_a_text_streams_in_pieces_and_ends_with_usage_and_finish(ask):
    """Deltas come as they were sent; the usage is the provider's, the price unknown."""
    with ScriptedModel([Text("Hello, world", chunk_chars=5, usage=USAGE)]) as model:
        chunks, failure = ask(model, system="Be brief.", max_tokens=7)
        sent = model.requests[0]

    assert failure is None
    assert chunks == [
        TextChunk(text="Hello"),
        TextChunk(text=", wor"),
        TextChunk(text="ld"),
        UsageChunk(usage=USAGE),
        FinishChunk(reason="stop"),
    ]
    assert sent["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]
    assert sent["max_tokens"] == 7
    assert "tools" not in sent


def test_thinking_and_parallel_calls_arrive_in_fragments(ask):
    """Id and name come once per call, arguments in pieces, and all of it adds up to the reply."""
    calls = ToolCalls(
        ToolUse("read", {"path": "a.txt"}, id="c1"),
        ToolUse("read", '{"path": oops', id="c2"),
        text="Looking.",
    )
    with ScriptedModel([(Thinking("hm"), calls)]) as model:
        chunks, failure = ask(model, tools=(READ,))
        sent = model.requests[0]
    reply = assemble(chunks, id_prefix="m")
    pieces = [chunk for chunk in chunks if isinstance(chunk, ToolCallChunk)]

    assert failure is None
    assert (reply.thinking, reply.text, reply.finish_reason) == ("hm", "Looking.", "tool_calls")
    assert reply.tool_calls == (
        ToolCall(call_id="c1", name="read", arguments={"path": "a.txt"}),
        ToolCall(call_id="c2", name="read", malformed='{"path": oops'),
    )
    assert [(piece.index, piece.name) for piece in pieces if piece.call_id] == [
        (0, "read"),
        (1, "read"),
    ]
    assert sent["tools"][0]["function"]["name"] == "read"


def test_a_cut_reply_says_so(ask):
    """The provider's finish reason comes through."""
    with ScriptedModel([Text("Hel", finish="length")]) as model:
        chunks, _ = ask(model)

    assert chunks[-1] == FinishChunk(reason="length")


FAILURES = [
    (Error(400, "odd"), FailureKind.PERMANENT, 400),
    (Error(400, "too long", code="context_length_exceeded"), FailureKind.OVERFLOW, 400),
    (Error(400, "This model's maximum context length is 8"), FailureKind.OVERFLOW, 400),
    (Error(401, "who?"), FailureKind.PERMANENT, 401),
    (Error(402, "pay"), FailureKind.PERMANENT, 402),
    (Error(403, "no"), FailureKind.PERMANENT, 403),
    (Error(404, "where?"), FailureKind.PERMANENT, 404),
    (Error(408, "late"), FailureKind.TIMEOUT, 408),
    (Error(413, "big"), FailureKind.OVERFLOW, 413),
    (Error(422, "odd"), FailureKind.PERMANENT, 422),
    (Error(429, "slow down"), FailureKind.TRANSIENT, 429),
    (Error(500, "boom"), FailureKind.TRANSIENT, 500),
    (Error(502, "gateway"), FailureKind.TRANSIENT, 502),
    (Error(503, "later"), FailureKind.TRANSIENT, 503),
    (Error(504, "gateway"), FailureKind.TIMEOUT, 504),
    (Error(529, "overloaded"), FailureKind.TRANSIENT, 529),
    (Disconnect(), FailureKind.TRANSIENT, None),
]


def test_every_failure_before_the_first_chunk_has_its_kind(ask):
    """One request each (nothing below us retries), one line of reason, kind and status."""
    with ScriptedModel([step for step, _, _ in FAILURES]) as model:
        found = [ask(model) for _ in FAILURES]
        model.assert_complete()

    assert [chunks for chunks, _ in found if chunks] == []
    assert [(failure.kind, failure.status) for _, failure in found] == [
        (kind, status) for _, kind, status in FAILURES
    ]
    assert all(failure.reason and "\n" not in failure.reason for _, failure in found)


@pytest.mark.parametrize(
    "step",
    [
        Truncate(after_chars=20),
        Disconnect(after_chars=20),
        ("and so on and so on ", Error(500, "boom")),
        ("and so on and so on ", Error(429, "slow down")),
    ],
    ids=["truncated", "disconnected", "error event", "rate limit event"],
)
def test_a_stream_that_breaks_off_is_transient_and_never_a_finish(ask, step):
    """What came stays; there is no usage and no finish that litellm made up."""
    with ScriptedModel([step]) as model:
        chunks, failure = ask(model)

    assert "".join(chunk.text for chunk in chunks) == "and so on and so on "
    assert failure.kind == FailureKind.TRANSIENT


def test_retry_after_comes_through(ask):
    """The wait that a provider asks for reaches the kernel, in seconds."""
    with ScriptedModel([Error(429, "slow down", retry_after=7)]) as model:
        _, failure = ask(model)

    assert failure.retry_after_s == 7.0


def test_nobody_listening_is_unreachable(ask):
    """A refused connection is no answer, so it has no status."""
    with ScriptedModel(["never"]) as model:
        options = {"api_base": model.url}
    with ScriptedModel(["never"]) as other:
        _, failure = ask(other, provider_opts=options)

    assert (failure.kind, failure.status) == (FailureKind.UNREACHABLE, None)


@pytest.mark.parametrize("step", [Stall(), Stall(after_chars=20)], ids=["head", "middle"])
def test_silence_beyond_the_timeout_option_is_a_timeout(ask, step):
    """The ``timeout`` option reaches the HTTP client, before the head and between chunks."""
    with ScriptedModel([step]) as model:
        _, failure = ask(model, provider_opts={"timeout": 0.3})

    assert failure.kind == FailureKind.TIMEOUT


def test_no_key_is_in_the_error_of_a_refused_key(ask):
    """A provider that repeats the key in its answer does not get it into our texts."""
    key = "value-that-nobody-may-see"
    with ScriptedModel([Error(401, f"Incorrect API key provided: {key}")]) as model:
        _, failure = ask(model, provider_opts={"api_key": key})

    assert failure.reason == "AuthenticationError: Incorrect API key provided: [hidden]"
    assert failure.__cause__ is None


@pytest.mark.parametrize("step", [Hold(), ("abcdefgh", Hold())], ids=["head", "middle"])
def test_cancelling_ends_the_request_at_the_provider(runner, way, step):
    """The HTTP connection closes at once, wherever the reply is."""

    async def cancel(model):
        name, options = model.model_source()
        options |= way
        request = ModelRequest(model=name, messages=(Message.user("hi"),), provider_opts=options)
        task = asyncio.create_task(collect(default.create(), request))
        await asyncio.to_thread(model.wait_held)
        async with asyncio.timeout(CANCEL_S_MAX):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await asyncio.to_thread(model.wait_abandoned, timeout=CANCEL_S_MAX)

    with ScriptedModel([step]) as model:
        runner.run(cancel(model))


def test_closing_the_stream_ends_the_request_at_the_provider(runner, way):
    """A reader that has seen enough leaves no connection behind."""

    async def read_one(model):
        name, options = model.model_source()
        options |= way
        request = ModelRequest(model=name, messages=(Message.user("hi"),), provider_opts=options)
        async with contextlib.aclosing(default.create().stream(request)) as stream:
            first = await anext(stream)
            await asyncio.to_thread(model.wait_held)
        await asyncio.to_thread(model.wait_abandoned, timeout=CANCEL_S_MAX)
        return first

    with ScriptedModel([("Hello", Hold())]) as model:
        assert runner.run(read_one(model)) == TextChunk(text="Hello")
