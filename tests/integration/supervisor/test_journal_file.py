"""The file of a journal: whose it is, how an older one becomes a current one, and what is refused.

What a journal promises wherever it is stands in ``tests/contract/journal``.
"""

import asyncio
import hashlib
import sqlite3
import stat

import pytest

from cmdc_runtime.errors import InvalidOptions
from supervisor.adapters.journal.base import (
    CheckpointRow,
    CommandRow,
    DownRow,
    Duplicate,
    EventRow,
    JournalFailed,
    JournalRefused,
    RecordRow,
    SessionRow,
    Stored,
)
from supervisor.adapters.journal.operations import (
    AcceptCommand,
    AppendRecords,
    CreateSession,
    FindSession,
    ListCheckpoints,
    ListDowns,
    ListLiveSessions,
    LoadSession,
    PruneSessions,
    RecordDown,
    ReplayEvents,
    SaveCheckpoint,
)
from supervisor.adapters.journal.schema import APPLICATION_ID, MIGRATIONS, VERSION
from supervisor.adapters.journal.sqlite import JOURNAL_FILE, SqliteJournal

ROW = SessionRow(session_id="s-1", created_ms=5, spec=b"spec", group_id="g", incarnation=1)
RELEASED = "831f1016bc774de6"
"""Of the steps that files in use have behind them."""
OLD_ROWS = (
    "INSERT INTO sessions VALUES ('s-1', 5, x'73706563', NULL, 'g', 1, 0, NULL, NULL)",
    "INSERT INTO sessions VALUES ('s-2', 4, x'', NULL, NULL, 1, 0, 9, x'6f')",
    "INSERT INTO commands VALUES ('s-1', 'c-1', 1, 10, x'6f6e65', x'646f6e65')",
    "INSERT INTO commands VALUES ('s-1', 'c-2', 2, 11, x'74776f', NULL)",
    "INSERT INTO records VALUES ('s-1', 3, 1, 'turn', x'61')",
    "INSERT INTO events VALUES ('s-1', 1, 5, x'6576656e7473')",
)
OLD_DOWN = "INSERT INTO downs VALUES (1000, 's-1', 1, 1, 1000, x'646f776e')"


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


def test_files_are_the_users_alone(directory):
    """Directory 0700, and 0600 for everything in it while it is in use."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        return {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}

    assert run(work, directory) == {0o600}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_directory_open_to_others_is_refused(directory):
    """The journal holds prompts and keys, so it does not go where others can look."""
    directory.mkdir()
    directory.chmod(0o755)

    with pytest.raises(InvalidOptions, match="chmod 700"):
        run(lambda journal: journal.read(ListLiveSessions()), directory)


def test_one_daemon_has_the_file(directory):
    """A second daemon with another runtime directory cannot write into the same journal."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        second = SqliteJournal(directory)
        with pytest.raises(JournalFailed, match="locked"):
            await second.open()
        return await journal.read(FindSession("s-1"))

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
        run(lambda journal: journal.read(ListLiveSessions()), directory)
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
        run(lambda journal: journal.read(ListLiveSessions()), directory)

    assert path.read_bytes() == before
    assert list(directory.glob(f"{JOURNAL_FILE}*")) == [path]


@pytest.mark.parametrize("content", [b"short", b"x" * 200], ids=["short", "long"])
def test_another_kind_of_file_is_refused(directory, content):
    """What is no database is not overwritten."""
    directory.mkdir(mode=0o700)
    (directory / JOURNAL_FILE).write_bytes(content)

    with pytest.raises(JournalRefused, match="not an SQLite database"):
        run(lambda journal: journal.read(ListLiveSessions()), directory)

    assert (directory / JOURNAL_FILE).read_bytes() == content


def old_file(directory, version):
    """Make a file of an earlier format, with something in each of its tables."""
    rows = [*OLD_ROWS, *([OLD_DOWN] if version > 1 else [])]
    steps = [statement for step in MIGRATIONS[:version] for statement in step]
    marks = [f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {version}"]
    return foreign(directory, "PRAGMA journal_mode = WAL", *steps, *rows, *marks)


def test_released_steps_are_as_they_were():
    """A file that has a step behind it does not take it again: a change comes as a new step."""
    found = hashlib.sha256(repr(MIGRATIONS[:2]).encode()).hexdigest()

    assert found[:16] == RELEASED


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_file_is_brought_up_to_date(directory, version):
    """Everything in it is still there, and what is new works with it."""
    old_file(directory, version)
    down = DownRow(session_id="s-1", incarnation=1, restarting=True, at_ms=1_000, body=b"down")

    async def work(journal):
        found = [
            await journal.read(LoadSession("s-1")),
            await journal.write(AcceptCommand("s-1", "c-1", b"one", 1)),
            await journal.read(ReplayEvents("s-1", 0, 9, 9)),
        ]
        number = await journal.write(RecordDown(down))
        await journal.write(
            AppendRecords("s-1", 1, [("turn", b"b")], [], number=1, snapshot=b"state")
        )
        await journal.write(
            SaveCheckpoint(
                CheckpointRow(
                    session_id="s-1",
                    checkpoint_id="cp-1",
                    label=None,
                    saved_ms=1,
                    schema_version=1,
                    body=b"state",
                    metadata=b"",
                )
            )
        )
        pruned = await journal.write(PruneSessions(10, 9))
        return found, number, pruned

    async def look(journal):
        stored = await journal.read(LoadSession("s-1"))
        downs = await journal.read(ListDowns("s-1", 0, 9))
        return stored, len(await journal.read(ListCheckpoints("s-1"))), [one.body for one in downs]

    found, number, pruned = run(work, directory)
    stored, checkpoints, downs = run(look, directory)

    assert found == [
        Stored(
            row=ROW,
            records=(RecordRow(seq=3, incarnation=1, kind="turn", body=b"a"),),
            unanswered=(CommandRow(command_id="c-2", seq=2, at_ms=11, body=b"two"),),
        ),
        Duplicate(b"done"),
        [EventRow(first=1, count=5, body=b"events")],
    ]
    assert (number, pruned, checkpoints, downs) == (1_000, 1, 1, [b"down"])
    assert (stored.snapshot, stored.row.written) == (b"state", 1)


def test_a_step_that_fails_leaves_the_file_as_it_was(directory, monkeypatch):
    """An older program still opens it: all steps or none."""
    path = old_file(directory, 2)
    broken = (*MIGRATIONS, ("CREATE TABLE later (x)", "CREATE TABLE later (x)"))
    monkeypatch.setattr("supervisor.adapters.journal.schema.MIGRATIONS", broken)
    monkeypatch.setattr("supervisor.adapters.journal.schema.VERSION", len(broken))

    with pytest.raises(JournalFailed, match="later"):
        run(lambda journal: journal.read(ListLiveSessions()), directory)
    with sqlite3.connect(path) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    connection.close()

    assert version == (2,)
    assert not tables & {"later", "snapshots", "checkpoints"}
