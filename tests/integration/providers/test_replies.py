"""Replies on the wires of OpenAI, Anthropic and Google: text, thoughts, calls and their usage."""

import pytest

from cmdc_runtime.extensions.provider import (
    FinishChunk,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
    ToolSpec,
    UsageChunk,
)
from cmdc_runtime.messages import Message, TokenUsage, ToolCall
from workers.core.assemble import assemble

WIRES = ["openai", "anthropic", "gemini"]
READ = ToolSpec(name="read", description="Read.", parameters={"type": "object", "properties": {}})
USAGE = {"prompt_tokens": 1000, "completion_tokens": 100}
# 1000 tokens in and 100 out, by the table: 2.50 $ and 10 $, 3 $ and 15 $, 0.30 $ and 2.50 $.
PRICES_USD = {"openai": 0.0035, "anthropic": 0.0045, "gemini": 0.00055}


@pytest.mark.parametrize("wire", WIRES)
def test_a_text_streams_in_pieces_and_ends_with_usage_and_finish(ask, aimock, wire):
    """Thoughts and text come as they were sent; the total is filled in, the price looked up."""
    aimock.serve({"content": "Hello, world", "reasoning": "hm", "usage": USAGE})
    chunks, failure = ask(aimock, wire, system="Be brief.", max_tokens=50)
    usage = chunks[-2].usage

    assert failure is None
    assert chunks[:3] == [
        ThinkingChunk(text="hm"),
        TextChunk(text="Hello, w"),
        TextChunk(text="orld"),
    ]
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (1000, 100, 1100)
    assert usage.cost_usd == pytest.approx(PRICES_USD[wire])
    assert usage.cached_tokens in (None, 0)
    assert chunks[-1] == FinishChunk(reason="stop")
    assert len(chunks) == 5


@pytest.mark.parametrize("wire", WIRES)
def test_parallel_calls_arrive_apart(ask, aimock, wire):
    """Id and name come once per call and index, and the fragments add up to its arguments."""
    calls = [
        {"name": "read", "arguments": '{"path": "a.txt"}', "id": "c1"},
        {"name": "list", "arguments": '{"depth": 2, "all": true}', "id": "c2"},
    ]
    aimock.serve({"content": "Look", "toolCalls": calls, "usage": USAGE})
    chunks, failure = ask(aimock, wire, tools=(READ,))
    reply = assemble(chunks, id_prefix="m")
    named = [piece for piece in chunks if isinstance(piece, ToolCallChunk) and piece.call_id]

    assert failure is None
    assert (reply.text, reply.finish_reason) == ("Look", "tool_calls")
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [
        ("read", {"path": "a.txt"}),
        ("list", {"depth": 2, "all": True}),
    ]
    assert [(piece.index, piece.name) for piece in named] == [(0, "read"), (1, "list")]


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_call_ids_and_fragments_are_the_vendors_own(ask, aimock, wire):
    """The ids come through; arguments come in more than one piece. Google has neither."""
    call = {"name": "read", "arguments": '{"path": "a.txt", "lines": 20}', "id": "c1"}
    aimock.serve({"toolCalls": [call], "usage": USAGE})
    chunks, _ = ask(aimock, wire, tools=(READ,))
    pieces = [piece for piece in chunks if isinstance(piece, ToolCallChunk)]

    assert pieces[0].call_id == "c1"
    assert len([piece for piece in pieces if piece.arguments]) > 1


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_arguments_that_are_no_json_are_kept_as_written(ask, llmock, wire):
    """A model may write anything; what it wrote goes back to it."""
    llmock.plan({"type": "tool_fault", "kind": "malformed_arguments"})
    chunks, failure = ask(llmock, wire, tools=(READ,))
    reply = assemble(chunks, id_prefix="m")

    assert failure is None
    assert reply.tool_calls[0].malformed


@pytest.mark.parametrize("wire", WIRES)
def test_a_cut_reply_says_so(ask, llmock, wire):
    """Each vendor's word for a reply that hit its bound becomes OpenAI's."""
    llmock.plan({"type": "reply", "text": "Hel", "finish_reason": "length"})
    chunks, failure = ask(llmock, wire)

    assert failure is None
    assert chunks[-1] == FinishChunk(reason="length")


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_tool_round_goes_there_and_back(ask, aimock, wire):
    """The server knows its call again by the result that comes back, and answers in text."""
    call = {"name": "read", "arguments": '{"path": "a.txt"}', "id": "c1"}
    aimock.serve({"toolCalls": [call]}, match={"hasToolResult": False})
    aimock.serve({"content": "It says 42."}, match={"hasToolResult": True})
    question = Message.user("What is in a.txt?")
    chunks, _ = ask(aimock, wire, messages=(question,), tools=(READ,))
    calls = assemble(chunks, id_prefix="m").tool_calls
    results = (Message.tool_result(call.call_id, "42") for call in calls)
    history = (question, Message.assistant("", calls), *results)
    chunks, failure = ask(aimock, wire, messages=history, tools=(READ,))
    reply = assemble(chunks, id_prefix="m")

    assert [call.name for call in calls] == ["read"]
    assert failure is None
    assert (reply.text, reply.tool_calls, reply.finish_reason) == ("It says 42.", (), "stop")


# Cached tokens, in each vendor's own numbers.

ANTHROPIC = (
    {
        "type": "message_start",
        "message": {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
            "content": [],
            "usage": {
                "input_tokens": 10,
                "cache_read_input_tokens": 90,
                "cache_creation_input_tokens": 20,
                "output_tokens": 1,
            },
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 20},
    },
    {"type": "message_stop"},
)
OPENAI = (
    {"id": "x", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]},
    {
        "id": "x",
        "choices": [],
        "usage": {
            "prompt_tokens": 120,
            "completion_tokens": 20,
            "prompt_tokens_details": {"cached_tokens": 90},
        },
    },
)
GOOGLE_USAGE = {
    "promptTokenCount": 120,
    "candidatesTokenCount": 15,
    "thoughtsTokenCount": 5,
    "cachedContentTokenCount": 90,
}
GOOGLE = (
    {
        "candidates": [
            {
                "content": {"role": "model", "parts": [{"text": "Hi"}]},
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "usageMetadata": GOOGLE_USAGE | {"totalTokenCount": 140},
    },
)
CACHED = {
    # 30 at 2.50 $, 90 at 1.25 $, 20 at 10 $ per million
    "openai": (OPENAI, 0.0003875),
    # 10 at 3 $, 90 at 0.30 $, 20 written at 3.75 $, 20 at 15 $
    "anthropic": (ANTHROPIC, 0.000432),
    # 30 at 0.30 $, 90 at 0.03 $, 20 at 2.50 $
    "gemini": (GOOGLE, 0.0000617),
}


@pytest.mark.parametrize("wire", CACHED)
def test_cached_tokens_are_reported_and_priced_apart(ask, raw, wire):
    """The same request costs what each vendor asks; reading a cache is cheap, writing dear."""
    events, cost_usd = CACHED[wire]
    raw.stream(*events)
    chunks, failure = ask(raw, wire)

    assert failure is None
    assert chunks == [
        TextChunk(text="Hi"),
        UsageChunk(
            usage=TokenUsage(
                prompt_tokens=120,
                completion_tokens=20,
                total_tokens=140,
                cost_usd=pytest.approx(cost_usd),
                cached_tokens=90,
            )
        ),
        FinishChunk(reason="stop"),
    ]


@pytest.mark.parametrize("wire", WIRES)
def test_a_model_without_a_price_costs_none(ask, aimock, wire):
    """Unknown is not free."""
    aimock.serve({"content": "Hi", "usage": USAGE})
    chunks, failure = ask(aimock, wire, model=f"{wire}:nobody-knows-1")

    assert failure is None
    assert chunks[-2].usage.total_tokens == 1100
    assert chunks[-2].usage.cost_usd is None


def test_googles_thought_signature_goes_back_with_its_call(ask, raw):
    """Gemini 3 refuses a history without it; litellm carries it in the id of the call."""
    call = {"functionCall": {"name": "read", "args": {}}, "thoughtSignature": "c2ln"}
    content = {"role": "model", "parts": [call]}
    raw.stream({"candidates": [{"content": content, "finishReason": "STOP", "index": 0}]})
    model = "gemini:gemini-3-pro-preview"
    chunks, _ = ask(raw, "gemini", model=model)
    calls = assemble(chunks, id_prefix="m").tool_calls
    history = (
        Message.user("go"),
        Message.assistant("", calls),
        Message.tool_result(calls[0].call_id, "42"),
    )
    ask(raw, "gemini", model=model, messages=history)
    sent = raw.seen[-1]["contents"][1]["parts"][0]

    assert isinstance(calls[0], ToolCall)
    assert sent["thoughtSignature"] == "c2ln"
