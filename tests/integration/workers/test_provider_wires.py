"""The litellm provider on the wires of Anthropic and Google, as their servers send them."""

import asyncio
import contextlib
import importlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cmdc_runtime.extensions.provider import (
    FailureKind,
    ModelRequest,
    ProviderError,
    TextChunk,
    ThinkingChunk,
    ToolSpec,
)
from cmdc_runtime.messages import Message, ToolCall
from workers.core.assemble import assemble

pytestmark = [
    pytest.mark.slow,
    # litellm and pydantic disagree about each other's newest versions; both work.
    pytest.mark.filterwarnings("ignore:Items? .* `ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]

READ = ToolSpec(name="read", description="Read.", parameters={"type": "object", "properties": {}})


@pytest.fixture(scope="module")
def adapter():
    """Import the adapter, which takes seconds."""
    return importlib.import_module("workers.builtin.providers.litellm")


@pytest.fixture(scope="module")
def runner(adapter):
    """One loop for all tests, as in an agent: litellm keeps its connections per loop."""
    with asyncio.Runner() as runner:
        yield runner
        runner.run(adapter.litellm.close_litellm_async_clients())


async def collect(provider, request):
    chunks = []
    try:
        async with contextlib.aclosing(provider.stream(request)) as stream:
            async for chunk in stream:
                chunks.append(chunk)  # noqa: PERF401 - what came before a failure counts
    except ProviderError as error:
        return chunks, error
    return chunks, None


class Wire(BaseHTTPRequestHandler):
    """Answers every POST with the server's ``body``."""

    def log_message(self, *args):
        """Say nothing."""

    def do_POST(self):
        self.server.seen = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(self.server.body)


@pytest.fixture
def wire():
    """Serve a ``body``, keep the last request as ``seen``."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Wire) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def ask_wire(adapter, runner, wire):
    """Ask the wire server with a call and its result in the history."""

    def ask_(model):
        call = ToolCall(call_id="x", name="read", malformed="{oops")
        history = (Message.user("go"), Message.assistant("", (call,)))
        base = f"http://127.0.0.1:{wire.server_port}"
        request = ModelRequest(
            model=model,
            system="sys",
            messages=(*history, Message.tool_result("x", "Error", is_error=True)),
            tools=(READ,),
            provider_opts={"api_key": "no-key-at-all", "api_base": base},
        )
        return runner.run(collect(adapter.create(), request))

    return ask_


def anthropic(*events):
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events
    )


def block(index, start, *deltas):
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


ANTHROPIC_USAGE = {
    "input_tokens": 10,
    "cache_read_input_tokens": 90,
    "cache_creation_input_tokens": 0,
    "output_tokens": 1,
}
ANTHROPIC_START = {
    "type": "message_start",
    "message": {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [],
        "usage": ANTHROPIC_USAGE,
    },
}
ANTHROPIC_TEXT = tuple(block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hi"}))


def test_anthropics_wire_gives_the_same_chunks(ask_wire, wire):
    """Thinking, text, a call in fragments, and a usage whose cached tokens cost less."""
    wire.body = anthropic(
        ANTHROPIC_START,
        *block(
            0,
            {"type": "thinking", "thinking": ""},
            {"type": "thinking_delta", "thinking": "hm"},
        ),
        *ANTHROPIC_TEXT,
        *block(
            2,
            {"type": "tool_use", "id": "t1", "name": "read", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"path":'},
            {"type": "input_json_delta", "partial_json": '"a"}'},
        ),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 20},
        },
        {"type": "message_stop"},
    )
    chunks, failure = ask_wire("anthropic:claude-sonnet-4-5")
    reply = assemble(chunks, id_prefix="m")

    assert failure is None
    assert chunks[:2] == [ThinkingChunk(text="hm"), TextChunk(text="Hi")]
    assert reply.tool_calls == (ToolCall(call_id="t1", name="read", arguments={"path": "a"}),)
    assert reply.finish_reason == "tool_calls"
    assert (reply.usage.prompt_tokens, reply.usage.cached_tokens) == (100, 90)
    assert reply.usage.cost_usd == pytest.approx(0.000357)
    assert wire.seen["messages"][1]["content"][0]["input"] == {"malformed_json": "{oops"}


@pytest.mark.parametrize(
    "ending",
    [(), ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},)],
    ids=["truncated", "overloaded"],
)
def test_anthropics_broken_streams_are_transient(ask_wire, wire, ending):
    """A stream without a stop reason and an error event are both asked again."""
    wire.body = anthropic(ANTHROPIC_START, *ANTHROPIC_TEXT, *ending)
    chunks, failure = ask_wire("anthropic:claude-sonnet-4-5")

    assert chunks == [TextChunk(text="Hi")]
    assert failure.kind == FailureKind.TRANSIENT


def test_googles_wire_gives_the_same_chunks(ask_wire, wire):
    """Whole calls in one delta, a usage in other words, and a finish that is no made-up one."""
    events = [
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hi"}]}, "index": 0}]},
        {
            "candidates": [
                {
                    "content": {
                        "role": "model",
                        "parts": [
                            {"functionCall": {"name": "read", "args": {"n": 1}}},
                            {"functionCall": {"name": "read", "args": {"n": 2}}},
                        ],
                    },
                    "finishReason": "STOP",
                    "index": 0,
                }
            ],
            "usageMetadata": {
                "promptTokenCount": 100,
                "candidatesTokenCount": 5,
                "totalTokenCount": 105,
                "cachedContentTokenCount": 60,
            },
        },
    ]
    wire.body = b"".join(f"data: {json.dumps(event)}\r\n\r\n".encode() for event in events)
    chunks, failure = ask_wire("gemini:gemini-2.5-flash")
    reply = assemble(chunks, id_prefix="m")

    assert failure is None
    assert (reply.text, reply.finish_reason) == ("Hi", "tool_calls")
    assert [call.arguments for call in reply.tool_calls] == [{"n": 1}, {"n": 2}]
    assert (reply.usage.total_tokens, reply.usage.cached_tokens) == (105, 60)
    assert reply.usage.cost_usd is not None
