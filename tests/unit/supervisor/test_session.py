"""What happens to a session in each of its phases: one table, phase x what happens.

A row without a cell for something says that it can't happen there: the tree reports a process only
while there is one.
"""

from functools import partial

import msgspec
import pytest

from cmdc_runtime.errors import SessionNotAlive, StartFailed, TransientError
from cmdc_runtime.process import HIBERNATE
from cmdc_runtime.reasons import NoProcess, Normal, Shutdown, Signal
from cmdc_runtime.wire.codec import decode
from cmdc_runtime.wire.frames import Deliver, FailedReply, IdleNotice, Started, Terminate, ToClient
from supervisor.core.session_phase import HAVING_CHILDREN, Phase
from supervisor.core.session_tree import AGENT
from supervisor.core.tree.messages import CallResult, Outcome, ProcessEnded, Ref, SupervisorEnded
from tests.unit.supervisor.services import CLIENT, NO_PROCESS, Services, play, session_of, settle

KILLED = Signal(number=9, name="SIGKILL")
NIL = msgspec.Raw(b"\xc0")
OVER = Shutdown(detail="its supervisor ended")


class Case:
    """One session on services whose tree decides nothing."""

    def __init__(self):
        self.services = Services()
        self.session = session_of(self.services)

    @property
    def ref(self):
        return Ref(self.session.path, AGENT, self.session.incarnation)

    async def reach(self, phase):
        """Bring the session into ``phase``, as the tree would."""
        for step in WAYS[phase]:
            await self.do(step)
        assert self.session.phase is phase

    async def do(self, step):
        getattr(self, step)()
        await settle()

    # --- what happens -----------------------------------------------------------------------

    def launch(self):
        self.session.launch(self.ref._replace(generation=self.session.incarnation + 1))

    def up(self):
        self.services.worker.says(Started())

    def idle(self):
        self.services.worker.says(IdleNotice())

    def died(self):
        self.services.worker.ends(-9)

    def again(self):
        self._gone(restarting=True)

    def gone(self):
        self._gone(restarting=False)

    def hibernated(self):
        self.session._hibernated(CallResult(Outcome.OK))

    def not_hibernated(self):
        self.session._hibernated(CallResult(Outcome.RESTARTING))

    def uncalled(self):
        self.session._hibernated(NO_PROCESS)

    def stop(self):
        self.session.stop("normal", 5.0)

    def ask(self):
        self.session.ask(self.ref, "the parent's process ended")

    def over(self):
        self.session.over(SupervisorEnded(self.session.path, OVER, OVER))

    def refused(self):
        self.session.begun(NO_PROCESS)

    def deliver(self):
        self.session.deliver(CLIENT, "c-1", NIL, durable=False)

    def _gone(self, *, restarting):
        restarts = self.session.restarts + restarting
        self.session.on_ended(
            ProcessEnded(
                ref=self.ref,
                reason=KILLED,
                restarting=restarting,
                asked=not restarting,
                restarts=restarts,
            )
        )


def stop_session(case):
    case.session.stop("normal", 1.0)
    case.ask()


def fall_asleep(case):
    case.idle()
    case.ask()


def leave(case):
    case.services.is_leaving = True
    case.ask()


@pytest.mark.parametrize(
    ("end", "over"), [(stop_session, True), (fall_asleep, False), (leave, False)]
)
def test_a_process_learns_whether_its_session_is_over(end, over):
    """Not when it hibernates, or goes on with the next daemon."""

    async def scenario():
        case = Case()
        await case.reach(Phase.UP)
        end(case)
        await settle()
        return case

    (asked,) = [one for one in play(scenario).services.worker.sent if isinstance(one, Terminate)]

    assert asked.over is over


WAYS = {
    Phase.STARTING: ("launch",),
    Phase.UP: ("launch", "up"),
    Phase.RESTARTING: ("launch", "up", "died", "again"),
    Phase.HIBERNATING: ("launch", "up", "idle"),
    Phase.HIBERNATED: ("launch", "up", "idle", "died", "gone", "hibernated"),
    Phase.STOPPING: ("launch", "up", "stop"),
    Phase.ENDING: ("launch", "up", "died", "gone"),
    Phase.ENDED: ("launch", "up", "died", "gone", "over"),
}
EXITED = f"exited: {KILLED} (crash)"
TERMINATE = "terminate session:s: normal within 5.0 s"
NOT_HIBERNATED = "terminate session:s: its idle process could not be ended: None within 0.0 s"
SAME = None
# fmt: off
# What happens -> (the phase after it, what the tree is asked, whether a Down is reported).
TABLE = {
    Phase.STARTING: {
        "up":             (Phase.UP,           ("up",),      0),
        "idle":           (SAME,               (),           0),
        "died":           (SAME,               (EXITED,),    0),
        "again":          (Phase.RESTARTING,   (),           1),
        "gone":           (Phase.ENDING,       (),           1),
        "hibernated":     (SAME,               (),           0),
        "not_hibernated": (SAME,               (),           0),
        "uncalled":       (SAME,               (),           0),
        "stop":           (Phase.STOPPING,     (TERMINATE,), 0),
        "ask":            (Phase.STOPPING,     (),           0),
        "over":           (Phase.ENDED,        (),           1),
        "refused":        (Phase.ENDED,        (),           1),
        "deliver":        (SAME,               (),           0),
    },
    Phase.UP: {
        "up":             (SAME,               (),           0),
        "idle":           (Phase.HIBERNATING,  ("hibernate",), 0),
        "died":           (SAME,               (EXITED,),    0),
        "again":          (Phase.RESTARTING,   (),           1),
        "gone":           (Phase.ENDING,       (),           1),
        "hibernated":     (SAME,               (),           0),
        "not_hibernated": (SAME,               (),           0),
        "uncalled":       (SAME,               (),           0),
        "stop":           (Phase.STOPPING,     (TERMINATE,), 0),
        "ask":            (Phase.STOPPING,     (),           0),
        "over":           (Phase.ENDED,        (),           1),
        "deliver":        (SAME,               (),           0),
    },
    Phase.RESTARTING: {
        "launch":         (Phase.STARTING,     (),           0),
        "up":             (SAME,               (),           0),
        "idle":           (SAME,               (),           0),
        "gone":           (Phase.ENDING,       (),           1),
        "hibernated":     (SAME,               (),           0),
        "not_hibernated": (SAME,               (),           0),
        "uncalled":       (SAME,               (),           0),
        "stop":           (Phase.STOPPING,     (TERMINATE,), 0),
        "over":           (Phase.ENDED,        (),           1),
        "deliver":        (SAME,               (),           0),
    },
    Phase.HIBERNATING: {
        "up":             (SAME,               (),           0),
        "idle":           (SAME,               (),           0),
        "died":           (SAME,               (EXITED,),    0),
        "gone":           (SAME,               (),           0),
        "hibernated":     (Phase.HIBERNATED,   (),           0),
        "not_hibernated": (Phase.STOPPING,     (NOT_HIBERNATED,), 0),
        "uncalled":       (Phase.STOPPING,     (),           0),
        "stop":           (Phase.STOPPING,     (TERMINATE,), 0),
        "ask":            (SAME,               (),           0),
        "over":           (Phase.ENDED,        (),           1),
        "deliver":        (SAME,               (),           0),
    },
    Phase.HIBERNATED: {
        "launch":         (Phase.STARTING,     (),           0),
        "up":             (SAME,               (),           0),
        "idle":           (SAME,               (),           0),
        "hibernated":     (SAME,               (),           0),
        "not_hibernated": (SAME,               (),           0),
        "uncalled":       (SAME,               (),           0),
        "stop":           (Phase.STOPPING,     (TERMINATE,), 0),
        "over":           (Phase.ENDED,        (),           1),
        "deliver":        (Phase.STARTING,     ("wake",),    0),
    },
    Phase.STOPPING: {
        "up":             (SAME,               (),           0),
        "idle":           (SAME,               (),           0),
        "died":           (SAME,               (EXITED,),    0),
        "gone":           (Phase.ENDING,       (),           1),
        "hibernated":     (SAME,               (),           0),
        "not_hibernated": (SAME,               (),           0),
        "uncalled":       (SAME,               (),           0),
        "stop":           (SAME,               (TERMINATE,), 0),
        "ask":            (SAME,               (),           0),
        "over":           (Phase.ENDED,        (),           1),
        "refused":        (Phase.ENDED,        (),           1),
        "deliver":        (SAME,               (),           0),
    },
    Phase.ENDING: {
        "up":             (SAME,               (),           0),
        "idle":           (SAME,               (),           0),
        "hibernated":     (SAME,               (),           0),
        "not_hibernated": (SAME,               (),           0),
        "uncalled":       (SAME,               (),           0),
        "stop":           (SAME,               (TERMINATE,), 0),
        "over":           (Phase.ENDED,        (),           0),
        "deliver":        (SAME,               (),           0),
    },
    Phase.ENDED: {
        "up":             (SAME,               (),           0),
        "idle":           (SAME,               (),           0),
        "hibernated":     (SAME,               (),           0),
        "not_hibernated": (SAME,               (),           0),
        "uncalled":       (SAME,               (),           0),
        "stop":           (SAME,               (),           0),
        "over":           (SAME,               (),           0),
        "refused":        (SAME,               (),           0),
    },
}
# fmt: on
CELLS = [(phase, what) for phase, row in TABLE.items() for what in row]


def test_table_is_total_over_phases():
    """Every phase has a way and a row, and each says what a stop and the supervisor's end are."""
    assert set(TABLE) == set(WAYS) == set(Phase)
    assert all({"stop", "over", "hibernated"} <= set(row) for row in TABLE.values())


@pytest.mark.parametrize(("phase", "what"), CELLS)
def test_cell(phase, what):
    """The phase that follows, what the tree is asked, and who is notified."""

    async def scenario():
        case = Case()
        await case.reach(phase)
        made, reported = len(case.services.runtime.made), len(case.services.downs)
        await case.do(what)
        asked = tuple(case.services.runtime.made[made:])
        return case.session.phase, asked, len(case.services.downs) - reported

    after, asked, reported = TABLE[phase][what]

    assert play(scenario) == (after or phase, asked, reported)


@pytest.mark.parametrize("phase", list(Phase))
def test_only_a_process_that_stays_may_have_children(phase):
    """The error says whether it is worth trying again."""

    async def scenario():
        case = Case()
        await case.reach(phase)
        case.session.check_child(1)

    over = {Phase.STOPPING, Phase.ENDING, Phase.ENDED}
    if phase in HAVING_CHILDREN:
        play(scenario)
    else:
        with pytest.raises(SessionNotAlive if phase in over else TransientError):
            play(scenario)


def test_polite_request_says_why():
    """The words of a stop, of a parent's end and of hibernation reach the process."""

    async def words(*steps):
        case = Case()
        for step in steps:
            await case.do(step)
        return [one.reason for one in case.services.worker.sent if isinstance(one, Terminate)]

    assert play(lambda: words("launch", "up", "ask")) == ["the parent's process ended"]
    assert play(lambda: words("launch", "ask")) == ["the parent's process ended"]


@pytest.mark.parametrize(
    ("stopped", "said", "reported"),
    [
        ("normal", Shutdown(detail=HIBERNATE), Normal()),
        ("enough", Shutdown(detail=HIBERNATE), Shutdown(detail="enough")),
        ("normal", Normal(), Normal()),
        ("normal", Shutdown(detail="normal"), Normal()),
        ("enough", KILLED, KILLED),
    ],
)
def test_caller_s_reason_stands_for_what_only_obeyed(stopped, said, reported):
    """A process that hibernates when it is stopped says so; a crash stays what it is."""

    async def scenario():
        case = Case()
        await case.reach(Phase.HIBERNATING)
        case.session.stop(stopped, 5.0)
        ended = ProcessEnded(ref=case.ref, reason=said, restarting=False, asked=True, restarts=0)
        case.session.on_ended(ended)
        return case.session.last_reason

    assert play(scenario) == reported


def test_commands_wait_for_a_process_and_then_for_the_answer():
    """What came before it was up is given to it in order; what comes after that at once."""

    async def scenario():
        case = Case()
        await case.reach(Phase.STARTING)
        case.session.deliver(CLIENT, "c-1", NIL, durable=False)
        case.session.deliver(CLIENT, "c-2", NIL, durable=True)
        await case.do("up")
        case.session.deliver(CLIENT, "c-3", NIL, durable=False)
        return [one.id for one in case.services.worker.sent if isinstance(one, Deliver)]

    assert play(scenario) == ["c-1", "c-2", "c-3"]


def test_question_that_two_processes_died_with_is_refused_for_good():
    """The next process is not given it, nor is it by a copy that comes late."""

    async def scenario():
        case = Case()
        await case.reach(Phase.UP)
        give = partial(case.session.deliver, body=NIL, durable=False)
        give(CLIENT, "c-1")
        for _ in range(2):
            for step in ("died", "again", "launch", "up"):
                await case.do(step)
        give(b"again", "c-1")
        return case

    case = play(scenario)
    sent = [
        [one.id for one in each.sent if isinstance(one, Deliver)]
        for each in case.services.pool.workers
    ]
    [(first, refusal), (second, copy)] = case.services.answers
    assert sent == [["c-1"], ["c-1"], []]
    assert (first, second, refusal) == (CLIENT, b"again", copy)
    assert decode(ToClient, refusal).code == "command_dropped"
    assert case.session.phase is Phase.UP


def test_command_that_comes_while_it_falls_asleep_wakes_it():
    """It is no end: as soon as the process is gone another one is asked for."""

    async def scenario():
        case = Case()
        await case.reach(Phase.HIBERNATING)
        case.session.deliver(CLIENT, "c-1", NIL, durable=True)
        for step in ("died", "gone", "hibernated"):
            await case.do(step)
        return case.session.phase, case.services.runtime.made[-1], case.services.sleeps

    assert play(scenario) == (Phase.STARTING, "wake", 1)


def test_busy_session_and_one_with_children_stay():
    """Whoever waits for an answer, or belongs to the process, depends on it."""

    async def phase_of(*, commands, children):
        case = Case()
        await case.reach(Phase.UP)
        for number in range(commands):
            case.session.deliver(CLIENT, f"c-{number}", NIL, durable=False)
        case.session.children |= set(range(children))
        await case.do("idle")
        return case.session.phase

    assert play(lambda: phase_of(commands=1, children=0)) is Phase.UP
    assert play(lambda: phase_of(commands=0, children=1)) is Phase.UP
    assert play(lambda: phase_of(commands=0, children=0)) is Phase.HIBERNATING


def test_session_that_could_not_be_written_down_answers_who_waits():
    """There is none, and nobody waits for its end."""

    async def scenario():
        case = Case()
        case.session.deliver(CLIENT, "c-1", NIL, durable=False)
        case.session.unwritten(TransientError("the disk is full"))
        case.session.stop("normal", 1.0)
        return await case.session.ended, [type(frame) for _, frame in case.services.answers]

    assert play(scenario) == (NoProcess(), [FailedReply])


def test_callers_of_a_start_hear_what_became_of_it():
    """One that ends before it was up has failed; one that was up has ended."""

    async def outcome(*steps):
        case = Case()
        for step in steps:
            await case.do(step)
        case.session.deliver(CLIENT, "c-1", NIL, durable=False)
        await case.do("over")
        (_, failed) = case.services.answers[-1]
        return failed.code

    assert play(lambda: outcome("launch")) == StartFailed.code
    assert play(lambda: outcome("launch", "up")) == SessionNotAlive.code
