"""Snapshots in a journal: what a session is rebuilt from, and what goes when one is written."""

from dataclasses import replace

import pytest

from cmdc_runtime.errors import SessionExists
from supervisor.adapters.journal.base import (
    Accepted,
    CheckpointRow,
    CommandRow,
    Duplicate,
    EventRow,
    Past,
    RecordRow,
    SessionRow,
)
from supervisor.adapters.journal.operations import (
    AcceptCommand,
    AppendRecords,
    BeginIncarnation,
    CreateSession,
    EndSession,
    FindAnswer,
    FindCheckpoint,
    FindLastIndex,
    FindSession,
    ListCheckpoints,
    LoadSession,
    PublishEvents,
    ReadHistory,
    ReplayEvents,
    RestoreSession,
)
from supervisor.adapters.journal.schema import Bounds

EVENTS = [EventRow(first=7, count=2, body=b"e"), EventRow(first=12, count=1, body=b"f")]
SAVED = [
    CheckpointRow(
        session_id="s-1",
        checkpoint_id=name,
        label=None,
        saved_ms=1,
        schema_version=1,
        body=name.encode(),
        metadata=b"",
    )
    for name in ("one", "two")
]
ROW = SessionRow(session_id="s-1", created_ms=5, spec=b"spec", group_id="g", incarnation=1)
FEW = Bounds(commands=10)


def bodies(rows):
    """Return the bodies of records."""
    return [row.body for row in rows]


async def turn(journal, name, snapshot=b""):
    """Write one record, and a snapshot after it if there is one."""
    await journal.write(AppendRecords("s-1", 1, [("turn", name)], [], snapshot=snapshot))


def test_a_session_is_rebuilt_from_the_newest_snapshot(rerun):
    """What the snapshot holds is not read again; what is unanswered is, however old."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(AcceptCommand("s-1", "c-1", b"one", 1))
        await turn(journal, b"a")
        await turn(journal, b"b", b"state of b")
        await journal.write(AcceptCommand("s-1", "c-2", b"two", 2))
        await turn(journal, b"c")

    rerun(work)
    stored = rerun(lambda journal: journal.read(LoadSession("s-1")))

    assert (stored.snapshot, bodies(stored.records)) == (b"state of b", [b"c"])
    assert [row.command_id for row in stored.unanswered] == ["c-1", "c-2"]


def test_two_snapshots_are_kept(rerun):
    """And the records after the older one: a way back where the newest cannot be read."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await turn(journal, b"a")
        await turn(journal, b"b", b"state of b")
        first = await journal.read(ReadHistory("s-1"))
        await turn(journal, b"c")
        await turn(journal, b"d", b"state of d")
        await turn(journal, b"e")
        second = await journal.read(ReadHistory("s-1"))
        await turn(journal, b"f", b"state of f")
        return first, second

    first, second = rerun(work)
    third = rerun(lambda journal: journal.read(ReadHistory("s-1")))
    stored = rerun(lambda journal: journal.read(LoadSession("s-1")))

    assert (first.snapshot, bodies(first.records)) == (b"", [b"a", b"b"])
    assert (second.snapshot, bodies(second.records)) == (b"state of b", [b"c", b"d", b"e"])
    assert (third.snapshot, bodies(third.records)) == (b"state of d", [b"e", b"f"])
    assert (third.snapshot_seq, [row.seq for row in third.records]) == (4, [5, 6])
    assert (stored.snapshot, stored.records) == (b"state of f", ())


def test_a_snapshot_belongs_to_its_own_records(run):
    """Those of the same write are in it, and answers of the same write are written with it."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(AcceptCommand("s-1", "c-1", b"one", 1))
        await journal.write(
            AppendRecords(
                "s-1", 1, [("turn", b"a"), ("turn", b"b")], [("c-1", b"done")], snapshot=b"state"
            )
        )
        return await journal.read(LoadSession("s-1"))

    stored = run(work)

    assert (stored.snapshot, stored.records, stored.unanswered) == (b"state", (), ())


def test_a_session_may_begin_with_a_snapshot(run):
    """Where nothing came before it, it is the start: a fork begins like that."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(AppendRecords("s-1", 1, [], [], snapshot=b"state of another"))
        await turn(journal, b"a")
        return await journal.read(LoadSession("s-1")), await journal.read(ReadHistory("s-1"))

    stored, past = run(work)

    assert (stored.snapshot, bodies(stored.records)) == (b"state of another", [b"a"])
    assert (past.snapshot, bodies(past.records)) == (b"state of another", [b"a"])


def test_the_last_snapshot_without_a_record_between_stays(run):
    """Two of the same place are one."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await turn(journal, b"a", b"first")
        await journal.write(AppendRecords("s-1", 1, [], [], snapshot=b"second"))
        return await journal.read(LoadSession("s-1")), await journal.read(ReadHistory("s-1"))

    stored, past = run(work)

    assert (stored.snapshot, stored.records) == (b"second", ())
    assert (past.snapshot, bodies(past.records)) == (b"", [b"a"])


def test_numbers_go_on_where_all_records_are_gone(rerun):
    """A number is not given again because its record went into a snapshot."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await turn(journal, b"a", b"one")
        await turn(journal, b"b", b"two")
        await journal.write(AppendRecords("s-1", 1, [], [], snapshot=b"three"))

    rerun(work)

    assert rerun(lambda journal: journal.write(AcceptCommand("s-1", "c-1", b"", 1))) == Accepted(3)


async def answered(journal, count):
    """Accept and answer so many commands, and one that stays without an answer before them."""
    await journal.write(CreateSession(ROW))
    await journal.write(AcceptCommand("s-1", "c-open", b"open", 1))
    for number in range(count):
        journal.write(AcceptCommand("s-1", f"c-{number}", b"", 1))
        await journal.write(AppendRecords("s-1", 1, [], [(f"c-{number}", b"%d" % number)]))


def test_the_oldest_answers_go_when_a_snapshot_is_written(run):
    """The newest are known for callers that ask again, and what has no answer stays."""

    async def work(journal):
        await answered(journal, 20)
        before = await journal.write(AcceptCommand("s-1", "c-0", b"", 1))
        await journal.write(AppendRecords("s-1", 1, [], [], snapshot=b"state"))
        kept = [await journal.read(FindAnswer("s-1", f"c-{number}")) for number in range(20)]
        return before, kept, await journal.read(LoadSession("s-1"))

    before, kept, stored = run(work, bounds=FEW)

    assert before == Duplicate(b"0")
    assert kept == [None] * 10 + [b"%d" % number for number in range(10, 20)]
    assert [row.command_id for row in stored.unanswered] == ["c-open"]


def test_few_answers_all_stay(run):
    """A tenth more than the bound is not worth the search."""

    async def work(journal):
        await answered(journal, 10)
        await journal.write(AppendRecords("s-1", 1, [], [], snapshot=b"state"))
        return await journal.read(FindAnswer("s-1", "c-0"))

    assert run(work, bounds=FEW) == b"0"


async def long_life(journal):
    """Write a session whose history does not reach back to its start."""
    await journal.write(CreateSession(ROW))
    await journal.write(AcceptCommand("s-1", "c-1", b"one", 1))
    await journal.write(
        AppendRecords("s-1", 1, [("turn", b"a")], [("c-1", b"done")], number=1, snapshot=b"A")
    )
    await journal.write(AppendRecords("s-1", 1, [("turn", b"b")], [], number=2, snapshot=b"B"))
    await journal.write(AcceptCommand("s-1", "c-2", b"two", 2))
    await journal.write(AppendRecords("s-1", 1, [("tool", b"c")], [], number=3))
    await journal.write(PublishEvents("s-1", 1, 5, b"events"))


def test_the_past_is_all_that_is_kept(run):
    """Also of a session that is over; the seq of records and commands is one order."""

    async def work(journal):
        await long_life(journal)
        alive = await journal.read(ReadHistory("s-1"))
        await journal.write(EndSession("s-1", b"normal", 9))
        return alive, await journal.read(ReadHistory("s-1")), await journal.read(ReadHistory("s-9"))

    alive, over, unknown = run(work)

    assert alive.snapshot_seq == 2
    assert alive.snapshot == b"A"
    assert alive.records == (
        RecordRow(seq=3, incarnation=1, kind="turn", body=b"b"),
        RecordRow(seq=5, incarnation=1, kind="tool", body=b"c"),
    )
    assert alive.commands == (
        CommandRow(command_id="c-1", seq=1, at_ms=1, body=b"one", answer=b"done"),
        CommandRow(command_id="c-2", seq=4, at_ms=2, body=b"two"),
    )
    assert (over.records, over.commands, over.row.reason) == (
        alive.records,
        alive.commands,
        b"normal",
    )
    assert unknown is None


def test_a_session_moves_to_another_journal(rerun, tmp_path):
    """What was taken out of one is the same in the other, and goes on from there."""

    async def take_out(journal):
        await long_life(journal)
        past = await journal.read(ReadHistory("s-1"))
        await journal.write(EndSession("s-1", b"moved", 9))
        return past

    async def put_in(journal):
        with pytest.raises(SessionExists):
            await live_twin(journal)
        await journal.write(RestoreSession(past, EVENTS, SAVED))
        assert await journal.read(ReplayEvents("s-1", 0, 99, 99)) == EVENTS
        assert await journal.read(FindCheckpoint("s-1", None)) == SAVED[-1]
        return await journal.read(ReadHistory("s-1")), await journal.read(LoadSession("s-1"))

    async def live_twin(journal):
        await journal.write(CreateSession(SessionRow(session_id="s-2", created_ms=1, spec=b"")))
        twin = Past(
            row=await journal.read(FindSession("s-2")), snapshot=b"", records=(), commands=()
        )
        try:
            await journal.write(
                RestoreSession(twin, EVENTS, [replace(one, session_id="s-2") for one in SAVED])
            )
        finally:
            assert await journal.read(ReplayEvents("s-2", 0, 99, 99)) == []
            assert await journal.read(ListCheckpoints("s-2")) == []

    async def go_on(journal):
        known = await journal.write(AcceptCommand("s-1", "c-1", b"one", 9))
        new = await journal.write(AcceptCommand("s-1", "c-3", b"three", 9))
        await journal.write(AppendRecords("s-1", 1, [("turn", b"again")], [], number=3))
        await journal.write(BeginIncarnation("s-1", 2, 1))
        await journal.write(AppendRecords("s-1", 2, [("turn", b"d")], [], number=1))
        return known, new, await journal.read(LoadSession("s-1"))

    past = rerun(take_out)
    there, stored = rerun(put_in)
    known, new, later = rerun(go_on)

    assert there == past
    assert (stored.snapshot, bodies(stored.records)) == (b"A", [b"b", b"c"])
    assert (known, new) == (Duplicate(b"done"), Accepted(6))
    assert (later.snapshot, bodies(later.records)) == (b"A", [b"b", b"c", b"d"])
    assert later.row.reason is None


def test_a_past_without_a_snapshot_moves_too(run):
    """Its records reach back to the start, there as here."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await turn(journal, b"a")
        past = await journal.read(ReadHistory("s-1"))
        await journal.write(EndSession("s-1", b"moved", 9))
        over = await journal.read(ReadHistory("s-1"))
        await journal.write(RestoreSession(over))
        return (
            past,
            over,
            await journal.read(ReadHistory("s-1")),
            await journal.read(FindLastIndex("s-1")),
        )

    past, over, there, last = run(work)

    assert over.row.reason == b"moved"  # what is restored lives again
    assert (there, last) == (past, 0)
