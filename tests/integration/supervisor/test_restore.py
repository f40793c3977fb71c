"""A backup that is put in the place of a journal: what is refused, what is kept, what is there."""

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from cmdc_runtime.requests import BackUp
from supervisor.adapters.journal.backup import write_sealed
from supervisor.adapters.journal.base import JournalRefused, SessionRow
from supervisor.adapters.journal.operations import (
    AcceptCommand,
    AppendRecords,
    CreateSession,
    EndSession,
    ListLiveSessions,
    LoadSession,
)
from supervisor.adapters.journal.repair.restoring import REPLACEMENT, REPLACING, SCHEMA_FILE
from supervisor.adapters.journal.repair.sums import PAGE_BYTES
from supervisor.adapters.journal.repair.volume import RESERVE_FILE, wal_of
from supervisor.adapters.journal.schema import APPLICATION_ID, MIGRATIONS
from supervisor.adapters.journal.sqlite import JOURNAL_FILE, SUMS_FILE, SqliteJournal
from supervisor.api.backups import Backups

pytestmark = [pytest.mark.process, pytest.mark.slow]

SESSIONS = 4
BODY = b"x" * 3_000
END_S = 60.0


@pytest.fixture
def state(tmp_path):
    """Where the journal is."""
    return tmp_path / "state"


@pytest.fixture
def file(state, tmp_path):
    """A backup of it."""
    return with_journal(state, lambda journal: backed_up(journal, state, tmp_path / "b"), fill)


def with_journal(state, work, before=None):
    """Open a journal, do something with it, and close it."""

    async def whole():
        journal = SqliteJournal(state)
        await journal.open()
        try:
            if before is not None:
                await before(journal)
            return await work(journal)
        finally:
            await journal.close()

    return asyncio.run(whole())


async def fill(journal):
    """Write some sessions."""
    for number in range(SESSIONS):
        name = f"s-{number}"
        await journal.write(CreateSession(SessionRow(session_id=name, created_ms=1, spec=b"spec")))
        for step in range(1, 4):
            await journal.write(AcceptCommand(name, f"c-{step}", BODY, step))
            answers = [(f"c-{step}", b"done")]
            await journal.write(AppendRecords(name, 0, [("said", BODY)], answers, number=step))


async def backed_up(journal, state, file):
    """Make a backup, and return its place."""
    await Backups(journal, (state,)).make(BackUp(file=str(file)))
    return file


async def look(journal):
    """Return all that the sessions have."""
    rows = await journal.read(ListLiveSessions())
    return [await journal.read(LoadSession(row.session_id)) for row in rows]


def command(file, state, *flags, **variables):
    """Return the words of the command, as it is after ``cmdc restore`` has become it."""
    ours = {name: text for name, text in os.environ.items() if not name.startswith("CMDC_")}
    places = {"CMDC_STATE_DIR": str(state), "CMDC_RUNTIME_DIR": str(state.parent / "run")}
    words = [sys.executable, "-P", "-m", "supervisor.restore", *flags, str(file)]
    return {"args": words, "env": ours | places | variables}


def restore(file, state, *flags, **variables):
    """Run it to its end."""
    run = command(file, state, *flags, **variables)
    return subprocess.run(**run, capture_output=True, text=True, timeout=END_S, check=False)


def refused(done, status, *words):
    """Check that nothing was done, and why."""
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def contents(state):
    """Return what is in a folder."""
    return {one.name: one.read_bytes() for one in state.iterdir()}


def test_a_backup_becomes_the_journal_of_another_machine(state, file, tmp_path):
    """Everything that was in it is there, and its checksums are known from the first start on."""
    other = tmp_path / "other"
    done = restore(file, other, "--json")
    reported = json.loads(done.stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert (reported["sessions"], reported["live"], reported["kept_as"]) == (
        SESSIONS,
        SESSIONS,
        None,
    )
    assert reported["journal"] == str(other / JOURNAL_FILE)
    assert (other / SUMS_FILE).exists()
    assert other.stat().st_mode & 0o777 == 0o700
    assert (other / JOURNAL_FILE).stat().st_mode & 0o777 == 0o600
    assert with_journal(other, look) == with_journal(state, look)


def test_damage_of_a_restored_journal_is_found_as_that_of_any(file, tmp_path):
    """At the next start, by its checksums."""
    other = tmp_path / "other"
    restore(file, other)
    path = other / JOURNAL_FILE
    before = path.stat()
    with path.open("r+b") as pages:
        pages.seek(path.stat().st_size // 2 + 9)
        pages.write(b"\xaa\x55\xaa")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    async def repaired(journal):
        return journal._store.repaired.salvaged is not None

    assert with_journal(other, repaired) is True


def test_the_journal_that_was_there_is_kept_beside(state, file):
    """With its log, so that it can be taken again."""
    before = with_journal(state, look)
    done = restore(file, state)
    (kept,) = state.glob(f"{JOURNAL_FILE}.replaced-*[0-9]")

    assert done.returncode == 0, done.stderr
    assert f"the journal that was there is {kept}" in done.stdout
    assert with_journal(state, look) == before
    again = state.parent / "again"
    again.mkdir(mode=0o700)
    kept.rename(again / JOURNAL_FILE)
    assert with_journal(again, look) == before


def test_a_log_that_a_kill_has_left_is_kept_with_its_journal(state, file):
    """What is in it alone is not lost with it."""
    crashed = state.parent / "crashed"

    async def crash(journal):
        await journal.write(AcceptCommand("s-0", "late", b"late", 9))
        shutil.copytree(state, crashed)

    with_journal(state, crash)
    assert wal_of(crashed / JOURNAL_FILE).stat().st_size
    done = restore(file, crashed, "--force")
    (kept,) = crashed.glob(f"{JOURNAL_FILE}.replaced-*[0-9]")
    again = state.parent / "again"
    again.mkdir(mode=0o700)
    wal_of(kept).rename(wal_of(again / JOURNAL_FILE))
    kept.rename(again / JOURNAL_FILE)
    (stored,) = [one for one in with_journal(again, look) if one.row.session_id == "s-0"]

    assert done.returncode == 0, done.stderr
    assert [one.command_id for one in stored.unanswered] == ["late"]
    assert all(not one.unanswered for one in with_journal(crashed, look))


async def prompt(journal):
    """Accept one more command."""
    await journal.write(AcceptCommand("s-0", "late", b"late", 1_790_000_000_000))


async def start(journal):
    """Start one more session."""
    row = SessionRow(session_id="new", created_ms=1_790_000_000_000, spec=b"")
    await journal.write(CreateSession(row))


async def end(journal):
    """End a session."""
    await journal.write(EndSession("s-0", b"over", 1_790_000_000_000))


@pytest.mark.parametrize(
    ("more", "reported"),
    [
        (prompt, "not in it: 0; of which the journal has more: 1"),
        (start, "not in it: 1; of which the journal has more: 0"),
        (end, "not in it: 0; of which the journal has more: 1"),
    ],
)
def test_a_newer_journal_is_replaced_by_force_alone(state, file, more, reported):
    """It is said what it has, and up to when both go."""
    with_journal(state, more)
    before = contents(state)
    done = restore(file, state)

    refused(done, 1, reported, "Its last entry is of 2026-09-21 ", "the backup of 20", "--force")
    assert contents(state) == before
    assert restore(file, state, "--force").returncode == 0
    assert [len(one.unanswered) for one in with_journal(state, look)] == [0] * SESSIONS


def test_what_is_in_the_log_alone_counts_too(state, file):
    """As a kill leaves it; the look changes nothing."""
    crashed = state.parent / "crashed"

    async def crash(journal):
        await prompt(journal)
        shutil.copytree(state, crashed)

    with_journal(state, crash)
    before = contents(crashed)
    refused(restore(file, crashed), 1, "has more: 1")

    assert contents(crashed) == before


def test_an_older_journal_is_replaced(state, file, tmp_path):
    """The one that the backup goes on from."""
    older = tmp_path / "older"
    restore(file, older)
    with_journal(state, prompt)
    newer = with_journal(state, lambda journal: backed_up(journal, state, tmp_path / "c"))

    assert restore(newer, older).returncode == 0
    assert with_journal(older, look) == with_journal(state, look)


def test_a_journal_that_cannot_be_read_is_replaced_by_force_alone(state, file):
    """Nobody can say what it has."""
    (state / JOURNAL_FILE).write_bytes(b"no database" * 1_000)
    refused(restore(file, state), 1, "can't be read", "nobody can say", "--force")

    assert restore(file, state, "--force").returncode == 0
    assert len(with_journal(state, look)) == SESSIONS


def test_a_journal_that_a_daemon_has_is_left(state, file):
    """Also by force."""

    async def work(_journal):
        return restore(file, state, "--force")

    refused(with_journal(state, work), 3, "a daemon runs with the journal in", "stop it first")


def test_a_journal_that_a_daemon_has_is_left_without_its_lock_file_too(state, file):
    """Somebody may have deleted that for its room; SQLite's lock is on the journal itself."""

    async def work(journal):
        (state / RESERVE_FILE).unlink()
        before = (state / JOURNAL_FILE).stat().st_ino
        done = restore(file, state, "--force")
        assert (state / JOURNAL_FILE).stat().st_ino == before
        await prompt(journal)
        return done

    refused(with_journal(state, work), 3, "a daemon runs with the journal in", "stop it first")
    assert sum(len(one.unanswered) for one in with_journal(state, look)) == 1


def test_a_backup_that_was_copied_to_the_journals_place_is_not_taken_for_it(state, file):
    """Its pages are not those of the checksums there; the command that is named takes it."""
    before = with_journal(state, look)
    with_journal(state, prompt)
    shutil.copy(file, state / JOURNAL_FILE)
    (state / JOURNAL_FILE).chmod(0o600)
    with pytest.raises(JournalRefused, match=f"is a backup.*`cmdc restore {state}/"):
        with_journal(state, look)
    assert (state / JOURNAL_FILE).read_bytes() == file.read_bytes()

    assert restore(state / JOURNAL_FILE, state).returncode == 0
    assert with_journal(state, look) == before


def test_what_stops_a_restore_behind_its_last_step_back_is_reported(state, file):
    """The next start finishes it, so nobody may take it for undone."""
    before = with_journal(state, look)
    with_journal(state, prompt)
    (state / SCHEMA_FILE).unlink()
    (state / SCHEMA_FILE).mkdir()
    done = restore(file, state, "--force")

    refused(done, 1, SCHEMA_FILE, "the next start of the daemon finishes it")
    assert (state / REPLACEMENT).exists()
    (state / SCHEMA_FILE).rmdir()
    assert with_journal(state, look) == before


def test_an_output_that_takes_nothing_is_reported(state, file):
    """With what was done all the same."""
    with Path("/dev/full").open("wb") as full:
        run = command(file, state) | {"stdout": full, "stderr": subprocess.PIPE, "text": True}
        done = subprocess.run(**run, timeout=END_S, check=False)

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"{state / JOURNAL_FILE} is {file}: {SESSIONS} sessions" in line
    assert "standard output cannot be written: No space left on device" in line
    assert len(list(state.glob(f"{JOURNAL_FILE}.replaced-*[0-9]"))) == 1


def test_an_output_that_nobody_reads_is_left_quietly(state, file):
    """As of ``| head``."""
    reads, writes = os.pipe()
    os.close(reads)
    run = command(file, state, "--check") | {"stdout": writes, "stderr": subprocess.PIPE}
    done = subprocess.run(**run, timeout=END_S, check=False)
    os.close(writes)

    assert (done.returncode, done.stderr) == (1, b"")


def test_a_name_that_the_output_does_not_know_is_shown_escaped(state, file):
    """What is done stays done."""
    named = file.rename(file.with_name("b\u00e9"))
    done = restore(named, state, "--check", PYTHONIOENCODING="ascii")

    assert (done.returncode, done.stderr) == (0, "")
    assert "b\\xe9 is whole" in done.stdout


def test_an_interrupt_is_reported_in_one_line(state, file):
    """Here while it waits for the lock; nothing was changed."""
    before = contents(state)
    interrupted = (
        "import signal, sys\n"
        "from supervisor import restore\n"
        "from supervisor.adapters.journal.repair.volume import Volume\n"
        "Volume.claim = lambda _: signal.raise_signal(signal.SIGINT)\n"
        "sys.exit(restore.main(sys.argv[1:]))\n"
    )
    run = command(file, state)
    run["args"] = [sys.executable, "-c", interrupted, str(file)]
    done = subprocess.run(**run, capture_output=True, text=True, timeout=END_S, check=False)

    refused(done, 130, "cmdc restore: interrupted: nothing was changed, or the next start of the")
    assert len(done.stderr.splitlines()) == 1
    assert contents(state) == before


def test_a_daemon_that_starts_leaves_the_journal_of_one_that_runs(state, file):
    """Whose lock file somebody has deleted; it does not look at the files before it knows."""
    start = (
        "import asyncio, pathlib, sys\n"
        "from supervisor.adapters.journal.sqlite import SqliteJournal\n"
        "asyncio.run(SqliteJournal(pathlib.Path(sys.argv[1])).open())\n"
    )

    async def work(journal):
        await prompt(journal)
        (state / RESERVE_FILE).unlink()
        left = state / REPLACING
        left.write_bytes(b"that somebody who is first would remove")
        words = [sys.executable, "-c", start, str(state)]
        done = await asyncio.to_thread(
            subprocess.run, words, capture_output=True, text=True, timeout=END_S, check=False
        )
        assert left.exists()
        return done

    done = with_journal(state, work)
    assert done.returncode == 1
    assert "JournalLocked: cannot open the journal" in done.stderr


def changed(file, how):
    """Change a backup."""
    data = bytearray(file.read_bytes())
    how(data)
    file.write_bytes(data)


def flip_a_body(data):
    data[10 * PAGE_BYTES + 99] ^= 1


def cut(data):
    del data[-5:]


def cut_a_page(data):
    del data[:PAGE_BYTES]


def empty(data):
    data.clear()


@pytest.mark.parametrize(
    ("how", "word"),
    [
        (flip_a_body, "1 of its "),
        (cut, "is no backup of a journal"),
        (cut_a_page, "is no backup of a journal"),
        (empty, "is no backup of a journal"),
    ],
)
@pytest.mark.parametrize("flags", [(), ("--force",), ("--check",)])
def test_a_backup_that_has_changed_is_refused(state, file, how, word, flags):
    """Also by force; the journal stays as it is."""
    changed(file, how)
    before = contents(state)
    refused(restore(file, state, *flags), 1, str(file), word)

    assert contents(state) == before


def test_a_backup_of_a_newer_program_is_refused(state, file, tmp_path):
    """Its format is not known here."""

    async def work(journal):
        journal._store.db.execute("PRAGMA user_version = 99")
        return await backed_up(journal, state, tmp_path / "newer")

    newer = with_journal(state, work)
    done = restore(newer, tmp_path / "other")
    refused(done, 1, f"{newer} has format 99", "restore it with the program that wrote it")
    assert "state directory" not in done.stderr
    assert not (tmp_path / "other" / JOURNAL_FILE).exists()


def test_an_older_backup_is_brought_to_the_format_of_today(state, file, tmp_path):
    """By the daemon that goes on with it, as its own journal would be."""
    old = tmp_path / "old.sqlite3"
    with closing(sqlite3.connect(old)) as db:
        for statement in MIGRATIONS[0]:
            db.execute(statement)
        db.execute("INSERT INTO sessions VALUES ('old', 1, x'', NULL, NULL, 1, 0, NULL, NULL)")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("PRAGMA user_version = 1")
        db.commit()
    done = restore(sealed(old, tmp_path / "old"), tmp_path / "other")

    assert done.returncode == 0, done.stderr
    (stored,) = with_journal(tmp_path / "other", look)
    assert stored.row.session_id == "old"


@pytest.mark.parametrize(
    ("pragma", "reported"),
    [
        ("user_version = 1", "has not the tables of a journal"),
        ("application_id = 7", "belongs to another program"),
    ],
)
def test_a_database_of_another_program_is_refused(state, file, tmp_path, pragma, reported):
    """Though it was sealed, and by force, too; what is advised is about the file."""
    other = tmp_path / "other.sqlite3"
    with closing(sqlite3.connect(other)) as db:
        db.execute(f"PRAGMA {pragma}")
        db.execute("CREATE TABLE t (body BLOB)")
    before = contents(state)
    done = restore(sealed(other, tmp_path / "other"), state, "--force")

    refused(done, 1, reported)
    assert "state directory" not in done.stderr
    assert contents(state) == before


def sealed(database, place):
    """Give a database the seal of a backup."""
    with database.open("rb") as source, place.open("wb") as target:
        write_sealed(source, target, made_ms=1)
    return place


@pytest.mark.parametrize("flags", [(), ("--force",), ("--check",)])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing", "cannot be read: No such file"),
        (".", "is no regular file"),
        ("fifo", "is no regular file"),
        ("ring", "cannot be read: Too many levels"),
        ("n" * 300, "cannot be read: File name too long"),
    ],
)
def test_what_cannot_be_read_is_reported(state, tmp_path, name, why, flags):
    """By its name, and nobody waits for what a pipe may bring."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "ring").symlink_to("ring")
    refused(restore(tmp_path / name, state, *flags), 1, str(tmp_path / name), why)


def test_a_check_says_what_a_backup_is(state, file):
    """And needs no place."""
    done = restore(file, state.parent / "nowhere", "--check", "--json")
    reported = json.loads(done.stdout)

    assert (reported["file"], reported["sessions"], reported["live"]) == (
        str(file),
        SESSIONS,
        SESSIONS,
    )
    assert reported["last_ms"] == 3
    assert not (state.parent / "nowhere").exists()
    shown = restore(file, state, "--check").stdout
    assert shown.startswith(f"{file} is whole: {SESSIONS} sessions, {SESSIONS} live, as of 20")


@pytest.mark.parametrize("journal", ["memory", "postgresql://nobody@nowhere/none"])
def test_another_kind_of_journal_takes_no_file(state, file, journal):
    """It is said where to read on; no address is shown."""
    done = restore(file, state, CMDC_JOURNAL=journal)

    refused(done, 1, "docs/howto/backup.md")
    assert "nowhere" not in done.stderr


def test_a_folder_that_others_may_enter_is_refused(state, file, tmp_path):
    """As a daemon refuses it."""
    (tmp_path / "open").mkdir(mode=0o755)
    refused(restore(file, tmp_path / "open"), 2, "is open to other users")


def test_an_unfinished_restore_is_no_journal(state, file):
    """What a kill has left before it was whole goes, what was whole is put in its place."""
    before = with_journal(state, look)
    (state / REPLACING).write_bytes(b"half")
    assert with_journal(state, look) == before
    assert not (state / REPLACING).exists()

    other = state.parent / "other"
    restore(file, other)
    with_journal(other, prompt)
    shutil.copy(state / JOURNAL_FILE, other / REPLACEMENT)
    assert with_journal(other, look) == before
    (kept,) = other.glob(f"{JOURNAL_FILE}.replaced-*[0-9]")
    with closing(sqlite3.connect(kept)) as db:
        assert db.execute("SELECT count(*) FROM commands WHERE answer IS NULL").fetchone() == (1,)
