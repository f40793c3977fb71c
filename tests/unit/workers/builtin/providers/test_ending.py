"""How a stream's end is distinguished from one that litellm made up."""

import asyncio
from types import SimpleNamespace

import pytest

from cmdc_runtime.extensions.provider import FailureKind, FinishChunk, ProviderError, UsageChunk
from cmdc_runtime.messages import TokenUsage
from workers.builtin.providers.litellm import Ending, google_reason


def delta(reason=None, **usage):
    choices = [SimpleNamespace(finish_reason=reason)]
    reported = SimpleNamespace(model_dump=lambda: usage) if usage else None
    return SimpleNamespace(choices=choices, usage=reported)


def wrapper(received=None, make_call=None):
    return SimpleNamespace(received_finish_reason=received, make_call=make_call)


def test_a_finish_that_was_received_is_reported():
    """The usage comes before the reason, wherever they were said."""
    ending = Ending(wrapper("stop"), TokenUsage.from_raw, is_google=False)
    ending.note(delta())
    ending.note(delta("stop"))
    ending.note(delta(prompt_tokens=3, completion_tokens=2))

    assert list(ending.chunks()) == [
        UsageChunk(usage=TokenUsage(prompt_tokens=3, completion_tokens=2, total_tokens=5)),
        FinishChunk(reason="stop"),
    ]


def test_a_finish_that_was_not_received_is_a_broken_stream():
    """Litellm made it up."""
    ending = Ending(wrapper(), TokenUsage.from_raw, is_google=False)
    with pytest.raises(ProviderError) as caught:
        ending.note(delta("stop"))

    assert caught.value.kind == FailureKind.TRANSIENT


def test_a_stream_without_any_finish_is_a_broken_stream():
    """Even litellm did not think it whole."""
    ending = Ending(wrapper("stop"), TokenUsage.from_raw, is_google=False)
    with pytest.raises(ProviderError):
        list(ending.chunks())


@pytest.mark.parametrize(
    ("chunk", "reason"),
    [
        ({"candidates": [{"finishReason": "STOP"}]}, "STOP"),
        ({"candidates": [{"content": {}}]}, None),
        ({"candidates": []}, None),
        ({"candidates": None, "promptFeedback": None}, None),
        ({"promptFeedback": {"blockReason": "SAFETY"}}, "SAFETY"),
        ({"usageMetadata": {}}, None),
    ],
    ids=["finish", "text", "no candidate", "null", "blocked", "usage"],
)
def test_google_says_itself_when_it_is_done(chunk, reason):
    """A chunk without a reason is one of many."""
    assert google_reason(chunk) == reason


def google_ending(*chunks):
    """Return an ending that has seen ``chunks`` go through litellm's parser."""
    stream = SimpleNamespace(chunk_parser=lambda chunk: chunk)

    async def make_call(**options):
        return stream

    litellms = wrapper(make_call=make_call)
    ending = Ending(litellms, TokenUsage.from_raw, is_google=True)
    found = asyncio.run(litellms.make_call(client=None))
    for chunk in chunks:
        assert found.chunk_parser(chunk) is chunk
    return ending


TEXT = {"candidates": [{"content": {"parts": [{"text": "Hi"}]}}]}


def test_on_googles_wire_only_googles_word_counts():
    """Litellm calls every chunk finished there."""
    whole = google_ending(TEXT, {"candidates": [{"finishReason": "STOP"}]}, {"usageMetadata": {}})
    whole.note(delta("stop"))
    broken = google_ending(TEXT)

    assert list(whole.chunks()) == [FinishChunk(reason="stop")]
    with pytest.raises(ProviderError):
        broken.note(delta("stop"))


def test_a_reply_that_google_could_not_read_is_no_reply():
    """Litellm calls it a plain stop."""
    ending = google_ending(TEXT, {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]})
    ending.note(delta("stop"))
    with pytest.raises(ProviderError) as caught:
        list(ending.chunks())

    assert caught.value.kind == FailureKind.TRANSIENT
    assert "MALFORMED_FUNCTION_CALL" in caught.value.reason
