"""Envelopes, headers and topics."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.checked_struct import INCARNATION_MAX, INDEX_MAX, TIME_MS_MAX
from cmdc_runtime.errors import ProtocolError
from cmdc_runtime.ids import is_session_id
from cmdc_runtime.reasons import snake
from cmdc_runtime.wire.codec import decode, decode_as, encode
from cmdc_runtime.wire.frames import (
    BATCH_EVENTS_MAX,
    COMMAND_ID_CHARS_MAX,
    FRAME_BYTES_MAX,
    HEADER,
    MAGIC,
    WIRE_VERSION,
    Answer,
    Ask,
    Batch,
    Completed,
    Detached,
    EventEntry,
    FromClient,
    FromWorker,
    JournalRecord,
    Published,
    Refusal,
    Send,
    ToClient,
    ToWorker,
    Write,
    Written,
    of_router,
    to_dealer,
    topic_of,
)

BASES = (FromClient, ToClient, FromWorker, ToWorker, Published)
KINDS = [kind for base in BASES for kind in base.__subclasses__()]
TAGS = {
    "Detached": "adrift",
    "ExitNotice": "last_words",
    "FailedReply": "failed",
    "IdleNotice": "doze",
    "PagedReply": "paged",
    "ValueReply": "reply",
}
"""Of the frames whose name has changed since the wire has it."""
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,5}", fullmatch=True)


def test_a_header_names_the_version():
    """The first bytes are ours, the last one is the version."""
    assert MAGIC + bytes([WIRE_VERSION]) == HEADER
    assert 0 < WIRE_VERSION < 256


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_frame_is_a_tagged_array(kind):
    """Field names take no room on the wire; frames are explained and can't change."""
    assert kind.__struct_config__.array_like
    assert kind.__struct_config__.tag == TAGS.get(kind.__name__, snake(kind.__name__))
    assert kind.__struct_config__.frozen
    assert kind.__doc__


def test_a_small_frame_is_small():
    """The tag and the fields, nothing else."""
    assert encode(Written(number=5, index=9)) == b"\x93\xa7written\x05\x09"


@given(names, names)
def test_a_topic_matches_its_session_only(one, two):
    """A subscription is a prefix: no session's topic begins with another's."""
    assert is_session_id(one)
    assert topic_of(two).startswith(topic_of(one)) == (one == two)


def test_a_frame_may_hold_a_whole_history_frame():
    """The bound of a part is far above that of the batches that we make."""
    assert FRAME_BYTES_MAX >= 16 * 2**20


DETACHED = {"worker_id": "w-1-ab", "session_id": "s-1", "incarnation": 1, "first": 1}


def write(**changes):
    return Write(**{"records": (), "completed": (), "number": 1} | changes)


@pytest.mark.parametrize(
    "frame",
    [
        Batch(first=1, count=2**64 - 1, durable=True),
        Batch(first=1, count=BATCH_EVENTS_MAX + 1, durable=True),
        Batch(first=1, count=0, durable=True),
        Batch(first=1, count=-1, durable=True),
        Batch(first=0, count=1, durable=True),
        Batch(first=INDEX_MAX + 1, count=1, durable=True),
        Batch(first=-(2**63), count=1, durable=True),
        write(number=0),
        write(number=INDEX_MAX + 1),
        write(records=(JournalRecord(kind="a\0b", body=b""),)),
        write(records=(JournalRecord(kind="k" * 65, body=b""),)),
        write(completed=(Completed(id="c\0", frame=b""),)),
        Answer(id="c" * 1025, body=b""),
        Refusal(id="c", code="bad\x1b[2J", message="", details=b""),
        Detached(**DETACHED | {"worker_id": "../control.sock\n"}),
        Detached(**DETACHED | {"session_id": "s-1\x1b"}),
        Detached(**DETACHED | {"session_id": ""}),
        Detached(**DETACHED | {"incarnation": 0}),
        Detached(**DETACHED | {"first": 0}),
        Detached(**DETACHED | {"first": 2**64 - 1}),
    ],
    ids=repr,
)
def test_a_worker_says_no_number_or_name_beyond_its_bounds(frame):
    """It is refused when it is read, so nobody behind that has to look."""
    with pytest.raises(ProtocolError, match="not a FromWorker: "):
        decode(FromWorker, encode(frame))


@pytest.mark.parametrize(
    "frame",
    [
        Batch(first=INDEX_MAX, count=BATCH_EVENTS_MAX, durable=True),
        write(number=INDEX_MAX, records=(JournalRecord(kind="", body=b""),)),
        Detached(**DETACHED | {"first": INDEX_MAX, "incarnation": INCARNATION_MAX}),
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_a_worker_may_go_to_the_bounds(frame):
    """The last value that is allowed is."""
    assert decode(FromWorker, encode(frame)) == frame


@pytest.mark.parametrize("id_", ["c\0", "c" * (COMMAND_ID_CHARS_MAX + 1)], ids=["control", "long"])
@pytest.mark.parametrize(
    "frame",
    [
        Ask(id="c", body=msgspec.Raw(b"\xc0")),
        Send(id="c", session_id="s-1", durable=True, body=msgspec.Raw(b"\xc0")),
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_a_client_names_a_request_as_its_answer_can_be_filed(frame, id_):
    """Else the process that files it would say what it may not, and be ended for it."""
    with pytest.raises(ProtocolError, match="not a FromClient: "):
        decode(FromClient, encode(msgspec.structs.replace(frame, id=id_)))


@pytest.mark.parametrize("at_ms", [-1, TIME_MS_MAX + 1, 2**64 - 1])
def test_an_event_is_of_a_time_that_calendars_have(at_ms):
    """Whoever shows it need not look."""
    with pytest.raises(ProtocolError):
        decode_as(EventEntry, encode([at_ms, {}]))


@given(st.binary())
def test_what_goes_to_a_dealer_is_one_part(frame):
    """ADR 0045: the header and the frame behind it, and back."""
    sent = to_dealer(frame)

    assert len(sent) == 1
    assert of_router(sent) == frame


@pytest.mark.parametrize("parts", [[], [b""], [HEADER[:-1]], [MAGIC + b"\x09x"], [HEADER, b"x"]])
def test_what_is_no_message_of_the_daemon_has_no_frame(parts):
    """Another version, another protocol, a message of an older form."""
    assert of_router(parts) is None
