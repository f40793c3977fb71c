"""What no vendor should send, to a real session: it goes on, stays small and answers the next.

A session for each wire lives through all of it; ``test_bounds.py`` has what the adapter alone makes
of too much.
"""

import json
import math
import re
import zlib
from pathlib import Path

import pytest
import structlog

import cmdc_runtime as cmdc
from cmdc_runtime.extensions.provider import FailureKind, FinishChunk, TextChunk, UsageChunk
from tests.fault.cases.sending import Sender
from tests.integration.providers import conftest

pytestmark = pytest.mark.process
WIRES = ["openai", "anthropic", "gemini"]
TURN_S = 30.0
MB = 2**20
GROWTH_BYTES_MAX = 200 * MB
"""Of the agent over all cases of a wire: some of them copy an event of 8 MiB a few times."""
LIBRARY_BYTES = {"openai": 0, "anthropic": 200 * MB, "gemini": 0}
"""Beside that, of litellm: what has a name that is none goes to Anthropic by it, loaded then."""
SSE = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}


def events(*bodies):
    """Return server-sent events; one with a ``type`` is named by it, as Anthropic does."""
    named = [f"event: {body['type']}\n" if "type" in body else "" for body in bodies]
    pieces = [f"{n}data: {json.dumps(b)}\n\n" for n, b in zip(named, bodies, strict=True)]
    return "".join(pieces).encode()


def openai(delta, finish, usage):
    one = {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    end = {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    return events(one, end | ({} if usage is None else {"usage": usage}))


def anthropic(block, delta, finish, usage):
    usage = {"input_tokens": 1, "output_tokens": 1} if usage is None else usage
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m"}
    return events(
        {"type": "message_start", "message": message | {"usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": finish}, "usage": usage},
        {"type": "message_stop"},
    )


def gemini(part, usage):
    candidate = {"content": {"parts": [part], "role": "model"}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1} if usage is None else usage
    return events({"candidates": [candidate], "usageMetadata": usage})


def said(wire, text, usage=None):
    """Return a whole reply of one text."""
    if wire == "openai":
        return openai({"content": text}, "stop", usage)
    if wire == "anthropic":
        delta = {"type": "text_delta", "text": text}
        return anthropic({"type": "text", "text": ""}, delta, "end_turn", usage)
    return gemini({"text": text}, usage)


def called(wire, call_id, name, arguments):
    """Return a whole reply of one tool call; ``arguments`` are JSON."""
    if wire == "openai":
        function = {"name": name, "arguments": arguments}
        call = {"index": 0, "id": call_id, "type": "function", "function": function}
        return openai({"tool_calls": [call]}, "tool_calls", None)
    if wire == "anthropic":
        block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": arguments}
        return anthropic(block, delta, "tool_use", None)
    body = gemini({"functionCall": {"id": call_id, "name": name, "args": "ARGS"}}, None)
    return body.replace(b'"ARGS"', arguments.encode())


NAMES = {
    "openai": ("prompt_tokens", "completion_tokens", "total_tokens"),
    "anthropic": ("input_tokens", "output_tokens"),
    "gemini": ("promptTokenCount", "candidatesTokenCount", "totalTokenCount"),
}
COUNTS = {
    "text": "many",
    "list": [1],
    "nan": math.nan,
    "1e300": 1e300,
    "2**80": 2**80,
    "negative": -5,
    "part": 1.5,
    "bool": True,
    "null": None,
    "object": {},
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS)
def test_a_usage_that_cannot_be_read_is_unknown_and_costs_no_reply(ask, raw, wire, count):
    """It is reported nowhere but in the log, once, with its field and value."""
    raw.body = said(wire, "fine", dict.fromkeys(NAMES[wire], count))
    with structlog.testing.capture_logs() as logs:
        chunks, failure = ask(raw, wire)
    (refused,) = [entry for entry in logs if entry["event"] == "usage.refused"]

    assert failure is None
    assert [type(chunk) for chunk in chunks] == [TextChunk, FinishChunk]
    assert f"['{NAMES[wire][0]}']: {count!r}" in refused["problem"]
    assert (refused["log_level"], len(refused["problem"]) < 300) == ("warning", True)
    assert len(raw.seen) == 1


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("usage", ["many", [1], 5], ids=str)
def test_a_usage_that_is_no_object_is_unknown(ask, raw, wire, usage):
    """Whatever stands in its place."""
    raw.body = said(wire, "fine", usage)
    chunks, failure = ask(raw, wire)

    assert failure is None
    assert [type(chunk) for chunk in chunks] == [TextChunk, FinishChunk]


@pytest.mark.parametrize("wire", WIRES)
def test_a_usage_that_can_be_read_is_reported(ask, raw, wire):
    """A null beside counts is not reported, and words among them are the vendor's."""
    first, *others = NAMES[wire]
    raw.body = said(wire, "fine", {first: 7, "tier": "x", **dict.fromkeys(others)})
    chunks, failure = ask(raw, wire)
    (reported,) = [chunk.usage for chunk in chunks if isinstance(chunk, UsageChunk)]

    assert failure is None
    assert reported.prompt_tokens == 7


DIGITS = "9" * 5_000
"""More than Python makes an int of."""


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("sign", ["", "-"], ids=["plus", "minus"])
@pytest.mark.parametrize("place", ["count", "part", "beside"])
def test_a_number_of_endless_digits_in_a_usage_costs_no_reply(ask, raw, wire, sign, place):
    """Such a usage is unknown too, wherever the number lies in it."""
    first, *others = NAMES[wire]
    usages = {
        "count": {first: "DIGITS"},
        "part": {first: 7, "x_details": {"x_tokens": "DIGITS"}},
        "beside": {first: 7, "tier": ["DIGITS"]},
    }
    body = said(wire, "fine", dict.fromkeys(others, 7) | usages[place])
    raw.body = body.replace(b'"DIGITS"', f"{sign}{DIGITS}".encode())
    with structlog.testing.capture_logs() as logs:
        chunks, failure = ask(raw, wire)
    (refused,) = [entry for entry in logs if entry["event"] == "usage.refused"]

    assert failure is None
    assert [type(chunk) for chunk in chunks] == [TextChunk, FinishChunk]
    assert len(refused["problem"]) < 300


@pytest.mark.parametrize("wire", WIRES)
def test_a_number_of_endless_digits_elsewhere_is_an_answer_that_cannot_be_read(ask, raw, wire):
    """What its reader says of a limit is no word of the server: no conversation is too long."""
    raw.body = said(wire, "fine").replace(b'"index": 0', b'"index": ' + DIGITS.encode())
    _, failure = ask(raw, wire)

    assert failure.kind is FailureKind.PERMANENT
    assert failure.reason.startswith(f"the answer of {conftest.MODELS[wire]} could not be read: ")
    assert len(failure.reason) < 250
    assert len(raw.seen) == 1


UNREAD = {
    "openai": b'data: {"id": "x", "choices": "none"}\n\n',
    "anthropic": b'event: message_start\ndata: {"type": "message_start", "message": 1}\n\n',
    "gemini": b'data: {"candidates": 1}\n\n',
}


@pytest.mark.parametrize("wire", WIRES)
def test_what_no_reader_expects_is_reported_in_short_and_final(ask, raw, wire):
    """The same answer would come again; no path of a file and no answer is in the reason."""
    raw.body = UNREAD[wire]
    _, failure = ask(raw, wire)

    assert failure.kind is FailureKind.PERMANENT
    assert failure.reason.startswith(f"the answer of {conftest.MODELS[wire]} could not be read: ")
    assert not re.search(r'Traceback|File "|\.py|chunk:', failure.reason)
    assert len(failure.reason) < 250
    assert len(raw.seen) == 1


@pytest.fixture(scope="module")
def client(cmdc_daemon):
    """A client of the run's daemon."""
    with cmdc.Client(cmdc_daemon.address) as client:
        yield client


@pytest.fixture(scope="module", params=WIRES)
def lived(request, client):
    """Return a wire, its server, and a session that has answered once and meets each case."""
    wire = request.param
    with Sender((200, SSE, [said(wire, "Fine.")])) as server:
        options = {"provider_opts": server.options, "max_retries": 1, "retry_base_delay": 0.01}
        with client.create_agent(model=conftest.MODELS[wire], **options) as session:
            session.run("Hi.", timeout=TURN_S)
            yield wire, server, session, memory_of(session.agent_pid(), "VmRSS")


def memory_of(pid, name):
    """Return bytes of memory of a process: ``VmRSS`` now, ``VmHWM`` at most so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)[1]) * 2**10


def packed(size):
    """Return so many bytes of one line, packed; a full flush makes each 16 MiB the same bytes."""
    packer = zlib.compressobj(1, wbits=31)
    begun = packer.compress(b"data: ") + packer.flush(zlib.Z_FULL_FLUSH)
    once = packer.compress(bytes(16 * MB)) + packer.flush(zlib.Z_FULL_FLUSH)
    return begun + once * (size // (16 * MB))


BOMB = packed(1024 * MB)
DEEP = '{"a":' * 5_000 + "1" + "}" * 5_000
ERROR = b'{"error": {"message": "' + b"a" * (50 * MB) + b'"}}'
TOO_LONG = "the reply is longer than"
TOO_MUCH = "bytes in one event"
MADE = {
    "usage": (lambda wire: said(wire, "Fine.", dict.fromkeys(NAMES[wire], math.nan)), None),
    "control id": (lambda wire: called(wire, "a\x00\x1b\n", "none", "{}"), None),
    "10 MB id": (lambda wire: called(wire, "i" * 10 * MB, "none", "{}"), TOO_MUCH),
    "5 MB id": (lambda wire: called(wire, "i" * 5 * MB, "none", "{}"), TOO_LONG),
    "surrogate text": (lambda wire: said(wire, "Fine.\ud800"), None),
    "surrogate name": (lambda wire: called(wire, "c", "n\ud800", "{}"), None),
    "1 MB name": (lambda wire: called(wire, "c", "n" * MB, "{}"), None),
    "3 MB line": (lambda wire: said(wire, "word " * 600_000), TOO_LONG),
}
SENT = {
    "line without end": ((200, SSE, [b"data: " + b"a" * 16 * MB]), TOO_MUCH),
    "50 MB error": ((400, JSON, [ERROR]), "aaaa"),
    "1 GiB packed": ((200, SSE | {"content-encoding": "gzip"}, [BOMB]), TOO_MUCH),
    "1 GiB packed error": ((400, JSON | {"content-encoding": "gzip"}, [BOMB]), "BadRequest"),
}
CASES = {
    name: ((lambda w, m=make: (200, SSE, [m(w)])), reported)
    for name, (make, reported) in MADE.items()
}
CASES |= {name: ((lambda _w, a=answer: a), reported) for name, (answer, reported) in SENT.items()}


def judged(lived, answer, reported):
    """Run a prompt with ``answer``, then one more; check the error, the process and its size."""
    wire, server, session, before = lived
    pid = session.agent_pid()
    server.answers, server.asked = [answer, (200, SSE, [said(wire, "Fine.")])], 0
    server.broken = None
    if reported is None:
        assert session.run("Go.", timeout=TURN_S).text.startswith("Fine.")
    else:
        with pytest.raises(cmdc.AgentFailed) as caught:
            session.run("Go.", timeout=TURN_S)
        assert reported in str(caught.value), repr(server.broken)
        assert len(str(caught.value)) < 1_000
        assert server.asked == 1  # the same again would not help
    assert session.run("Again.", timeout=TURN_S).text == "Fine."
    assert session.agent_pid() == pid
    assert memory_of(pid, "VmHWM") - before < GROWTH_BYTES_MAX + LIBRARY_BYTES[wire]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_session_lives_through_what_nobody_should_send(lived, case):
    """It says what is wrong, where anything is, does not grow, and answers the next prompt."""
    make, reported = case

    judged(lived, make(lived[0]), reported)


def test_deep_arguments_are_the_models_to_mend_or_end_the_reply(lived):
    """As text they are given to the model; Google sends them as JSON, which no reader takes."""
    wire, *_ = lived
    reported = "could not be read: RecursionError" if wire == "gemini" else None

    judged(lived, (200, SSE, [called(wire, "c", "none", DEEP)]), reported)
