"""Envelopes of what workers say: whole values, as many events as are said, answers to their own."""

import pytest

from cmdc_runtime.errors import ProtocolError
from cmdc_runtime.events import StreamReset
from cmdc_runtime.wire.codec import encode, encode_events, failed, raw
from cmdc_runtime.wire.frames import (
    Answer,
    Batch,
    Completed,
    Deliver,
    IdleNotice,
    JournalRecord,
    Refusal,
    ValueReply,
    Write,
)
from supervisor.core.worker_frames import check_form

TWO = encode_events([(0, StreamReset()), (1, StreamReset())])
DEEP = b"\x91" * 100_000 + b"\xc0"


NO_MAPS = {
    "empty": b"",
    "noise": b"\xc1",
    "cut": b"\x81\xa1a",
    "two": b"\x80\x80",
    "no map": b"\x91\xc0",
    "text": encode("said"),
    "too deep": b"\x81\xa1a" + DEEP,
}


def batch(count):
    return Batch(first=1, count=count, durable=True)


def settling(*outcomes):
    settled = tuple(Completed(id=name, frame=frame) for name, frame in outcomes)
    return Write(records=(), completed=settled, number=1)


def answer_to(name):
    return encode(ValueReply(id=name, body=raw("done")))


def writing(body, snapshot=b""):
    record = JournalRecord(kind="said", body=body)
    return Write(records=(record,), completed=(), number=1, snapshot=snapshot)


GOOD = [
    (writing(encode({"kind": "any"})), b""),
    (writing(encode(dict.fromkeys(map(str, range(20)))), snapshot=encode({})), b""),
    (batch(2), TWO),
    (Answer(id="c", body=encode({"any": [1]})), b""),
    (Answer(id="c", body=b"\x92\xc0", page_id="p-1"), b""),
    (Refusal(id="c", code="x", message="", details=encode({})), b""),
    (
        settling(("c-1", answer_to("c-1")), ("c-2", encode(failed("c-2", ProtocolError("no"))))),
        b"",
    ),
    (settling(), b""),
    (IdleNotice(), b""),
]
BAD = {
    **{f"a record that is {name}": (writing(body), b"") for name, body in NO_MAPS.items()},
    **{
        f"a snapshot that is {name}": (writing(encode({}), body), b"")
        for name, body in NO_MAPS.items()
        if body
    },
    "more than it holds": (batch(3), TWO),
    "less than it holds": (batch(1), TWO),
    "no body": (batch(1), b""),
    "a cut body": (batch(2), TWO[:-1]),
    "something behind the body": (batch(2), TWO + b"\xc0"),
    "no list": (batch(1), encode({"a": 1})),
    "no entries": (batch(2), encode([1, 2])),
    "too deep an event": (batch(1), encode([[0]])[:-1] + b"\x92\x00" + DEEP),
    "an empty answer": (Answer(id="c", body=b""), b""),
    "two answers in one": (Answer(id="c", body=b"\xc0\xc0"), b""),
    "a cut answer": (Answer(id="c", body=b"\x92\xc0"), b""),
    "too deep an answer": (Answer(id="c", body=DEEP), b""),
    "details of a refusal that are none": (
        Refusal(id="c", code="x", message="", details=b"\xc1"),
        b"",
    ),
    "an outcome that is noise": (settling(("c-1", b"\xc1")), b""),
    "an outcome for another command": (
        settling(("c-1", answer_to("c-1")), ("c-2", answer_to("c-3"))),
        b"",
    ),
    "an outcome that is no answer": (
        settling(("c-1", encode(Deliver(id="c-1", body=raw(1), durable=True)))),
        b"",
    ),
}


@pytest.mark.parametrize("at", range(len(GOOD)))
def test_what_is_whole_passes(at):
    """Whatever it says inside."""
    check_form(*GOOD[at])


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_is_refused(name):
    """By an error of the wire, whatever is wrong with it."""
    with pytest.raises(ProtocolError):
        check_form(*BAD[name])
