"""How a session gets its process, beside what the tests of sessions say of new ones."""

import asyncio
from types import SimpleNamespace

import pytest

from cmdc_runtime.errors import Overloaded
from cmdc_runtime.reasons import Unkillable
from cmdc_runtime.wire.frames import Detached, Started
from supervisor.adapters.journal.operations import LoadSession
from supervisor.core.limits import INDEX_JUMP
from supervisor.core.session_phase import Phase
from supervisor.sessions.start_attempt import Inherited
from tests.unit.supervisor.services import (
    PlayedWorker,
    Services,
    begin,
    play,
    services_with_tree,
    session_of,
    settle,
)

STUCK = Unkillable(seconds=5.0, state="D", wchan="nfs_wait")


class Survivor:
    """An agent of an earlier daemon whose end takes as long as the test says."""

    pid = 7
    entry = SimpleNamespace(session_id="s", incarnation=1, worker_id="w-1")

    def __init__(self, stuck=None):
        self.stuck = stuck
        self.is_ended = False

    def end(self):
        self.is_ended = True
        return self.stuck


class Containments:
    """Cgroups of agents that are not kept; ``gate`` lets the end of one go on."""

    def __init__(self):
        self.gate = asyncio.Event()
        self.is_asked = asyncio.Event()

    async def end_leftover(self, _session_id, _incarnation):
        self.is_asked.set()
        await self.gate.wait()


def inheriting(left, adopt):
    """Return a session in its tree whose agent was left, and how many indexes were passed over."""
    services = services_with_tree()
    jumps = []
    services.hub.open_channel = lambda *_args: None
    services.hub.skip = lambda _session_id, count: jumps.append(count)
    services.pool.adopt = adopt
    services.pool.containments = Containments()
    session = session_of(services)
    session.was_up, session.inherited = True, Inherited(left, 3)
    begin(session)
    return session, jumps


def no_place(_left):
    raise Overloaded("the heartbeat table is full")


def test_an_agent_that_was_left_stays_the_agent():
    """It is the session's process when it is up; none is acquired, and no index is passed over."""

    async def scenario():
        worker = PlayedWorker(7)
        session, jumps = inheriting(Survivor(), lambda _left: worker)
        session.services.journal.answers[LoadSession] = lambda _query: asyncio.sleep(0)
        worker.says(Detached(worker_id="w-7", session_id="s", incarnation=1, first=6))
        worker.says(Started())
        await settle()
        return session.phase, session.worker is worker, session.services.pool.workers, jumps

    assert play(scenario) == (Phase.UP, True, [], [])


def test_an_agent_without_a_place_is_gone_before_the_next_process_is_started():
    """Its successor never runs beside what it has started, and uses none of its indexes again."""

    async def scenario():
        left = Survivor()
        session, jumps = inheriting(left, no_place)
        pool = session.services.pool
        await pool.containments.is_asked.wait()
        await settle()
        before = left.is_ended, len(pool.workers)
        pool.containments.gate.set()
        await settle()
        return before, len(pool.workers), session.incarnation, jumps

    assert play(scenario) == ((True, 0), 1, 2, [INDEX_JUMP])


@pytest.mark.parametrize("grace_s", [5.0, 0.0])
def test_a_session_may_be_stopped_while_that_goes_on(grace_s):
    """It ends at once, politely or not, and nothing takes the place."""

    async def scenario():
        session, _ = inheriting(Survivor(), no_place)
        session.stop("no need", grace_s)
        await settle()
        session.services.pool.containments.gate.set()
        await settle()
        return session.phase, len(session.services.pool.workers), len(session.services.forgotten)

    assert play(scenario) == (Phase.ENDED, 0, 1)


def test_no_process_takes_the_place_of_one_that_cannot_be_ended():
    """The session ends with what is known of where the old process hangs."""

    async def scenario():
        session, _ = inheriting(Survivor(STUCK), no_place)
        session.services.pool.containments.gate.set()
        await session.services.pool.containments.is_asked.wait()
        await settle()
        given = [one.reason for one in session.services.downs]
        return given[0], session.phase, len(session.services.pool.workers)

    assert play(scenario) == (STUCK, Phase.ENDED, 0)


def test_a_post_that_was_given_up_is_not_filled_any_more():
    """The worker that comes too late goes back."""

    async def scenario():
        session = session_of(Services())
        session.services.pool.is_open.clear()
        session.launch(SimpleNamespace(generation=1))
        attempt = session._start_attempt
        attempt.close()
        session.services.pool.is_open.set()
        await settle()
        return attempt.process, len(session.services.pool.released)

    assert play(scenario) == (None, 1)


def test_a_process_is_acquired_when_what_the_last_one_left_is_gone():
    """It may need what that had."""

    async def scenario():
        services = services_with_tree()
        services.pool.is_swept.clear()
        begin(session_of(services))
        await settle()
        before = len(services.pool.workers)
        services.pool.is_swept.set()
        await settle()
        return before, len(services.pool.workers)

    assert play(scenario) == (0, 1)
