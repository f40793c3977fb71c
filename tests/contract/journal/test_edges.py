"""The first of its kind, the same once more, and one beyond: where a journal may be off by one."""

import pytest

from supervisor.adapters.journal.base import DownRow, EventConflict, MissingWrite, SessionRow
from supervisor.adapters.journal.operations import (
    AcceptCommand,
    AppendRecords,
    BeginIncarnation,
    CreateSession,
    FindAnswer,
    LoadSession,
    PublishEvents,
    RecordDown,
)
from supervisor.adapters.journal.schema import Bounds

ROW = SessionRow(session_id="s-1", created_ms=5, spec=b"spec", incarnation=1)
OTHER = SessionRow(session_id="s-2", created_ms=6, spec=b"spec", incarnation=1)
FEW = Bounds(commands=10)


def end(incarnation, at_ms, session_id="s-1"):
    """Return an end as it is noted."""
    return DownRow(
        session_id=session_id, incarnation=incarnation, restarting=True, at_ms=at_ms, body=b"end"
    )


def test_the_current_incarnation_may_begin_again(run):
    """Whoever does not know whether it was written writes it once more."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        for restarts in (1, 2):
            await journal.write(BeginIncarnation("s-1", 2, restarts))
        return (await journal.read(LoadSession("s-1"))).row

    found = run(work)

    assert (found.incarnation, found.restarts) == (2, 2)


def test_the_error_of_an_early_write_names_the_missing_one(run):
    """The next one, and no other."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        for number in (1, 2):
            early = AppendRecords("s-1", 1, [("turn", b"b")], [], number=number + 1)
            with pytest.raises(MissingWrite, match=f"came before write {number}:"):
                await journal.write(early)
            await journal.write(AppendRecords("s-1", 1, [("turn", b"a")], [], number=number))

    run(work)


def test_the_first_event_is_used_once(run):
    """Nothing was dropped yet, so no other one may have had its index."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(PublishEvents("s-1", 1, 1, b"batch"))
        with pytest.raises(EventConflict):
            await journal.write(PublishEvents("s-1", 1, 1, b"other"))

    run(work)


def test_events_that_overlap_are_reported_with_which(run):
    """By the first index of the batch that is there."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(PublishEvents("s-1", 4, 3, b"batch"))
        with pytest.raises(EventConflict, match=r"events 6 to 7 .* overlap those from 4"):
            await journal.write(PublishEvents("s-1", 6, 2, b"other"))

    run(work)


def test_numbers_of_ends_begin_with_1_and_do_not_go_back(run):
    """Where no time is known, and where a clock was put back."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(CreateSession(OTHER))
        return [
            await journal.write(RecordDown(end(1, 0))),
            await journal.write(RecordDown(end(2, 5_000))),
            await journal.write(RecordDown(end(1, 10, "s-2"))),
        ]

    assert run(work) == [1, 5_000, 5_001]


def test_a_tenth_more_of_the_commands_may_stay(run):
    """They are counted one by one: so many are not worth the time to look for them."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        names = [f"c-{number}" for number in range(FEW.commands + 1)]
        for name in names:
            await journal.write(AcceptCommand("s-1", name, b"ask", 1))
        await journal.write(
            AppendRecords("s-1", 1, [], [(name, b"yes") for name in names], snapshot=b"whole")
        )
        return await journal.read(FindAnswer("s-1", names[0]))

    assert run(work, bounds=FEW) == b"yes"
