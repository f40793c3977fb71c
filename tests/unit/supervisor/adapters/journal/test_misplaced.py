"""Rows whose numbers are damaged: they are read all the same, and are taken for no lost ones."""

import pytest

from cmdc_runtime.frames import MISPLACED
from cmdc_runtime.ranges import INDEX_MAX
from supervisor.adapters.journal.base import RecordRow, SessionRow
from supervisor.adapters.journal.memory import MemoryStore
from supervisor.adapters.journal.operations import (
    AcceptCommand,
    AppendRecords,
    CreateSession,
    LoadSession,
)


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


FAR = INDEX_MAX + 1
# fmt: off
DAMAGES = {
    "none":                        ((), ()),
    "a record's":                  (("UPDATE records SET seq = 'x' WHERE seq = 3",), ()),
    "two records'":                (("UPDATE records SET seq = 'x' || seq WHERE seq < 4",), ()),
    "two, one is gone":            (("UPDATE records SET seq = 'x' WHERE seq = 3",
                                     "DELETE FROM records WHERE seq = 2"), ((2, 3),)),
    "none, one is gone":           (("DELETE FROM records WHERE seq = 3",), ((3, 3),)),
    "a command's":                 (("UPDATE commands SET seq = 'x' WHERE seq = 5",), ()),
    "a command's, bytes":          (("UPDATE commands SET seq = x'ff' WHERE seq = 5",), ()),
    "a command's, beyond all":     ((f"UPDATE commands SET seq = {FAR} WHERE seq = 5",), ()),
    "a command's, a record gone":  (("UPDATE commands SET seq = 'x' WHERE seq = 5",
                                     "DELETE FROM records WHERE seq = 2"), ((2, 2), (5, 5))),
    "a command's, the last":       ((f"UPDATE commands SET seq = {INDEX_MAX} WHERE seq = 5",),
                                    ((5, 5), (7, INDEX_MAX - 1))),
}
# fmt: on


@pytest.mark.parametrize(("damage", "missing"), DAMAGES.values(), ids=DAMAGES)
def test_a_row_whose_number_is_damaged_is_not_taken_for_a_lost_one(damage, missing):
    """A gap in the numbers is told where more are gone from it than there are such rows."""
    store = MemoryStore()
    store.open()
    store.perform(CreateSession(SessionRow(session_id="s", created_ms=5, spec=b"", incarnation=2)))
    store.perform(AcceptCommand("s", "first", b"one", 1))
    store.perform(AppendRecords("s", 2, [("turn", b"2"), ("turn", b"3"), ("turn", b"4")], ()))
    store.perform(AcceptCommand("s", "second", b"two", 1))
    store.perform(AppendRecords("s", 2, [("turn", b"6")], ()))
    for statement in damage:
        store.db.execute(statement)

    assert store.perform(LoadSession("s")).missing == missing
