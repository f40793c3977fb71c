"""A child and its parent while the child is written down, with a real journal that is slow."""

import asyncio
import contextlib

import msgspec
import pytest
import zmq

from cmdc_runtime.errors import CmdcError, SessionNotAlive, StartFailed, TransientError
from cmdc_runtime.reasons import Shutdown
from cmdc_runtime.requests import StartSession, Supervision
from supervisor.adapters.hub import Hub
from supervisor.adapters.journal.base import JournalFailed
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.core import lifecycle
from supervisor.core.lifecycle import Life, Phase
from supervisor.session import Session
from supervisor.sessions import Sessions

WAIT_S = 10.0


class SlowJournal(SqliteJournal):
    """A journal whose ``create`` waits until the test lets it go on, or fail."""

    def __init__(self, directory):
        super().__init__(directory, durability="process")
        self.is_reached = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.problem = None

    async def create(self, row):
        self.is_reached.set()
        await self.may_go_on.wait()
        if self.problem is not None:
            raise self.problem
        await super().create(row)


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
        sessions = Sessions(None, hub, journal, sessions_max=10)
        life = Life(Supervision(), incarnation=1, was_up=True)
        parent = sessions.live["parent"] = Session(sessions, spec("parent"), life, 0, phase)
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
            parent.take(lifecycle.Stop("normal", 1.0))
            sessions.journal.may_go_on.set()
            with pytest.raises(StartFailed) as caught:
                await start
            row = await sessions.journal.find("child")
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


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.ENDED])
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
        Phase.STARTING: JournalFailed,
        Phase.UP: JournalFailed,
        Phase.STOPPING: SessionNotAlive,
        Phase.ENDING: SessionNotAlive,
    }

    assert kind is expected.get(phase, TransientError)
    assert children == set()
