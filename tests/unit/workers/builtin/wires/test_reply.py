"""What replies on every wire have: an end that is one, a usage that can be true, events to read."""

import msgspec
import pytest

from cmdc_runtime.extensions.provider import (
    FailureKind,
    FinishChunk,
    ProviderError,
    TextChunk,
    UsageChunk,
)
from cmdc_runtime.messages import TokenUsage
from workers.builtin.providers._failures import TEXT_CHARS_MAX, Heard, RefusedAnswerError
from workers.builtin.wires.anthropic_messages import AnthropicReply
from workers.builtin.wires.openai_chat import OpenAIReply
from workers.builtin.wires.reply import REASONS, MidStreamError

KINDS = {"openai": OpenAIReply, "anthropic": AnthropicReply}


@pytest.fixture(params=KINDS)
def wire(request):
    return request.param


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def reply(wire, heard):
    return KINDS[wire](heard, TokenUsage.from_raw)


def finish(reason):
    """Return an event that each wire reads as an end, of its own kind."""
    return msgspec.json.encode(
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason},
            "choices": [{"delta": {}, "finish_reason": reason}],
        }
    )


def text(words, wire):
    if wire == "openai":
        return msgspec.json.encode({"choices": [{"delta": {"content": words}}]})
    return msgspec.json.encode(
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": words}}
    )


def call(wire):
    if wire == "openai":
        calls = [{"index": 0, "id": "c", "function": {"name": "n", "arguments": "{}"}}]
        return msgspec.json.encode({"choices": [{"delta": {"tool_calls": calls}}]})
    block = {"type": "tool_use", "id": "c", "name": "n", "input": {}}
    return msgspec.json.encode({"type": "content_block_start", "content_block": block})


def usage(**counts):
    return msgspec.json.encode({"type": "message_delta", "choices": [], "usage": counts})


def taken(reply, *sent):
    return [chunk for data in sent for chunk in reply.take(data)]


# --- the end --------------------------------------------------------------------------------------


MEANT = {
    "stop": ("stop", "end_turn", "stop_sequence"),
    "length": (
        *("length", "max_tokens", "compaction", "pause_turn"),
        "model_context_window_exceeded",
    ),
    "tool_calls": ("tool_calls", "tool_use", "function_call"),
    "content_filter": ("content_filter", "content_filtered", "refusal"),
}


def test_every_word_for_an_end_is_tried():
    """Of all wires."""
    assert REASONS.keys() == {one for words in MEANT.values() for one in words}


@pytest.mark.parametrize(
    ("reason", "meant"), [(one, meant) for meant, words in MEANT.items() for one in words]
)
def test_every_word_for_an_end_has_openais(reply, wire, reason, meant):
    """The last chunk says it."""
    taken(reply, call(wire), finish(reason))
    said = "tool_calls" if meant == "stop" else meant

    assert list(reply.end()) == [FinishChunk(reason=said)]


def test_an_unknown_word_is_a_plain_stop(reply):
    """A vendor may have a new one tomorrow."""
    taken(reply, finish("rain"))

    assert list(reply.end()) == [FinishChunk(reason="stop")]


def test_a_stop_with_calls_is_for_the_calls(reply, wire):
    """Some servers say so; any other reason stays."""
    taken(reply, call(wire), finish("stop"))

    assert list(reply.end()) == [FinishChunk(reason="tool_calls")]


def test_a_reply_without_an_end_is_broken(reply, wire):
    """Whatever has come of it."""
    taken(reply, text("so", wire), usage(prompt_tokens=3, output_tokens=4))
    with pytest.raises(ProviderError) as caught:
        list(reply.end())

    assert caught.value.kind is FailureKind.TRANSIENT
    assert caught.value.reason == "the stream ended before the reply was finished"


def test_an_end_for_calls_needs_a_call(reply):
    """The same would come again."""
    taken(reply, finish("tool_calls"))
    with pytest.raises(ProviderError) as caught:
        list(reply.end())

    assert caught.value.kind is FailureKind.PERMANENT
    assert caught.value.reason.endswith("it ends in tool_calls and has none")


def test_half_a_character_is_passed_on_at_the_end(reply, wire):
    """Mended: nothing else can be done with it."""
    half = text("a😀", wire).replace("😀".encode(), b"\\ud83d")
    chunks = taken(reply, half, finish("stop"))

    assert chunks == [TextChunk(text="a")]
    assert list(reply.end()) == [TextChunk(text="\ufffd"), FinishChunk(reason="stop")]


def test_a_character_in_two_events_is_one(reply, wire):
    """JSON writes it as a pair, and a server may cut between them."""
    halves = [text("HALF", wire).replace(b"HALF", one) for one in (b"a\\ud83d", b"\\ude00b")]

    assert taken(reply, *halves) == [TextChunk(text="a"), TextChunk(text="😀b")]


# --- usages ---------------------------------------------------------------------------------------


def test_a_usage_is_reported_before_the_finish(reply):
    """Wherever it came; counts that are null are not reported."""
    taken(reply, usage(prompt_tokens=3, completion_tokens=4, total_tokens=None), finish("stop"))

    assert list(reply.end()) == [
        UsageChunk(usage=TokenUsage(prompt_tokens=3, completion_tokens=4, total_tokens=7)),
        FinishChunk(reason="stop"),
    ]
    assert reply.problem is None


ODD = {
    "negative": ({"prompt_tokens": -1}, "usage['prompt_tokens']: -1 is no whole number"),
    "text": ({"completion_tokens": "7"}, "usage['completion_tokens']: '7' is no whole number"),
    "details": ({"prompt_tokens_details": 4}, "usage['prompt_tokens_details']: 4 is no object"),
    "nothing": ({"prompt_tokens": None}, "usage['prompt_tokens']: None, and no other count"),
}


@pytest.mark.parametrize("case", ODD)
def test_a_usage_that_cannot_be_true_costs_no_reply(reply, wire, case):
    """It is unknown from then on, and what is wrong with the first one is kept."""
    counts, problem = ODD[case]
    chunks = taken(
        reply,
        usage(**counts),
        text("so", wire),
        usage(prompt_tokens="later"),
        usage(prompt_tokens=3, completion_tokens=4),
        finish("stop"),
    )

    assert chunks == [TextChunk(text="so")]
    assert list(reply.end()) == [FinishChunk(reason="stop")]
    assert reply.problem.startswith(problem)


@pytest.mark.parametrize("raw", [b'"many"', b"[1]", b"5", b"true"])
def test_a_usage_that_is_no_object_is_unknown(reply, raw):
    """Null is none at all."""
    taken(reply, usage(x=1).replace(b'{"x":1}', raw), finish("stop"))

    assert list(reply.end()) == [FinishChunk(reason="stop")]
    assert reply.problem.endswith("is no object")


def test_a_usage_that_is_null_is_none(reply):
    """Many servers write it in every event."""
    taken(reply, usage(x=1).replace(b'{"x":1}', b"null"), finish("stop"))

    assert list(reply.end()) == [FinishChunk(reason="stop")]
    assert reply.problem is None


def test_a_count_of_endless_digits_is_unknown(reply):
    """The second reader takes it as infinite, and no reply is lost by it."""
    taken(reply, usage(prompt_tokens=1).replace(b"1", b"1" * 5_000), finish("stop"))

    assert list(reply.end()) == [FinishChunk(reason="stop")]
    assert reply.problem.startswith("usage['prompt_tokens']: inf is no whole number")


# --- what can't be read ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"nonsense", b'{"a": 1}}', b'{"choices": [', b"\xff\xfe{", b'{"error": "\xff"}'],
)
def test_what_is_no_json_breaks_the_stream(reply, data):
    """It may be whole the next time."""
    with pytest.raises(ProviderError) as caught:
        taken(reply, data)

    assert caught.value.kind is FailureKind.TRANSIENT
    assert caught.value.reason == "the stream has an event that is no JSON"


@pytest.mark.parametrize("data", [b"1", b'"a"', b"null", b"[]", b"true"])
def test_json_of_another_shape_is_no_event(reply, data):
    """The reader says what it is instead."""
    with pytest.raises(msgspec.ValidationError, match="Expected `object`"):
        taken(reply, data)


def test_an_unknown_event_says_nothing(reply):
    """Nor do fields that nobody knows."""
    sent = [b"{}", b'{"type": "ping"}', b'{"type": "new", "x": [1, {"y": null}]}']

    assert taken(reply, *sent) == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'{"choices": [{"delta": {"content": 5}}]}', "content of a delta is int, not str"),
        (b'{"delta": {"text": []}}', "text of a content block's delta is array, not str"),
        (b'{"content_block": {"input": 1}}', "input of a content block is int, not object"),
    ],
)
def test_a_field_of_another_type_is_named(data, problem):
    """On its wire."""
    kind = OpenAIReply if b"choices" in data else AnthropicReply
    with pytest.raises(RefusedAnswerError, match=problem):
        taken(kind(Heard(), TokenUsage.from_raw), data)


# --- failures in the middle -----------------------------------------------------------------------


def test_a_server_that_reports_a_failure_is_heard(reply, heard):
    """Its words are the error's, and decide about its kind."""
    with pytest.raises(MidStreamError, match=r"^no more today$"):
        taken(reply, b'{"type": "error", "error": {"message": "no more today", "code": "c7"}}')

    assert heard.words() in {"no more today c7", "error no more today c7"}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (b'"in short"', "in short"),
        (b'{"detail": "a detail"}', "a detail"),
        (b'{"code": 7}', '"error":{"code":7}}'),
        (b"[1]", "[1]"),
    ],
)
def test_a_failure_may_have_many_forms(reply, error, words):
    """What has no words is reported as it came."""
    with pytest.raises(MidStreamError) as caught:
        taken(reply, b'{"error": %b}' % error)

    assert words in str(caught.value)


@pytest.mark.parametrize("error", [b"null", b'""', b"{}", b"0", b"false"])
def test_no_failure_is_none(reply, error):
    """Some servers write the field in every event."""
    assert taken(reply, b'{"error": %b}' % error, finish("stop")) == []
    assert list(reply.end()) == [FinishChunk(reason="stop")]


def test_of_a_long_failure_the_beginning_is_reported(reply, heard):
    """The rest is cut before anything is done with it."""
    with pytest.raises(MidStreamError) as caught:
        taken(reply, b'{"error": {"message": "%b"}}' % (b"a" * 5 * TEXT_CHARS_MAX))

    assert str(caught.value) == "a" * TEXT_CHARS_MAX
    assert heard.words().strip() in {"a" * TEXT_CHARS_MAX, "a" * (TEXT_CHARS_MAX - 1)}
