"""A journal in PostgreSQL when the server, the connection or another daemon gets in its way.

What a journal promises wherever it is stands in ``tests/contract/journal``.
"""

import asyncio
import contextlib
import tempfile

import psycopg
import pytest

from cmdc_runtime.errors import StorageFull
from supervisor.adapters.journal import postgres
from supervisor.adapters.journal.base import (
    Accepted,
    Duplicate,
    JournalFailed,
    JournalRefused,
    JournalUndecided,
    JournalUnread,
    RecordRow,
    SessionRow,
)
from supervisor.adapters.journal.operations import (
    AcceptCommand,
    AppendRecords,
    CreateSession,
    EndSession,
    FindSession,
    ListLiveSessions,
    LoadSession,
)
from supervisor.adapters.journal.postgres import PostgresJournal, in_postgres
from supervisor.adapters.journal.schema import MIGRATIONS, VERSION
from supervisor.core.storage import Condition
from tests.integration.supervisor.postgres_proxy import Proxy
from tests.journal_thread import on_thread

pytestmark = [pytest.mark.process, pytest.mark.fault]

ROW = SessionRow(session_id="s-1", created_ms=5, spec=b"spec", incarnation=1)
PATIENCE_S = 30.0


@pytest.fixture
def proxy(server):
    """What stands between a daemon and the server."""
    folder = server.url.partition("host=")[2]
    with tempfile.TemporaryDirectory() as own:
        proxy = Proxy(own, folder)
        yield proxy
        proxy.close()


def url_of(proxy):
    """Return the way to the server through the proxy."""
    return f"postgresql://cmdc@/postgres?host={proxy.url_host}"


def run(scenario, *journals):
    """Open the journals, run the coroutine function with them, and close them."""

    async def whole():
        async with contextlib.AsyncExitStack() as stack:
            for journal in journals:
                await journal.open()
                stack.push_async_callback(journal.close)
            return await asyncio.wait_for(scenario(*journals), PATIENCE_S)

    return asyncio.run(whole())


def sql(server, statement, *values):
    """Carry out one statement as somebody else, and return its rows."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        cursor = connection.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


def end_connections(server):
    """End the connections of all daemons, as a restart of the server or a network does."""
    whose = "FROM pg_stat_activity WHERE application_name = 'cmdc-runtime'"
    sql(server, f"SELECT pg_terminate_backend(pid, 10000) {whose}")


async def until(journal, condition):
    """Wait until the journal stands so."""
    turned = asyncio.Event()
    journal.health.on_change = lambda _condition: turned.set()
    while journal.health.condition is not condition:
        await turned.wait()
        turned.clear()


# --- one daemon at a time --------------------------------------------------------------------


def test_one_daemon_has_the_journal(server, schema):
    """A second one is refused, learns who has it, and disturbs nothing."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        with pytest.raises(JournalFailed, match=r"another daemon has .* \(process \d+ on .*stop"):
            await PostgresJournal(server.url, schema=schema).open()
        return await journal.write(AcceptCommand("s-1", "c-1", b"", 1))

    assert run(work, PostgresJournal(server.url, schema=schema)) == Accepted(1)


def test_daemons_in_two_schemas_do_not_meet(server, schema):
    """Each has its own sessions."""

    async def work(one, other):
        await one.write(CreateSession(ROW))
        return await other.read(FindSession("s-1"))

    schemas = (schema, f"{schema}_other")

    assert run(work, *(PostgresJournal(server.url, schema=one) for one in schemas)) is None


@pytest.mark.parametrize("does_read", [True, False], ids=["reads", "writes"])
def test_a_daemon_that_was_superseded_writes_no_more(server, schema, does_read):
    """It lost its connection, another took over: whatever it does is refused, and it has to end."""

    async def work(first):
        await first.write(CreateSession(ROW))
        end_connections(server)
        second = PostgresJournal(server.url, schema=schema)
        await second.open()
        await second.write(AcceptCommand("s-1", "c-2", b"theirs", 1))
        await second.close()
        with pytest.raises(JournalFailed, match="taken over"):
            await (
                first.read(FindSession("s-1"))
                if does_read
                else first.write(EndSession("s-1", b"late", 1))
            )
        await until(first, Condition.FAILED)
        with pytest.raises(JournalFailed, match="taken over"):
            await first.write(AppendRecords("s-1", 1, [("turn", b"later")], []))

    run(work, PostgresJournal(server.url, schema=schema))
    stored = run(
        lambda journal: journal.read(LoadSession("s-1")), PostgresJournal(server.url, schema=schema)
    )

    assert (stored.records, [row.body for row in stored.unanswered]) == ((), [b"theirs"])


def test_every_transaction_checks_who_has_the_journal(server, schema):
    """Where a pooler hides that a connection is new, the epoch still shows it."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        sql(server, f"UPDATE {schema}.journal SET epoch = epoch + 1")
        with pytest.raises(JournalFailed, match="taken over"):
            await journal.write(AcceptCommand("s-1", "c-1", b"", 1))

    run(work, PostgresJournal(server.url, schema=schema))

    assert sql(server, f"SELECT count(*) FROM {schema}.commands") == [(0,)]


# --- lost connections --------------------------------------------------------------------------


def test_a_lost_connection_is_made_again(server, schema):
    """Nobody notices, if he writes or if he reads."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        end_connections(server)
        first = await journal.write(AcceptCommand("s-1", "c-1", b"", 1))
        end_connections(server)
        return first, await journal.read(FindSession("s-1"))

    first, found = run(work, PostgresJournal(server.url, schema=schema))

    assert (first, found) == (Accepted(1), ROW)


@pytest.mark.parametrize("lose", ["lose_answer", "lose_message"])
def test_a_commit_whose_answer_was_lost_is_asked_for(server, schema, proxy, lose):
    """It was done, or it is done again: once either way, and the caller hears yes."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        setattr(proxy, lose, b"COMMIT")
        calls = [
            journal.write(AppendRecords("s-1", 1, [("turn", b"%d" % number)], []))
            for number in range(3)
        ]
        found = await asyncio.gather(*calls)
        return found, proxy.lost.is_set(), await journal.read(LoadSession("s-1"))

    found, was_lost, stored = run(work, PostgresJournal(url_of(proxy), schema=schema))

    assert (found, was_lost) == ([None] * 3, True)
    assert stored.records == tuple(
        RecordRow(seq=number + 1, incarnation=1, kind="turn", body=b"%d" % number)
        for number in range(3)
    )


def test_a_commit_that_nobody_knows_of_is_not_done_again(server, schema, proxy, monkeypatch):
    """The caller hears no, which says: not acknowledged. The journal itself goes on."""
    monkeypatch.setattr(postgres, "JOURNAL_OUTCOME_S", 0.1)

    async def work(journal):
        await journal.write(CreateSession(ROW))
        proxy.closes_after = True
        proxy.lose_answer = b"COMMIT"
        with pytest.raises(JournalUndecided, match="may be there or not"):
            await journal.write(AppendRecords("s-1", 1, [("turn", b"a")], []))
        proxy.is_closed = proxy.closes_after = False
        await journal.write(AppendRecords("s-1", 1, [("turn", b"b")], []))
        return await journal.read(LoadSession("s-1"))

    stored = run(work, PostgresJournal(url_of(proxy), schema=schema))

    assert [row.body for row in stored.records] == [b"a", b"b"]


def test_what_is_under_way_waits_for_a_server_that_is_away(server, schema):
    """What is new is refused with the reason; what waits is written in order when it is back."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(AcceptCommand("s-1", "c-0", b"", 1))
        server.kill()
        first = journal.write(AppendRecords("s-1", 1, [("turn", b"a")], [], number=1))
        second = journal.write(EndSession("s-1", b"normal", 9))
        await until(journal, Condition.FULL)
        with pytest.raises(StorageFull, match="see that PostgreSQL runs"):
            await journal.write(AcceptCommand("s-1", "c-1", b"", 1))
        with pytest.raises(JournalUnread):
            await journal.write(AcceptCommand("s-1", "c-0", b"", 1))
        with pytest.raises(JournalFailed):
            await journal.read(FindSession("s-1"))
        waited = first.done() or second.done()
        server.start()
        await asyncio.gather(first, second)
        return waited, await journal.read(LoadSession("s-1")), journal.health.condition

    waited, stored, condition = run(work, PostgresJournal(server.url, schema=schema))

    assert (waited, condition) == (False, Condition.OPEN)
    assert [row.body for row in stored.records] == [b"a"]
    assert stored.row.reason == b"normal"


@pytest.mark.slow
def test_nothing_is_lost_when_the_server_is_killed_at_work(server, schema):
    """Whatever was acknowledged is there once, in order, with callers that try again."""
    acknowledged, progress = [], asyncio.Event()

    async def call(journal, caller, ended):
        number = 0
        while not ended.is_set():
            name = f"c-{caller}-{number}"
            try:
                await journal.write(AcceptCommand("s-1", name, b"", 1))
            except (StorageFull, JournalFailed):
                await asyncio.sleep(0)  # tidy: a caller that tries again at once
                continue
            acknowledged.append(name)
            progress.set()
            number += 1

    async def until_more(count):
        wanted = len(acknowledged) + count
        while len(acknowledged) < wanted:
            progress.clear()
            await progress.wait()

    async def append(journal, ended):
        number = 0
        while not ended.is_set():
            await journal.write(AppendRecords("s-1", 1, [("turn", b"%d" % number)], []))
            number += 1
        return number

    async def work(journal):
        await journal.write(CreateSession(ROW))
        ended = asyncio.Event()
        callers = [asyncio.create_task(call(journal, caller, ended)) for caller in range(4)]
        appender = asyncio.create_task(append(journal, ended))
        for _ in range(2):
            await until_more(200)
            server.kill()
            await until(journal, Condition.FULL)
            server.start()
            await until(journal, Condition.OPEN)
        await until_more(200)
        ended.set()
        await asyncio.gather(*callers)
        return await appender

    appended = run(work, PostgresJournal(server.url, schema=schema))
    stored = run(
        lambda journal: journal.read(LoadSession("s-1")), PostgresJournal(server.url, schema=schema)
    )
    found = [row.command_id for row in stored.unanswered]

    assert len(found) == len(set(found))
    assert set(acknowledged) <= set(found)
    assert [row.body for row in stored.records] == [b"%d" % number for number in range(appended)]


# --- what is refused ---------------------------------------------------------------------------


def test_a_newer_journal_is_refused(server, schema):
    """And left as it was."""
    run(
        lambda journal: journal.write(CreateSession(ROW)),
        PostgresJournal(server.url, schema=schema),
    )
    sql(server, f"UPDATE {schema}.journal SET version = {VERSION + 1}")
    before = sql(server, f"SELECT * FROM {schema}.journal")

    with pytest.raises(JournalRefused, match=f"knows formats up to {VERSION}"):
        run(
            lambda journal: journal.read(ListLiveSessions()),
            PostgresJournal(server.url, schema=schema),
        )

    assert sql(server, f"SELECT * FROM {schema}.journal") == before


def test_tables_of_another_program_are_refused(server, schema):
    """Nothing is added to them."""
    sql(server, f"CREATE SCHEMA {schema}")
    sql(server, f"CREATE TABLE {schema}.theirs (x INT)")

    with pytest.raises(JournalRefused, match="belongs to another program"):
        run(
            lambda journal: journal.read(ListLiveSessions()),
            PostgresJournal(server.url, schema=schema),
        )

    query = "SELECT tablename::text FROM pg_tables WHERE schemaname = %s"

    assert sql(server, query, schema) == [("theirs",)]


def test_an_older_journal_is_brought_up_to_date(server, schema):
    """With all that is in it."""
    sql(server, f"CREATE SCHEMA {schema}")
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"SET search_path TO {schema}")
        for step in MIGRATIONS[:2]:
            for statement in step:
                connection.execute(in_postgres(statement))
        connection.execute("CREATE TABLE journal (version BIGINT, epoch BIGINT, holder TEXT)")
        connection.execute("INSERT INTO journal VALUES (2, 5, '')")
        connection.execute(
            "INSERT INTO sessions VALUES ('s-1', 5, 'spec', NULL, NULL, 1, 0, NULL, NULL)"
        )
        connection.execute("INSERT INTO commands VALUES ('s-1', 'c-1', 1, 10, 'one', 'done')")

    async def work(journal):
        await journal.write(AppendRecords("s-1", 1, [("turn", b"a")], [], snapshot=b"state"))
        return await journal.write(AcceptCommand("s-1", "c-1", b"", 1)), await journal.read(
            LoadSession("s-1")
        )

    known, stored = run(work, PostgresJournal(server.url, schema=schema))

    assert (known, stored.row, stored.snapshot) == (Duplicate(b"done"), ROW, b"state")


def test_no_promise_is_made_that_the_server_breaks(server, schema):
    """A server that does not wait for its disk cannot keep what outlives the power."""
    sql(server, "ALTER SYSTEM SET fsync = off")
    sql(server, "SELECT pg_reload_conf()")
    try:
        with pytest.raises(JournalRefused, match="fsync"):
            run(
                lambda journal: journal.read(ListLiveSessions()),
                PostgresJournal(server.url, schema=schema, durability="power"),
            )
        run(
            lambda journal: journal.read(ListLiveSessions()),
            PostgresJournal(server.url, schema=schema),
        )
    finally:
        sql(server, "ALTER SYSTEM RESET fsync")
        sql(server, "SELECT pg_reload_conf()")


@pytest.mark.parametrize(("durability", "right"), [("process", "local"), ("power", "on")])
def test_a_commit_is_on_the_servers_disk(server, schema, durability, right):
    """Never in its memory only: the death of its process would lose it."""

    async def work(journal):
        query = "SELECT current_setting('synchronous_commit')"
        return await on_thread(journal, lambda: journal._store.db.execute(query).fetchone())

    journal = PostgresJournal(server.url, schema=schema, durability=durability)

    assert run(work, journal) == (right,)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://cmdc:hunter2@/postgres?host=/nowhere",
        "postgresql://cmdc:hunter2@127.0.0.1:1/postgres",
        "postgresql://cmdc:hunter2@host:port/postgres",
        "postgresql://cmdc:hunter2@host/postgres?hunter2",
    ],
)
def test_no_error_shows_the_password(url):
    """Whatever is wrong with the address."""
    with pytest.raises((JournalFailed, JournalRefused)) as caught:
        run(lambda journal: journal.read(ListLiveSessions()), PostgresJournal(url))

    assert "hunter2" not in str(caught.value)
