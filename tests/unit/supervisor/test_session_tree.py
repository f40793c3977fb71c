"""A session in the real tree, with workers that do what a test says: what comes between two steps.

Every test ends with the session over and all who waited for it notified, or with it as it was.
"""

import asyncio

import msgspec
import pytest

from cmdc_runtime.errors import CmdcError, StartFailed
from cmdc_runtime.reasons import (
    Normal,
    NurseryLost,
    Shutdown,
    Signal,
    Unkillable,
)
from cmdc_runtime.wire.frames import FailedReply, IdleNotice, Started, Terminate
from supervisor.adapters.journal.operations import LoadSession
from supervisor.adapters.zygote import ZygoteLost as ZygoteDied
from supervisor.core.session_phase import Phase
from supervisor.core.session_tree import AGENT
from supervisor.core.tree.messages import Timer, TimerKind
from tests.unit.supervisor.services import (
    CLIENT,
    NO_PROCESS,
    asleep,
    begin,
    play,
    services_with_tree,
    session_of,
    settle,
    up,
)

KILLED = Signal(number=9, name="SIGKILL")


async def fail():
    raise LookupError("a bug")


def test_session_that_is_stopped_before_it_is_in_the_tree_is_reported_to_its_monitors():
    """Who watched it while it was written down hears of its end, once."""

    async def scenario():
        services = services_with_tree()
        session = session_of(services)
        session.stop("normal", 1.0)
        session.begun(NO_PROCESS)
        with pytest.raises(StartFailed):
            await session.started
        return services.notices, services.forgotten, session.ended.result()

    notices, forgotten, ended = play(scenario)

    assert notices == [(Normal(), 0, False)]
    assert forgotten == [Normal()]
    assert ended == Normal()


def test_start_that_sigkill_does_not_end_ends_the_session():
    """No other process takes its place, so nobody waits for one."""

    async def scenario():
        services = services_with_tree()
        session = session_of(services)
        session.was_up, session.incarnation = True, 4  # of an earlier daemon: its start is tried
        begin(session)
        await settle()
        services.runtime._due(Timer(session.path, AGENT, TimerKind.START))
        services.runtime._due(Timer(session.path, AGENT, TimerKind.UNKILLABLE))
        session._tasks.spawn(fail())
        await settle()
        return services.notices, session.ended.done(), session.phase, services.worker.signals

    notices, is_over, phase, signals = play(scenario)

    assert [(type(reason), restarting) for reason, _, restarting in notices] == [
        (Unkillable, False)
    ]
    assert is_over
    assert phase is Phase.ENDED
    assert signals == [9], "a task that fails afterwards ends nothing"


@pytest.mark.parametrize("grace_s", [0.0, 5.0])
def test_stop_while_a_worker_is_acquired(grace_s):
    """It ends at once, as its caller said, and the worker that comes later is given back."""

    async def scenario():
        services = services_with_tree()
        services.pool.is_open.clear()
        session = session_of(services)
        begin(session)
        await settle()
        session.stop("enough", grace_s)
        reason = await session.ended
        services.pool.is_open.set()
        await settle()
        return reason, services.notices, services.pool.released == services.pool.workers

    reason, notices, is_given_back = play(scenario)

    assert reason == Shutdown(detail="enough")
    assert notices == [(Shutdown(detail="enough"), 1, False)]
    assert is_given_back


def test_stop_while_a_worker_is_briefed():
    """The process is asked to end before it learns who it is, and its end is the session's."""

    async def scenario():
        services = services_with_tree()
        session = session_of(services)
        session.was_up, session.incarnation = True, 1
        loaded = asyncio.get_running_loop().create_future()
        services.journal.answers[LoadSession] = lambda _query: loaded
        begin(session)
        await settle()
        session.stop("normal", 5.0)
        loaded.set_result(None)
        await settle()
        frames = [type(one) for one in services.worker.sent]
        services.worker.says(Started())  # too late: nothing comes of it
        services.worker.ends()
        await settle()
        return frames, session.was_up, services.notices

    frames, _, notices = play(scenario)

    assert frames[0] is Terminate
    assert [restarting for _, _, restarting in notices] == [False]


def test_zygote_that_dies_over_a_first_start_fails_it():
    """The caller learns why, and nothing is left."""

    async def scenario():
        services = services_with_tree()
        services.pool.problems.append(ZygoteDied("it died"))
        session = session_of(services)
        begin(session)
        with pytest.raises(StartFailed) as caught:
            await session.started
        return caught.value.reason, services.notices, session.phase

    reason, notices, phase = play(scenario)

    assert reason == NurseryLost()
    assert notices == [(NurseryLost(), 1, False)]
    assert phase is Phase.ENDED


def test_an_acquisition_that_fails_for_a_bug_fails_the_start():
    """Nobody waits for the tree's own limit, which is minutes."""

    async def scenario():
        services = services_with_tree()
        services.pool.problems.append(RuntimeError("a bug"))
        session = session_of(services)
        begin(session)
        with pytest.raises(StartFailed):
            await session.started
        return [restarting for _, _, restarting in services.notices]

    assert play(scenario) == [False]


def test_end_that_cannot_be_judged_for_a_bug_is_an_end_all_the_same():
    """The next process comes; without that the session would be up for ever."""

    async def scenario():
        services = services_with_tree()
        session = session_of(services)
        begin(session)
        worker = await up(session)

        async def broken(_session_id):
            raise RuntimeError("a bug")

        services.hub.flushed = broken
        worker.ends(-9)
        await settle()
        return session.phase, session.incarnation, services.notices

    phase, incarnation, notices = play(scenario)

    assert (phase, incarnation) == (Phase.STARTING, 2)
    assert [restarting for _, _, restarting in notices] == [True]


def test_crash_while_it_hibernates_is_no_end():
    """It was idle: nobody is notified, and the next command starts another process."""

    async def scenario():
        services = services_with_tree()
        session = session_of(services)
        begin(session)
        worker = await up(session)
        worker.says(IdleNotice())
        session.deliver(CLIENT, "c-1", msgspec.Raw(b"\xc0"), durable=False)
        worker.ends(-11)
        await settle()
        return (
            services.notices,
            services.sleeps,
            session.phase,
            session.incarnation,
            session.restarts,
        )

    assert play(scenario) == ([], 1, Phase.STARTING, 2, 0)


@pytest.mark.parametrize("is_asleep", [False, True])
def test_stop_of_a_session_that_falls_asleep_or_sleeps(is_asleep):
    """One Down, with the caller's reason, whenever the stop comes; who sleeps has no process."""

    async def scenario():
        services = services_with_tree()
        session = session_of(services)
        begin(session)
        worker = await up(session)
        worker.says(IdleNotice())
        if is_asleep:
            worker.ends()
            await settle()
        session.stop("normal", 5.0)
        if not is_asleep:
            worker.ends()
        await settle()
        (down,) = services.downs
        return services.notices, await session.ended, down.record is None

    assert play(scenario) == ([(Normal(), 1, False)], Normal(), is_asleep)


def test_each_down_has_the_record_of_its_own_process():
    """It goes through the tree with the end that it is of, and is not looked for afterwards."""

    async def scenario():
        services = services_with_tree()
        session = session_of(services)
        begin(session)
        pids = []
        for status in (-9, -11):
            worker = await up(session)
            pids.append(worker.pid)
            worker.ends(status)
            await settle()
        return pids, [(one.record.pid, one.record.status) for one in services.downs]

    (first, second), records = play(scenario)

    assert records == [(first, -9), (second, -11)]


def test_temporary_session_sleeps_and_wakes_and_ends_with_its_process():
    """Its specification is kept while it sleeps, and only then."""

    async def scenario():
        services = services_with_tree()
        session = session_of(services, restart="temporary")
        begin(session)
        await up(session)
        await asleep(session)
        session.deliver(CLIENT, "c-1", msgspec.Raw(b"\xc0"), durable=False)
        worker = await up(session)
        phases = [session.phase]
        worker.ends(-9)
        await settle()
        return phases, session.phase, services.notices, session.incarnation

    assert play(scenario) == ([Phase.UP], Phase.ENDED, [(KILLED, 2, False)], 2)


def test_permanent_session_comes_back_from_a_normal_end_and_ends_when_asked():
    """Nothing of it is significant; a stop is a stop."""

    async def scenario():
        services = services_with_tree()
        session = session_of(services, restart="permanent")
        begin(session)
        worker = await up(session)
        worker.ends()
        await settle()
        phase = session.phase
        session.stop("normal", 5.0)
        services.worker.ends()
        await session.ended
        return phase, [restarting for _, _, restarting in services.notices]

    assert play(scenario) == (Phase.STARTING, [True, False])


def test_stop_during_the_back_off_is_reported_as_the_last_end():
    """A Down said that another process follows; the next one says that none does."""

    async def scenario():
        services = services_with_tree()
        session = session_of(services, restart_delay=(60.0, 60.0))
        begin(session)
        for _ in range(2):
            worker = await up(session)
            worker.ends(-9)
            await settle()
        phase = session.phase
        session.stop("enough", 1.0)
        await session.ended
        return phase, services.notices, session.restarts

    phase, notices, restarts = play(scenario)

    assert phase is Phase.RESTARTING
    assert notices == [
        (KILLED, 1, True),
        (KILLED, 2, True),
        (Shutdown(detail="enough"), 2, False),
    ]
    assert restarts == 2


def test_commands_that_wait_are_answered_when_it_ends():
    """Whatever it was about to do."""

    async def scenario():
        services = services_with_tree()
        services.pool.is_open.clear()
        session = session_of(services)
        begin(session)
        session.deliver(CLIENT, "c-1", msgspec.Raw(b"\xc0"), durable=False)
        session.deliver(CLIENT, "c-2", msgspec.Raw(b"\xc0"), durable=True)
        session.stop("normal", 1.0)
        await session.ended
        return sorted((frame.id, type(frame)) for _, frame in services.answers)

    assert play(scenario) == [("c-1", FailedReply), ("c-2", FailedReply)]


def test_root_that_stops_ends_everything_and_writes_nothing_down():
    """A daemon that leaves sends no Down and closes no history: the next one goes on."""

    async def scenario():
        services = services_with_tree()
        sessions = [session_of(services, name) for name in ("up", "asleep", "acquiring")]
        for session in sessions[:2]:
            begin(session)
            await up(session)
        await asleep(sessions[1])
        services.pool.is_open.clear()
        begin(sessions[2])
        await settle()
        services.is_leaving = True
        services.runtime.stop("the daemon is stopping", 10.0)
        services.pool.workers[0].ends()
        await services.runtime.ended
        return [session.phase for session in sessions]

    assert play(scenario) == [Phase.ENDED] * 3


def test_nothing_is_left_in_the_runtime_of_sessions_that_ended():
    """Posts, callbacks and timers go with them, whatever became of their start."""

    async def scenario():
        services = services_with_tree()
        for number in range(3):
            session = session_of(services, f"s{number}")
            begin(session)
            await up(session)
            session.stop("normal", 5.0)
            services.worker.ends()
            await session.ended
        services.pool.problems.append(CmdcError("no"))
        begin(session_of(services, "failed"))
        child = session_of(services, "c")
        child.path = ("sessions", "session:nobody", "subagents", "session:c")
        begin(child)
        await settle()
        runtime = services.runtime
        return (
            list(runtime._handlers),
            runtime._on_end,
            runtime._timers,
            runtime.tree.which_children(),
        )

    handlers, on_end, timers, _ = play(scenario)

    assert handlers == [()]
    assert on_end == {}
    assert timers == {}
