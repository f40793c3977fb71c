"""What a journal answers where there is nothing, where it fits just so, and where no room is."""

import pytest

from supervisor.adapters.journal import sql_reads
from supervisor.adapters.journal.base import Duplicate, SessionRow
from supervisor.adapters.journal.operations import (
    AcceptCommand,
    AppendRecords,
    CreateSession,
    FindCommand,
    PublishEvents,
    ReadHistory,
    ReadHistoryPart,
    ReplayEvents,
)

ROW = SessionRow(session_id="s-1", created_ms=5, spec=b"spec", incarnation=1)


def test_a_command_says_what_has_come_of_it(run):
    """Nothing yet, its answer, or that it was never accepted."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        for name in ("c-1", "c-2"):
            await journal.write(AcceptCommand("s-1", name, b"ask", 1))
        await journal.write(AppendRecords("s-1", 1, [], [("c-1", b"yes")]))
        return [await journal.read(FindCommand("s-1", f"c-{at}")) for at in (1, 2, 3)]

    assert run(work) == [Duplicate(b"yes"), Duplicate(None), None]


@pytest.mark.parametrize("query", [ReadHistory("s-1"), ReadHistoryPart("s-1", "spec", 0)])
def test_a_past_without_a_snapshot_begins_before_all_records(run, query):
    """With the number that no record has."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(AppendRecords("s-1", 1, [("turn", b"a")], []))
        return await journal.read(query)

    found = run(work)

    assert (found.snapshot, found.snapshot_seq) == (b"", 0)


def test_a_record_that_just_fits_is_not_the_last_that_is_read(run, monkeypatch):
    """One more is, by which it is known that there are more."""
    monkeypatch.setattr(sql_reads, "PAST_BYTES_MAX", 8)

    async def work(journal):
        await journal.write(CreateSession(ROW))
        records = [("turn", bytes(size)) for size in (4, 4, 1, 1)]
        await journal.write(AppendRecords("s-1", 1, records, []))
        return await journal.read(ReadHistoryPart("s-1", "records", 0))

    assert [one.seq for one in run(work).records] == [1, 2, 3]


@pytest.mark.parametrize("limit", [0, -1])
def test_who_asks_for_no_batches_gets_none(run, limit):
    """And no error."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(PublishEvents("s-1", 1, 1, b"batch"))
        return await journal.read(ReplayEvents("s-1", 0, 9, limit))

    assert run(work) == []
