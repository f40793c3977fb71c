"""Sessions in a journal: which there are, who may write, and what is left when one has ended."""

import pytest

from cmdc_runtime.errors import InvalidSession, SessionExists
from supervisor.adapters.journal import sql_reads
from supervisor.adapters.journal.base import (
    Accepted,
    CheckpointRow,
    DownRow,
    Duplicate,
    SessionEnded,
    SessionRow,
    StaleIncarnation,
    Stored,
)
from supervisor.adapters.journal.operations import (
    AcceptCommand,
    AppendRecords,
    BeginIncarnation,
    CreateSession,
    EndSession,
    FindAnswer,
    FindLastIndex,
    FindNewestDown,
    FindSession,
    ListCheckpoints,
    ListDowns,
    ListEndedSessions,
    ListLiveSessions,
    LoadSession,
    PruneSessions,
    PublishEvents,
    ReadHistory,
    RecordDown,
    ReplayEvents,
    SaveCheckpoint,
)
from supervisor.core.limits import PRUNED_MAX

ROW = SessionRow(session_id="s-1", created_ms=5, spec=b"spec", group_id="g", incarnation=1)


def test_live_sessions_come_oldest_first(rerun):
    """A daemon that starts finds every session that has not ended, parents before children."""

    async def work(journal):
        for name, at_ms in [("s-3", 30), ("s-1", 10), ("s-2", 20), ("s-0", 10)]:
            await journal.write(
                CreateSession(SessionRow(session_id=name, created_ms=at_ms, spec=b""))
            )
        await journal.write(EndSession("s-2", b"normal", 40))

    rerun(work)
    found = rerun(lambda journal: journal.read(ListLiveSessions()))

    assert [row.session_id for row in found] == ["s-1", "s-0", "s-3"]


def test_ended_sessions_come_newest_first(rerun, monkeypatch):
    """With the last event and the reason, without what may be large; so many at most."""
    monkeypatch.setattr(sql_reads, "INACTIVE_LISTED_MAX", 3)

    async def work(journal):
        for name, ended_ms in [("s-1", 40), ("s-2", 20), ("s-3", 30), ("s-4", 10), ("s-5", None)]:
            row = SessionRow(session_id=name, created_ms=5, spec=b"large", incarnation=1)
            await journal.write(CreateSession(row))
            if ended_ms is not None:
                await journal.write(PublishEvents(name, 1, ended_ms, b"events"))
                await journal.write(EndSession(name, b"why", ended_ms))

    async def listed(journal):
        return [await journal.read(ListEndedSessions(limit)) for limit in (9, 1, 0)]

    rerun(work)
    found, newest, none = rerun(listed)

    assert [(row.session_id, last) for row, last in found] == [
        ("s-1", 40),
        ("s-3", 30),
        ("s-2", 20),
    ]
    assert {(row.reason, row.spec, row.incarnation) for row, _ in found} == {(b"why", b"", 1)}
    assert (newest, none) == (found[:1], [])


def test_a_live_id_is_taken(run):
    """A second session of the same name is refused and changes nothing."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        with pytest.raises(SessionExists):
            await journal.write(
                CreateSession(SessionRow(session_id="s-1", created_ms=6, spec=b"other"))
            )
        return await journal.read(FindSession("s-1"))

    assert run(work) == ROW


def test_an_ended_id_starts_anew(run):
    """Nothing of the old session is left: no record, command, event or number."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(AcceptCommand("s-1", "c-1", b"one", 1))
        await journal.write(AppendRecords("s-1", 1, [("turn", b"a")], []))
        await journal.write(PublishEvents("s-1", 1, 5, b"events"))
        await journal.write(EndSession("s-1", b"normal", 9))
        await journal.write(CreateSession(ROW))
        return (
            await journal.read(LoadSession("s-1")),
            await journal.read(FindLastIndex("s-1")),
            await journal.write(AcceptCommand("s-1", "c-1", b"one", 10)),
        )

    assert run(work) == (Stored(row=ROW, records=(), unanswered=()), 0, Accepted(1))


def test_only_the_current_incarnation_writes(run):
    """A process that was replaced cannot add to the history, nor can one of an ended session."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(BeginIncarnation("s-1", 2, 1))
        with pytest.raises(StaleIncarnation):
            await journal.write(AppendRecords("s-1", 1, [("turn", b"late")], []))
        with pytest.raises(StaleIncarnation):
            await journal.write(BeginIncarnation("s-1", 1, 0))
        await journal.write(AppendRecords("s-1", 2, [("turn", b"a")], []))
        await journal.write(EndSession("s-1", b"normal", 9))
        with pytest.raises(StaleIncarnation):
            await journal.write(AppendRecords("s-1", 2, [("turn", b"later")], []))
        with pytest.raises(StaleIncarnation):
            await journal.write(BeginIncarnation("s-1", 3, 2))
        return await journal.read(LoadSession("s-1"))

    found = run(work)

    assert [record.body for record in found.records] == [b"a"]
    assert (found.row.incarnation, found.row.restarts) == (2, 1)


def test_an_ended_session_keeps_its_first_reason(run):
    """The end is written once, and old commands still have their answers."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(AcceptCommand("s-1", "c-1", b"one", 1))
        await journal.write(AppendRecords("s-1", 1, [], [("c-1", b"done")]))
        await journal.write(EndSession("s-1", b"normal", 9))
        await journal.write(EndSession("s-1", b"killed", 10))
        with pytest.raises(SessionEnded):
            await journal.write(AcceptCommand("s-1", "c-2", b"two", 11))
        known = await journal.write(AcceptCommand("s-1", "c-1", b"one", 12))
        return known, await journal.read(FindSession("s-1")), await journal.read(ListLiveSessions())

    known, row, alive = run(work)

    assert (known, row.reason, row.ended_ms, alive) == (Duplicate(b"done"), b"normal", 9, [])


def test_an_unknown_session_is_kept_apart_from_an_ended_one(run):
    """Writing to what was never there is the caller's mistake; reading finds nothing."""

    async def work(journal):
        for write in (
            journal.write(AcceptCommand("s-9", "c-1", b"", 1)),
            journal.write(PublishEvents("s-9", 1, 1, b"")),
            journal.write(BeginIncarnation("s-9", 1, 0)),
            journal.write(EndSession("s-9", b"", 1)),
        ):
            with pytest.raises(InvalidSession):
                await write
        with pytest.raises(StaleIncarnation):
            await journal.write(AppendRecords("s-9", 1, [("turn", b"")], []))
        return (
            await journal.read(LoadSession("s-9")),
            await journal.read(FindSession("s-9")),
            await journal.read(ReplayEvents("s-9", 0, 9, 9)),
            await journal.read(FindLastIndex("s-9")),
            await journal.read(FindAnswer("s-9", "c-1")),
        )

    assert run(work) == (None, None, [], 0, None)


def test_a_write_of_an_earlier_process_changes_nothing(run):
    """Neither its records, nor its answers, its snapshot or its number."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(AcceptCommand("s-1", "c-1", b"one", 1))
        await journal.write(BeginIncarnation("s-1", 2, 1))
        with pytest.raises(StaleIncarnation):
            await journal.write(
                AppendRecords(
                    "s-1", 1, [("turn", b"late")], [("c-1", b"late")], number=9, snapshot=b"late"
                )
            )
        return await journal.read(LoadSession("s-1")), await journal.read(FindAnswer("s-1", "c-1"))

    stored, answer = run(work)

    assert (stored.records, stored.snapshot, stored.row.written, answer) == ((), b"", 0, None)
    assert [row.command_id for row in stored.unanswered] == ["c-1"]


async def kept(journal, session_id):
    """Return what of a session is found by any way of asking."""
    return (
        await journal.read(LoadSession(session_id)),
        await journal.read(ReadHistory(session_id)),
        await journal.read(ReplayEvents(session_id, 0, 100, 100)),
        await journal.read(FindAnswer(session_id, "c-1")),
        await journal.read(ListDowns(session_id, 0, 100)),
        await journal.read(FindNewestDown(session_id)),
        await journal.read(ListCheckpoints(session_id)),
        await journal.read(FindLastIndex(session_id)),
    )


async def whole_life(journal, session_id, ended_ms):
    """Write a session with everything that one can have, and end it."""
    await journal.write(
        CreateSession(SessionRow(session_id=session_id, created_ms=1, spec=b"spec"))
    )
    await journal.write(AcceptCommand(session_id, "c-1", b"one", 1))
    await journal.write(
        AppendRecords(
            session_id, 0, [("turn", b"a")], [("c-1", b"done")], number=1, snapshot=b"state"
        )
    )
    await journal.write(PublishEvents(session_id, 1, 5, b"events"))
    await journal.write(
        RecordDown(
            DownRow(session_id=session_id, incarnation=1, restarting=False, at_ms=9, body=b"down")
        )
    )
    await journal.write(
        SaveCheckpoint(
            CheckpointRow(
                session_id=session_id,
                checkpoint_id="cp-1",
                label=None,
                saved_ms=1,
                schema_version=1,
                body=b"state",
                metadata=b"",
            )
        )
    )
    await journal.write(EndSession(session_id, b"normal", ended_ms))


def test_old_sessions_are_pruned_with_all_that_was_theirs(run):
    """Those that ended before the time go, longest ago first; what is alive or later stays."""

    async def work(journal):
        for name, ended_ms in [("s-1", 300), ("s-2", 100), ("s-3", 200), ("s-4", 400)]:
            await whole_life(journal, name, ended_ms)
        await journal.write(CreateSession(SessionRow(session_id="s-5", created_ms=1, spec=b"")))
        counts = [await journal.write(PruneSessions(400, limit)) for limit in (0, -1, 2)]
        first = [await journal.read(FindSession(f"s-{number}")) for number in range(1, 6)]
        counts += [
            await journal.write(PruneSessions(400, 9)),
            await journal.write(PruneSessions(400, 9)),
        ]
        second = [await journal.read(FindSession(f"s-{number}")) for number in range(1, 6)]
        return counts, first, second, await kept(journal, "s-2"), await kept(journal, "s-4")

    counts, first, second, gone, there = run(work)

    assert counts == [0, 0, 2, 1, 0]
    assert [row and row.session_id for row in first] == ["s-1", None, None, "s-4", "s-5"]
    assert [row and row.session_id for row in second] == [None, None, None, "s-4", "s-5"]
    assert gone == (None, None, [], None, [], None, [], 0)
    assert all(there)


def test_a_pruned_id_is_new(run):
    """It can be used again, and nothing of the old session comes back with it."""

    async def work(journal):
        await whole_life(journal, "s-1", 100)
        await journal.write(PruneSessions(101, 9))
        with pytest.raises(InvalidSession):
            await journal.write(AcceptCommand("s-1", "c-2", b"", 1))
        await journal.write(CreateSession(ROW))
        return await journal.write(AcceptCommand("s-1", "c-1", b"one", 10)), await kept(
            journal, "s-1"
        )

    accepted, (stored, _, *rest) = run(work)

    assert (accepted, stored.records, stored.snapshot) == (Accepted(1), (), b"")
    assert rest == [[], None, [], None, [], 0]


@pytest.mark.slow
def test_pruning_is_bounded(run):
    """However many are asked for, one operation does not hold up the others."""

    async def work(journal):
        for number in range(PRUNED_MAX + 1):
            journal.write(
                CreateSession(SessionRow(session_id=f"s-{number}", created_ms=1, spec=b""))
            )
            await journal.write(EndSession(f"s-{number}", b"normal", 1))
        return await journal.write(PruneSessions(2, 10**6)), await journal.write(
            PruneSessions(2, 10**6)
        )

    assert run(work) == (PRUNED_MAX, 1)
