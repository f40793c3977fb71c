"""What a journal keeps, in which order, and what it refuses; against the real file."""

import asyncio
import sqlite3
import stat

import pytest

from cmdc_runtime.errors import InvalidOptions, InvalidSession, SessionExists
from supervisor.adapters.journal.base import (
    Accepted,
    CommandRow,
    Duplicate,
    EventConflict,
    EventRow,
    JournalFailed,
    JournalRefused,
    RecordRow,
    SessionEnded,
    SessionRow,
    StaleIncarnation,
    Stored,
)
from supervisor.adapters.journal.schema import APPLICATION_ID, VERSION
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.adapters.journal.store import JOURNAL_FILE
from supervisor.core.limits import REPLAY_BATCHES_MAX

ROW = SessionRow(session_id="s-1", created_ms=5, spec=b"spec", group_id="g", incarnation=1)


@pytest.fixture
def directory(tmp_path):
    """Return where the journal goes."""
    return tmp_path / "state"


def run(scenario, directory, **options):
    """Open a journal, run the coroutine function with it, and close it."""

    async def whole():
        journal = SqliteJournal(directory, **options)
        await journal.open()
        try:
            return await scenario(journal)
        finally:
            await journal.close()

    return asyncio.run(whole())


@pytest.mark.parametrize("durability", ["process", "power"])
def test_everything_is_there_after_a_restart(directory, durability):
    """What was acknowledged is what another daemon loads, in one order of commands and records."""

    async def work(journal):
        await journal.create(ROW)
        await journal.accept("s-1", "c-1", b"one", 10)
        await journal.append("s-1", 1, [("turn", b"a"), ("tool", b"b")], [])
        await journal.accept("s-1", "c-2", b"two", 11)
        await journal.accept("s-1", "c-3", b"three", 12)
        await journal.append("s-1", 1, [("turn", b"c")], [("c-1", b"done"), ("c-3", b"done")])

    run(work, directory, durability=durability)
    found = run(lambda journal: journal.load("s-1"), directory)

    assert found == Stored(
        row=ROW,
        records=(
            RecordRow(seq=2, incarnation=1, kind="turn", body=b"a"),
            RecordRow(seq=3, incarnation=1, kind="tool", body=b"b"),
            RecordRow(seq=6, incarnation=1, kind="turn", body=b"c"),
        ),
        unanswered=(CommandRow(command_id="c-2", seq=4, at_ms=11, body=b"two"),),
    )


def test_numbers_go_on_after_a_restart(directory):
    """A number is never given twice, whichever of the two tables has the last one."""

    async def commands_last(journal):
        await journal.create(ROW)
        await journal.append("s-1", 1, [("turn", b"")], [])
        await journal.accept("s-1", "c-1", b"", 1)

    async def records_last(journal):
        await journal.append("s-1", 1, [("turn", b"")], [])

    run(commands_last, directory)
    run(records_last, directory)
    found = run(lambda journal: journal.accept("s-1", "c-2", b"", 1), directory)

    assert found == Accepted(4)


def test_a_command_is_accepted_once(directory):
    """The same id again gets the recorded answer, or is told that there is none yet."""

    async def work(journal):
        await journal.create(ROW)
        first = await journal.accept("s-1", "c-1", b"one", 1)
        before = await journal.accept("s-1", "c-1", b"one", 2)
        await journal.append("s-1", 1, [], [("c-1", b"done")])
        await journal.append("s-1", 1, [], [("c-1", b"again"), ("c-9", b"unknown")])
        after = await journal.accept("s-1", "c-1", b"one", 3)
        return first, before, after, await journal.answer("s-1", "c-1")

    assert run(work, directory) == (Accepted(1), Duplicate(None), Duplicate(b"done"), b"done")


def test_order_of_calls_is_order_of_numbers(directory):
    """Callers need not wait for one another to be stored in the order in which they called."""

    async def work(journal):
        calls = [journal.create(ROW)]
        calls += [journal.accept("s-1", f"c-{number}", b"", number) for number in range(600)]
        return await asyncio.gather(*calls)

    assert run(work, directory)[1:] == [Accepted(seq) for seq in range(1, 601)]


def test_a_live_id_is_taken(directory):
    """A second session of the same name is refused and changes nothing."""

    async def work(journal):
        await journal.create(ROW)
        with pytest.raises(SessionExists):
            await journal.create(SessionRow(session_id="s-1", created_ms=6, spec=b"other"))
        return await journal.find("s-1")

    assert run(work, directory) == ROW


def test_an_ended_id_starts_anew(directory):
    """Nothing of the old session is left: no record, command, event or number."""

    async def work(journal):
        await journal.create(ROW)
        await journal.accept("s-1", "c-1", b"one", 1)
        await journal.append("s-1", 1, [("turn", b"a")], [])
        await journal.publish("s-1", 1, 5, b"events")
        await journal.ended("s-1", b"normal", 9)
        await journal.create(ROW)
        return (
            await journal.load("s-1"),
            await journal.last_index("s-1"),
            await journal.accept("s-1", "c-1", b"one", 10),
        )

    assert run(work, directory) == (Stored(row=ROW, records=(), unanswered=()), 0, Accepted(1))


def test_only_the_current_incarnation_writes(directory):
    """A process that was replaced cannot add to the history, nor can one of an ended session."""

    async def work(journal):
        await journal.create(ROW)
        await journal.began("s-1", 2, 1)
        with pytest.raises(StaleIncarnation):
            await journal.append("s-1", 1, [("turn", b"late")], [])
        with pytest.raises(StaleIncarnation):
            await journal.began("s-1", 1, 0)
        await journal.append("s-1", 2, [("turn", b"a")], [])
        await journal.ended("s-1", b"normal", 9)
        with pytest.raises(StaleIncarnation):
            await journal.append("s-1", 2, [("turn", b"later")], [])
        with pytest.raises(StaleIncarnation):
            await journal.began("s-1", 3, 2)
        return await journal.load("s-1")

    found = run(work, directory)

    assert [record.body for record in found.records] == [b"a"]
    assert (found.row.incarnation, found.row.restarts) == (2, 1)


def test_an_ended_session_keeps_its_first_reason(directory):
    """The end is written once, and old commands still have their answers."""

    async def work(journal):
        await journal.create(ROW)
        await journal.accept("s-1", "c-1", b"one", 1)
        await journal.append("s-1", 1, [], [("c-1", b"done")])
        await journal.ended("s-1", b"normal", 9)
        await journal.ended("s-1", b"killed", 10)
        with pytest.raises(SessionEnded):
            await journal.accept("s-1", "c-2", b"two", 11)
        known = await journal.accept("s-1", "c-1", b"one", 12)
        return known, await journal.find("s-1"), await journal.alive()

    known, row, alive = run(work, directory)

    assert (known, row.reason, row.ended_ms, alive) == (Duplicate(b"done"), b"normal", 9, [])


def test_live_sessions_come_oldest_first(directory):
    """A daemon that starts finds every session that has not ended, parents before children."""

    async def work(journal):
        for name, at_ms in [("s-3", 30), ("s-1", 10), ("s-2", 20), ("s-0", 10)]:
            await journal.create(SessionRow(session_id=name, created_ms=at_ms, spec=b""))
        await journal.ended("s-2", b"normal", 40)

    run(work, directory)
    found = run(lambda journal: journal.alive(), directory)

    assert [row.session_id for row in found] == ["s-1", "s-0", "s-3"]


def test_an_unknown_session_is_told_apart_from_an_ended_one(directory):
    """Writing to what was never there is the caller's mistake; reading finds nothing."""

    async def work(journal):
        for write in (
            journal.accept("s-9", "c-1", b"", 1),
            journal.publish("s-9", 1, 1, b""),
            journal.began("s-9", 1, 0),
            journal.ended("s-9", b"", 1),
        ):
            with pytest.raises(InvalidSession):
                await write
        with pytest.raises(StaleIncarnation):
            await journal.append("s-9", 1, [("turn", b"")], [])
        return (
            await journal.load("s-9"),
            await journal.find("s-9"),
            await journal.replay("s-9", 0, 9, 9),
            await journal.last_index("s-9"),
            await journal.answer("s-9", "c-1"),
        )

    assert run(work, directory) == (None, None, [], 0, None)


@pytest.mark.parametrize(
    ("after", "through", "limit", "right"),
    [
        (0, 100, 9, [1, 4, 10, 12]),
        (1, 100, 9, [1, 4, 10, 12]),
        (3, 100, 9, [4, 10, 12]),
        (5, 5, 9, []),
        (6, 100, 9, [10, 12]),
        (9, 11, 9, [10]),
        (0, 100, 2, [1, 4]),
        (12, 100, 9, []),
    ],
)
def test_replay_gives_the_batches_that_overlap(directory, after, through, limit, right):
    """Every event after one index up to another is in one of the batches, and gaps stay gaps."""

    async def work(journal):
        await journal.create(ROW)
        for first, count in [(1, 3), (4, 2), (10, 2), (12, 1)]:
            await journal.publish("s-1", first, count, b"%d" % first)
        return await journal.replay("s-1", after, through, limit)

    assert [row.first for row in run(work, directory)] == right


def test_replay_is_bounded(directory):
    """However much is asked for, one answer does not hold up the writer."""

    async def work(journal):
        journal.create(ROW)
        for index in range(1, REPLAY_BATCHES_MAX + 11):
            journal.publish("s-1", index, 1, b"")
        found = await journal.replay("s-1", 0, 10**6, 10**6)
        return len(found), await journal.last_index("s-1")

    assert run(work, directory) == (REPLAY_BATCHES_MAX, REPLAY_BATCHES_MAX + 10)


@pytest.mark.parametrize(
    ("first", "count", "body"),
    [(4, 3, b"other"), (4, 2, b"batch"), (6, 1, b"batch"), (2, 3, b"batch"), (1, 9, b"batch")],
)
def test_an_event_index_is_used_once(directory, first, count, body):
    """The same batch may come again; another one over the same indexes is refused."""

    async def work(journal):
        await journal.create(ROW)
        await journal.publish("s-1", 4, 3, b"batch")
        await journal.publish("s-1", 4, 3, b"batch")
        with pytest.raises(EventConflict):
            await journal.publish("s-1", first, count, body)
        return await journal.replay("s-1", 0, 100, 9)

    assert run(work, directory) == [EventRow(first=4, count=3, body=b"batch")]


def test_files_are_the_users_alone(directory):
    """Directory 0700, and 0600 for everything in it while it is in use."""

    async def work(journal):
        await journal.create(ROW)
        return {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}

    assert run(work, directory) == {0o600}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_directory_open_to_others_is_refused(directory):
    """The journal holds prompts and keys, so it does not go where others can look."""
    directory.mkdir()
    directory.chmod(0o755)

    with pytest.raises(InvalidOptions, match="chmod 700"):
        run(lambda journal: journal.alive(), directory)


def test_one_daemon_has_the_file(directory):
    """A second daemon with another runtime directory cannot write into the same journal."""

    async def work(journal):
        await journal.create(ROW)
        second = SqliteJournal(directory)
        with pytest.raises(JournalFailed, match="locked"):
            await second.open()
        return await journal.find("s-1")

    assert run(work, directory) == ROW


def foreign(directory, *statements):
    """Make a database of somebody else, and return its path."""
    directory.mkdir(mode=0o700)
    path = directory / JOURNAL_FILE
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return path


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (
            [f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {VERSION + 1}"],
            f"has format {VERSION + 1}, and this program knows formats up to {VERSION}",
        ),
        (["PRAGMA application_id = 7"], "belongs to another program"),
        (["CREATE TABLE theirs (x)"], "belongs to another program"),
    ],
    ids=["newer", "marked by another program", "tables of another program"],
)
def test_a_file_that_is_not_ours_is_refused(directory, statements, why):
    """The message says why, and what is in the file stays as it was."""
    path = foreign(directory, *statements)
    with sqlite3.connect(path) as connection:
        before = list(connection.iterdump())
    connection.close()

    with pytest.raises(JournalRefused, match=why):
        run(lambda journal: journal.alive(), directory)
    connection = sqlite3.connect(path)
    after = list(connection.iterdump())
    connection.close()

    assert after == before


def test_a_newer_journal_keeps_every_byte(directory):
    """An older program does not even open it as a database."""
    marks = f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {VERSION + 1}"
    path = foreign(directory, "PRAGMA journal_mode = WAL", "CREATE TABLE newer (x)", *marks)
    before = path.read_bytes()

    with pytest.raises(JournalRefused):
        run(lambda journal: journal.alive(), directory)

    assert path.read_bytes() == before
    assert list(directory.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"short", b"x" * 200], ids=["short", "long"])
def test_another_kind_of_file_is_refused(directory, content):
    """What is no database is not overwritten."""
    directory.mkdir(mode=0o700)
    (directory / JOURNAL_FILE).write_bytes(content)

    with pytest.raises(JournalRefused, match="not an SQLite database"):
        run(lambda journal: journal.alive(), directory)

    assert (directory / JOURNAL_FILE).read_bytes() == content
