"""Servers that send too much, or what nobody can keep: bounded, named, and not asked again."""

import gzip
import importlib
import json
import time

import pytest

from cmdc_runtime.extensions.provider import FailureKind, FinishChunk, TextChunk
from workers.builtin.providers import _metering
from workers.builtin.providers._failures import REASON_MAX_CHARS, TEXT_CHARS_MAX

WIRES = ["openai", "anthropic", "gemini"]
PERMANENT, TRANSIENT = FailureKind.PERMANENT, FailureKind.TRANSIENT
SOON_S = 4.0
"""For one answer, on a busy machine; a body of 1 MB took longer than that by itself before."""
MB = 10**6
CHUNK = {"id": "x", "choices": [{"index": 0, "delta": {"content": "the same"}}]}
END = {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


@pytest.fixture(autouse=True)
def used_wires(ask, raw):
    """Load what a first call loads before anything is timed."""
    raw.status, raw.body = 401, b"{}"
    for wire in WIRES:
        ask(raw, wire)
    raw.status = 200
    raw.seen.clear()


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("size", [MB, 50 * MB])
def test_the_body_of_an_error_costs_no_more_than_its_beginning(ask, raw, wire, size):
    """Whatever follows is not even read: no loop is held by it."""
    raw.status = 500
    raw.headers = {"content-type": "application/json"}
    raw.body = b'{"error": {"message": "password=' + b"a=b " * (size // 4) + b'"}}'
    began = time.monotonic()
    _, failure = ask(raw, wire)

    assert time.monotonic() - began < SOON_S
    assert (failure.kind, failure.status) == (TRANSIENT, 500)
    assert len(failure.reason) <= REASON_MAX_CHARS
    assert len(raw.seen) == 1


@pytest.mark.parametrize("wire", WIRES)
def test_a_small_answer_that_unpacks_to_much_is_refused(ask, raw, wire):
    """It is unpacked piece by piece, and no further than the bound."""
    raw.headers |= {"content-encoding": "gzip"}
    raw.body = gzip.compress(b"data: " + b"a" * (3 * _metering.EVENT_BYTES_MAX))
    chunks, failure = ask(raw, wire)

    assert chunks == []
    assert (failure.kind, failure.status) == (PERMANENT, None)
    assert failure.reason == "the provider's answer has more than 8,388,608 bytes in one event"
    assert len(raw.seen) == 1


@pytest.mark.parametrize("wire", WIRES)
def test_a_packed_reply_is_read(ask, raw, wire):
    """Gzip is what was asked for; what it is packed in is not passed on as text."""
    raw.headers |= {"content-encoding": "gzip"}
    raw.stream({"error": {"code": 503, "status": "UNAVAILABLE", "message": "busy"}})
    raw.body = gzip.compress(raw.body)
    _, failure = ask(raw, wire)

    assert failure.kind == TRANSIENT


@pytest.mark.parametrize("wire", WIRES)
def test_a_packing_that_nobody_asked_for_is_refused(ask, raw, wire):
    """There is no bound on what comes of it."""
    raw.headers |= {"content-encoding": "gzip, gzip"}
    raw.body = gzip.compress(gzip.compress(b"data: x\n\n"))
    _, failure = ask(raw, wire)

    assert (failure.kind, failure.reason) == (
        PERMANENT,
        "the answer is packed as 'gzip, gzip', and only gzip was asked for",
    )


@pytest.mark.parametrize("wire", WIRES)
def test_a_line_without_an_end_is_refused(ask, raw, wire):
    """Nobody collects it: it is counted as it comes."""
    raw.body = b"data: {" + b"a" * (_metering.EVENT_BYTES_MAX + 1)
    _, failure = ask(raw, wire)

    assert failure.kind == PERMANENT
    assert "bytes in one event" in failure.reason


@pytest.mark.parametrize("wire", WIRES)
def test_an_event_of_many_lines_is_refused(ask, raw, wire):
    """Parsers add line to line, each time the whole of it."""
    raw.body = b"data: 1\n" * (_metering.EVENT_LINES_MAX + 1)
    _, failure = ask(raw, wire)

    assert failure.kind == PERMANENT
    assert "lines in one event" in failure.reason


def test_a_hundred_equal_chunks_are_an_answer(ask, raw):
    """What a model repeats is the model's business; the loop watch looks after calls."""
    raw.stream(*[CHUNK] * 150, END)
    chunks, failure = ask(raw, "openai")

    assert failure is None
    assert "".join(c.text for c in chunks if isinstance(c, TextChunk)) == "the same" * 150
    assert isinstance(chunks[-1], FinishChunk)


ODD = {
    "usage": {"usage": {"prompt_tokens": 2**70, "completion_tokens": -1, "total_tokens": 1e400}},
    "id": {"id": "x" * MB},
    "index": {"choices": [{"index": 2**80, "delta": {"content": "x"}}]},
    "surrogate": {"choices": [{"index": 0, "delta": {"content": "\ud800"}}]},
    "deep": {"choices": [{"index": 0, "delta": {"content": [[[]]]}}]},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_odd_chunks_end_as_one_failure_or_none(ask, raw, odd):
    """Whatever litellm makes of them leaves by the contract."""
    raw.stream(CHUNK, CHUNK | odd, END)
    chunks, failure = ask(raw, "openai")

    assert failure is not None or isinstance(chunks[-1], FinishChunk)


@pytest.mark.parametrize("wire", WIRES)
def test_a_chunk_that_nests_deep_is_a_failure(ask, raw, wire):
    """It is a recursion in somebody's parser, and no death of ours."""
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    raw.body = f"data: {deep}\n\n".encode()
    _, failure = ask(raw, wire)

    assert failure is not None
    assert len(failure.reason) <= REASON_MAX_CHARS


KEY = "neutral-value-42/x+y"
FORMS = {
    "as it is": KEY,
    "url": "neutral-value-42%2Fx%2By",
    "json": json.dumps(KEY).replace("/", "\\/"),
    "base64": "bmV1dHJhbC12YWx1ZS00Mi94K3k=",
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_what_was_given_in_a_header_is_not_shown(ask, raw, wire, form):
    """A server that echoes it, in whatever form, does not get it into our texts."""
    raw.status = 400
    raw.headers = {"content-type": "application/json"}
    raw.body = json.dumps({"error": {"message": f"who is {form}?"}}).encode()
    _, failure = ask(raw, wire, provider_opts={"extra_headers": {"X-Team": KEY}})

    assert "neutral" not in failure.reason
    assert "bmV1dHJhb" not in failure.reason
    assert "[hidden]" in failure.reason
    assert failure.__cause__ is None


@pytest.fixture
def redacted(adapter, monkeypatch):
    """List the sizes of the texts that litellm looks through for secrets, in characters."""
    redaction = importlib.import_module("litellm.litellm_core_utils.secret_redaction")
    look_through, sizes = redaction.python_redact_string, []

    def count(text):
        sizes.append(len(text))
        return look_through(text)

    monkeypatch.setattr(redaction, "python_redact_string", count)
    return sizes


def long_errors(long):
    """Return what servers answer with a text that is too long, by name: a status and bytes."""
    members = {"message": long, "type": "server_error", "status": "UNAVAILABLE", "code": 503}
    event = {"type": "error", "error": members}
    for name, sent in {"event": event, "text": {"error": long}, "list": {"error": [long]}}.items():
        yield name, 200, b"data: " + json.dumps(sent).encode() + b"\n\n"
    yield "no JSON", 200, b'data: {"error": ' + long.encode() + b"\n\n"
    yield "odd chunk", 200, b"data: " + json.dumps({"choices": long}).encode() + b"\n\n"
    yield "body", 500, json.dumps({"error": members}).encode()
    yield "plain body", 500, long.encode()


LONG_ERRORS = {name: (status, body) for name, status, body in long_errors("e" * MB)}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", LONG_ERRORS)
def test_litellm_gets_the_beginning_of_an_error(ask, raw, redacted, wire, name):
    """It takes long to look through a text, on the loop: an event may have 8 MiB."""
    raw.status, raw.body = LONG_ERRORS[name]
    _, failure = ask(raw, wire)

    assert failure is not None
    assert len(failure.reason) <= REASON_MAX_CHARS
    assert max(redacted, default=0) <= TEXT_CHARS_MAX
    assert sum(redacted) <= 20 * TEXT_CHARS_MAX


@pytest.mark.parametrize("wire", WIRES)
def test_a_long_error_in_a_stream_is_of_its_kind(ask, raw, wire):
    """What says so is left of it, and its beginning is reported."""
    raw.body = LONG_ERRORS["event"][1]
    _, failure = ask(raw, wire)

    assert failure.kind == TRANSIENT
    assert "eeee" in failure.reason
