"""What a session's file must be before any of it is kept."""

import hashlib
import math
import zlib

import msgspec
import pytest

from cmdc_runtime.checked_struct import INCARNATION_MAX, INDEX_MAX, SECONDS_MAX, TIME_MS_MAX
from cmdc_runtime.checkpoints import CHECKPOINTS_MAX, CheckpointFacts, encode_facts
from cmdc_runtime.errors import UsageError
from cmdc_runtime.message_parts import SESSION_PARTS_MAX
from cmdc_runtime.requests import (
    PastCommand,
    PastRecord,
    ReplayedBatch,
    StartSession,
    Supervision,
)
from cmdc_runtime.transfer import (
    FORMAT,
    BlobPart,
    CheckpointPart,
    Header,
    Whole,
    check_whole,
    part_of,
)
from cmdc_runtime.wire import codec
from cmdc_runtime.wire.frames import ValueReply

BODY = codec.encode({"type": "prompt"})
SPEC = StartSession(
    session_id="s-1",
    supervision=Supervision(),
    agent=codec.raw({"model": "m"}),
    carries_code=False,
)
HEADER = Header(
    format=FORMAT,
    session_id="s-1",
    exported_ms=2,
    created_ms=1,
    is_over=True,
    incarnation=3,
    restarts=1,
    last_index=9,
    spec=codec.encode(SPEC),
    snapshot_seq=4,
)
RECORD = PastRecord(seq=5, incarnation=1, kind="said", body=BODY)
ANSWER = codec.encode(ValueReply(id="c-1", body=codec.raw(None)))
COMMAND = PastCommand(seq=6, id="c-1", at_ms=1, body=BODY, answer=ANSWER)
BATCH = ReplayedBatch(first=8, count=2, body=codec.encode([]))
FACTS = CheckpointFacts(
    session_id="s-1",
    checkpoint_id="k-1",
    label="here",
    saved_ms=1,
    schema_version=1,
    metadata=encode_facts({}, ()),
)
CHECKPOINT = CheckpointPart(facts=FACTS, body=BODY)
BLOB = BlobPart(digest=hashlib.sha256(b"image").hexdigest(), body=b"image")
EMPTY = BlobPart(digest=hashlib.sha256(b"").hexdigest(), body=b"")
DEEP = b"\x91" * 970 + b"\xc0"


def changed(struct, **fields):
    return msgspec.structs.replace(struct, **fields)


def whole(**fields):
    """Return a file's session, with some of its parts changed."""
    parts = {
        "header": HEADER,
        "snapshot": BODY,
        "records": [RECORD],
        "commands": [COMMAND],
        "events": [BATCH],
        "checkpoints": [CHECKPOINT],
    }
    return Whole(**parts | fields)


def of_header(**fields):
    return whole(header=changed(HEADER, **fields))


def of_facts(**fields):
    return whole(checkpoints=[changed(CHECKPOINT, facts=changed(FACTS, **fields))])


def supervised(**fields):
    """Return a file whose session is to be kept like that."""
    bare = msgspec.to_builtins(Supervision())
    spec = msgspec.msgpack.decode(HEADER.spec) | {"supervision": bare | fields}
    return of_header(spec=codec.encode(spec))


def test_what_a_daemon_has_written_is_kept():
    """The definition of its session comes back."""
    assert check_whole(whole()) == SPEC
    assert check_whole(whole(blobs=[BLOB])) == SPEC
    assert check_whole(Whole(header=changed(HEADER, snapshot_seq=0))) == SPEC


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        (of_header(incarnation=-1), "header: incarnation: -1 is not between 1 and"),
        (of_header(incarnation=0), "header: incarnation: 0 is not"),
        (of_header(incarnation=INCARNATION_MAX + 1), "header: incarnation: "),
        (of_header(restarts=-1), "header: restarts: -1"),
        (of_header(last_index=2**63), "header: last_index: "),
        (of_header(last_index=8), r"events\[0\]: it ends with 9, and last_index is 8"),
        (of_header(snapshot_seq=INDEX_MAX + 1), "header: snapshot_seq: "),
        (of_header(created_ms=TIME_MS_MAX + 1), "header: created_ms: "),
        (of_header(exported_ms=-1), "header: exported_ms: "),
        (of_header(session_id="a b"), "header: session_id: no session can be called 'a b'"),
        (of_header(spec=b"x"), "header: spec: the session's definition cannot be read here"),
        (of_header(spec=DEEP), "header: spec: "),
        (supervised(unresponsive_after=0.0), "header: spec: .*unresponsive_after"),
        (supervised(unresponsive_after=1e300), "header: spec: .*unresponsive_after"),
        (supervised(max_restarts=-1), "header: spec: .*max_restarts"),
        (supervised(memory_limit=2**63), "header: spec: .*memory_limit"),
        (supervised(restart_delay=[0.1, float("inf")]), "header: spec: .*restart_delay"),
        (whole(snapshot=b""), "header: snapshot_seq: 4, and there is no snapshot"),
        (whole(snapshot=b"\xc1"), "snapshot: it is no MessagePack"),
        (whole(records=[changed(RECORD, seq=4)]), r"records\[0\]: seq: 4 is not between 5"),
        (whole(records=[RECORD, RECORD]), r"records\[1\]: seq: 5 comes behind 5"),
        (whole(records=[changed(RECORD, incarnation=4)]), r"records\[0\]: incarnation: 4"),
        (whole(records=[changed(RECORD, kind="\x1b[2J")]), r"records\[0\]: kind: .*U\+001B"),
        (whole(records=[changed(RECORD, body=DEEP)]), r"records\[0\]: body: it nests"),
        (whole(records=[changed(RECORD, body=b"")]), r"records\[0\]: body: .*it is cut"),
        (whole(commands=[changed(COMMAND, seq=5)]), "commands: seq: 5 is that of a record, too"),
        (whole(commands=[changed(COMMAND, at_ms=-1)]), r"commands\[0\]: at_ms: -1"),
        (whole(commands=[changed(COMMAND, id="")]), r"commands\[0\]: id: it is empty"),
        (whole(commands=[COMMAND, COMMAND]), r"commands\[1\]: id: 'c-1' is that of an earlier"),
        (whole(commands=[changed(COMMAND, answer=b"")]), r"commands\[0\]: answer: "),
        (whole(commands=[changed(COMMAND, id="c-2")]), r"commands\[0\]: answer: "),
        (whole(commands=[changed(COMMAND, body=b"\xff\xff")]), r"commands\[0\]: body: "),
        (whole(events=[changed(BATCH, first=0)]), r"events\[0\]: first: 0 is not between 1"),
        (whole(events=[changed(BATCH, count=2**60)]), r"events\[0\]: count: "),
        (whole(events=[BATCH, changed(BATCH, first=9)]), r"events\[1\]: first: 9 comes behind 9"),
        (whole(events=[changed(BATCH, body=DEEP)]), r"events\[0\]: body: it nests"),
        (of_facts(checkpoint_id="a\x1b[2J"), r"checkpoints\[0\]: checkpoint_id: "),
        (of_facts(label="a\x1b[2J"), r"checkpoints\[0\]: label: .*U\+001B"),
        (of_facts(saved_ms=10**18), r"checkpoints\[0\]: saved_ms: "),
        (of_facts(schema_version=-1), r"checkpoints\[0\]: schema_version: -1"),
        (of_facts(metadata=DEEP), r"checkpoints\[0\]: metadata: it nests"),
        (of_facts(metadata=b"\x2a"), r"checkpoints\[0\]: metadata: Expected `object`, got `int`"),
        (of_facts(metadata=b"\x81\xa8metadata\xc0"), r"checkpoints\[0\]: metadata: .*metadata`"),
        (whole(checkpoints=[changed(CHECKPOINT, body=DEEP)]), r"checkpoints\[0\]: body: it nests"),
        (whole(checkpoints=[CHECKPOINT] * (CHECKPOINTS_MAX + 1)), "checkpoints: 1,001 of them"),
        (whole(blobs=[changed(BLOB, body=b"others")]), r"blobs\[0\]: digest: it is that of other"),
        (whole(blobs=[BLOB, EMPTY]), r"blobs\[1\]: it is empty"),
        (whole(blobs=[BLOB] * (SESSION_PARTS_MAX + 1)), "blobs: 1,001 of 5,005 bytes, .* 1,000 of"),
    ],
)
def test_what_no_daemon_writes_is_refused_with_its_place(file, problem):
    """Numbers out of range, rows out of order, bodies that are none."""
    with pytest.raises(UsageError, match=f"the file's session cannot be kept: {problem}"):
        check_whole(file)


HOSTILE = (
    *(None, True, -1, 0, 1, 2**53, 2**63 - 1, 2**64 - 1, math.nan, math.inf, -math.inf, 1e300, 0.5),
    *("", "nobody", "a b", "\x00", "\x1b[2J", "x" * 300, b"", b"x", b"\xff", [], [-1, -1], {}),
    *({"session_id": ""}, {"session_id": "a b"}, {"session_id": "s-1", "checkpoint_id": "\x1b"}),
)
MEANT = {
    "is_over": [True],
    "exported_ms": [0, 1],
    "created_ms": [0, 1],
    "incarnation": [1],
    "restarts": [0, 1],
    "format": [1],
    "carries_code": [True],
    "own_checkpoints": [True, False],
    "parent_id": [None, "nobody"],
    "parent_incarnation": [None, 1],
    "group_id": [None, "nobody", "a b"],
    "start_id": ["", "nobody", "a b"],
    "origin": [None],
    "keys": [{}],
    "snapshot_seq": [0, 1],
}
"""What each field may be, of all that is tried."""


def refusal(file_of, value):
    """Return why a file is refused that has this value in one of its fields, None if it is not."""
    try:
        check_whole(file_of(value))
    except UsageError as error:
        return str(error)
    return None


def header_with(at, value):
    """Return a file whose header was written by somebody else."""
    fields = [msgspec.to_builtins(HEADER)[0]]
    fields += [getattr(HEADER, name) for name in Header.__struct_fields__]
    fields[at + 1] = value
    body = msgspec.msgpack.encode(fields)
    frame = len(body).to_bytes(4) + zlib.crc32(body).to_bytes(4) + body
    return whole(header=part_of(frame))


def spec_with(name, value):
    spec = msgspec.msgpack.decode(HEADER.spec) | {name: value}
    return of_header(spec=msgspec.msgpack.encode(spec))


def is_meant(name, value):
    return any(value == one and type(value) is type(one) for one in MEANT.get(name, ()))


@pytest.mark.parametrize(("at", "name"), [*enumerate(Header.__struct_fields__)])
def test_a_header_that_somebody_made_up_is_refused(at, name):
    """Every field with every value that it is not meant to have."""
    for value in HOSTILE:
        refused = refusal(lambda value: header_with(at, value), value)
        assert (refused is None) is is_meant(name, value), (name, value, refused)


@pytest.mark.parametrize(
    "name", sorted({*StartSession.__struct_fields__} - {"agent", "supervision"})
)
def test_a_definition_that_somebody_made_up_is_refused(name):
    """A parent that is not here is none: the session becomes a root. The agent's is its own."""
    for value in HOSTILE:
        refused = refusal(lambda value: spec_with(name, value), value)
        assert (refused is None) is is_meant(name, value), (name, value, refused)


@pytest.mark.parametrize("name", Supervision.__struct_fields__)
def test_limits_that_somebody_made_up_are_in_their_ranges(name):
    """Or refused: no number is taken that no option may have."""
    for value in HOSTILE:
        if refusal(lambda value: supervised(**{name: value}), value) is None:
            taken = check_whole(supervised(**{name: value})).supervision
            assert msgspec.convert(msgspec.to_builtins(taken), Supervision) == taken
            assert value is None or isinstance(value, int | float | str)
            assert not isinstance(value, float) or 0 <= value <= SECONDS_MAX
