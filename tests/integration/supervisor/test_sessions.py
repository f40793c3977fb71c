"""A child and its parent while the child is written down, with a real journal that is slow."""

import asyncio
import contextlib

import msgspec
import pytest
import zmq

from cmdc_runtime.errors import (
    CmdcError,
    InvalidOptions,
    SessionNotAlive,
    StartFailed,
    TransientError,
)
from cmdc_runtime.reasons import Normal, Shutdown
from cmdc_runtime.requests import Monitor, StartSession, Supervision
from supervisor.adapters.hub import Hub
from supervisor.adapters.journal.base import JournalFailed, SessionRow
from supervisor.adapters.journal.operations import (
    CreateSession,
    FindNewestDown,
    FindSession,
    ListLiveSessions,
)
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.core.limits import SESSIONS_DEEP_MAX
from supervisor.core.session_phase import Phase
from supervisor.core.session_tree import session_path
from supervisor.core.tree.messages import CallResult, Outcome
from supervisor.sessions.adoption import Adoption
from supervisor.sessions.assignment import spec_bytes
from supervisor.sessions.monitors import MonitorService
from supervisor.sessions.session import Session
from supervisor.sessions.sessions import Sessions
from tests.unit.supervisor.services import PlayedPool, begun_runtime

WAIT_S = 10.0


class SlowJournal(SqliteJournal):
    """A journal where a session is created when the test lets it go on, or fails."""

    def __init__(self, directory):
        super().__init__(directory, durability="process")
        self.is_reached = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.problem = None

    def write(self, operation):
        if not isinstance(operation, CreateSession):
            return super().write(operation)
        return self._create(operation)

    async def _create(self, operation):
        self.is_reached.set()
        await self.may_go_on.wait()
        if self.problem is not None:
            raise self.problem
        await super().write(operation)


class WithNotices(Sessions):
    """Sessions with what their monitors were sent, in ``notices``."""


def spec(session_id, parent_id=None):
    return StartSession(
        session_id=session_id,
        supervision=Supervision(),
        agent=msgspec.Raw(b"\xc0"),
        carries_code=False,
        parent_id=parent_id,
    )


@contextlib.asynccontextmanager
async def begun(tmp_path, phase=Phase.UP):
    """Sessions with one parent in ``phase``, and the start of a child of it under way."""
    journal = SlowJournal(tmp_path)
    await journal.open()
    with zmq.Context() as context:
        hub = Hub(context, journal)
        runtime = begun_runtime()
        sessions = WithNotices(runtime, None, hub, journal, None, sessions_max=10)
        sessions.notices = []
        sessions.monitors = MonitorService(
            journal,
            sessions.look_up,
            lambda _client, one: sessions.notices.append(one.down) or True,
        )
        parent = Session(sessions, spec("parent"), session_path(None, "parent"), 0)
        parent.phase, parent.incarnation = phase, 1
        sessions.live["parent"] = parent
        start = asyncio.create_task(sessions.start(spec("child", "parent")))
        try:
            yield sessions, parent, start
        finally:
            await asyncio.gather(start, return_exceptions=True)
            await journal.close()
            hub.close()


def test_child_whose_parent_ends_while_it_is_written_down_never_starts(tmp_path):
    """It is known to its parent before anything is waited for."""

    async def main():
        async with asyncio.timeout(WAIT_S), begun(tmp_path) as (sessions, parent, start):
            await sessions.journal.is_reached.wait()
            parent.stop("normal", 1.0)
            sessions.journal.may_go_on.set()
            with pytest.raises(StartFailed) as caught:
                await start
            row = await sessions.journal.read(FindSession("child"))
            return caught.value.reason, row.ended_ms is not None, parent.children

    reason, has_ended, children = asyncio.run(main())

    assert isinstance(reason, Shutdown)
    assert has_ended
    assert children == set()


def test_child_that_cannot_be_written_down_is_forgotten(tmp_path):
    """Nobody waits for the end of what never was."""

    async def main():
        async with asyncio.timeout(WAIT_S), begun(tmp_path) as (sessions, parent, start):
            await sessions.journal.is_reached.wait()
            (child,) = parent.children
            sessions.journal.problem = JournalFailed("the disk is full")
            sessions.journal.may_go_on.set()
            with pytest.raises(JournalFailed):
                await start
            await child.ended
            return parent.children, set(sessions.live)

    assert asyncio.run(main()) == (set(), {"parent"})


@pytest.mark.parametrize("phase", list(Phase))
def test_child_needs_a_process_that_stays(tmp_path, phase):
    """Where the parent has none, or loses it, the start is refused with the reason."""

    async def refusal():
        async with asyncio.timeout(WAIT_S), begun(tmp_path, phase) as (sessions, parent, start):
            sessions.journal.problem = JournalFailed("reached")
            sessions.journal.may_go_on.set()
            with pytest.raises(CmdcError) as caught:
                await start
            return type(caught.value), parent.children

    kind, children = asyncio.run(refusal())
    expected = {
        Phase.UP: JournalFailed,
        Phase.STOPPING: SessionNotAlive,
        Phase.ENDING: SessionNotAlive,
        Phase.ENDED: SessionNotAlive,
    }

    assert kind is expected.get(phase, TransientError)
    assert children == set()


def test_who_watches_a_session_that_is_written_down_hears_that_it_never_began(tmp_path):
    """A monitor is set before the start has finished: one Down, with the reason of the end."""

    async def main():
        async with asyncio.timeout(WAIT_S), begun(tmp_path) as (sessions, parent, start):
            await sessions.journal.is_reached.wait()
            request = Monitor(session_id="child", ref="r-1", persistent=True)
            await sessions.monitors.set(request, b"client")
            parent.stop("normal", 1.0)
            sessions.journal.may_go_on.set()
            with pytest.raises(StartFailed):
                await start
            newest = await sessions.journal.read(FindNewestDown("child"))
            notices = [(down.reason, down.restarting) for down in sessions.notices]
            return notices, newest.restarting

    notices, restarting = asyncio.run(main())

    assert [(type(reason), is_restarting) for reason, is_restarting in notices] == [
        (Shutdown, False)
    ]
    assert restarting is False


def test_id_is_free_as_soon_as_its_session_is_over(tmp_path):
    """Its end is written down before a new one of that id, also in the same turn of the loop."""

    async def main():
        async with asyncio.timeout(WAIT_S), begun(tmp_path) as (sessions, _, start):
            sessions.journal.may_go_on.set()
            with pytest.raises(CmdcError):  # the parent was never in the tree
                await start
            row = await sessions.journal.read(FindSession("child"))
            again = sessions.live["child"] = Session(
                sessions, spec("child"), session_path(None, "child"), 0
            )
            again.begun(CallResult(Outcome.NO_PROCESS))
            await SqliteJournal.write(sessions.journal, CreateSession(row_of("child")))
            await sessions.journal.read(FindSession("child"))
            return row.ended_ms is not None, (
                await sessions.journal.read(FindSession("child"))
            ).ended_ms

    assert asyncio.run(main()) == (True, None)


def test_what_no_session_can_be_kept_by_leaves_nothing(tmp_path):
    """A client that checks nothing is refused, and the next daemon does not stumble over it."""

    async def main():
        async with asyncio.timeout(WAIT_S), begun(tmp_path) as (sessions, parent, start):
            sessions.journal.may_go_on.set()
            await asyncio.gather(start, return_exceptions=True)
            wrong = Supervision(max_restarts=-1)
            with pytest.raises(InvalidOptions, match="max_restarts"):
                await sessions.start(msgspec.structs.replace(spec("wrong"), supervision=wrong))
            deep = parent
            while True:
                deep = Session(sessions, spec("d"), session_path(deep.path, "d"), 0)
                deep.phase, deep.incarnation = Phase.UP, 1
                sessions.live["d"] = deep
                with contextlib.suppress(StartFailed):
                    try:
                        await sessions.start(spec("e", "d"))
                    except InvalidOptions:
                        break
            return (
                await sessions.journal.read(FindSession("wrong")),
                "wrong" in sessions.live,
                len(deep.path),
            )

    row, is_live, depth = asyncio.run(main())

    assert row is None
    assert not is_live
    assert depth == 2 + 2 * SESSIONS_DEEP_MAX


def test_session_that_cannot_be_resumed_does_not_stop_the_others(tmp_path):
    """It is left as it is, for a daemon that can; those beside it go on."""

    async def main():
        async with asyncio.timeout(WAIT_S), begun(tmp_path) as (sessions, _, start):
            sessions.journal.may_go_on.set()
            await asyncio.gather(start, return_exceptions=True)
            sessions.live.clear()
            sessions.pool = PlayedPool()
            sessions.pool.is_open.clear()
            wrong = msgspec.structs.replace(spec("wrong"), supervision=Supervision(max_seconds=0))
            rows = [row_of("good"), row_of("garbage", b"?"), row_of("wrong", spec_bytes(wrong))]
            for row in rows:
                await SqliteJournal.write(sessions.journal, CreateSession(row))
            resumed = (await Adoption(sessions, [], Normal()).run()).resumed
            alive = [row.session_id for row in await sessions.journal.read(ListLiveSessions())]
            downs = [
                await sessions.journal.read(FindNewestDown(name)) for name in ("garbage", "wrong")
            ]
            return resumed, list(sessions.live), alive, downs

    assert asyncio.run(main()) == (1, ["good"], ["good", "garbage", "wrong"], [None, None])


def row_of(session_id, data=None):
    return SessionRow(
        session_id=session_id,
        created_ms=0,
        spec=spec_bytes(spec(session_id)) if data is None else data,
        parent_id=None,
        group_id=None,
        incarnation=1,
    )
