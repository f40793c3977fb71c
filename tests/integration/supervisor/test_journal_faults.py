"""What a journal does when something goes wrong: full disk, full queue, kill, cancelled callers."""

import asyncio
import contextlib
import errno
import resource
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from supervisor.adapters.journal import writer
from supervisor.adapters.journal.base import (
    Accepted,
    Duplicate,
    JournalFailed,
    JournalFull,
    JournalOverloaded,
    SessionRow,
    StaleIncarnation,
)
from supervisor.adapters.journal.operations import (
    AcceptCommand,
    AppendRecords,
    BeginIncarnation,
    CreateSession,
    FindAnswer,
    FindLastIndex,
    ListLiveSessions,
    LoadSession,
)
from supervisor.adapters.journal.sqlite import JOURNAL_FILE, SqliteJournal
from supervisor.core.limits import JOURNAL_QUEUED_BYTES_MAX, JOURNAL_QUEUED_MAX
from supervisor.core.storage import Condition
from tests.journal_thread import on_thread

ROW = SessionRow(session_id="s-1", created_ms=5, spec=b"spec", incarnation=1)
PATIENCE_S = 30.0


@pytest.fixture
def directory(tmp_path):
    """Return where the journal goes."""
    return tmp_path / "state"


def run(scenario, directory, **options):
    """Open a journal with one session, run the coroutine function with it, and close it."""

    async def whole():
        journal = SqliteJournal(directory, **options)
        await journal.open()
        try:
            await journal.write(CreateSession(ROW))
            return await scenario(journal)
        finally:
            await journal.close()

    return asyncio.run(whole())


@contextlib.contextmanager
def busy_writer(journal):
    """Keep the writer's thread busy, so that what is called meanwhile becomes one group."""
    started, done = threading.Event(), threading.Event()
    on_thread(journal, lambda: (started.set(), done.wait(PATIENCE_S)))
    started.wait(PATIENCE_S)
    try:
        yield
    finally:
        done.set()


async def statements(journal):
    """Return the list to which the store's statements are added from now on."""
    found = []
    await on_thread(journal, lambda: journal._store.db.set_trace_callback(found.append))
    return found


async def outcomes(*calls):
    """Wait for all, and return results and errors."""
    return await asyncio.gather(*calls, return_exceptions=True)


def test_what_waits_shares_a_commit(directory):
    """Many callers cost one transaction, however many they are."""

    async def work(journal):
        trace = await statements(journal)
        with busy_writer(journal):
            calls = [
                journal.write(AcceptCommand("s-1", f"c-{number}", b"", 1)) for number in range(50)
            ]
        await asyncio.gather(*calls)
        return trace.count("COMMIT")

    assert run(work, directory) == 1


def test_a_refusal_spoils_nothing_else(directory):
    """The others of the same group are stored, and a later one builds on the earlier ones."""

    async def work(journal):
        with busy_writer(journal):
            calls = [
                journal.write(AcceptCommand("s-1", "c-1", b"", 1)),
                journal.write(AppendRecords("s-1", 9, [("turn", b"stale")], [("c-1", b"stale")])),
                journal.write(AppendRecords("s-1", 1, [("turn", b"good")], [])),
            ]
        found = await outcomes(*calls)
        return (
            found,
            await journal.read(LoadSession("s-1")),
            await journal.read(FindAnswer("s-1", "c-1")),
        )

    (first, second, third), stored, answer = run(work, directory)

    assert (first, type(second), third) == (Accepted(1), StaleIncarnation, None)
    assert ([record.body for record in stored.records], answer) == ([b"good"], None)


def test_what_cannot_be_stored_fails_alone(directory):
    """A value that the database does not take leaves no half of its own write behind either."""

    async def work(journal):
        with busy_writer(journal):
            calls = [
                journal.write(AcceptCommand("s-1", "c-1", b"", 1)),
                journal.write(AppendRecords("s-1", 1, [("turn", b"half"), ("\ud800", b"")], [])),
                journal.write(AcceptCommand("s-1", "c-2", b"", 2**70)),
                journal.write(AcceptCommand("s-1", "c-3", b"", 1)),
            ]
        return await outcomes(*calls), await journal.read(LoadSession("s-1"))

    (first, second, third, fourth), stored = run(work, directory)

    assert (first, type(second), type(third)) == (Accepted(1), JournalFailed, JournalFailed)
    assert (fourth, stored.records) == (Accepted(2), ())


def test_a_cancelled_caller_changes_nothing(directory):
    """The write is done, and the others of its group hear of theirs."""

    async def work(journal):
        with busy_writer(journal):
            first = asyncio.ensure_future(journal.write(AcceptCommand("s-1", "c-1", b"", 1)))
            second = journal.write(AcceptCommand("s-1", "c-2", b"", 1))
            first.cancel()
        found = await second
        return found, [
            row.command_id for row in (await journal.read(LoadSession("s-1"))).unanswered
        ]

    assert run(work, directory) == (Accepted(2), ["c-1", "c-2"])


@pytest.mark.slow
def test_a_full_queue_refuses_at_once(directory):
    """The call itself raises, nothing is queued, and there is room again later."""

    async def work(journal):
        with busy_writer(journal):
            calls = [journal.read(FindLastIndex("s-1")) for _ in range(JOURNAL_QUEUED_MAX - 1)]
            with pytest.raises(JournalOverloaded):
                journal.write(AcceptCommand("s-1", "c-1", b"", 1))
        await asyncio.gather(*calls)
        return await journal.write(AcceptCommand("s-1", "c-1", b"", 1))

    assert run(work, directory) == Accepted(1)


def test_a_queue_full_of_bytes_refuses_at_once(directory):
    """Large bodies fill the queue before many small ones would."""

    async def work(journal):
        half = bytes(JOURNAL_QUEUED_BYTES_MAX // 2)
        with busy_writer(journal):
            calls = [
                journal.write(AcceptCommand("s-1", f"c-{number}", half, 1)) for number in range(2)
            ]
            with pytest.raises(JournalOverloaded):
                journal.write(AppendRecords("s-1", 1, [("turn", b"x")], []))
        return await asyncio.gather(*calls)

    assert run(work, directory) == [Accepted(1), Accepted(2)]


@contextlib.contextmanager
def no_larger_files(size):
    """Let no file of this process grow beyond ``size`` bytes, as a quota or a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def full(directory):
    """Let the journal's log not grow any more."""
    with no_larger_files((directory / f"{JOURNAL_FILE}-wal").stat().st_size):
        yield


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.parametrize("durability", ["process", "power"])
def test_a_full_disk_refuses_what_is_new_and_holds_what_is_under_way(directory, durability):
    """Reads go on, nothing is lost of what waits, its order stays, and room is enough to go on."""

    async def work(journal):
        await journal.write(AcceptCommand("s-1", "c-1", b"", 1))
        with full(directory):
            refused = await outcomes(
                journal.write(AcceptCommand("s-1", "c-2", bytes(50_000), 1)),
                journal.write(CreateSession(replace(ROW, session_id="s-2"))),
            )
            held = [
                journal.write(
                    AppendRecords("s-1", 1, [("turn", b"a")], [("c-1", b"done")], number=1)
                )
            ]
            held += [journal.write(AppendRecords("s-1", 1, [("turn", b"b")], [], number=2))]
            held += [journal.write(BeginIncarnation("s-1", 2, 1))]
            while_full = await journal.read(LoadSession("s-1"))
            reported = str(journal.health), any(one.done() for one in held)
        await asyncio.gather(*held)
        return (
            refused,
            while_full,
            reported,
            await journal.write(AcceptCommand("s-1", "c-2", b"", 1)),
            journal.health,
        )

    refused, while_full, reported, again, health = run(work, directory, durability=durability)
    found = asyncio.run(load(directory))

    assert [type(error) for error in refused] == [JournalFull] * 2
    assert "no room on the disk" in str(refused[0])
    assert [row.command_id for row in while_full.unanswered] == ["c-1"]
    assert reported[0].startswith("full: there is no room")
    assert reported[1] is False
    assert again == Accepted(4)
    assert str(health) == "open"
    assert [record.body for record in found.records] == [b"a", b"b"]
    assert found.row.incarnation == 2
    assert [row.command_id for row in found.unanswered] == ["c-2"]


@pytest.mark.fault
def test_a_full_disk_knows_what_was_taken_before(directory):
    """A command that is here is no new one, answered or not, whatever room there is for others."""

    async def work(journal):
        await journal.write(AcceptCommand("s-1", "c-1", b"", 1))
        await journal.write(AcceptCommand("s-1", "c-2", b"", 1))
        await journal.write(AppendRecords("s-1", 1, [("turn", b"a")], [("c-1", b"done")], number=1))
        with full(directory):
            refused = await outcomes(journal.write(AcceptCommand("s-1", "c-3", bytes(50_000), 1)))
            return refused + await outcomes(
                *(
                    journal.write(AcceptCommand("s-1", name, b"", 1))
                    for name in ("c-1", "c-2", "c-3")
                )
            )

    first, answered, open_, new = run(work, directory)

    assert (answered, open_) == (Duplicate(b"done"), Duplicate(None))
    assert [type(first), type(new)] == [JournalFull] * 2


@pytest.mark.fault
def test_what_still_waits_when_the_journal_is_closed_is_not_acknowledged(directory):
    """It was never written, and its callers hear so at once."""

    async def work():
        journal = SqliteJournal(directory)
        await journal.open()
        await journal.write(CreateSession(ROW))
        with full(directory):
            with pytest.raises(JournalFull):
                await journal.write(AcceptCommand("s-1", "c-1", bytes(50_000), 1))
            held = journal.write(AppendRecords("s-1", 1, [("turn", b"a")], []))
            await journal.close()
        with pytest.raises(JournalFull):
            await held

    asyncio.run(work())
    found = asyncio.run(load(directory))

    assert found.records == ()


@pytest.mark.fault
def test_what_waits_for_room_is_bounded(directory, monkeypatch):
    """Beyond the bound the call itself raises, as with a full queue."""
    monkeypatch.setattr(writer, "JOURNAL_HELD_MAX", 3)

    async def work(journal):
        with full(directory):
            with pytest.raises(JournalFull):
                await journal.write(AcceptCommand("s-1", "c-1", bytes(50_000), 1))
            held = [journal.write(AppendRecords("s-1", 1, [("turn", b"a")], [])) for _ in range(3)]
            with pytest.raises(JournalOverloaded):
                journal.write(AppendRecords("s-1", 1, [("turn", b"b")], []))
        await asyncio.gather(*held)

    run(work, directory)


@pytest.mark.fault
def test_a_broken_store_is_not_tried_again(directory):
    """After one failure nothing is acknowledged, whatever would succeed, and the loop learns it."""

    async def work(journal):
        heard = []
        journal.health.on_change = heard.append
        store = journal._store

        def fail():
            raise OSError(errno.EIO, "Input/output error")

        await journal.write(AcceptCommand("s-1", "c-1", b"", 1))
        with busy_writer(journal):
            store._volume.strays = fail  # what a transaction asks first
            calls = [journal.write(AcceptCommand("s-1", "c-2", b"", 1))]
        found = await outcomes(*calls)
        del store._volume.strays
        later = await outcomes(journal.write(AcceptCommand("s-1", "c-3", b"", 1)))
        return [*found, *later], heard, journal.health.has_failed

    found, heard, has_failed = run(work, directory)

    assert [type(error) for error in found] == [JournalFailed] * 2
    assert "Input/output error" in str(found[1])
    assert heard == [Condition.FAILED]
    assert has_failed


async def load(directory):
    """Open the journal as the next daemon would, and return the session."""
    journal = SqliteJournal(directory)
    await journal.open()
    stored = await journal.read(LoadSession("s-1"))
    await journal.close()
    return stored


TO_BE_KILLED = """
import asyncio, sys
from pathlib import Path
from supervisor.adapters.journal.base import SessionRow
from supervisor.adapters.journal.operations import AcceptCommand, CreateSession
from supervisor.adapters.journal.sqlite import SqliteJournal

async def accept(journal, caller):
    for number in range(10**9):
        command = AcceptCommand("s-1", f"c-{caller}-{number}", bytes(300), number)
        await journal.write(command)
        print(f"c-{caller}-{number}", flush=True)

async def main():
    journal = SqliteJournal(Path(sys.argv[1]))
    await journal.open()
    await journal.write(CreateSession(SessionRow(session_id="s-1", created_ms=1, spec=b"")))
    await asyncio.gather(*(accept(journal, caller) for caller in range(8)))

asyncio.run(main())
"""


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.process
def test_what_was_acknowledged_outlives_a_kill(directory):
    """After kill -9 in the middle of work every acknowledged command is there, once, in order."""
    process = subprocess.Popen(
        [sys.executable, "-c", TO_BE_KILLED, str(directory)], stdout=subprocess.PIPE, text=True
    )
    with process:
        acknowledged = [process.stdout.readline().strip() for _ in range(500)]
        process.kill()
        # Not by communicate: it reads past what readline has in its buffer.
        rest = process.stdout.read()
        process.wait(PATIENCE_S)
    # The last line may have been cut off by the kill.
    acknowledged += rest.split("\n")[:-1]
    stored = asyncio.run(load(directory))
    found = [row.command_id for row in stored.unanswered]

    assert process.returncode == -signal.SIGKILL
    assert set(acknowledged) <= set(found)
    assert [row.seq for row in stored.unanswered] == list(range(1, len(found) + 1))


def test_close_finishes_what_was_called(directory):
    """Whoever called before the end gets an outcome, and whoever calls later is refused."""

    async def work():
        journal = SqliteJournal(directory)
        await journal.open()
        calls = [journal.write(CreateSession(ROW))]
        calls += [
            journal.write(AcceptCommand("s-1", f"c-{number}", b"", 1)) for number in range(500)
        ]
        await journal.close()
        with pytest.raises(JournalFailed):
            journal.read(ListLiveSessions())
        await journal.close()
        return await asyncio.gather(*calls)

    found = asyncio.run(work())

    assert found[-1] == Accepted(500)
    assert [thread.name for thread in threading.enumerate() if thread.name == "journal"] == []


def test_close_does_not_wait_for_ever(directory, monkeypatch):
    """A disk that hangs holds up neither the end of the daemon nor those who wait for it."""
    monkeypatch.setattr(writer, "JOURNAL_CLOSE_S", 0.05)

    async def work():
        journal = SqliteJournal(directory)
        await journal.open()
        with busy_writer(journal):
            call = journal.write(CreateSession(ROW))
            await journal.close()
            with pytest.raises(JournalFailed, match="closed before"):
                await call
        journal._thread.join(PATIENCE_S)

    asyncio.run(work())

    assert [thread.name for thread in threading.enumerate() if thread.name == "journal"] == []
