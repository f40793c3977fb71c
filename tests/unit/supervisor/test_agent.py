"""One process of a session: what is said of its end, and what comes too late to be said."""

import asyncio
import os

import pytest

from cmdc_runtime.heartbeats import REBUILDING
from cmdc_runtime.process import EXIT_BAD_OPTIONS
from cmdc_runtime.reasons import ExitCode, OutOfMemory, Shutdown, Signal, StartFailed, Unkillable
from cmdc_runtime.requests import Supervision
from cmdc_runtime.wire.frames import (
    Answer,
    Batch,
    Completed,
    Detached,
    ExitNotice,
    NotStarted,
    Started,
    Write,
)
from supervisor.adapters.journal.base import EventRow, JournalFailed
from supervisor.adapters.journal.operations import AppendRecords
from supervisor.core import exits
from supervisor.core.exits import NOT_JUDGED, ExitRecord, fell_at
from supervisor.core.limits import INDEX_JUMP
from supervisor.core.storage import Condition
from supervisor.core.tree.messages import Ending, Ref
from supervisor.sessions.agent import Agent
from supervisor.sessions.session_tasks import SessionTasks
from tests.unit.supervisor.services import PlayedOwner, PlayedWorker, Services, play, settle

HUNG = OutOfMemory(rss_bytes=2, limit_bytes=1)
KILLED = Signal(number=9, name="SIGKILL")
LATE, IN_TIME = True, False


async def end(work, *, status=-9, oom_kills=0, comes=IN_TIME, **seen):
    """Return how a process ended for which ``work`` was done before its end or after it."""
    services, owner, worker = Services(), PlayedOwner(), PlayedWorker(7)
    process = Agent(
        Ref(("sessions", "session:s"), "agent", 1),
        owner,
        services,
        worker,
        SessionTasks("s", print),
    )
    process.take_over(Supervision())
    if comes is IN_TIME:
        work(process)
    worker.has_ended = True
    if comes is LATE:
        work(process)
    worker.owner.on_exit(ExitRecord(status, pid=7, oom_kills=oom_kills, **seen))
    await settle()
    (ended,) = owner.ended
    return ended


def kill(process):
    process.kill(HUNG)


def stop(process):
    process.ask("enough")
    process.terminate()
    process.kill()


@pytest.mark.parametrize(
    ("work", "comes", "oom_kills", "reason", "killed_by"),
    [
        (kill, IN_TIME, 0, HUNG, "daemon"),
        (kill, LATE, 0, KILLED, "outside"),
        (stop, IN_TIME, 0, KILLED, "daemon"),
        (stop, LATE, 0, KILLED, "outside"),
        (stop, IN_TIME, 1, KILLED, "daemon"),
        (stop, LATE, 1, OutOfMemory(rss_bytes=0, limit_bytes=0), "kernel"),
    ],
)
def test_what_was_done_after_its_end_is_no_evidence(work, comes, oom_kills, reason, killed_by):
    """A kill or a stop while it is finalized does not make its end the daemon's doing."""
    ended = play(lambda: end(work, comes=comes, oom_kills=oom_kills))

    assert ended.reason == reason
    assert exits.killed_by(ended) == killed_by


def test_what_it_was_killed_for_first_is_the_reason():
    """Whatever else is found wrong while it is killed: that came of the first."""

    def kill_twice(process):
        process.kill(HUNG)
        process.kill(Unkillable(seconds=10.0))
        process.kill()

    assert play(lambda: end(kill_twice)).reason == HUNG


def test_last_words_count_whenever_they_are_read():
    """What it had still sent is read after its end, and is its own."""

    def say(process):
        process.on_frame(ExitNotice(reason=Shutdown(detail="bye")), b"")

    def fail(process):
        process.on_frame(NotStarted(stage="load", message="no tool"), b"")

    said = play(lambda: end(say, status=0, comes=LATE))
    failed = play(lambda: end(fail, status=1, comes=LATE))

    assert (said.reason, said.ending) == (Shutdown(detail="bye"), Ending.NORMAL)
    assert failed.reason == StartFailed(stage="load", message="no tool")
    assert failed.ending is Ending.FINAL


def test_status_is_no_word_of_a_hopeless_start():
    """Code that it opened may have ended it with any; the daemon counts the step it was at."""
    seen = {"state": REBUILDING, "turns": 5}
    silent = play(lambda: end(lambda _: None, status=EXIT_BAD_OPTIONS, **seen))

    assert (silent.reason, silent.ending) == (ExitCode(code=EXIT_BAD_OPTIONS), Ending.CRASH)
    assert fell_at(silent) == 5


def test_who_was_up_says_no_more_of_its_start():
    """What runs in it may say so, and the session would be over."""

    def fail(process):
        process.on_frame(Started(), b"")
        process.on_frame(NotStarted(stage="load", message="no tool"), b"")

    ended = play(lambda: end(fail))

    assert (ended.reason, ended.ending) == (KILLED, Ending.CRASH)


def test_end_that_cannot_be_judged_is_reported_all_the_same():
    """The session would wait for it for ever; the log has the traceback."""

    async def broken(_session_id):
        raise RuntimeError("a bug")

    def spoil(process):
        process.services.hub.flushed = broken

    ended = play(lambda: end(spoil))

    assert ended.reason.detail == NOT_JUDGED
    assert ended.ending is Ending.CRASH


def test_stuck_process_is_not_looked_up_once_it_has_ended():
    """Its number may be another one's by then."""

    async def stuck():
        worker = PlayedWorker(os.getpid())
        worker.pidfd = os.pidfd_open(worker.pid)
        process = Agent(
            Ref((), "agent", 1), PlayedOwner(), Services(), worker, SessionTasks("s", print)
        )
        before = process.stuck(Unkillable(seconds=10.0)).reason
        worker.has_ended = True
        after = process.stuck(Unkillable(seconds=10.0)).reason
        os.close(worker.pidfd)
        return before.state, after.state

    assert play(stuck) == ("R", "")


def test_no_answer_overtakes_what_was_done_before_it():
    """Nobody hears of a step before the journal has it; later answers keep their order."""

    async def scenario():
        services, owner, worker = Services(), PlayedOwner(), PlayedWorker(7)
        written = [asyncio.get_running_loop().create_future() for _ in range(2)]
        services.journal.answers[AppendRecords] = lambda write: written[write.number - 1]
        process = Agent(
            Ref((), "agent", 1), owner, services, worker, SessionTasks("s", lambda: None)
        )
        process.take_over(Supervision())
        worker.says(Answer(id="c-0", body=b""))
        worker.says(Write(records=(), completed=(), number=1))
        worker.says(Answer(id="c-1", body=b""))
        worker.says(Write(records=(), completed=(), number=2))
        worker.says(Answer(id="c-2", body=b""))
        seen = [[one for one, _ in owner.replies]]
        for one in written:
            one.set_result(None)
            await settle()
            seen.append([one for one, _ in owner.replies])
        return seen

    assert play(scenario) == [["c-0"], ["c-0", "c-1"], ["c-0", "c-1", "c-2"]]


def heard_by(owner):
    """Return which questions have an answer, each with whether that shows what is not stored."""
    return [(frame.id, frame.unsaved) for _, frame in owner.replies]


def test_who_looks_while_the_disk_is_full_waits_for_no_room():
    """The answer says that it shows what is not stored; other questions wait, in their order."""

    async def scenario():
        services, owner, worker = Services(), PlayedOwner(), PlayedWorker(7)
        owner.looks("look-1", "look-2", "look-3")
        written = asyncio.get_running_loop().create_future()
        services.journal.answers[AppendRecords] = lambda _write: written
        process = Agent(
            Ref((), "agent", 1), owner, services, worker, SessionTasks("s", lambda: None)
        )
        process.take_over(Supervision())
        worker.says(Write(records=(), completed=(), number=1))
        worker.says(Answer(id="look-1", body=b""))
        seen = [heard_by(owner)]
        services.journal.health.turn(Condition.FULL, "no room")
        process.answer_looks()
        worker.says(Answer(id="cycle", body=b""))
        worker.says(Answer(id="look-2", body=b""))
        seen.append(heard_by(owner))
        written.set_result(None)
        await settle()
        worker.says(Answer(id="look-3", body=b""))
        seen.append(heard_by(owner))
        return seen

    early = [("look-1", True), ("look-2", True)]

    assert play(scenario) == [[], early, [*early, ("cycle", False), ("look-3", False)]]


@pytest.mark.parametrize("is_leaving", [False, True])
def test_nothing_counts_behind_a_write_that_is_lost(is_leaving):
    """What was sent before the process died would leave a hole in the history.

    A daemon that is about to leave says nothing at all, since the next one gets it again.
    """

    async def scenario():
        services, owner, worker = Services(), PlayedOwner(), PlayedWorker(7)
        services.is_leaving = is_leaving
        stored, published = [], []
        first = asyncio.get_running_loop().create_future()

        def append(write):
            stored.append(write.number)
            return first

        services.journal.answers[AppendRecords] = append
        services.hub.take = lambda *_args: published.append(1) or True
        process = Agent(
            Ref((), "agent", 1), owner, services, worker, SessionTasks("s", lambda: None)
        )
        process.take_over(Supervision())
        settled = (Completed(id="c-1", frame=b"done"),)
        worker.says(Write(records=(), completed=settled, number=1))
        first.set_exception(JournalFailed("no room"))
        await settle()
        worker.says(Write(records=(), completed=(), number=2))
        worker.owner.on_frame(Batch(first=1, count=1, durable=True), ((None, b"x"),))
        worker.says(Answer(id="c-2", body=b""))
        await settle()
        replies = [(command_id, type(frame).__name__) for command_id, frame in owner.replies]
        return stored, published, replies, worker.signals

    stored, published, replies, signals = play(scenario)

    assert (stored, published) == ([1], [])
    assert (replies, signals) == (([], []) if is_leaving else ([("c-1", "FailedReply")], [9]))


def test_records_and_the_events_that_report_them_are_one_write():
    """The journal gets the durable ones with the records; they are published when it has both."""

    async def scenario():
        services, worker = Services(), PlayedWorker(7)
        kept, taken, journaled = [], [], asyncio.get_running_loop().create_future()

        def append(write):
            kept.extend(write.events)
            return journaled

        def take(_session_id, batch, body, written):
            taken.append((batch.first, written))
            return body != b"refused"

        services.journal.answers[AppendRecords], services.hub.take = append, take
        process = Agent(
            Ref((), "agent", 1), PlayedOwner(), services, worker, SessionTasks("s", lambda: None)
        )
        process.take_over(Supervision())
        published = (
            (Batch(first=1, count=2, durable=True), b"one"),
            (Batch(first=3, count=1, durable=False), b"passing"),
            (Batch(first=9, count=1, durable=True), b"refused"),
        )
        worker.owner.on_frame(Write(records=(), completed=(), number=1), published)
        before = {written.done() for _, written in taken}
        journaled.set_result(None)
        await settle()
        return kept, [first for first, _ in taken], before, {one.done() for _, one in taken}

    kept, taken, before, after = play(scenario)

    assert kept == [EventRow(first=1, count=2, body=b"one")]
    assert taken == [1, 3, 9]
    assert (before, after) == ({False}, {True})


@pytest.mark.parametrize(
    ("said", "skipped"),
    [(["announced"], [INDEX_JUMP]), (["announced", "started"], []), ([], [INDEX_JUMP])],
)
def test_indexes_of_an_adopted_agent_are_unknown_until_it_is_up(said, skipped):
    """What it had published for the dead daemon comes again first, unless it dies before.

    A subscriber may know such an event, and no other may have its index.
    """
    frames = {
        "announced": Detached(worker_id="w", session_id="s", incarnation=1, first=6),
        "started": Started(),
    }

    async def scenario():
        services, worker, jumps = Services(), PlayedWorker(7), []
        services.hub.open_channel = lambda *_args: None
        services.hub.skip = lambda _session_id, count: jumps.append(count)
        process = Agent(
            Ref((), "agent", 1), PlayedOwner(), services, worker, SessionTasks("s", print)
        )
        process.adopt(Supervision(), 3)
        for name in said:
            worker.says(frames[name])
        worker.ends(-9)
        await settle()
        return jumps

    assert play(scenario) == skipped


@pytest.mark.parametrize(("first", "is_adopted"), [(6 + INDEX_JUMP, True), (7 + INDEX_JUMP, False)])
def test_an_adopted_agent_begins_near_what_the_journal_has(first, is_adopted):
    """One that claims an index which no agent can have reached is ended, and its stream is kept."""

    async def scenario():
        services, owner, worker, opened = Services(), PlayedOwner(), PlayedWorker(7), []
        services.hub.taken_index = lambda _session_id: 6
        services.hub.open_channel = lambda *args: opened.append(args[2])
        services.pool.kill = opened.append
        process = Agent(Ref((), "agent", 1), owner, services, worker, SessionTasks("s", print))
        process.adopt(Supervision(), 3)
        worker.says(Detached(worker_id="w", session_id="s", incarnation=1, first=first))
        return opened, worker

    opened, worker = play(scenario)

    assert opened == [first - 1 if is_adopted else worker]
