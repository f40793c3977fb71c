"""The how-to about backups of a journal in PostgreSQL does what it says."""

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest

from cmdc_runtime.errors import UsageError
from supervisor.adapters.journal.base import SessionRow
from supervisor.adapters.journal.operations import CreateSession, EndSession, ListLiveSessions
from supervisor.adapters.journal.postgres import PostgresJournal
from tests.postgres import lend_server

pytestmark = [pytest.mark.process, pytest.mark.slow]

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "backup.md"
BLOCK = re.compile(r"(?:^    \S.*\n)+", re.MULTILINE)
PROGRAMS = ("pg_dump", "pg_restore", "psql", "createdb", "dropdb")
RUN_S = 60.0
server = pytest.fixture(lend_server, scope="module")


@pytest.fixture
def url(server):
    """The database of the page, new on the server."""
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        pytest.skip(f"there is no {', '.join(missing)}")
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("DROP DATABASE IF EXISTS cmdc")
        db.execute("CREATE DATABASE cmdc")
    return server.url.replace("/postgres?", "/cmdc?")


def with_journal(url, work):
    """Open the journal, do something with it, and close it."""

    async def whole():
        journal = PostgresJournal(url, schema="cmdc")
        await journal.open()
        try:
            return await work(journal)
        finally:
            await journal.close()

    return asyncio.run(whole())


async def fill(journal):
    """Start two sessions, and end one of them."""
    for name in ("a", "b"):
        await journal.write(CreateSession(SessionRow(session_id=name, created_ms=5, spec=b"spec")))
    await journal.write(EndSession("b", b"over", 9))


async def live(journal):
    """Return the ids of the live sessions."""
    return [row.session_id for row in await journal.read(ListLiveSessions())]


def run(words, url, dump):
    """Run a block of the page, as a person with these defaults would, and return its output."""
    done = subprocess.run(
        ["sh", "-ec", words.replace("/mnt/backups/cmdc.dump", str(dump))],
        env={**os.environ, "PGHOST": url.partition("host=")[2], "PGUSER": "cmdc"},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_dump_is_made_checked_and_restored_as_the_page_says(url, tmp_path):
    """While the daemon works; the tables that were there are put aside."""
    section = PAGE.read_text(encoding="utf-8").partition("## A journal in PostgreSQL")[2]
    make, check, restore = BLOCK.findall(section)
    dump = tmp_path / "dump"

    async def work(journal):
        await fill(journal)
        return await asyncio.to_thread(run, make, url, dump)

    with_journal(url, work)
    printed = run(check, url, dump)

    async def more(journal):
        await journal.write(CreateSession(SessionRow(session_id="c", created_ms=7, spec=b"spec")))
        return await live(journal)

    assert printed.startswith("2 sessions, 1 live, the last of 1970-01-01 00:00:00")
    assert with_journal(url, more) == ["a", "c"]
    run(restore, url, dump)
    assert with_journal(url, live) == ["a"]
    assert with_journal(url, more) == ["a", "c"]
    with psycopg.connect(url) as db:
        assert db.execute("SELECT count(*) FROM cmdc_replaced.sessions").fetchone() == (3,)


def test_a_backup_says_how_postgresql_makes_its_own(url, tmp_path):
    """With the schema of this daemon, and no address."""

    async def work(journal):
        with pytest.raises(
            UsageError, match=r"pg_dump .*--schema=cmdc .*docs/howto/backup.md"
        ) as e:
            await journal.copy(tmp_path / "b")
        return str(e.value)

    assert "host=" not in with_journal(url, work)
