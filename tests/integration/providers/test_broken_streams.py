"""Streams that do not come to their end: whatever arrives, it never passes for a whole reply."""

import time

import pytest

from cmdc_runtime.extensions.provider import FailureKind, FinishChunk, TextChunk, UsageChunk

WIRES = ["openai", "anthropic", "gemini"]
TEXT = "one two three four five six"
TIMEOUT_S = 1.0
"""Long enough for a busy machine to deliver what the server did send: no failure then."""
STALL_S = 4.0
"""How long the server stays silent; the time-out must be well below it."""
LATE_S = 3.0
"""A failure after this would be the server's doing."""


def reply(kind, **more):
    """Return what plans a text whose stream breaks after some chunks."""
    return (
        {"type": "reply", "text": TEXT},
        {"type": "stream_fault", "kind": kind, "after_chunks": 5, **more},
    )


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", ["disconnect", "truncate", "malformed"])
def test_a_stream_that_breaks_is_transient_and_never_a_finish(ask, llmock, wire, kind):
    """What came stays; there is no usage and no finish that litellm made up."""
    llmock.plan(*reply(kind))
    chunks, failure = ask(llmock, wire)

    assert TEXT.startswith("".join(chunk.text for chunk in chunks))
    assert chunks
    assert not [chunk for chunk in chunks if isinstance(chunk, UsageChunk | FinishChunk)]
    assert (failure.kind, failure.status) == (FailureKind.TRANSIENT, None)


@pytest.fixture
def used_wire(ask, llmock, wire):
    """A wire after one whole reply; what a first call loads takes longer than the silence."""
    chunks, failure = ask(llmock, wire)
    assert failure is None
    assert isinstance(chunks[-1], FinishChunk)
    return wire


@pytest.mark.parametrize("wire", WIRES)
def test_silence_beyond_the_timeout_option_is_a_timeout(ask, llmock, used_wire):
    """Between two chunks; litellm does not pass the option to Google's client."""
    llmock.plan(*reply("stall", stall_seconds=STALL_S))
    began = time.monotonic()
    chunks, failure = ask(llmock, used_wire, provider_opts={"timeout": TIMEOUT_S})

    assert chunks
    assert failure.kind == FailureKind.TIMEOUT
    assert time.monotonic() - began < LATE_S


@pytest.mark.parametrize("wire", WIRES)
def test_silence_before_the_first_chunk_is_a_timeout(ask, llmock, used_wire):
    """The same bound holds for the head of the answer."""
    llmock.plan({"type": "delay", "seconds": STALL_S})
    began = time.monotonic()
    chunks, failure = ask(llmock, used_wire, provider_opts={"timeout": TIMEOUT_S})

    assert chunks == []
    assert failure.kind == FailureKind.TIMEOUT
    assert time.monotonic() - began < LATE_S


@pytest.mark.parametrize("wire", WIRES)
def test_a_connection_that_closes_without_an_answer_is_transient(ask, aimock, wire):
    """No answer has no status, whatever litellm calls it."""
    aimock.serve({"content": TEXT}, chaos={"disconnectRate": 1})
    chunks, failure = ask(aimock, wire)

    assert chunks == []
    assert (failure.kind, failure.status) == (FailureKind.TRANSIENT, None)


@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_that_is_no_stream_is_transient(ask, aimock, wire):
    """A success with nonsense in it, as a proxy may send."""
    aimock.serve({"content": TEXT}, chaos={"malformedRate": 1})
    chunks, failure = ask(aimock, wire)

    assert chunks == []
    assert failure.kind == FailureKind.TRANSIENT


ANTHROPIC_HEAD = (
    {
        "type": "message_start",
        "message": {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
            "content": [],
            "usage": {"input_tokens": 1, "output_tokens": 1},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
)
OPENAI_HEAD = ({"id": "x", "choices": [{"index": 0, "delta": {"content": "Hi"}}]},)
GOOGLE_HEAD = (
    {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hi"}]}, "index": 0}]},
)
MID_STREAM = {
    "openai": (
        "openai",
        (*OPENAI_HEAD, {"error": {"message": "busy", "type": "server_error", "code": None}}),
    ),
    "anthropic": (
        "anthropic",
        (
            *ANTHROPIC_HEAD,
            {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
        ),
    ),
    "google": (
        "gemini",
        (*GOOGLE_HEAD, {"error": {"code": 503, "status": "UNAVAILABLE", "message": "busy"}}),
    ),
    "garbled call": (
        "gemini",
        (
            *GOOGLE_HEAD,
            {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "index": 0}]},
        ),
    ),
}


@pytest.mark.parametrize(("wire", "events"), MID_STREAM.values(), ids=MID_STREAM)
def test_an_error_in_the_middle_of_a_stream_is_transient(ask, raw, wire, events):
    """The status was good; the vendor changed its mind."""
    raw.stream(*events)
    chunks, failure = ask(raw, wire)

    assert chunks == [TextChunk(text="Hi")]
    assert failure.kind == FailureKind.TRANSIENT


def test_a_prompt_that_google_blocks_is_a_finish(ask, raw):
    """Asking again would not help, so it is no failure: the reply is empty and says why."""
    raw.stream(
        {
            "promptFeedback": {"blockReason": "SAFETY"},
            "usageMetadata": {"promptTokenCount": 5, "totalTokenCount": 5},
        }
    )
    chunks, failure = ask(raw, "gemini")

    assert failure is None
    assert chunks[-1] == FinishChunk(reason="content_filter")
