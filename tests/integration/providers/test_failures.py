"""Refusals by HTTP status, and what is read from them, on every wire."""

import email.utils
import json
import re
import time

import pytest

from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.messages import Message

WIRES = ["openai", "anthropic", "gemini"]
T, P, O = FailureKind.TRANSIENT, FailureKind.PERMANENT, FailureKind.OVERFLOW  # noqa: E741
LONG = (Message.user("word " * 4_000),)

STATUSES = [(400, P), (401, P), (403, P), (404, P), (429, T), (500, T), (502, T), (503, T)]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("status", "kind"), STATUSES)
def test_a_status_decides(ask, aimock, wire, status, kind):
    """Each comes out with its kind, its status and the vendor's own words."""
    aimock.serve({"error": {"message": "not now"}, "status": status})
    chunks, failure = ask(aimock, wire)

    assert chunks == []
    assert (failure.kind, failure.status) == (kind, status)
    assert failure.reason.endswith(": not now")
    assert len(aimock.seen()) == 1  # nothing below us tries again


BODIES = {
    "plain text": (b"no such model: none", "no such model: none"),
    "page": (b"<html><body>Bad gateway</body></html>", "<html><body>Bad gateway</body></html>"),
    "error is a text": (b'{"error": "model none not found"}', "model none not found"),
    "detail": (b'{"detail": "not allowed here"}', "not allowed here"),
    "message": (b'{"message": "not allowed here"}', "not allowed here"),
    "detail is a list": (b'{"detail": [{"msg": "field required"}]}', "field required"),
    "no words": (b'{"reason": 7}', r"reason\W+7"),
    "list": (b'[{"error": "not now"}]', "not now"),
    "half a body": (b'{"error": {"message": "cut o', "cut o"),
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("body", "reported"), BODIES.values(), ids=BODIES)
def test_what_is_no_error_of_the_vendors_shape_is_reported_too(ask, raw, wire, body, reported):
    """Proxies and local servers answer in shapes of their own; whoever looks for why reads them."""
    raw.status, raw.headers, raw.body = 400, {"content-type": "application/json"}, body
    _, failure = ask(raw, wire)

    assert (failure.kind, failure.status) == (P, 400)
    assert re.search(reported, failure.reason)


@pytest.mark.parametrize("wire", WIRES)
def test_a_key_that_a_body_repeats_is_not_reported(ask, raw, wire):
    """Whatever the shape it is repeated in."""
    raw.status, raw.headers = 401, {"content-type": "text/plain"}
    raw.body = b"nobody knows the key " + raw.options(wire)["api_key"].encode()
    _, failure = ask(raw, wire)

    assert "nobody knows the key" in failure.reason
    assert raw.options(wire)["api_key"] not in failure.reason


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("shape", [{"error": "{}"}, {"detail": "{}"}, "{}"], ids=str)
def test_too_long_in_another_shape_is_an_overflow(ask, raw, wire, shape):
    """Words decide wherever they stand."""
    words = "This model's maximum context length is 8 tokens."
    body = json.dumps(shape).replace("{}", words)
    raw.status, raw.headers = 400, {"content-type": "application/json"}
    raw.body = body.encode()
    _, failure = ask(raw, wire)

    assert (failure.kind, failure.status) == (O, 400)


@pytest.mark.parametrize("wire", WIRES)
def test_an_overloaded_vendor_is_asked_again(ask, llmock, wire):
    """529 is Anthropic's own status, and others took it over."""
    llmock.plan({"type": "fail", "status": 529})
    _, failure = ask(llmock, wire)

    assert (failure.kind, failure.status) == (T, 529)
    assert failure.reason.endswith(": Service overloaded.")


@pytest.mark.parametrize("wire", WIRES)
def test_retry_after_in_seconds_comes_through(ask, llmock, wire):
    """The wait that a vendor asks for reaches the kernel."""
    llmock.plan({"type": "fail", "status": 429, "retry_after": 7})
    _, failure = ask(llmock, wire)

    assert (failure.kind, failure.status, failure.retry_after_s) == (T, 429, 7.0)


@pytest.mark.parametrize("wire", WIRES)
def test_retry_after_as_a_date_comes_through(ask, aimock, wire):
    """A date is what is left until then."""
    until = email.utils.formatdate(time.time() + 100, usegmt=True)
    aimock.serve({"error": {"message": "slow"}, "status": 429, "retryAfter": until})
    _, failure = ask(aimock, wire)

    assert failure.kind == T
    assert 60 < failure.retry_after_s <= 100


@pytest.mark.parametrize("wire", WIRES)
def test_a_conversation_that_is_too_long_is_an_overflow(ask, llmock, wire):
    """A server counts tokens and refuses in its vendor's words."""
    _, failure = ask(llmock, wire, messages=LONG)

    assert (failure.kind, failure.status) == (O, 400)


REFUSED = {"type": "invalid_request_error"}
WORDINGS = {
    "openai counts": (
        "openai",
        {
            "message": "This model's maximum context length is 128000 tokens. However, your"
            " messages resulted in 140210 tokens. Please reduce the length of the messages.",
            "code": "context_length_exceeded",
        },
    ),
    "openai says so": (
        "openai",
        {
            "message": "Your input exceeds the context window of this model. Please adjust it.",
            "code": "context_length_exceeded",
        },
    ),
    "openai means one string": (
        "openai",
        {"message": "Invalid 'messages[1].content'.", "code": "string_above_max_length"},
    ),
    "anthropic counts": (
        "anthropic",
        {"message": "prompt is too long: 201512 tokens > 200000 maximum"},
    ),
    "anthropic adds the bound": (
        "anthropic",
        {"message": "input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000"},
    ),
    "google counts": (
        "gemini",
        {
            "message": "The input token count (1300000) exceeds the maximum number of tokens"
            " allowed (1048576)."
        },
    ),
}


@pytest.mark.parametrize(("wire", "error"), WORDINGS.values(), ids=WORDINGS)
def test_each_vendors_words_for_too_long_are_known(ask, aimock, wire, error):
    """They share a status with other mistakes, so that only words and codes distinguish them."""
    aimock.serve({"error": REFUSED | error, "status": 400})
    _, failure = ask(aimock, wire)

    assert (failure.kind, failure.status) == (O, 400)


@pytest.mark.parametrize("wire", WIRES)
def test_a_body_that_is_too_large_is_an_overflow(ask, aimock, wire):
    """413 comes from whatever stands in front of a model, without a word about tokens."""
    aimock.serve({"error": {"message": "Payload refused"}, "status": 413})
    _, failure = ask(aimock, wire)

    assert (failure.kind, failure.status) == (O, 413)


MISTAKES = {
    "parameter": {"message": "temperature: must be below 2"},
    "name": {"message": "Unsupported parameter: 'max_tokens' is not supported with this model."},
    "answer": {"message": "max_tokens: 99999 exceeds the limit of 4096"},
    "image": {"message": "image exceeds the limit of 20 MB"},
    "tools": {"message": "'tools': array too long, exceeds the limit of 128 tools"},
    "stop": {"message": "stop: exceeds the limit of 4 sequences"},
    "string": {
        "message": "Invalid 'tools[0].function.description': string too long. Expected a string"
        " with maximum length 1024, but got a string with length 2000 instead.",
        "code": "string_above_max_length",
    },
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("error", MISTAKES.values(), ids=MISTAKES)
def test_another_mistake_is_no_overflow(ask, raw, wire, error):
    """What is refused for another limit is not cured by a shorter conversation."""
    raw.status, raw.headers = 400, {"content-type": "application/json"}
    raw.body = json.dumps({"error": REFUSED | error}).encode()
    _, failure = ask(raw, wire)

    assert (failure.kind, failure.status) == (P, 400)
    assert error["message"][:40] in failure.reason


@pytest.mark.parametrize("wire", WIRES)
def test_no_key_is_in_the_error_of_a_refused_key(ask, aimock, wire):
    """A vendor that repeats the key in its answer does not get it into our texts."""
    key = "value-that-nobody-may-see"
    aimock.serve({"error": {"message": f"bad key {key}"}, "status": 401})
    _, failure = ask(aimock, wire, provider_opts={"api_key": key})

    assert failure.reason.endswith(": bad key [hidden]")
    assert failure.__cause__ is None


SUM = (
    "'max_tokens' or 'max_completion_tokens' is too large: {}. This model's maximum context length"
    " is 8192 tokens and your request has 5000 input tokens ({} > 8192 - 5000)."
)


@pytest.mark.parametrize(("answer", "kind"), [(4000, O), (8192, P), (99_999, P)])
def test_an_answer_that_is_too_long_by_itself_is_no_overflow(ask, raw, answer, kind):
    """VLLM says the same of both; no shorter conversation makes room for this one."""
    words = SUM.format(answer, answer)
    raw.status, raw.headers = 400, {"content-type": "application/json"}
    raw.body = json.dumps({"error": REFUSED | {"message": words, "param": "max_tokens"}}).encode()
    _, failure = ask(raw, "openai")

    assert (failure.kind, failure.status) == (kind, 400)
    assert words[:60] in failure.reason


PROMPT_TEXT = "it said: This model's maximum context length is 8192 tokens. What is that, and 429?"
ECHOES = {
    "beside the words": {"detail": [{"msg": "field required", "input": {"content": PROMPT_TEXT}}]},
    "in quotes": {"error": {"message": f"no such thing as '{PROMPT_TEXT}'"}},
    "as it is": {"error": {"message": f"refused: {PROMPT_TEXT} (see the manual)"}},
    "in part": {"error": {"message": f'unfit: "{PROMPT_TEXT[9:60]}"'}},
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("body", ECHOES.values(), ids=ECHOES)
def test_what_a_server_repeats_of_the_conversation_decides_nothing(ask, raw, wire, body):
    """A conversation about errors is no error of its own."""
    raw.status, raw.headers = 400, {"content-type": "application/json"}
    raw.body = json.dumps(body).encode()
    _, failure = ask(raw, wire, messages=(Message.user(PROMPT_TEXT),))

    assert (failure.kind, failure.status) == (P, 400)


def test_a_conversation_about_errors_may_be_too_long(ask, raw):
    """The server's own words count, whatever was talked about."""
    raw.status, raw.headers = 400, {"content-type": "application/json"}
    words = "This model's maximum context length is 8192 tokens. However, you sent 9000."
    raw.body = json.dumps({"error": {"message": words}}).encode()
    _, failure = ask(raw, "openai", messages=(Message.user(PROMPT_TEXT),))

    assert failure.kind == O
