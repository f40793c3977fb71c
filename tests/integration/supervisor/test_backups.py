"""A backup on its way to the file that somebody has named: what it takes the place of, and when."""

import asyncio
import contextlib
import fcntl
import os
import threading

import pytest

from cmdc_runtime.clock import now_ms
from cmdc_runtime.errors import Overloaded, SessionExists, TransientError, UsageError
from cmdc_runtime.requests import BackUp
from supervisor.adapters.journal import backup
from supervisor.adapters.journal.backup import is_backup, open_to_read
from supervisor.adapters.journal.base import JournalFailed, SessionRow
from supervisor.adapters.journal.opening import MemoryJournal
from supervisor.adapters.journal.operations import AcceptCommand, CreateSession
from supervisor.adapters.journal.repair.repairing import COPY_FILE
from supervisor.adapters.journal.sqlite import JOURNAL_FILE, SqliteJournal
from supervisor.api.backups import Backups
from supervisor.restore import check_backup

SESSIONS = 3
WAIT_S = 20.0


@pytest.fixture
def state(tmp_path):
    """The daemon's own folder."""
    return tmp_path / "state"


@pytest.fixture
def folder(tmp_path):
    """Where backups go."""
    found = tmp_path / "backups"
    found.mkdir()
    return found


async def with_backups(state, work, journal=None):
    """Do something with a daemon's backups and its journal."""
    journal = journal or SqliteJournal(state)
    await journal.open()
    try:
        for number in range(SESSIONS):
            row = SessionRow(session_id=f"s-{number}", created_ms=1, spec=b"spec")
            with contextlib.suppress(SessionExists):
                await journal.write(CreateSession(row))
        return await work(Backups(journal, (state,)), journal)
    finally:
        await journal.close()


def made(state, file, *, force=False):
    """Make one backup, and return what is said of it."""

    async def work(backups, _journal):
        return await backups.make(BackUp(file=str(file), force=force))

    return asyncio.run(with_backups(state, work))


def refused(state, file, match, *, force=False):
    """Want a backup that can't be made, twice: of neither try anything is left."""
    for _ in range(2):
        with pytest.raises(UsageError, match=match):
            made(state, file, force=force)
    assert not (state / COPY_FILE).exists()


def names(folder):
    """Return what is in a folder."""
    return sorted(one.name for one in folder.iterdir())


def test_a_backup_is_a_private_file_that_is_whole(state, folder):
    """It says where it is, how large, and what is in it."""
    facts = made(state, folder / "b")
    found = (folder / "b").stat()

    assert (facts.file, facts.sessions) == (str(folder / "b"), SESSIONS)
    assert (facts.size_bytes, facts.device, facts.inode) == (
        found.st_size,
        found.st_dev,
        found.st_ino,
    )
    assert found.st_mode & 0o777 == 0o600
    assert check_backup(folder / "b").seal.made_ms == facts.made_ms
    assert names(folder) == ["b"]
    assert not (state / COPY_FILE).exists()


def test_a_former_backup_is_replaced_as_a_whole(state, folder):
    """Who has it open keeps the former one."""
    made(state, folder / "b")
    with (folder / "b").open("rb") as before:
        former = before.read()

        async def work(backups, journal):
            await journal.write(AcceptCommand("s-0", "c", b"more" * 3_000, 1))
            return await backups.make(BackUp(file=str(folder / "b")))

        with contextlib.closing(open_to_read(folder / "b")):
            asyncio.run(with_backups(state.with_name("other"), work))
        before.seek(0)
        assert before.read() == former
    with contextlib.closing(open_to_read(folder / "b")) as db:
        assert db.execute("SELECT count(*) FROM commands").fetchone() == (1,)


def test_a_file_that_is_no_backup_is_replaced_by_force_alone(state, folder):
    """Somebody may need it."""
    (folder / "b").write_text("my thesis")
    refused(state, folder / "b", "is no backup of a journal: take another name")
    assert (folder / "b").read_text() == "my thesis"
    made(state, folder / "b", force=True)
    assert is_backup(folder / "b")


def test_a_file_that_came_meanwhile_stays(state, folder, monkeypatch):
    """What is at the place is looked at again before the backup takes it."""
    written = backup.write_sealed

    def write(*arguments):
        (folder / "b").write_text("my thesis")
        return written(*arguments)

    monkeypatch.setattr(backup, "write_sealed", write)
    with pytest.raises(UsageError, match="is no backup of a journal"):
        made(state, folder / "b")
    assert (folder / "b").read_text() == "my thesis"
    assert names(folder) == ["b"]


def test_another_name_of_the_journal_takes_none(state, folder):
    """To close it once would drop the locks that SQLite has on it."""

    async def work(backups, _journal):
        os.link(state / JOURNAL_FILE, folder / "b")
        with pytest.raises(UsageError, match="is a file of the daemon's own folder"):
            await backups.make(BackUp(file=str(folder / "b"), force=True))

    asyncio.run(with_backups(state, work))
    assert (folder / "b").samefile(state / JOURNAL_FILE)
    assert names(folder) == ["b"]


def test_a_backup_is_of_the_moment_of_its_copy(state, folder, monkeypatch):
    """What comes while it is checked and written is not in it, however long that takes."""
    checked, moments = backup.damage_of, []

    def check(copy):
        moments.append(now_ms())
        while now_ms() <= moments[0]:
            pass
        return checked(copy)

    monkeypatch.setattr(backup, "damage_of", check)
    facts = made(state, folder / "b")
    assert facts.made_ms <= moments[0]
    assert check_backup(folder / "b").seal.made_ms == facts.made_ms


def test_an_empty_file_has_nothing_to_lose(state, folder):
    """As mktemp makes one."""
    (folder / "b").touch()
    made(state, folder / "b")

    assert is_backup(folder / "b")


@pytest.mark.parametrize("name", ["journal.sqlite3", "journal.sums", "b", "below/b"])
def test_the_daemons_own_folder_takes_none(state, folder, name):
    """Neither by its name nor by a link, and force changes nothing."""
    state.mkdir(mode=0o700)
    (folder / "link").symlink_to(state)
    for place in (state / name, folder / "link" / name, state / ".." / "state" / name):
        refused(state, place, "the daemon's own folder", force=True)


def test_what_is_no_file_is_refused(state, folder):
    """Force changes nothing."""
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to("/dev/null")
    for place, why in (
        (folder, "is a folder"),
        (f"{folder}/new/", "is a folder"),
        (folder / "fifo", "no regular file"),
        (folder / "link", "no regular file"),
        ("b", "absolute path"),
        ("", "absolute path"),
        ("/a\0b", "absolute path"),
    ):
        refused(state, place, why, force=True)


def test_errors_of_the_file_system_are_reported_by_the_files_name(state, folder):
    """What is missing, what is no folder, what is too long, and a ring of links."""
    (folder / "file").touch()
    (folder / "ring").symlink_to("ring")
    for place, why in (
        (folder / "missing" / "b", "No such file or directory"),
        (folder / "file" / "b", "Not a directory"),
        (folder / ("n" * 300), "File name too long"),
        (folder / "ring" / "b", "Too many levels of symbolic links"),
        ("/proc/b", "No such file or directory"),
    ):
        refused(state, place, f"^{place} cannot be written: {why}")
    assert names(folder) == ["file", "ring"]


def test_a_link_leads_to_the_backup(state, folder):
    """It stays a link."""
    (folder / "latest").symlink_to("b")
    facts = made(state, folder / "latest")

    assert facts.file == str(folder / "b")
    assert (folder / "latest").is_symlink()


def test_what_killed_daemons_have_left_goes_with_the_next_backup(state, folder):
    """Of this place alone, and nothing that another daemon is writing."""
    prefix = backup._prefix(folder / "b")
    for name in (f"{prefix}left", f"{prefix}busy", backup._prefix(folder / "c") + "other"):
        (folder / name).write_bytes(b"half")
    with (folder / f"{prefix}busy").open("rb") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        made(state, folder / "b")

    left = {one.name for one in folder.iterdir()}
    assert left == {"b", f"{prefix}busy", backup._prefix(folder / "c") + "other"}


def test_one_backup_at_a_time(state, folder, monkeypatch):
    """While the disk of one hangs, the next one gets an error, and the journal goes on."""
    hangs, may_go = threading.Event(), threading.Event()
    written = backup.write_sealed

    def hanging(*arguments):
        hangs.set()
        assert may_go.wait(WAIT_S)
        return written(*arguments)

    monkeypatch.setattr(backup, "write_sealed", hanging)

    async def work(backups, journal):
        first = asyncio.create_task(backups.make(BackUp(file=str(folder / "b"))))
        await asyncio.to_thread(hangs.wait, WAIT_S)
        with pytest.raises(Overloaded, match=f"a backup to {folder}/b is under way"):
            await backups.make(BackUp(file=str(folder / "c")))
        await journal.write(AcceptCommand("s-0", "meanwhile", b"", 1))
        may_go.set()
        await first
        return await backups.make(BackUp(file=str(folder / "c")))

    asyncio.run(with_backups(state, work))
    assert names(folder) == ["b", "c"]


def test_a_daemon_that_ends_waits_for_no_disk(state, folder, monkeypatch):
    """What hangs is left to end by itself, and the former backup stays."""
    made(state, folder / "b")
    former = (folder / "b").read_bytes()
    hangs, may_go, is_over = threading.Event(), threading.Event(), threading.Event()

    def hanging(*_):
        hangs.set()
        may_go.wait(WAIT_S)
        is_over.set()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(backup, "write_sealed", hanging)

    async def work(backups, _journal):
        making = asyncio.create_task(backups.make(BackUp(file=str(folder / "b"))))
        await asyncio.to_thread(hangs.wait, WAIT_S)
        making.cancel()
        await asyncio.wait({making}, timeout=WAIT_S)
        return making.cancelled()

    is_cancelled = asyncio.run(with_backups(state.with_name("other"), work))
    may_go.set()
    assert is_over.wait(WAIT_S)
    assert is_cancelled
    assert (folder / "b").read_bytes() == former


def test_a_copy_that_sqlite_finds_damaged_is_not_delivered(state, folder):
    """An index that lacks rows, though each page is as it was written; the former backup stays."""
    made(state, folder / "b")
    former = (folder / "b").read_bytes()

    async def work(backups, journal):
        db = journal._store.db
        db.execute("PRAGMA writable_schema = ON")
        db.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'ended_ms IS NULL', 'ended_ms > 0')"
            " WHERE name = 'sessions_alive'"
        )
        with pytest.raises(JournalFailed, match=r"damaged \(.*\): nothing was written"):
            await backups.make(BackUp(file=str(folder / "b")))

    asyncio.run(with_backups(state, work))
    assert (folder / "b").read_bytes() == former
    assert names(folder) == ["b"]
    assert not (state / COPY_FILE).exists()


def test_a_journal_in_memory_leaves_no_file(state, folder):
    """It says that there is nothing to keep."""
    state.mkdir(mode=0o700)

    async def work(backups, _journal):
        with pytest.raises(UsageError, match="in memory"):
            await backups.make(BackUp(file=str(folder / "b")))

    asyncio.run(with_backups(state, work, MemoryJournal()))
    assert names(folder) == []


def test_a_closed_journal_makes_none(state, folder):
    """Whoever asks may try again with the next daemon."""

    async def work(backups, journal):
        await journal.close()
        with pytest.raises(TransientError, match="not open"):
            await backups.make(BackUp(file=str(folder / "b")))

    asyncio.run(with_backups(state, work))
    assert names(folder) == []
