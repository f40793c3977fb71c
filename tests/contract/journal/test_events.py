"""Durable events in a journal: each index once, and never back."""

import pytest

from supervisor.adapters.journal.base import (
    EventConflict,
    EventRow,
    SessionRow,
    StaleIncarnation,
)
from supervisor.adapters.journal.operations import (
    AppendRecords,
    CreateSession,
    FindLastIndex,
    LoadSession,
    PublishEvents,
    ReplayEvents,
)
from supervisor.adapters.journal.schema import Bounds
from supervisor.core.limits import REPLAY_BATCHES_MAX, REPLAY_BYTES_MAX

ROW = SessionRow(session_id="s-1", created_ms=5, spec=b"spec", group_id="g", incarnation=1)
FEW = Bounds(events=10)


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
def test_replay_gives_the_batches_that_overlap(run, after, through, limit, right):
    """Every event after one index up to another is in one of the batches, and gaps stay gaps."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        for first, count in [(1, 3), (4, 2), (10, 2), (12, 1)]:
            await journal.write(PublishEvents("s-1", first, count, b"%d" % first))
        return await journal.read(ReplayEvents("s-1", after, through, limit))

    assert [row.first for row in run(work)] == right


def test_replay_is_bounded(run):
    """However much is asked for, one answer does not hold up the writer."""

    async def work(journal):
        journal.write(CreateSession(ROW))
        for index in range(1, REPLAY_BATCHES_MAX + 11):
            journal.write(PublishEvents("s-1", index, 1, b""))
        found = await journal.read(ReplayEvents("s-1", 0, 10**6, 10**6))
        return len(found), await journal.read(FindLastIndex("s-1"))

    assert run(work) == (REPLAY_BATCHES_MAX, REPLAY_BATCHES_MAX + 10)


def test_replay_is_bounded_in_bytes(run):
    """It ends with the batch that fills an answer: the longer batches are, the fewer of them."""
    third = REPLAY_BYTES_MAX // 3

    async def work(journal):
        await journal.write(CreateSession(ROW))
        for index, size in enumerate((third, third, third + 9, 1, 5 * third, 2, 3), 1):
            await journal.write(PublishEvents("s-1", index, 1, b"x" * size))
        return [
            await journal.read(ReplayEvents("s-1", after, 100, 100)) for after in (0, 1, 3, 4, 5)
        ]

    found = [[row.first for row in rows] for rows in run(work)]

    assert found == [[1, 2, 3], [2, 3, 4, 5], [4, 5], [5], [6, 7]]


@pytest.mark.parametrize(
    ("first", "count", "body"),
    [(4, 3, b"other"), (4, 2, b"batch"), (6, 1, b"batch"), (2, 3, b"batch"), (1, 9, b"batch")],
)
def test_an_event_index_is_used_once(run, first, count, body):
    """The same batch may come again; another one over the same indexes is refused."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(PublishEvents("s-1", 4, 3, b"batch"))
        await journal.write(PublishEvents("s-1", 4, 3, b"batch"))
        with pytest.raises(EventConflict):
            await journal.write(PublishEvents("s-1", first, count, body))
        return await journal.read(ReplayEvents("s-1", 0, 100, 9))

    assert run(work) == [EventRow(first=4, count=3, body=b"batch")]


async def publish(journal, indexes):
    """Publish batches of two events each, beginning at these indexes."""
    for first in indexes:
        await journal.write(PublishEvents("s-1", first, 2, b"%d" % first))


def test_the_oldest_events_go_when_a_snapshot_is_written(run):
    """Of more than can be kept the newest stay, and those of other sessions all."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(CreateSession(SessionRow(session_id="s-2", created_ms=5, spec=b"")))
        await journal.write(PublishEvents("s-2", 1, 1, b"theirs"))
        await publish(journal, range(1, 41, 2))
        before = await journal.read(ReplayEvents("s-1", 0, 100, 100))
        await journal.write(AppendRecords("s-1", 1, [], [], snapshot=b"state"))
        after = await journal.read(ReplayEvents("s-1", 0, 100, 100))
        return (
            len(before),
            [row.first for row in after],
            await journal.read(ReplayEvents("s-2", 0, 9, 9)),
        )

    before, after, theirs = run(work, bounds=FEW)

    assert (before, after) == (20, [*range(21, 41, 2)])
    assert [row.body for row in theirs] == [b"theirs"]


def test_few_events_all_stay(run):
    """A tenth more than the bound is not worth the search."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await publish(journal, range(1, 23, 2))
        await journal.write(AppendRecords("s-1", 1, [], [], snapshot=b"state"))
        return len(await journal.read(ReplayEvents("s-1", 0, 100, 100)))

    assert run(work, bounds=FEW) == 11


def test_indexes_never_go_back(rerun):
    """What was dropped is not new when it comes again, also after a restart."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await publish(journal, [*range(1, 21, 2), *range(31, 51, 2)])
        await journal.write(AppendRecords("s-1", 1, [], [], snapshot=b"state"))
        return await journal.read(FindLastIndex("s-1"))

    async def again(journal):
        await publish(journal, [1, 7, 19])
        with pytest.raises(EventConflict, match="dropped up to 20"):
            await publish(journal, [20])
        await publish(journal, [31, 51])
        found = await journal.read(ReplayEvents("s-1", 0, 100, 100))
        return await journal.read(FindLastIndex("s-1")), [row.first for row in found]

    first = rerun(work, bounds=FEW)
    second, kept = rerun(again, bounds=FEW)

    assert (first, second) == (50, 52)
    assert kept == [*range(31, 53, 2)]


def test_counts_are_known_after_a_restart(rerun):
    """The bound holds for what an earlier daemon has stored, too."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await publish(journal, range(1, 41, 2))

    async def again(journal):
        await journal.write(AppendRecords("s-1", 1, [], [], snapshot=b"state"))
        return len(await journal.read(ReplayEvents("s-1", 0, 100, 100)))

    rerun(work, bounds=FEW)

    assert rerun(again, bounds=FEW) == 10


def test_events_of_a_write_stand_or_fall_with_it(rerun):
    """They are there with its records, once, however often it comes; refused, none of it is."""
    first = EventRow(first=1, count=2, body=b"one")
    second = EventRow(first=3, count=1, body=b"two")
    other = EventRow(first=2, count=1, body=b"other")

    async def write(journal, number, events, incarnation=1):
        await journal.write(
            AppendRecords("s-1", incarnation, [("turn", b"")], [], number=number, events=events)
        )

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await write(journal, 1, [first])
        await write(journal, 1, [first, second])  # sent again, with what it lacked
        with pytest.raises(EventConflict):
            await write(journal, 2, [other])
        with pytest.raises(StaleIncarnation):
            await write(journal, 2, [EventRow(first=9, count=1, body=b"stale")], 7)

    rerun(work)
    stored = rerun(lambda journal: journal.read(LoadSession("s-1")))
    events = rerun(lambda journal: journal.read(ReplayEvents("s-1", 0, 99, 99)))

    assert events == [first, second]
    assert (len(stored.records), stored.row.written) == (1, 1)
