"""A journal in PostgreSQL while somebody works on its tables."""

import asyncio

import psycopg
import pytest

from cmdc_runtime.errors import StorageFull
from supervisor.adapters.journal import postgres
from supervisor.adapters.journal.base import Duplicate, EventRow
from supervisor.adapters.journal.operations import (
    AcceptCommand,
    AppendRecords,
    CreateSession,
    FindSession,
    LoadSession,
    ReplayEvents,
)
from supervisor.adapters.journal.postgres import PostgresJournal
from supervisor.core.storage import Condition
from tests.integration.supervisor.test_journal_postgres import ROW, run, sql, until

pytestmark = [pytest.mark.process, pytest.mark.fault]


@pytest.mark.parametrize(("lock_s", "statement_s"), [(0.1, 15.0), (9.0, 0.1)])
def test_what_is_under_way_waits_for_a_locked_table(
    server, schema, monkeypatch, lock_s, statement_s
):
    """Whichever bound is met first, nothing fails; it is written in order when it is free."""
    monkeypatch.setattr(postgres, "JOURNAL_TABLE_WAIT_S", lock_s)
    monkeypatch.setattr(postgres, "JOURNAL_STATEMENT_S", statement_s)
    batches = [EventRow(first=one, count=1, body=b"%d" % one) for one in (1, 2, 3)]

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(AcceptCommand("s-1", "c-0", b"", 1))
        with psycopg.connect(server.url) as admin:
            admin.execute(f"LOCK TABLE {schema}.events IN ACCESS EXCLUSIVE MODE")
            writes = [
                journal.write(
                    AppendRecords("s-1", 1, [("turn", b"")], [], number=one.first, events=[one])
                )
                for one in batches
            ]
            await until(journal, Condition.FULL)
            with pytest.raises(StorageFull, match="nobody keeps a lock"):
                await journal.write(AcceptCommand("s-1", "c-1", b"", 1))
            known = await journal.write(AcceptCommand("s-1", "c-0", b"", 1))
            await journal.read(FindSession("s-1"))  # other tables are read meanwhile
            waited = not any(write.done() for write in writes)
        await asyncio.gather(*writes)
        found = (
            await journal.read(LoadSession("s-1")),
            await journal.read(ReplayEvents("s-1", 0, 9, 9)),
        )
        return waited, known, *found

    waited, known, stored, found = run(work, PostgresJournal(server.url, schema=schema))

    assert (waited, known) == (True, Duplicate(None))
    assert (len(stored.records), stored.row.written, found) == (3, 3, batches)


def test_a_lock_of_a_second_is_only_waited_for(server, schema):
    """The time for another daemon to let go of the journal is not that of a statement."""
    waits = (
        "SELECT 1 FROM pg_stat_activity WHERE application_name = 'cmdc-runtime'"
        " AND wait_event_type = 'Lock' AND clock_timestamp() > query_start + '1.5 s'"
    )

    async def work(journal):
        await journal.write(CreateSession(ROW))
        turns = []
        journal.health.on_change = turns.append
        with psycopg.connect(server.url) as admin:
            admin.execute(f"LOCK TABLE {schema}.records IN ACCESS EXCLUSIVE MODE")
            write = journal.write(AppendRecords("s-1", 1, [("turn", b"a")], [], number=1))
            while not write.done() and not await asyncio.to_thread(sql, server, waits):
                pass
        await write
        return turns, await journal.read(LoadSession("s-1"))

    turns, stored = run(work, PostgresJournal(server.url, schema=schema))

    assert (turns, len(stored.records)) == ([], 1)
