"""Questions to a session that sleeps or has ended: who answers, and what that leaves behind."""

from functools import partial

import pytest

from cmdc_runtime.errors import Overloaded, SessionError, TransientError
from cmdc_runtime.reasons import Shutdown
from cmdc_runtime.wire.frames import (
    Answer,
    Assign,
    Deliver,
    FailedReply,
    History,
    NotStarted,
    PagedReply,
    Refusal,
    Started,
    ValueReply,
)
from supervisor.adapters.journal.base import JournalFailed, SessionRow
from supervisor.adapters.journal.operations import BeginIncarnation, LoadSession
from supervisor.core.exits import DEATHS_MAX, STEPS_MAX
from supervisor.core.session_phase import Phase
from supervisor.sessions import reader
from supervisor.sessions.assignment import spec_bytes
from supervisor.sessions.reader import EndedSessions
from tests.unit.supervisor.services import CLIENT, Services, play, settle, spec
from tests.unit.supervisor.test_session import NIL, Case


class Asleep(Case):
    """A session that sleeps; ``reader`` is who answers for it."""

    async def begin(self, question="q-1", *, waits=False):
        await self.reach(Phase.HIBERNATED)
        self.session.look(CLIENT, question, NIL, waits=waits)
        await settle()
        return self

    @property
    def reader(self):
        return self.services.pool.workers[1]

    @property
    def answers(self):
        return [(type(frame), frame.id) for _, frame in self.services.answers]

    def asked(self):
        return [one.id for one in self.reader.sent if isinstance(one, Deliver)]


def test_a_question_to_a_sleeping_session_is_answered_by_a_reader():
    """It gets the journal and the question, and no incarnation begins for it."""

    async def scenario():
        case = await Asleep().begin()
        before = case.asked()
        case.reader.says(Started())
        case.reader.says(Answer(id="q-1", body=b"\xc0"))
        case.reader.says(Answer(id="q-1", body=b"\xc0"))
        await settle()
        return case, before

    case, before = play(scenario)
    assign, history = case.reader.sent[:2]

    assert isinstance(assign, Assign)
    assert (assign.looks, assign.incarnation) == (True, case.session.incarnation)
    assert (type(history), history.complete) == (History, True)
    assert (before, case.asked()) == ([], ["q-1"])
    assert case.answers == [(ValueReply, "q-1")]
    assert BeginIncarnation("s", 1, 0) not in case.services.journal.asked
    assert case.session.phase is Phase.HIBERNATED
    assert (case.services.downs, case.session.pending.needs_agent) == ([], False)


def test_further_questions_go_to_the_same_reader_and_one_that_comes_twice_once():
    """So that a long answer is read page by page."""

    async def scenario():
        case = await Asleep().begin()
        case.reader.says(Started())
        case.reader.says(Answer(id="q-1", body=b"\x93", page_id="p"))
        case.session.look(CLIENT, "q-2", NIL)
        case.session.look(CLIENT, "q-2", NIL)
        case.reader.says(Refusal(id="q-2", code="usage", message="no", details=b"\x80"))
        await settle()
        return case

    case = play(scenario)

    assert case.asked() == ["q-1", "q-2"]
    assert case.answers == [(PagedReply, "q-1"), (FailedReply, "q-2")]
    assert len(case.services.pool.workers) == 2


def test_a_question_that_is_open_is_asked_once_whatever_is_asked_beside_it():
    """And each has its own answer, in whatever order they come."""

    async def scenario():
        case = await Asleep().begin()
        case.reader.says(Started())
        case.session.look(CLIENT, "q-2", NIL)
        case.reader.says(Answer(id="q-2", body=b"\xc0"))
        case.session.look(CLIENT, "q-3", NIL)
        for question in ("q-3", "q-1"):
            case.reader.says(Answer(id=question, body=b"\xc0"))
        await settle()
        return case

    case = play(scenario)

    assert case.asked() == ["q-1", "q-2", "q-3"]
    assert case.answers == [(ValueReply, "q-2"), (ValueReply, "q-3"), (ValueReply, "q-1")]


@pytest.mark.parametrize(
    ("limit", "has_answered"), [("READER_ANSWER_S", False), ("READER_IDLE_S", True)]
)
def test_a_reader_has_its_time(monkeypatch, limit, has_answered):
    """One that does not answer is ended, who asked gets an error; so is one without questions."""
    monkeypatch.setattr(reader, limit, 0.0)

    async def scenario():
        case = await Asleep().begin()
        case.reader.says(Started())
        if has_answered:
            case.reader.says(Answer(id="q-1", body=b"\xc0"))
        await settle()
        return case

    case = play(scenario)

    assert case.reader.signals == [9]
    assert case.answers == [(ValueReply if has_answered else FailedReply, "q-1")]
    assert case.session.phase is Phase.HIBERNATED


@pytest.mark.parametrize("limit", ["READER_ANSWER_S", "READER_IDLE_S"])
def test_who_waits_for_what_is_to_come_is_answered_by_the_session_itself(monkeypatch, limit):
    """The reader is not kept for it, and the next process has the question again."""

    async def scenario():
        case = await Asleep().begin("w-1", waits=True)
        case.reader.says(Started())
        monkeypatch.setattr(reader, limit, 0.0)
        case.session.look(CLIENT, "q-1", NIL)
        if limit == "READER_IDLE_S":
            case.reader.says(Answer(id="q-1", body=b"\xc0"))
        await settle()
        asked, signals = case.asked(), case.reader.signals
        return case, asked, signals, [one.id for one in case.session.pending.take_unsent()]

    case, asked, signals, owed = play(scenario)

    assert (asked, signals, owed) == (["w-1", "q-1"], [9], ["w-1"])
    assert case.answers == [(ValueReply if limit == "READER_IDLE_S" else FailedReply, "q-1")]
    assert case.session.phase is Phase.HIBERNATED


def test_who_waits_is_answered_by_a_reader_that_knows():
    """And gets an error where there is none that could."""

    async def scenario(says):
        case = await Asleep().begin("w-1", waits=True)
        for word in says:
            case.reader.says(word)
        if not says:
            case.reader.ends(-9)
        await settle()
        return case.answers

    knows = [Started(), Answer(id="w-1", body=b"\xc0")]

    assert play(partial(scenario, knows)) == [(ValueReply, "w-1")]
    assert play(partial(scenario, [])) == [(FailedReply, "w-1")]


def dies(worker):
    worker.ends(-9)


def test_a_reader_that_dies_of_what_it_reads_is_followed_by_one_without_it():
    """Two deaths of one step have it left out; who asked hears nothing of that."""

    async def scenario():
        case = await Asleep().begin()
        for _ in range(DEATHS_MAX):
            case.services.pool.workers[-1].ends(-9, step=4)
            await settle()
        case.services.pool.workers[-1].says(Started())
        case.services.pool.workers[-1].says(Answer(id="q-1", body=b"\xc0"))
        await settle()
        return case

    case = play(scenario)
    left_out = [worker.sent[0].set_aside for worker in case.services.pool.workers[1:]]

    assert left_out == [(), (), (4,)]
    assert case.answers == [(ValueReply, "q-1")]
    assert (case.session.phase, case.services.downs) == (Phase.HIBERNATED, [])


def test_readers_that_die_at_every_step_come_to_an_end():
    """Who asked gets an error then."""

    async def scenario():
        case = await Asleep().begin()
        for step in range(DEATHS_MAX * STEPS_MAX + 1):
            case.services.pool.workers[-1].ends(-9, step=step)
            await settle()
        return case

    case = play(scenario)

    assert len(case.services.pool.workers) == 1 + DEATHS_MAX * STEPS_MAX + 1
    assert case.answers == [(FailedReply, "q-1")]


def refuses(worker):
    worker.says(NotStarted(stage="load", message="no tool"))
    worker.ends(78)


@pytest.mark.parametrize(("ends", "error"), [(dies, TransientError), (refuses, SessionError)])
def test_who_asked_a_reader_that_ends_gets_an_error(ends, error):
    """Nothing counts as an end of the session, and the next question gets another reader.

    What has to be mended first is not said to be over soon.
    """

    async def scenario():
        case = await Asleep().begin()
        ends(case.reader)
        await settle()
        case.session.look(CLIENT, "q-2", NIL)
        await settle()
        return case

    case = play(scenario)
    ((_, failed),) = case.services.answers

    assert (failed.id, failed.code) == ("q-1", error.code)
    assert failed.message.startswith("session s sleeps, and ")
    assert (case.session.phase, case.services.downs) == (Phase.HIBERNATED, [])
    assert len(case.services.pool.workers) == 3


def test_without_a_process_or_a_journal_who_asked_gets_an_error():
    """The session sleeps on."""

    async def scenario(break_):
        case = Asleep()
        await case.reach(Phase.HIBERNATED)
        break_(case.services)
        case.session.look(CLIENT, "q-1", NIL)
        await settle()
        if len(case.services.pool.workers) > 1:
            assert case.reader.signals == [9]
            case.reader.ends(-9)
            await settle()
        return case

    def no_process(services):
        services.pool.problems.append(Overloaded("no process"))

    def no_journal(services):
        async def load(_query):
            raise JournalFailed("it is gone")

        services.journal.answers[LoadSession] = load

    for break_ in (no_process, no_journal):
        case = play(lambda break_=break_: scenario(break_))
        assert case.answers == [(FailedReply, "q-1")]
        assert case.session.phase is Phase.HIBERNATED


def test_a_session_that_is_woken_answers_for_itself():
    """What the reader has not answered its process is asked, and the first answer counts."""

    async def scenario():
        case = await Asleep().begin()
        case.session.deliver(CLIENT, "c-1", NIL, durable=True)
        await case.do("launch")
        case.services.worker.says(Started())
        case.services.worker.says(Answer(id="q-1", body=b"\xc0"))
        case.reader.says(Started())
        case.reader.says(Answer(id="q-1", body=b"\xc3"))
        await settle()
        return case, [one.id for one in case.services.worker.sent if isinstance(one, Deliver)]

    case, given = play(scenario)

    assert (case.session.phase, given) == (Phase.UP, ["q-1", "c-1"])
    assert case.answers == [(ValueReply, "q-1")]


def test_a_reader_is_not_asked_what_is_answered_before_it_is_up(monkeypatch):
    """It ends as one that has answered; asked again, the question is a new one."""
    monkeypatch.setattr(reader, "READER_IDLE_S", 0.0)

    async def scenario(*, again):
        case = await Asleep().begin()
        case.session.deliver(CLIENT, "c-1", NIL, durable=True)
        await case.do("launch")
        case.services.worker.says(Started())
        case.services.worker.says(Answer(id="q-1", body=b"\xc0"))
        case.services.worker.says(Answer(id="c-1", body=b"\xc0"))
        for step in ("idle", "died", "gone", "hibernated"):
            await case.do(step)
        if again:
            case.session.look(CLIENT, "q-1", NIL)
        case.reader.says(Started())
        await settle()
        return case.asked(), case.reader.signals

    assert play(partial(scenario, again=False)) == ([], [9])
    assert play(partial(scenario, again=True)) == (["q-1"], [])


def test_a_question_that_comes_while_it_falls_asleep_keeps_nobody_awake():
    """Nor does one that its process takes along: a reader is asked then."""

    async def scenario():
        case = Asleep()
        await case.reach(Phase.UP)
        case.session.look(CLIENT, "q-1", NIL)
        await case.do("idle")
        case.session.look(CLIENT, "q-2", NIL)
        for step in ("died", "gone", "hibernated"):
            await case.do(step)
        case.reader.says(Started())
        return case

    case = play(scenario)

    assert case.session.phase is Phase.HIBERNATED
    assert case.asked() == ["q-1", "q-2"]


def test_the_end_of_a_session_is_the_end_of_its_reader():
    """Who asked learns that it ended."""

    async def scenario():
        case = await Asleep().begin()
        await case.do("over")
        case.reader.ends(-9)
        await settle()
        return case

    case = play(scenario)

    assert case.reader.signals[0] == 9
    assert [frame.code for _, frame in case.services.answers] == ["session_not_alive"]


class Ended:
    """A session that has ended, and is known as long as it is read."""

    def __init__(self):
        self.services = Services()
        self.known = EndedSessions(self.services)

    @property
    def session(self):
        return self.known.of(ROW, LEFT)

    @property
    def reader(self):
        return self.services.worker

    @property
    def answers(self):
        return [(type(frame), frame.id) for _, frame in self.services.answers]

    async def begin(self):
        self.session.look(CLIENT, "q-1", NIL)
        await settle()
        return self


LEFT = Shutdown(detail="enough")
ROW = SessionRow(session_id="s", created_ms=0, spec=spec_bytes(spec()), incarnation=2, restarts=1)


def test_a_session_that_has_ended_is_read_as_it_was():
    """It is known until its reader is gone; the next question then makes it known anew."""

    async def scenario():
        case = await Ended().begin()
        before = case.session
        case.session.look(CLIENT, "q-1", NIL)
        case.reader.says(Started())
        case.session.look(CLIENT, "q-2", NIL)
        asked = [one.id for one in case.reader.sent if isinstance(one, Deliver)]
        for question in asked:
            case.reader.says(Answer(id=question, body=b"\xc0"))
        stays = case.session is before
        before.close()
        case.reader.ends(-9)
        await settle()
        return case, asked, stays, case.session is before

    case, asked, stays, stays_behind = play(scenario)
    assign = case.reader.sent[0]

    assert (assign.looks, assign.incarnation, assign.restarts) == (True, 2, 1)
    assert assign.last_reason == LEFT
    assert asked == ["q-1", "q-2"]
    assert case.answers == [(ValueReply, "q-1"), (ValueReply, "q-2")]
    assert (stays, stays_behind) == (True, False)


def test_readers_of_an_ended_session_leave_out_what_has_killed_two():
    """And who asked gets an error where none comes through."""

    async def scenario():
        case = await Ended().begin()
        for step in [4] * DEATHS_MAX:
            case.reader.ends(-9, step=step)
            await settle()
        set_aside = case.reader.sent[0].set_aside
        case.reader.ends(-9)
        await settle()
        return case, set_aside

    case, set_aside = play(scenario)
    ((_, failed),) = case.services.answers

    assert set_aside == (4,)
    assert (failed.id, failed.code) == ("q-1", TransientError.code)
    assert failed.message.startswith("session s has ended, and ")


def test_an_ended_session_that_goes_on_under_its_id_is_read_no_more():
    """Who asked gets an error at once, and its reader is ended; others are as they were."""

    async def scenario():
        case = await Ended().begin()
        case.known.forget("s")
        case.known.forget("other")
        return case, list(case.answers)

    case, answers = play(scenario)

    assert answers == [(FailedReply, "q-1")]
    assert case.reader.signals == [9]


def test_a_status_that_is_no_status_is_not_kept():
    """It is the agent's own, and opaque; only its size is known."""

    async def scenario(size):
        case = Asleep()
        await case.reach(Phase.UP)
        case.session.process_idle(case.session._process, b"s" * size)
        for step in ("died", "gone", "hibernated"):
            await case.do(step)
        return case.session.info().asleep

    assert play(lambda: scenario(10)) == b"s" * 10
    assert play(lambda: scenario(2**20)) == b""
