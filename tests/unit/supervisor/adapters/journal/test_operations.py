"""Every operation has its statements, and says what the writer needs to know of it."""

import pytest

from supervisor.adapters.journal import operations, sql_reads, sql_store
from supervisor.adapters.journal.base import (
    BlobRow,
    CheckpointRow,
    CommandRow,
    DownRow,
    EventRow,
    Past,
    RecordRow,
    SessionRow,
)
from supervisor.core.limits import JOURNAL_QUEUED_BYTES_MAX
from supervisor.core.storage import Need

SESSION = SessionRow(session_id="s", created_ms=1, spec=b"1")
DOWN = DownRow(session_id="s", incarnation=1, restarting=True, at_ms=1, body=b"12")
EVENT = EventRow(first=1, count=1, body=b"123")
RECORD = RecordRow(seq=1, incarnation=1, kind="said", body=b"1234")
COMMAND = CommandRow(command_id="c", seq=1, at_ms=1, body=b"12345", answer=b"6")
SNAPSHOT = b"1234567"
BLOB = BlobRow("digest", b"1234")


def checkpoint(body):
    return CheckpointRow(
        session_id="s",
        checkpoint_id="k",
        label=None,
        saved_ms=1,
        schema_version=1,
        body=body,
        metadata=b"1",
    )


PAST = Past(
    row=SESSION, snapshot=SNAPSHOT, records=(RECORD,), commands=(COMMAND, COMMAND), snapshot_seq=1
)
HUGE = bytes(JOURNAL_QUEUED_BYTES_MAX + 1)
EXAMPLES = [
    (operations.CreateSession(SESSION), "create", 1, Need.NEW),
    (operations.AcceptCommand("s", "c", b"12", 1), "accept", 2, Need.NEW),
    (operations.AppendRecords("s", 1, [], []), "append.nothing", 0, Need.WORK),
    (
        operations.AppendRecords(
            "s",
            1,
            [("said", b"1"), ("turn", b"12"), ("said", b"")],
            [("c", b"123")],
            snapshot=SNAPSHOT,
            events=(EVENT, EVENT),
        ),
        "append.said+turn+snapshot+outcome",
        19,
        Need.WORK,
    ),
    (operations.BeginIncarnation("s", 1, 0), "began", 0, Need.WORK),
    (operations.EndSession("s", b"123", 1), "ended", 3, Need.END),
    (operations.RestoreSession(PAST), "restore", 24, Need.NEW),
    (
        operations.RestoreSession(PAST, (EVENT,), (checkpoint(b"12"),)),
        "restore",
        29,
        Need.NEW,
    ),
    (
        operations.RestoreSession(PAST, (), (checkpoint(HUGE),)),
        "restore",
        JOURNAL_QUEUED_BYTES_MAX,
        Need.NEW,
    ),
    (
        operations.RestoreSession(PAST, blobs=(BLOB,), holds_of="other"),
        "restore",
        28,
        Need.NEW,
    ),
    (operations.KeepBlob("s", BLOB), "keep_blob", 4, Need.NEW),
    (operations.PruneSessions(1, 1), "prune", 0, Need.WORK),
    (operations.PublishEvents("s", 1, 1, b"12"), "publish", 2, Need.WORK),
    (operations.RecordDown(DOWN), "note_down", 2, Need.END),
    (operations.SaveCheckpoint(checkpoint(b"12")), "save_checkpoint", 3, Need.NEW),
    (
        operations.SaveCheckpoint(checkpoint(HUGE)),
        "save_checkpoint",
        JOURNAL_QUEUED_BYTES_MAX,
        Need.NEW,
    ),
    (operations.DeleteCheckpoint("s", None), "delete_checkpoint", 0, Need.WORK),
]


QUERIES = {
    one
    for one in vars(operations).values()
    if isinstance(one, type) and issubclass(one, operations.Query) and one is not operations.Query
}


def test_every_operation_has_its_statements():
    """A row for each write and each query, and none for one that is gone."""
    assert set(sql_store.WRITES) == set(operations.WRITES)
    assert set(sql_reads.READS) == QUERIES


def test_every_operation_is_a_write_or_a_query():
    """And every write has an example below."""
    assert set(operations.WRITES).isdisjoint(QUERIES)
    assert set(operations.WRITES) == {type(one) for one, *_ in EXAMPLES}


@pytest.mark.parametrize(
    ("write", "point", "size_bytes", "need"),
    EXAMPLES,
    ids=[f"{point}, {size_bytes} bytes" for _, point, size_bytes, _ in EXAMPLES],
)
def test_a_write_says_its_point_its_size_and_its_need(write, point, size_bytes, need):
    """The names of the points stand in plans and in the crash matrix, and do not change."""
    assert (write.point, write.size_bytes, write.need) == (point, size_bytes, need)
    assert getattr(write, "session_id", "s") == "s"


def test_only_a_command_is_known_from_before():
    """Where there is no room it is looked for; every other new thing is refused."""
    known = {type(one): one.known for one, *_ in EXAMPLES if one.known is not None}

    assert known == {operations.AcceptCommand: operations.FindCommand("s", "c")}
