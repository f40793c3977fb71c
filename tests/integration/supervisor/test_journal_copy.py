"""A copy of a journal that is open and written to."""

import asyncio
import os
import sqlite3
import threading
import time
from contextlib import closing

import pytest

from cmdc_runtime.errors import UsageError
from supervisor.adapters.journal.backup import PageCopy, damage_of, open_to_read
from supervisor.adapters.journal.base import JournalFailed, JournalFull, SessionRow
from supervisor.adapters.journal.opening import MemoryJournal
from supervisor.adapters.journal.operations import (
    AcceptCommand,
    AppendRecords,
    CreateSession,
    LoadSession,
)
from supervisor.adapters.journal.repair.repairing import COPY_FILE
from supervisor.adapters.journal.repair.sums import PAGE_BYTES
from supervisor.adapters.journal.repair.wal import stamp_of
from supervisor.adapters.journal.sqlite import JOURNAL_FILE, SqliteJournal
from supervisor.core.limits import BACKUP_STEP_PAGES
from supervisor.core.storage import Level

SESSIONS = 10
BODY = b"x" * 3_000
ROUNDS = 40
STEPS_MIN = 5
TURN_S = 60.0


@pytest.fixture
def state(tmp_path):
    """Where the journal is."""
    return tmp_path / "state"


def with_journal(state, work):
    """Open a journal, do something with it, and close it."""

    async def whole():
        journal = SqliteJournal(state)
        await journal.open()
        try:
            return await work(journal)
        finally:
            await journal.close()

    return asyncio.run(whole())


async def fill(journal):
    """Write sessions whose pages take several steps to copy."""
    for number in range(SESSIONS):
        row = SessionRow(session_id=f"s-{number}", created_ms=1, spec=b"spec")
        await journal.write(CreateSession(row))
    for step in range(ROUNDS):
        await asyncio.gather(*(turn(journal, number, step + 1) for number in range(SESSIONS)))
    journal._store._checkpoint()
    (pages,) = journal._store.db.execute("PRAGMA page_count").fetchone()
    assert pages > STEPS_MIN * BACKUP_STEP_PAGES


async def turn(journal, number, step):
    """Accept a command, and in another commit write its record and its answer."""
    name = f"s-{number}"
    await journal.write(AcceptCommand(name, f"c-{step}", BODY, step))
    answers = [(f"c-{step}", b"done")]
    await journal.write(AppendRecords(name, 0, [("said", BODY)], answers, number=step))


def before_each_step(monkeypatch, act):
    """Have something done on the journal's thread before each step of a copy."""
    step = PageCopy.step
    monkeypatch.setattr(PageCopy, "step", lambda copy: act() or step(copy))


def in_the_loop(loop, act):
    """Have something done in the loop, and wait for it on another thread."""
    is_done = threading.Event()
    loop.call_soon_threadsafe(lambda: (act(), is_done.set()))
    assert is_done.wait(TURN_S)


def found_in(copy):
    """Return how many turns of each session a copy has, each of them as a whole."""
    assert damage_of(copy) is None
    with closing(open_to_read(copy)) as db:
        records = dict(db.execute("SELECT session_id, count(*) FROM records GROUP BY 1"))
        answered = dict(
            db.execute(
                "SELECT session_id, count(*) FROM commands WHERE answer IS NOT NULL GROUP BY 1"
            )
        )
        written = dict(db.execute("SELECT session_id, written FROM marks"))
    assert records == answered == written
    return records


def test_a_copy_is_one_state_with_all_that_was_acknowledged_before(state):
    """Commits between the steps are in it as a whole or not at all, wherever their pages are.

    Nothing is committed but while a copy is made: what is found in it is read without a wait.
    """
    copy = state / COPY_FILE

    async def work(journal):
        await fill(journal)
        done = [ROUNDS] * SESSIONS
        is_over = asyncio.Event()

        async def speak(number):
            while not is_over.is_set():
                await turn(journal, number, done[number] + 1)
                done[number] += 1

        speakers = [asyncio.create_task(speak(number)) for number in range(SESSIONS)]
        found = []
        while len(found) < 3 or sum(done) <= SESSIONS * (ROUNDS + 3):
            before = list(done)
            await journal.copy(copy)
            found.append((before, found_in(copy)))
        is_over.set()
        await asyncio.gather(*speakers)
        return found, done

    found, done = with_journal(state, work)
    for before, has in found:
        for number in range(SESSIONS):
            assert before[number] <= has[f"s-{number}"] <= done[number]


def test_commits_come_between_the_steps(state, monkeypatch):
    """A write that is queued during a step is committed before the next one begins."""
    order = []

    async def work(journal):
        await fill(journal)
        loop, commit = asyncio.get_running_loop(), journal._store.commit
        late = []

        def write():
            late.append(journal.write(AcceptCommand("s-0", f"late-{len(late)}", b"", 1)))

        def queue_one():
            order.append("step")
            in_the_loop(loop, write)

        before_each_step(monkeypatch, queue_one)
        monkeypatch.setattr(journal._store, "commit", lambda: order.append("commit") or commit())
        await journal.copy(state / COPY_FILE)
        await asyncio.gather(*late)

    with_journal(state, work)
    steps = len(order) // 2
    assert steps >= STEPS_MIN
    assert order == ["step", "commit"] * steps


def test_a_log_that_is_brought_into_the_file_meanwhile_changes_nothing(state):
    """Checkpoints, the one that empties the log too, come between the steps as commits do."""

    async def work(journal):
        await fill(journal)
        journal._store._commits_max = 1
        copied = journal.copy(state / COPY_FILE)
        for step in range(ROUNDS, ROUNDS + 4):
            for number in range(SESSIONS):
                await turn(journal, number, step + 1)
                journal._store._is_unsure = number % 2 == 0
        await copied

    with_journal(state, work)
    assert sum(found_in(state / COPY_FILE).values()) >= SESSIONS * ROUNDS


def test_a_damaged_page_is_not_copied(state):
    """A copy of it would be taken for a good one."""

    async def work(journal):
        await fill(journal)
        path = state / JOURNAL_FILE
        page = path.stat().st_size // PAGE_BYTES // 2
        before = path.stat()
        journal._store._file.seek((page - 1) * PAGE_BYTES + 99)
        os.pwrite(journal._store._file.fileno(), b"\xaa", (page - 1) * PAGE_BYTES + 99)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        journal._store._file_seen = (
            path.stat().st_size,
            path.stat().st_ctime_ns,
        )  # as a disk does it: nobody wrote
        with pytest.raises(JournalFailed, match=f"1 pages of .* damaged .the first is {page}"):
            await journal.copy(state / COPY_FILE)
        return journal.health.has_failed

    assert with_journal(state, work) is False
    assert not (state / COPY_FILE).exists()


def test_a_page_that_somebody_has_overwritten_is_put_right_first(state):
    """One that is in the log still; then the copy has it."""

    async def work(journal):
        await fill(journal)
        await turn(journal, 0, ROUNDS + 1)
        page = max(journal._store._log.pages())
        os.pwrite(journal._store._file.fileno(), b"\xaa" * 64, (page - 1) * PAGE_BYTES)
        await journal.copy(state / COPY_FILE)

    with_journal(state, work)
    assert found_in(state / COPY_FILE)["s-0"] == ROUNDS + 1


def test_a_bit_of_the_log_that_the_disk_has_turned_is_put_right_first(state):
    """No time of change shows it, and SQLite looks at no checksum of a log that it has open."""

    async def work(journal):
        await fill(journal)
        await turn(journal, 0, ROUNDS + 1)
        log = journal._store._log
        at = log.data.rindex(BODY) + 99
        os.pwrite(log._fd, b"y", at)
        log._seen = stamp_of(os.fstat(log._fd))
        journal._store.db.execute("PRAGMA shrink_memory")
        await journal.copy(state / COPY_FILE)

    with_journal(state, work)
    with closing(open_to_read(state / COPY_FILE)) as db:
        bodies = {body for table in ("records", "commands") for (body,) in bodies_in(db, table)}
    assert bodies == {BODY}


def bodies_in(db, table):
    """Return the bodies of a table."""
    return db.execute(f"SELECT body FROM {table}")


def test_a_journal_that_is_brought_back_ends_its_copy(state, monkeypatch):
    """The connection is closed for it, which a copy must not keep open."""
    steps = []

    async def work(journal):
        await fill(journal)
        loop, late = asyncio.get_running_loop(), []

        def write():
            late.append(journal.write(AcceptCommand("s-0", "late", b"", 1)))

        def displace():
            steps.append("step")
            if len(steps) == 2:
                (state / JOURNAL_FILE).unlink()
                in_the_loop(loop, write)  # a commit looks at what it writes to

        before_each_step(monkeypatch, displace)
        with pytest.raises(JournalFailed, match="opened anew"):
            await journal.copy(state / COPY_FILE)
        await asyncio.gather(*late)
        assert not (state / COPY_FILE).exists()
        await journal.copy(state / COPY_FILE)
        return await journal.read(LoadSession("s-0"))

    stored = with_journal(state, work)
    assert found_in(state / COPY_FILE)["s-0"] == ROUNDS
    assert [one.command_id for one in stored.unanswered] == ["late"]
    assert with_journal(state, lambda journal: journal.read(LoadSession("s-0"))) == stored


def test_a_journal_that_closes_ends_its_copy(state, monkeypatch):
    """Whoever waits for it gets an error, and nothing is left of it."""

    async def work(journal):
        await fill(journal)
        loop, ends = asyncio.get_running_loop(), []

        def close():
            if not ends:
                ends.append(loop.create_task(journal.close()))

        before_each_step(monkeypatch, lambda: in_the_loop(loop, close))
        copied = journal.copy(state / COPY_FILE)
        with pytest.raises(JournalFailed, match="closed"):
            await copied

    with_journal(state, work)
    assert not (state / COPY_FILE).exists()
    assert [one.name for one in threading.enumerate() if one.name == "journal-copy"] == []
    with pytest.raises(JournalFailed, match="not open"):
        SqliteJournal(state).copy(state / COPY_FILE)


def test_a_disk_that_fills_meanwhile_ends_the_copy(state, monkeypatch):
    """What it takes is missing elsewhere."""

    async def work(journal):
        await fill(journal)

        def fill_the_disk():
            journal._look_s = time.monotonic() + TURN_S  # it has looked for room just now
            journal._store._volume.level = Level.RESERVE

        before_each_step(monkeypatch, fill_the_disk)
        with pytest.raises(JournalFull, match="no room"):
            await journal.copy(state / COPY_FILE)
        with pytest.raises(JournalFull, match="MiB"):
            await journal.copy(state / COPY_FILE)
        journal._store._volume.level = Level.PLENTY

    with_journal(state, work)
    assert not (state / COPY_FILE).exists()


def test_a_copy_that_cannot_be_written_concerns_nobody_else(state):
    """The journal goes on."""

    async def work(journal):
        await fill(journal)
        (state / COPY_FILE).mkdir()
        with pytest.raises(JournalFailed, match="could not be copied"):
            await journal.copy(state / COPY_FILE)
        await journal.write(AcceptCommand("s-0", "late", b"", 1))
        return journal.health.has_failed

    assert with_journal(state, work) is False


def test_copies_that_are_asked_for_at_once_come_one_after_the_other(state):
    """Each of them is whole."""
    others = [state / f"copy-{number}" for number in range(3)]

    async def work(journal):
        await fill(journal)
        await asyncio.gather(*(journal.copy(other) for other in others))

    with_journal(state, work)
    assert [sum(found_in(other).values()) for other in others] == [SESSIONS * ROUNDS] * 3


def test_what_a_kill_has_left_of_a_copy_goes_at_the_next_start(state):
    """Nobody would look for it."""
    with_journal(state, fill)
    (state / COPY_FILE).write_bytes(b"half")
    (state / f"{COPY_FILE}-journal").write_bytes(b"half")
    with_journal(state, lambda journal: journal.read(LoadSession("s-0")))

    assert list(state.glob(f"{COPY_FILE}*")) == []


def test_a_journal_in_memory_says_that_there_is_none(tmp_path):
    """It ends with its daemon."""

    async def whole():
        journal = MemoryJournal()
        await journal.open()
        try:
            with pytest.raises(UsageError, match="in memory and ends with the daemon"):
                await journal.copy(tmp_path / "copy")
        finally:
            await journal.close()

    asyncio.run(whole())


def test_the_copy_is_a_database_without_a_log(state):
    """It can be read where nothing can be written beside it."""

    async def work(journal):
        await fill(journal)
        await journal.copy(state / COPY_FILE)

    with_journal(state, work)
    with closing(sqlite3.connect(state / COPY_FILE)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
