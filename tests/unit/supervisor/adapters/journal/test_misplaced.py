"""A record whose number is damaged is read all the same, behind those that have theirs."""

from cmdc_runtime.frames import MISPLACED
from cmdc_runtime.ranges import INDEX_MAX
from supervisor.adapters.journal.base import RecordRow, SessionRow
from supervisor.adapters.journal.memory import MemoryStore
from supervisor.adapters.journal.operations import AppendRecords, CreateSession, LoadSession


def test_of_a_record_in_no_place_the_body_is_all_that_is_kept():
    """Its process sets it aside by that."""
    store = MemoryStore()
    store.open()
    store.perform(CreateSession(SessionRow(session_id="s", created_ms=5, spec=b"", incarnation=2)))
    store.perform(AppendRecords("s", 2, [("turn", b"a"), ("turn", b"b")], ()))
    store.db.execute("UPDATE records SET seq = 'first' WHERE body = ?", (b"a",))

    assert store.perform(LoadSession("s")).records == (
        RecordRow(seq=2, incarnation=2, kind="turn", body=b"b"),
        RecordRow(seq=INDEX_MAX, incarnation=0, kind=MISPLACED, body=b"a"),
    )
