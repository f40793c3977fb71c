"""How replies end on the wires that are spoken here: whole, given up, or refused late."""

import json

import pytest

from cmdc_runtime.extensions.provider import FailureKind, FinishChunk, TextChunk

pytestmark = pytest.mark.process
TEXT = TextChunk(text="All of it.")
JSON = {"content-type": "application/json"}


@pytest.fixture(params=["lean"])
def way(request):
    """Ask without litellm, which has rules of its own."""
    return request.param


def event(**fields):
    name = f"event: {fields['type']}\n" if "type" in fields else ""
    return f"{name}data: {json.dumps(fields)}\n\n".encode()


def choice(finish=None, **delta):
    return event(choices=[{"index": 0, "delta": delta, "finish_reason": finish}])


def whole(wire):
    """Return a reply with its last event."""
    if wire == "openai":
        return choice(content=TEXT.text) + choice("stop") + b"data: [DONE]\n\n"
    block = {"type": "text", "text": TEXT.text}
    return (
        event(type="message_start", message={"usage": {"input_tokens": 1, "output_tokens": 1}})
        + event(type="content_block_start", index=0, content_block=block)
        + event(type="content_block_stop", index=0)
        + event(type="message_delta", delta={"stop_reason": "end_turn"})
        + event(type="message_stop")
    )


def texts_and_ends(chunks):
    return [one for one in chunks if isinstance(one, TextChunk | FinishChunk)]


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
@pytest.mark.parametrize("after", ["held", "cut", "junk"])
def test_nothing_behind_the_last_event_matters(ask, raw, wire, after):
    """Neither a server that never closes, nor one that breaks off, nor what it says then."""
    raw.body = whole(wire)
    if after == "held":
        raw.is_held = True
    elif after == "cut":
        raw.headers |= {"transfer-encoding": "chunked"}
        raw.body = f"{len(raw.body):x}\r\n".encode() + raw.body + b"\r\n"
    else:
        raw.body += b"data: {junk\n\n" + event(type="error", error={"message": "late"})

    chunks, failure = ask(raw, wire)

    assert (texts_and_ends(chunks), failure) == ([TEXT, FinishChunk(reason="stop")], None)


@pytest.mark.parametrize("word", ["error", "abort"])
def test_an_answer_that_its_server_gives_up_is_tried_again(ask, raw, word):
    """Half a text is no answer."""
    raw.body = choice(content="Half an ans") + choice(word)

    _chunks, failure = ask(raw, "openai")

    assert failure.kind == FailureKind.TRANSIENT
    assert repr(word) in failure.reason


REFUSALS = {
    "openai code": ("openai", {"error": {"message": "no such key", "code": 401}}),
    "openai code as a text": ("openai", {"error": {"message": "no such key", "code": "401"}}),
    "openai word": ("openai", {"error": {"message": "no", "code": "invalid_api_key"}}),
    "anthropic key": (
        "anthropic",
        {"type": "error", "error": {"type": "authentication_error", "message": "no"}},
    ),
    "anthropic request": (
        "anthropic",
        {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}},
    ),
}


@pytest.mark.parametrize(("wire", "said"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_behind_a_good_status_is_not_tried_again(ask, raw, wire, said):
    """It can't get better by itself; and the server's words are in it."""
    raw.body = event(**said)

    _chunks, failure = ask(raw, wire)

    assert failure.kind == FailureKind.PERMANENT
    assert said["error"]["message"] in failure.reason


@pytest.mark.parametrize("code", ["4" * 5_000, 499.5, True, ["401"], None])
def test_a_code_that_is_no_status_says_nothing(ask, raw, code):
    """However it is written, the server has failed in the middle of its answer."""
    raw.body = event(error={"message": "broken", "code": code})

    assert ask(raw, "openai")[1].kind == FailureKind.TRANSIENT


def test_a_limit_behind_a_good_status_is_tried_again(ask, raw):
    """It is over soon."""
    raw.body = event(error={"message": "slow down", "code": 429})

    assert ask(raw, "openai")[1].kind == FailureKind.TRANSIENT


def test_an_error_in_the_place_of_a_stream_is_said(ask, raw):
    """A body of JSON has no events, but words."""
    raw.headers, raw.body = JSON, b'{"error": {"message": "your account is suspended"}}'

    assert "your account is suspended" in ask(raw, "openai")[1].reason


def test_an_answer_in_one_piece_is_said_once(ask, raw):
    """A server that knows no streams has no other answer the next time."""
    raw.headers = JSON
    raw.body = b'{"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}'

    _chunks, failure = ask(raw, "openai")

    assert failure.kind == FailureKind.PERMANENT
    assert "stream=true" in failure.reason


@pytest.mark.parametrize("status", [400, 404, 418, 500])
def test_a_refusal_without_words_says_its_status(ask, raw, status):
    """And whose it is."""
    raw.status = status

    reason = ask(raw, "openai")[1].reason

    assert f"status {status}" in reason
    assert f"127.0.0.1:{raw.server_port}" in reason


def test_a_usage_behind_the_end_costs_no_reply(ask, raw):
    """Also where its event has no choices at all."""
    usage = event(choices=None, usage={"prompt_tokens": 1, "completion_tokens": 1})
    raw.body = choice(content=TEXT.text) + b"data:\n\n" + choice("stop") + usage

    chunks, failure = ask(raw, "openai")

    assert (texts_and_ends(chunks), failure) == ([TEXT, FinishChunk(reason="stop")], None)
