"""Commands and records in a journal: once, in order, and numbered."""

import asyncio

import pytest

from supervisor.adapters.journal.base import (
    Accepted,
    CommandRow,
    Duplicate,
    EventRow,
    JournalFailed,
    MissingWrite,
    Past,
    RecordRow,
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
    FindSession,
    ListLiveSessions,
    LoadSession,
    PublishEvents,
    ReplayEvents,
    RestoreSession,
)

ROW = SessionRow(session_id="s-1", created_ms=5, spec=b"spec", group_id="g", incarnation=1)


def test_everything_is_there_after_a_restart(rerun):
    """What was acknowledged is what another daemon loads, in one order of commands and records."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(AcceptCommand("s-1", "c-1", b"one", 10))
        await journal.write(AppendRecords("s-1", 1, [("turn", b"a"), ("tool", b"b")], []))
        await journal.write(AcceptCommand("s-1", "c-2", b"two", 11))
        await journal.write(AcceptCommand("s-1", "c-3", b"three", 12))
        await journal.write(
            AppendRecords("s-1", 1, [("turn", b"c")], [("c-1", b"done"), ("c-3", b"done")])
        )

    rerun(work)
    found = rerun(lambda journal: journal.read(LoadSession("s-1")))

    assert found == Stored(
        row=ROW,
        records=(
            RecordRow(seq=2, incarnation=1, kind="turn", body=b"a"),
            RecordRow(seq=3, incarnation=1, kind="tool", body=b"b"),
            RecordRow(seq=6, incarnation=1, kind="turn", body=b"c"),
        ),
        unanswered=(CommandRow(command_id="c-2", seq=4, at_ms=11, body=b"two"),),
    )


def test_numbers_go_on_after_a_restart(rerun):
    """A number is never given twice, whichever of the two tables has the last one."""

    async def commands_last(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(AppendRecords("s-1", 1, [("turn", b"")], []))
        await journal.write(AcceptCommand("s-1", "c-1", b"", 1))

    async def records_last(journal):
        await journal.write(AppendRecords("s-1", 1, [("turn", b"")], []))

    rerun(commands_last)
    rerun(records_last)
    found = rerun(lambda journal: journal.write(AcceptCommand("s-1", "c-2", b"", 1)))

    assert found == Accepted(4)


def test_a_command_is_accepted_once(run):
    """The same id again gets the recorded answer, or learns that there is none yet."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        first = await journal.write(AcceptCommand("s-1", "c-1", b"one", 1))
        before = await journal.write(AcceptCommand("s-1", "c-1", b"one", 2))
        await journal.write(AppendRecords("s-1", 1, [], [("c-1", b"done")]))
        await journal.write(AppendRecords("s-1", 1, [], [("c-1", b"again"), ("c-9", b"unknown")]))
        after = await journal.write(AcceptCommand("s-1", "c-1", b"one", 3))
        return first, before, after, await journal.read(FindAnswer("s-1", "c-1"))

    assert run(work) == (Accepted(1), Duplicate(None), Duplicate(b"done"), b"done")


def test_order_of_calls_is_order_of_numbers(run):
    """Callers need not wait for one another to be stored in the order in which they called."""

    async def work(journal):
        calls = [journal.write(CreateSession(ROW))]
        calls += [
            journal.write(AcceptCommand("s-1", f"c-{number}", b"", number)) for number in range(600)
        ]
        return await asyncio.gather(*calls)

    assert run(work)[1:] == [Accepted(seq) for seq in range(1, 601)]


def test_a_numbered_write_is_written_once(run):
    """Sent again it succeeds and changes nothing, whatever is in it by now."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(AcceptCommand("s-1", "c-1", b"one", 1))
        await journal.write(AppendRecords("s-1", 1, [("turn", b"a")], [], number=1))
        await journal.write(AppendRecords("s-1", 1, [("turn", b"b")], [], number=2))
        await journal.write(AppendRecords("s-1", 1, [("turn", b"a")], [("c-1", b"late")], number=1))
        await journal.write(
            AppendRecords("s-1", 1, [("turn", b"b")], [], number=2, snapshot=b"late")
        )
        await journal.write(AppendRecords("s-1", 1, [], [("c-1", b"done")], number=3))
        return await journal.read(LoadSession("s-1")), await journal.read(FindAnswer("s-1", "c-1"))

    stored, answer = run(work)

    assert [(row.seq, row.body) for row in stored.records] == [(2, b"a"), (3, b"b")]
    assert (stored.row.written, stored.snapshot, answer) == (3, b"", b"done")


def test_the_last_number_is_known_after_a_restart(rerun):
    """A running agent learns from where to send again, and a new daemon takes nothing twice."""

    async def before(journal):
        await journal.write(CreateSession(ROW))
        for number in (1, 2, 3):
            await journal.write(
                AppendRecords("s-1", 1, [("turn", b"%d" % number)], [], number=number)
            )

    async def after(journal):
        (row,) = await journal.read(ListLiveSessions())
        for number in (2, 3, 4):
            await journal.write(
                AppendRecords("s-1", 1, [("turn", b"%d" % number)], [], number=number)
            )
        return row.written, await journal.read(LoadSession("s-1"))

    rerun(before)
    written, stored = rerun(after)

    assert written == 3
    assert [row.body for row in stored.records] == [b"1", b"2", b"3", b"4"]
    assert stored.row.written == 4


def test_each_process_numbers_from_one(rerun):
    """The next incarnation is not taken for the one before, also after a restart."""

    async def before(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(AppendRecords("s-1", 1, [("turn", b"old")], [], number=1))
        await journal.write(BeginIncarnation("s-1", 2, 1))

    async def after(journal):
        row = await journal.read(FindSession("s-1"))
        await journal.write(AppendRecords("s-1", 2, [("turn", b"new")], [], number=1))
        return row.written, await journal.read(LoadSession("s-1"))

    rerun(before)
    written, stored = rerun(after)

    assert (written, stored.row.written) == (0, 1)
    assert [row.body for row in stored.records] == [b"old", b"new"]


def test_a_new_session_of_an_old_id_numbers_from_one(run):
    """And its events from 1: nothing is taken for one of the session before."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(AppendRecords("s-1", 1, [("turn", b"old")], [], number=1))
        await journal.write(PublishEvents("s-1", 1, 9, b"old"))
        await journal.write(EndSession("s-1", b"normal", 9))
        await journal.write(CreateSession(ROW))
        await journal.write(AppendRecords("s-1", 1, [("turn", b"new")], [], number=1))
        await journal.write(PublishEvents("s-1", 1, 1, b"new"))
        return await journal.read(LoadSession("s-1")), await journal.read(
            ReplayEvents("s-1", 0, 9, 9)
        )

    stored, batches = run(work)

    assert [row.body for row in (*stored.records, *batches)] == [b"new", b"new"]
    assert stored.row.written == 1


def test_writes_without_a_number_are_all_written(run):
    """Among numbered ones, too; they have no part in the count."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(AppendRecords("s-1", 1, [("turn", b"a")], [], number=1))
        await journal.write(AppendRecords("s-1", 1, [("turn", b"b")], []))
        await journal.write(AppendRecords("s-1", 1, [("turn", b"b")], []))
        return await journal.read(LoadSession("s-1"))

    stored = run(work)

    assert [row.body for row in stored.records] == [b"a", b"b", b"b"]
    assert stored.row.written == 1


def test_numbers_may_not_skip(run):
    """What comes without the write before it leaves nothing behind, its events neither."""
    events = [EventRow(first=1, count=1, body=b"late")]

    async def work(journal):
        await journal.write(CreateSession(ROW))
        await journal.write(AcceptCommand("s-1", "c-1", b"one", 1))
        with pytest.raises(MissingWrite):
            await journal.write(AppendRecords("s-1", 1, [("turn", b"b")], [], number=2))
        await journal.write(AppendRecords("s-1", 1, [("turn", b"a")], [], number=1))
        with pytest.raises(MissingWrite):
            await journal.write(
                AppendRecords(
                    "s-1",
                    1,
                    [("turn", b"c")],
                    [("c-1", b"no")],
                    number=3,
                    snapshot=b"c",
                    events=events,
                )
            )
        found = (
            await journal.read(ReplayEvents("s-1", 0, 9, 9)),
            await journal.read(FindAnswer("s-1", "c-1")),
        )
        return await journal.read(LoadSession("s-1")), found

    stored, found = run(work)

    assert [row.body for row in stored.records] == [b"a"]
    assert (stored.row.written, stored.snapshot, found) == (1, b"", ([], None))


def test_after_a_write_that_failed_no_later_one_is_taken(run):
    """Both were called before either was done: the history ends where the first hole would be."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        calls = [
            journal.write(AppendRecords("s-1", 1, [("turn", b"a")], [], number=1)),
            journal.write(
                AppendRecords("s-1", 1, [("turn", b"half"), ("\ud800", b"")], [], number=2)
            ),
            journal.write(AppendRecords("s-1", 1, [("turn", b"c")], [], number=3)),
        ]
        found = await asyncio.gather(*calls, return_exceptions=True)
        await journal.write(AppendRecords("s-1", 1, [("turn", b"b")], [], number=2))
        return found, await journal.read(LoadSession("s-1"))

    found, stored = run(work)

    assert [type(error) for error in found] == [type(None), JournalFailed, MissingWrite]
    assert [row.body for row in stored.records] == [b"a", b"b"]


@pytest.mark.parametrize("body", [b"", b"\0", bytes(range(256)), b"?:name %s {} ''"])
def test_bodies_are_opaque(run, body):
    """Every byte of everything comes back."""

    async def work(journal):
        await journal.write(CreateSession(SessionRow(session_id="s-1", created_ms=5, spec=body)))
        await journal.write(AcceptCommand("s-1", "c-1", body, 1))
        await journal.write(AppendRecords("s-1", 0, [("turn", body)], []))
        await journal.write(PublishEvents("s-1", 1, 1, body))
        await journal.write(AcceptCommand("s-1", "c-2", b"", 1))
        await journal.write(AppendRecords("s-1", 0, [], [("c-2", body)]))
        stored = await journal.read(LoadSession("s-1"))
        (batch,) = await journal.read(ReplayEvents("s-1", 0, 9, 9))
        answer = await journal.read(FindAnswer("s-1", "c-2"))
        return (
            stored.row.spec,
            stored.unanswered[0].body,
            stored.records[0].body,
            batch.body,
            answer,
        )

    assert set(run(work)) == {body}


def test_names_are_taken_as_they_are(run):
    """What a name looks like is not the journal's business."""
    name = "?:x %s '\" -- \u00fc\U0001f600"

    async def work(journal):
        await journal.write(
            CreateSession(SessionRow(session_id=name, created_ms=5, spec=b"", group_id=name))
        )
        await journal.write(AcceptCommand(name, name, b"", 1))
        await journal.write(AppendRecords(name, 0, [(name, b"")], []))
        return await journal.read(LoadSession(name))

    stored = run(work)

    assert {stored.row.session_id, stored.row.group_id, stored.records[0].kind} == {name}
    assert stored.unanswered[0].command_id == name


def test_what_cannot_be_stored_fails_alone(run):
    """The others of its group are stored, and of itself no half is left."""

    async def work(journal):
        await journal.write(CreateSession(ROW))
        calls = [
            journal.write(AcceptCommand("s-1", "c-1", b"", 1)),
            journal.write(AppendRecords("s-1", 1, [("turn", b"half"), ("\ud800", b"")], [])),
            journal.write(AcceptCommand("s-1", "c-2", b"", 2**70)),
            journal.write(AppendRecords("s-1", 9, [("turn", b"stale")], [])),
            journal.write(AcceptCommand("s-1", "c-3", b"", 1)),
        ]
        found = await asyncio.gather(*calls, return_exceptions=True)
        return found, await journal.read(LoadSession("s-1"))

    (first, *failed, last), stored = run(work)

    assert (first, last, stored.records) == (Accepted(1), Accepted(2), ())
    assert [type(error) for error in failed] == [JournalFailed, JournalFailed, StaleIncarnation]


def test_close_finishes_what_was_called(rerun):
    """Whoever called before the end gets an outcome, and whoever calls later is refused."""
    calls = []

    async def work(journal):
        calls.append(journal)
        calls.extend(
            [journal.write(CreateSession(ROW)), journal.write(AcceptCommand("s-1", "c-1", b"", 1))]
        )

    async def look(journal):
        return await journal.write(AcceptCommand("s-1", "c-1", b"", 1))

    rerun(work)

    with pytest.raises(JournalFailed):
        calls[0].read(ListLiveSessions())
    assert calls[2].result() == Accepted(1)
    assert rerun(look) == Duplicate(None)


def test_rows_that_are_gone_are_reported(run):
    """Commands and records share their numbers, so that each one is there; a snapshot ends that."""

    async def work(journal):
        gone = RecordRow(seq=9, incarnation=1, kind="turn", body=b"")
        before = RecordRow(seq=4, incarnation=1, kind="turn", body=b"")
        asked = CommandRow(command_id="c-1", seq=6, at_ms=1, body=b"", answer=b"done")
        past = Past(
            row=ROW, snapshot=b"s", records=(before, gone), commands=(asked,), snapshot_seq=3
        )
        await journal.write(RestoreSession(past))
        first = await journal.read(LoadSession("s-1"))
        await journal.write(AppendRecords("s-1", 1, [("turn", b"")], [], snapshot=b"t"))
        return first, await journal.read(LoadSession("s-1"))

    first, second = run(work)

    assert (first.missing, first.snapshots) == (((5, 5), (7, 8)), 1)
    assert (second.missing, second.snapshots) == ((), 2)
