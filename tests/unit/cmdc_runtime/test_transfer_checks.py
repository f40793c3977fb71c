"""What a session's file must be before any of it is kept."""

import msgspec
import pytest

from cmdc_runtime import codec
from cmdc_runtime.checkpoints import CHECKPOINTS_MAX, CheckpointFacts, encode_facts
from cmdc_runtime.errors import UsageError
from cmdc_runtime.frames import Reply
from cmdc_runtime.ranges import INCARNATION_MAX, INDEX_MAX, TIME_MS_MAX
from cmdc_runtime.requests import (
    PastCommand,
    PastRecord,
    ReplayedBatch,
    StartSession,
    Supervision,
)
from cmdc_runtime.transfer import FORMAT, CheckpointPart, Header, Whole
from cmdc_runtime.transfer_checks import check_whole

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
ANSWER = codec.encode(Reply(id="c-1", body=codec.raw(None)))
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
        (whole(checkpoints=[changed(CHECKPOINT, body=DEEP)]), r"checkpoints\[0\]: body: it nests"),
        (whole(checkpoints=[CHECKPOINT] * (CHECKPOINTS_MAX + 1)), "checkpoints: 1,001 of them"),
    ],
)
def test_what_no_daemon_writes_is_refused_with_its_place(file, problem):
    """Numbers out of range, rows out of order, bodies that are none."""
    with pytest.raises(UsageError, match=f"the file's session cannot be kept: {problem}"):
        check_whole(file)
