"""Rows whose numbers are damaged, and rows that are gone: each is reported once, as what it is."""

import pytest

from cmdc_runtime.checked_struct import INDEX_MAX
from cmdc_runtime.wire.frames import MISPLACED
from supervisor.adapters.journal.base import RecordRow, SessionRow
from supervisor.adapters.journal.opening import MemoryStore
from supervisor.adapters.journal.operations import (
    AcceptCommand,
    AppendRecords,
    CreateSession,
    LoadSession,
)


def test_of_a_record_in_no_place_the_body_is_all_that_is_kept():
    """Its process sets it aside by that; the record itself is reported, and no number is missed."""
    store = MemoryStore()
    store.open()
    store.perform(CreateSession(SessionRow(session_id="s", created_ms=5, spec=b"", incarnation=2)))
    store.perform(AppendRecords("s", 2, [("turn", b"a"), ("turn", b"b")], ()))
    store.db.execute("UPDATE records SET seq = 'first' WHERE body = ?", (b"a",))

    assert store.perform(LoadSession("s")).records == (
        RecordRow(seq=2, incarnation=2, kind="turn", body=b"b"),
        RecordRow(seq=INDEX_MAX, incarnation=0, kind=MISPLACED, body=b"a"),
    )


DAMAGE = {
    "none": ("UPDATE records SET body = body", ()),
    "a record is gone": ("DELETE FROM records WHERE seq = 3", ((3, 3),)),
    "two are gone": ("DELETE FROM records WHERE seq IN (2, 3)", ((2, 3),)),
    "a command is gone": ("DELETE FROM commands WHERE seq = 1", ((1, 1),)),
    "a record has no number": ("UPDATE records SET seq = 'x' WHERE seq = 3", ()),
    "a command has none": ("UPDATE commands SET seq = 'x' WHERE seq = 1", ()),
    "a command is beyond the last": (
        f"UPDATE commands SET seq = {INDEX_MAX + 1} WHERE seq = 5",
        (),
    ),
    "a command is the last": (
        f"UPDATE commands SET seq = {INDEX_MAX} WHERE seq = 5",
        ((5, INDEX_MAX - 1),),
    ),
}


@pytest.mark.parametrize(("damage", "missing"), DAMAGE.values(), ids=DAMAGE)
def test_numbers_that_no_row_has_are_missing(damage, missing):
    """Unless as many rows have none: these are reported as such."""
    store = MemoryStore()
    store.open()
    store.perform(CreateSession(SessionRow(session_id="s", created_ms=5, spec=b"", incarnation=1)))
    store.perform(AcceptCommand("s", "c-1", b"ask", 1))
    store.perform(AppendRecords("s", 1, [("turn", b"a"), ("turn", b"b"), ("turn", b"c")], ()))
    store.perform(AcceptCommand("s", "c-2", b"ask", 1))
    store.db.execute(damage)

    assert store.perform(LoadSession("s")).missing == missing
