"""Which agents of an earlier daemon are kept: with a real journal, tree and hub, and no process."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from types import SimpleNamespace

import msgspec
import pytest
import zmq

from cmdc_runtime.frames import Adrift, Started
from cmdc_runtime.reasons import Other
from cmdc_runtime.requests import StartSession, Supervision
from supervisor.adapters.hub import Hub
from supervisor.adapters.journal.base import DownRow, SessionRow
from supervisor.adapters.journal.memory import MemoryJournal
from supervisor.core.household import root_spec
from supervisor.keeper import Keeper
from supervisor.sessions import Sessions
from supervisor.specs import spec_bytes
from supervisor.takeover import TakenOver, TakeOver
from supervisor.watchers import Watchers
from tests.unit.supervisor.desk import PID_FIRST, Worker, Workforce

WAIT_S = 10.0
CALLS, DIES = "calls", "dies"


class NoNursery:
    """The post of a nursery that never gets warm, so nothing new is hired."""

    def launch(self, ref):
        pass


@dataclass(eq=False)
class Agent:
    """An agent that a dead daemon left, and what it does when it is taken in."""

    session_id: str
    incarnation: int = 1
    speaks: bool = True
    does: str = CALLS
    ends: list = field(default_factory=list)

    pid = PID_FIRST

    @property
    def entry(self):
        return SimpleNamespace(session_id=self.session_id, incarnation=self.incarnation)

    def end(self):
        self.ends.append("ended")


class Takers(Workforce):
    """Takes agents in, which then call or die; nothing new is ever hired."""

    def __init__(self):
        super().__init__()
        self.is_open.clear()
        self.taken = []
        self.wards = SimpleNamespace(forsake=self._forsake)

    async def _forsake(self, session_id, incarnation):
        pass

    def take_in(self, agent):
        worker = Worker(agent.pid)
        self.taken.append(agent)
        asyncio.get_running_loop().call_soon(self._does, agent, worker)
        return worker

    def _does(self, agent, worker):
        if agent.does == DIES:
            worker.ends(-9)
            return
        called = Adrift(
            worker_id=worker.id, session_id=agent.session_id, incarnation=agent.incarnation, first=1
        )
        worker.says(called)
        worker.says(Started())


def row_of(session_id, incarnation=1, parent_id=None):
    spec = StartSession(
        session_id=session_id,
        supervision=Supervision(),
        agent=msgspec.Raw(b"\xc0"),
        carries_code=False,
        parent_id=parent_id,
    )
    return SessionRow(
        session_id=session_id,
        created_ms=0,
        spec=spec_bytes(spec),
        parent_id=parent_id,
        incarnation=incarnation,
    )


@contextlib.asynccontextmanager
async def begun(rows, downs=()):
    """The sessions of a daemon that has just begun, with this in its journal."""
    journal = MemoryJournal()
    await journal.open()
    for row in rows:
        await journal.create(row)
    for down in downs:
        await journal.note_down(down)
    with zmq.Context() as context:
        hub = Hub(context, journal)
        keeper = Keeper(root_spec(NoNursery()), lambda _report: None)
        keeper.begin()
        sessions = Sessions(keeper, Takers(), hub, journal, None, sessions_max=10)
        sessions.watchers = Watchers(journal, sessions.look_up, lambda *_notice: True)
        try:
            yield sessions
        finally:
            await journal.close()
            hub.close()


def taken_over(rows, agents, downs=()):
    """Return what became of it, the agents that were kept, and those that were ended."""

    async def main():
        async with asyncio.timeout(WAIT_S), begun(rows, downs) as sessions:
            result = await TakeOver(sessions, agents, Other(detail="gone")).run()
            return result, sessions

    result, sessions = asyncio.run(main())
    taken = sessions.workforce.taken
    ended = [agent for agent in agents if agent.ends]
    assert all(agent.ends in ([], ["ended"]) for agent in agents)
    return result, taken, ended


@pytest.mark.parametrize(
    ("agent", "is_kept"),
    [
        (Agent("s", incarnation=3), True),
        (Agent("s", incarnation=2), False),
        (Agent("s", incarnation=4), False),
        (Agent("s", incarnation=3, speaks=False), False),
        (Agent("other", incarnation=3), False),
    ],
)
def test_only_the_process_that_the_journal_knows_is_kept(agent, is_kept):
    """One of another incarnation, wire or session is ended, and a new one takes its place."""
    result, taken, ended = taken_over([row_of("s", incarnation=3)], [agent])

    assert (taken, ended) == (([agent], []) if is_kept else ([], [agent]))
    assert result == TakenOver(resumed=1, adopted=int(is_kept))


@pytest.mark.parametrize(("told", "is_kept"), [(1, True), (2, True), (3, False)])
def test_process_whose_end_was_told_is_not_kept(told, is_kept):
    """Its monitors know that it is gone; the end of one before it says nothing of it."""
    down = DownRow(session_id="s", incarnation=told, restarting=True, at_ms=1, body=b"")
    agent = Agent("s", incarnation=3)

    _, taken, ended = taken_over([row_of("s", incarnation=3)], [agent], [down])

    assert (taken, ended) == (([agent], []) if is_kept else ([], [agent]))


@pytest.mark.parametrize(
    ("parent", "are_kept"),
    [
        (Agent("p"), ["p", "c"]),
        (Agent("p", does=DIES), ["p"]),
        (Agent("p", incarnation=2), []),
        (None, []),
    ],
)
def test_subagent_is_kept_with_the_process_that_called_it(parent, are_kept):
    """Its parent must have been taken in and have come up; else nobody waits for its answer."""
    child = Agent("c")
    agents = [child] if parent is None else [parent, child]

    _, taken, ended = taken_over([row_of("c", parent_id="p"), row_of("p")], agents)

    assert [agent.session_id for agent in taken] == are_kept
    assert set(ended) == set(agents) - set(taken)
