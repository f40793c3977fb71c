"""The ends that a journal keeps: once, in order, bounded, and there for whoever was away."""

import pytest

from cmdc_runtime.errors import InvalidSession
from supervisor.adapters.journal.base import DownRow, SessionRow
from supervisor.adapters.journal.operations import (
    CreateSession,
    EndSession,
    FindNewestDown,
    ListDowns,
    ListLiveSessions,
    RecordDown,
)
from supervisor.core.limits import DOWNS_KEPT_MAX, DOWNS_READ_MAX

ROW = SessionRow(session_id="s-1", created_ms=5, spec=b"spec", incarnation=1)


def end(incarnation, body=b"down", *, restarting=True, session_id="s-1", at_ms=1_000):
    """Return an end as it is noted."""
    return DownRow(
        session_id=session_id,
        incarnation=incarnation,
        restarting=restarting,
        at_ms=at_ms,
        body=body,
    )


def test_ends_are_there_after_a_restart(rerun):
    """Another daemon reads what was noted, oldest first, each with its number."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(CreateSession(SessionRow(session_id="s-2", created_ms=6, spec=b"")))
        return [
            await journal.write(RecordDown(end(1, b"one"))),
            await journal.write(RecordDown(end(1, b"theirs", session_id="s-2"))),
            await journal.write(RecordDown(end(2, b"two", at_ms=5_000))),
            await journal.write(RecordDown(end(2, b"over", restarting=False, at_ms=4_000))),
        ]

    async def read(journal):
        downs = await journal.read(ListDowns("s-1", 0, 9))
        return (
            downs,
            await journal.read(ListDowns("s-1", downs[0].seq, 1)),
            await journal.read(FindNewestDown("s-1")),
        )

    numbers = rerun(work)
    downs, second, newest = rerun(read)

    assert numbers == [1_000, 1_001, 5_000, 5_001]  # the time, or one more than the last
    assert [(one.seq, one.body, one.restarting) for one in downs] == [
        (1_000, b"one", True),
        (5_000, b"two", True),
        (5_001, b"over", False),
    ]
    assert (second, newest) == ([downs[1]], downs[2])
    assert downs[1] == DownRow(
        session_id="s-1", incarnation=2, restarting=True, at_ms=5_000, body=b"two", seq=5_000
    )


def test_an_end_is_noted_once(run):
    """The first stays, and whoever notes it again gets its number."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        first = await journal.write(RecordDown(end(1, b"first")))
        await journal.write(RecordDown(end(2)))
        again = await journal.write(RecordDown(end(1, b"again", at_ms=9_000)))
        return first, again, [one.body for one in await journal.read(ListDowns("s-1", 0, 9))]

    assert run(work) == (1_000, 1_000, [b"first", b"down"])


def test_ends_of_sessions_never_seen_are_refused(run):
    """Reading finds nothing."""

    async def work(journal):
        with pytest.raises(InvalidSession):
            await journal.write(RecordDown(end(1)))
        return await journal.read(ListDowns("s-1", 0, 9)), await journal.read(FindNewestDown("s-1"))

    assert run(work) == ([], None)


def test_ends_stay_when_the_id_is_used_again(run):
    """They are no longer those of an incarnation, and the new session has its own."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(RecordDown(end(1, b"old", restarting=False)))
        await journal.write(EndSession("s-1", b"normal", 9))
        await journal.write(RecordDown(end(2, b"late", restarting=False)))
        await journal.write(CreateSession(ROW))
        await journal.write(RecordDown(end(1, b"new")))
        return [(one.incarnation, one.body) for one in await journal.read(ListDowns("s-1", 0, 9))]

    assert run(work) == [(None, b"old"), (None, b"late"), (1, b"new")]


def test_an_end_that_nobody_hears_of_is_remembered(run):
    """The newest one only: a session that hibernates often keeps the ends that matter."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(RecordDown(end(1, b"down")))
        for incarnation in range(2, DOWNS_KEPT_MAX + 3):
            journal.write(RecordDown(end(incarnation, b"")))
        newest = await journal.read(FindNewestDown("s-1"))
        bodies = [one.body for one in await journal.read(ListDowns("s-1", 0, 9))]
        await journal.write(RecordDown(end(newest.incarnation + 1, b"more")))
        return newest, bodies, [one.body for one in await journal.read(ListDowns("s-1", 0, 9))]

    newest, bodies, later = run(work)

    assert (newest.incarnation, newest.body) == (DOWNS_KEPT_MAX + 2, b"")
    assert (bodies, later) == ([b"down"], [b"down", b"more"])


@pytest.mark.slow
def test_the_newest_ends_are_kept(run):
    """So many for each session, and so many in one answer."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        for incarnation in range(1, DOWNS_KEPT_MAX + 11):
            journal.write(RecordDown(end(incarnation)))
        found, after = [], 0
        while page := await journal.read(ListDowns("s-1", after, 10**6)):
            assert len(page) <= DOWNS_READ_MAX
            found += page
            after = page[-1].seq
        return [one.incarnation for one in found]

    assert run(work) == [*range(11, DOWNS_KEPT_MAX + 11)]


def test_who_asks_for_no_end_gets_none(run):
    """A bound of 0 is one."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(RecordDown(end(1)))
        return [await journal.read(ListDowns("s-1", 0, limit)) for limit in (-1, 0)]

    assert run(work) == [[], []]


def test_an_incarnation_that_ended_is_not_used_again(rerun):
    """Also where its start failed before the journal knew of it."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(RecordDown(end(3)))
        await journal.write(RecordDown(end(2)))

    rerun(work)
    (row,) = rerun(lambda journal: journal.read(ListLiveSessions()))

    assert row.incarnation == 3


def test_a_cancelled_caller_changes_nothing(run):
    """The end is noted all the same."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        journal.write(RecordDown(end(1))).cancel()
        return await journal.read(FindNewestDown("s-1"))

    assert run(work).incarnation == 1
