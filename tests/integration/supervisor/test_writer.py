"""The writer's thread beside its loop, over a store that fails when the test says so."""

import asyncio
import contextlib
import threading
import time

import pytest
from structlog.testing import capture_logs

from cmdc_runtime.errors import UsageError
from supervisor.adapters.journal import writer as module
from supervisor.adapters.journal.base import (
    JournalFailed,
    JournalFull,
    JournalOverloaded,
    JournalUndecided,
    JournalUnread,
)
from supervisor.adapters.journal.writer import GroupWriter
from supervisor.core.storage import Condition, Level, Need
from tests.integration.supervisor.writer_stage import (
    CAUSE,
    WAIT_S,
    BrokenError,
    FullError,
    Guard,
    Look,
    PassingError,
    Store,
    Work,
    grouped,
    kinds,
    outcome,
    played,
)

LONG_S = 3_600.0
LATE_S = 0.3


def test_writes_of_a_group_share_a_transaction_and_reads_come_behind(monkeypatch):
    """So many at a time, however many wait."""
    monkeypatch.setattr(module, "JOURNAL_GROUP_MAX", 2)

    async def scenario(writer, store):
        done = []
        async with grouped(writer):
            store.asked.clear()
            calls = [writer.read(Look(lambda: done.append("read")))]
            calls += [writer.write(Work(lambda at=at: done.append(at) or at, 1)) for at in range(4)]
        return await asyncio.gather(*calls), done, list(store.asked)

    found, done, asked = played(scenario)

    assert found == [None, 0, 1, 2, 3]
    assert done == [0, "read", 1, 2, 3]
    assert asked == ["begin", "commit", "look", "begin", "commit", "begin", "commit"]


def test_a_refusal_concerns_its_own_caller():
    """It is raised before anything was changed, so the others are committed with it."""

    async def scenario(writer, store):
        async with grouped(writer):
            store.asked.clear()
            calls = [
                writer.write(Work(outcome(UsageError("no")), 1)),
                writer.write(Work(lambda: 2, 1)),
            ]
            calls.append(writer.read(Look(outcome(UsageError("no")))))
        return await kinds(*calls), list(store.asked)

    assert played(scenario) == ([UsageError, 2, UsageError], ["begin", "commit", "look"])


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (PassingError("x"), JournalFailed),
        (JournalUndecided("x"), JournalUndecided),
        (JournalFailed("x"), JournalFailed),
    ],
)
def test_a_commit_that_fails_is_undone_and_fails_its_group(error, raised):
    """With what is known of it; the next group goes."""

    async def scenario(writer, store):
        async with grouped(writer):
            store.asked.clear()
            store.problems["commit"] = [error] * 3
            calls = [writer.write(Work(lambda: 1, 1)), writer.write(Work(lambda: 2, 1))]
        found = await asyncio.gather(*calls, return_exceptions=True)
        store.problems.clear()
        return found, store.asked, await writer.write(Work(lambda: 3, 1))

    with capture_logs():
        found, asked, behind = played(scenario)

    assert [type(one) for one in found] == [raised] * 2
    assert [str(one) for one in found] == ["the journal could not do it: x"] * 2
    assert {type(one.__cause__) for one in found} == {type(error)}
    assert asked[:3] == ["begin", "commit", "rollback"]
    assert behind == 3


def test_what_only_one_caller_can_have_done_fails_it_alone():
    """The group is done again one by one, and the log has it once."""

    async def scenario(writer, store):
        async with grouped(writer):
            store.asked.clear()
            bug = outcome(ZeroDivisionError("a bug"))
            calls = [
                writer.write(Work(lambda: 1, 1)),
                writer.write(Work(bug, 1)),
                writer.write(Work(lambda: 3, 1)),
            ]
        return await kinds(*calls), list(store.asked)

    with capture_logs() as logs:
        found, asked = played(scenario)

    assert found == [1, JournalFailed, 3]
    assert asked == [
        *("begin", "rollback"),
        *("begin", "commit", "begin", "rollback", "begin", "commit"),
    ]
    assert [one["event"] for one in logs] == ["journal.operation_failed"]


@pytest.mark.parametrize(
    ("error", "event"),
    [(PassingError("x"), "journal.read_failed"), (KeyError("x"), "journal.operation_failed")],
)
@pytest.mark.parametrize("where", ["look", "call"])
def test_a_read_that_fails_fails_alone(error, event, where):
    """A bug is reported as one."""

    async def scenario(writer, store):
        if where == "look":
            store.problems["look"].append(error)
        call = outcome(error) if where == "call" else lambda: 1
        return await kinds(writer.read(Look(call)), writer.read(Look(lambda: 2)))

    with capture_logs() as logs:
        assert played(scenario) == [JournalFailed, 2]
    assert [one["event"] for one in logs] == [event]


def test_a_caller_that_went_away_changes_nothing():
    """What it asked for is done, and the others have their answers."""

    async def scenario(writer, _store):
        done = []
        async with grouped(writer):
            gone = writer.write(Work(lambda: done.append("gone"), 1))
            calls = [writer.write(Work(lambda: 1, 1)), writer.read(Look(lambda: 2))]
            gone.cancel()
        return await asyncio.gather(*calls), done

    assert played(scenario) == ([1, 2], ["gone"])


@pytest.mark.parametrize("guard", [Guard(), Guard(Level.RESERVE)], ids=["plenty", "full"])
def test_what_waits_is_bounded(monkeypatch, guard):
    """By number and by bytes, and by less where the disk is full; an answer makes room."""
    monkeypatch.setattr(module, "JOURNAL_ROOM_LOOK_S", LONG_S)
    is_full = guard.level is not Level.PLENTY
    for name, full in (("QUEUED", False), ("HELD", True)):
        monkeypatch.setattr(module, f"JOURNAL_{name}_MAX", 4 if full == is_full else 100)
        monkeypatch.setattr(module, f"JOURNAL_{name}_BYTES_MAX", 20 if full == is_full else 9_999)

    async def scenario(writer, _store):
        assert (writer.health.condition is Condition.FULL) == is_full
        for _ in range(2):
            async with grouped(writer):  # which is one itself
                calls = [writer.write(Work(lambda: 1, 10)) for _ in range(2)]
                with pytest.raises(JournalOverloaded, match="3 operations with 20 bytes"):
                    writer.write(Work(lambda: 1, 1))
                calls.append(writer.read(Look(lambda: 1)))
                with pytest.raises(JournalOverloaded, match="4 operations"):
                    writer.read(Look(lambda: 1))
            assert await asyncio.gather(*calls) == [1, 1, 1]

    played(scenario, guard)


def test_a_writer_that_is_not_open_takes_nothing():
    """Neither before nor behind; to close it twice is to close it once, and no process waits."""

    async def main():
        writer = GroupWriter(Store())
        await writer.close()
        with pytest.raises(JournalFailed, match="not open"):
            writer.write(Work(lambda: 1, 1))
        await writer.open()
        assert writer._thread.daemon
        await writer.close()
        await writer.close()
        with pytest.raises(JournalFailed, match="not open"):
            writer.read(Look(lambda: 1))

    asyncio.run(asyncio.wait_for(main(), WAIT_S))


def test_a_store_that_does_not_open_says_why():
    """And nothing of it is left."""
    store = Store()
    store.problems["open"].append(BrokenError("no such disk"))
    with pytest.raises(BrokenError, match="no such disk"):
        played(None, store=store)
    assert store.asked == ["open"]


def test_who_no_longer_waits_for_the_store_leaves_no_thread():
    """A start of the daemon that was called off."""
    store = Store()
    store.may_open.clear()

    async def main():
        writer = GroupWriter(store)
        opening = asyncio.ensure_future(writer.open())
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        store.may_open.set()
        await asyncio.to_thread(writer._thread.join, WAIT_S)
        return writer._thread.is_alive()

    assert asyncio.run(main()) is False


class LateThread(threading.Thread):
    """A thread that is still there for a moment after its last word."""

    def run(self):
        super().run()
        threading.Event().wait(LATE_S)


@pytest.mark.parametrize("opens", [True, False])
def test_the_thread_is_gone_when_its_writer_is(monkeypatch, opens):
    """Closed, or never opened: no thread is left to whoever counts them."""
    store, kept = Store(), []
    if not opens:
        store.problems["open"].append(BrokenError("no such disk"))

    async def main():
        with monkeypatch.context() as patch:
            patch.setattr(threading, "Thread", LateThread)
            writer = GroupWriter(store)
        kept.append(writer)
        await writer.open()
        await writer.close()

    with contextlib.nullcontext() if opens else pytest.raises(BrokenError):
        asyncio.run(main())
    assert not kept[0]._thread.is_alive()


def test_what_was_called_is_answered_when_the_writer_is_closed():
    """Done in order, and the store is closed behind it."""
    store = Store()

    async def scenario(writer, _store):
        calls = [writer.write(Work(lambda: 1, 1)), writer.read(Look(lambda: 2))]
        await writer.close()
        return [one.done() and one.result() for one in calls]

    assert played(scenario, guard := Guard(), store) == [1, 2]
    assert store.asked[-1] == "close"
    assert not guard.is_abandoned


def test_a_close_is_not_waited_for_without_end(monkeypatch):
    """Whoever still waits learns that nothing comes any more."""
    monkeypatch.setattr(module, "JOURNAL_CLOSE_S", 0.01)
    done = threading.Event()

    async def scenario(writer, _store):
        call = writer.write(Work(lambda: done.wait(WAIT_S), 1))
        await writer.close()
        assert call.done()
        with pytest.raises(JournalFailed, match="not open"):
            writer.write(Work(lambda: 1, 1))
        found = await kinds(call)
        done.set()
        return found

    assert played(scenario) == [JournalFailed]


def test_a_writer_that_crashes_is_closed_and_fails_who_waits():
    """A bug of ours: it takes nothing any more, and the store is whole."""
    guard, store = Guard(), Store()

    async def scenario(writer, _store):
        async with grouped(writer):
            call = writer.write(Work(lambda: 1, 1))
            guard.problem = ZeroDivisionError("a bug")
        found = await kinds(call)
        await asyncio.to_thread(writer._thread.join, WAIT_S)
        await asyncio.sleep(0)
        with pytest.raises(JournalFailed, match="not open"):
            writer.write(Work(lambda: 1, 1))
        return found

    with capture_logs() as logs:
        assert played(scenario, guard, store) == [JournalFailed]
    assert store.asked[-1] == "close"
    assert [one["event"] for one in logs] == ["journal.writer_crashed"]


# --- a full disk ------------------------------------------------------------------------------


def test_a_full_disk_is_met_with_the_reserve(monkeypatch):
    """What is under way goes on by it; what is new is refused, unless it was done before."""
    monkeypatch.setattr(module, "JOURNAL_ROOM_LOOK_S", LONG_S)
    guard = Guard()

    async def scenario(writer, store):
        store.problems["commit"].append(FullError("x"))
        found = await kinds(writer.write(Work(lambda: "work", 1)))
        condition = writer.health.condition, writer.health.cause
        asked = len(store.asked)
        found += await kinds(
            writer.write(Work(lambda: 1, 1, Need.NEW)),
            writer.write(Work(lambda: 1, 1, Need.NEW, lambda: None)),
            writer.write(Work(lambda: 1, 1, Need.NEW, lambda: "before")),
            writer.write(Work(lambda: 1, 1, Need.NEW, outcome(PassingError("x")))),
            writer.read(Look(lambda: "read")),
        )
        return found, condition, store.asked[asked:]

    found, condition, asked = played(scenario, guard)

    assert found == ["work", JournalFull, JournalFull, "before", JournalUnread, "read"]
    assert condition == (Condition.FULL, CAUSE)
    assert "begin" not in asked


def test_what_waits_for_room_goes_when_there_is_room(monkeypatch):
    """In its order, in groups as any other; an end goes before it by the last of the reserve."""
    monkeypatch.setattr(module, "JOURNAL_ROOM_LOOK_S", 0.01)
    monkeypatch.setattr(module, "JOURNAL_GROUP_MAX", 2)
    guard = Guard(Level.LAST)

    async def scenario(writer, store):
        done = []
        held = [writer.write(Work(lambda at=at: done.append(at), 5)) for at in range(3)]
        await writer.write(Work(lambda: done.append("end"), 1, Need.END))
        before = list(done)
        store.asked.clear()
        guard.has_room = True  # nobody calls meanwhile
        await asyncio.gather(*held)
        return before, done, list(store.asked), writer.health.condition

    before, done, asked, condition = played(scenario, guard)

    assert before == ["end"]
    assert done == ["end", 0, 1, 2]
    assert asked == ["begin", "commit"] * 2
    assert condition is Condition.OPEN
    assert 15 in guard.wanted


def test_room_is_looked_for_now_and_then(monkeypatch):
    """Not with each call, and once more at the end: what has none then is not acknowledged."""
    monkeypatch.setattr(module, "JOURNAL_ROOM_LOOK_S", LONG_S)
    guard = Guard(Level.LAST)
    calls = []

    async def scenario(writer, _store):
        calls.append(writer.write(Work(lambda: 1, 5)))
        for _ in range(3):
            await writer.read(Look(lambda: 1))
        return list(guard.wanted)

    async def main():
        writer = GroupWriter(Store(guard))
        await writer.open()
        looks = await scenario(writer, None)
        await writer.close()
        return looks, await kinds(*calls)

    before = time.monotonic()
    looks, found = asyncio.run(asyncio.wait_for(main(), WAIT_S))

    assert before < LONG_S or looks  # a machine that has just begun looks all the same
    assert (len(looks), guard.wanted[-1], len(guard.wanted)) == (1, 5, 2)
    assert found == [JournalFull]


def test_room_that_is_there_at_the_end_is_used(monkeypatch):
    """What waited is stored before the writer closes."""
    monkeypatch.setattr(module, "JOURNAL_ROOM_LOOK_S", LONG_S)
    guard = Guard(Level.LAST)

    async def scenario(writer, _store):
        await writer.read(Look(lambda: 1))
        call = writer.write(Work(lambda: "late", 5))
        await writer.read(Look(lambda: 1))
        guard.has_room = True
        await writer.close()
        return await kinds(call)

    assert played(scenario, guard) == ["late"]


# --- a broken disk ----------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["commit", "look"])
def test_a_broken_store_is_not_tried_again(monkeypatch, where):
    """Whoever waits gets an error, nothing more is written, and it is left as it is."""
    monkeypatch.setattr(module, "JOURNAL_ROOM_LOOK_S", LONG_S)
    guard, store = Guard(Level.RESERVE), Store()
    guard._level = Level.LAST

    async def scenario(writer, _store):
        held = writer.write(Work(lambda: 1, 1))
        await writer.read(Look(lambda: 1))
        store.problems[where] += [BrokenError("the first"), BrokenError("the second")]
        call = (
            writer.write(Work(lambda: 1, 1, Need.END))
            if where == "commit"
            else writer.read(Look(int))
        )
        found = await kinds(call, held)
        store.asked.clear()
        store.problems.pop("commit", None)
        found += await kinds(
            writer.write(Work(lambda: 1, 1, Need.END)), writer.read(Look(lambda: "read"))
        )
        guard.has_room, looks = True, len(guard.wanted)
        await writer.close()
        return found, writer.health.condition, writer.health.cause, len(guard.wanted) - looks

    found, condition, cause, looks = played(scenario, guard, store)

    assert found[:3] == [JournalFailed] * 3
    assert found[3] == ("read" if where == "commit" else JournalFailed)
    assert (condition, cause) == (Condition.FAILED, "the journal failed: the first")
    assert set(store.asked) == {"look"}
    assert guard.is_abandoned
    assert looks == 0
