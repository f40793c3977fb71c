"""Which agents of an earlier daemon are kept: with a real journal, tree and hub, and no process."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

import msgspec
import pytest
import zmq
from structlog.testing import capture_logs

from cmdc_runtime.checked_struct import INDEX_MAX
from cmdc_runtime.errors import SessionParked
from cmdc_runtime.process import CODE_STAGE, EXIT_CRASHED, UNWATCHED
from cmdc_runtime.reasons import AnyReason, Down, Other, Shutdown, StartFailed, Unkillable
from cmdc_runtime.requests import StartSession, Supervision
from cmdc_runtime.wire.codec import decode_as, encode
from cmdc_runtime.wire.frames import Batch, Detached, ExitNotice, HostWanted, Started, Write
from supervisor.adapters.hub import Hub
from supervisor.adapters.journal.base import DownRow, JournalFailed, JournalFull, SessionRow
from supervisor.adapters.journal.opening import MemoryJournal
from supervisor.adapters.journal.operations import (
    CreateSession,
    EndSession,
    FindLastIndex,
    FindNewestDown,
    FindSession,
    ListLiveSessions,
    RecordDown,
    ReplayEvents,
)
from supervisor.adapters.journal.store import Condition
from supervisor.core.limits import INDEX_JUMP
from supervisor.core.session_phase import Phase
from supervisor.core.session_tree import PARENT_ENDED
from supervisor.processes.pool import WorkerPool as RealPool
from supervisor.sessions import adoption
from supervisor.sessions import sessions as all_sessions
from supervisor.sessions.adoption import Adoption, AdoptionResult
from supervisor.sessions.assignment import spec_bytes
from supervisor.sessions.monitors import MonitorService
from supervisor.sessions.sessions import Sessions
from tests.unit.supervisor.services import PID_FIRST, PlayedPool, PlayedWorker, begun_runtime

WAIT_S = 10.0
CALLS, DIES, NEVER, SPEAKS = "calls", "dies", "never", "speaks"
"""``SPEAKS``: on the connection that it had, as if nothing had happened; it dies when it calls."""
TURNS = 200
"""Of the loop, which an agent takes to call: more than anything else here."""
GONE = Other(detail="gone")
EARLY = Other(detail="said to another daemon")


@dataclass(eq=False)
class Agent:
    """An agent that a dead daemon left, and what it does when it is adopted."""

    session_id: str
    incarnation: int = 1
    speaks: bool = True
    does: str = CALLS
    first: int = 1
    """The index of the oldest event that it has still to publish."""
    stuck: Unkillable | None = None
    at_end: Callable[[], None] = lambda: None
    ends: list = field(default_factory=list)
    hosts: list = field(default_factory=list)
    """The addresses of tool hosts that were started for it."""

    pid = PID_FIRST

    @property
    def entry(self):
        return SimpleNamespace(
            session_id=self.session_id, incarnation=self.incarnation, worker_id=f"w-{self.pid}"
        )

    def end(self):
        self.ends.append("ended")
        self.at_end()
        return self.stuck


class Takers(PlayedPool):
    """Takes agents in, which then call or die; nothing new is ever acquired."""

    def __init__(self):
        super().__init__()
        self.is_open.clear()
        self.taken = []
        self.floor = RealPool(None, None, None, "ipc:///x/w.sock", 0)
        self.containments = SimpleNamespace(end_leftover=self._end_leftover)

    async def _end_leftover(self, session_id, incarnation):
        pass

    def adopt(self, agent):
        worker = PlayedWorker(agent.pid)
        worker.hosts.start = agent.hosts.append
        self.floor._workers[worker.peer] = self.floor._survivors[worker.id] = worker
        self.taken.append(agent)
        self._does(agent, worker, TURNS)
        return worker

    def _does(self, agent, worker, turns):
        if turns:
            asyncio.get_running_loop().call_soon(self._does, agent, worker, turns - 1)
            return
        if agent.does == NEVER:
            return
        if agent.does == DIES:
            worker.ends(-9)
            return
        if agent.does == SPEAKS:
            batch = Batch(first=agent.first, count=1, durable=True)
            reported = ((batch, b"event"),)
            self.floor.receive(worker.peer, Write(records=(), completed=(), number=1), reported)
            self.floor.receive(worker.peer, Started(), ())
            self.floor.receive(worker.peer, HostWanted(address="/x/host"), ())
            self.floor.receive(worker.peer, ExitNotice(reason=EARLY), ())
        called = Detached(
            worker_id=worker.id,
            session_id=agent.session_id,
            incarnation=agent.incarnation,
            first=agent.first,
        )
        self.floor.receive(worker.peer, called, ())
        if agent.does == SPEAKS:
            worker.ends(EXIT_CRASHED)
            return
        worker.says(Started())


class Journal(MemoryJournal):
    """A journal whose newest index is what the test says, if it says so; else it fails."""

    newest = 0

    async def read(self, query):
        if not isinstance(query, FindLastIndex):
            return await super().read(query)
        if isinstance(self.newest, Exception):
            raise self.newest
        return self.newest


def row_of(session_id, incarnation=1, parent_id=None, **others):
    policy = others.pop("policy", {})
    spec = StartSession(
        session_id=session_id,
        supervision=Supervision(**policy),
        agent=msgspec.Raw(b"\xc0"),
        carries_code=False,
        parent_id=parent_id,
    )
    return SessionRow(
        **{
            "session_id": session_id,
            "created_ms": 0,
            "spec": spec_bytes(spec),
            "parent_id": parent_id,
            "incarnation": incarnation,
        }
        | others
    )


@contextlib.asynccontextmanager
async def begun(rows, downs=(), newest=0):
    """The sessions of a daemon that has just begun, with this in its journal."""
    journal = Journal()
    journal.newest = newest
    await journal.open()
    for row in rows:
        await journal.write(CreateSession(row))
    for down in downs:
        await journal.write(RecordDown(down))
    with zmq.Context() as context:
        hub = Hub(context, journal)
        runtime = begun_runtime()
        sessions = Sessions(runtime, Takers(), hub, journal, None, sessions_max=10)
        sessions.monitors = MonitorService(journal, sessions.look_up, lambda *_notice: True)
        try:
            yield sessions
        finally:
            await journal.close()
            hub.close()


async def parked(sessions, session_id):
    """Return why a session is parked, None where it is not."""
    try:
        await sessions.look_up(session_id)
    except SessionParked as error:
        return str(error)
    return None


def played(rows, agents, look, downs=(), newest=0):
    """Return what became of it, and what a look at the sessions gave then."""

    async def main():
        async with asyncio.timeout(WAIT_S), begun(rows, downs, newest) as sessions:
            result = await Adoption(sessions, agents, GONE).run()
            return result, await look(sessions)

    found = asyncio.run(main())
    assert all(agent.ends in ([], ["ended"]) for agent in agents)
    return found


def taken_over(rows, agents, downs=()):
    """Return what became of it, the agents that were kept, and those that were ended."""

    async def taken(sessions):
        return sessions.pool.taken

    result, kept = played(rows, agents, taken, downs)
    return result, kept, [agent for agent in agents if agent.ends]


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
    assert result == AdoptionResult(resumed=1, adopted=int(is_kept))


@pytest.mark.parametrize(
    ("reported", "incarnation", "is_kept"),
    [(1, 3, True), (2, 3, True), (3, 3, False), (None, 1, True)],
)
def test_process_whose_end_was_reported_is_not_kept(reported, incarnation, is_kept):
    """Its monitors know that it is gone; the end of one before it says nothing of it."""
    down = DownRow(session_id="s", incarnation=reported, restarting=True, at_ms=1, body=b"")
    agent = Agent("s", incarnation)

    _, taken, ended = taken_over([row_of("s", incarnation)], [agent], [down])

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
    """Its parent must have been adopted and have come up; else nobody waits for its answer."""
    child = Agent("c")
    agents = [child] if parent is None else [parent, child]

    _, taken, ended = taken_over([row_of("c", parent_id="p"), row_of("p")], agents)

    assert [agent.session_id for agent in taken] == are_kept
    assert set(ended) == set(agents) - set(taken)


@pytest.mark.parametrize(
    ("agents", "reason"),
    [
        ([Agent("p")], Other(detail=UNWATCHED)),
        ([Agent("p"), Agent("c", incarnation=2)], Other(detail=UNWATCHED)),
        ([Agent("p"), Agent("c", speaks=False)], GONE),
        ([Agent("p", does=DIES)], Shutdown(detail=PARENT_ENDED)),
        ([Agent("p", does=DIES), Agent("c")], Shutdown(detail=PARENT_ENDED)),
    ],
    ids=["it died", "another one lives", "it was ended here", "both died", "its parent died"],
)
def test_a_subagent_without_a_process_is_reported_in_words_that_are_true(agents, reason):
    """Its parent's end is named where that has ended, and else what has happened to it."""

    async def look(sessions):
        return decode_as(Down, (await sessions.journal.read(FindNewestDown("c"))).body)

    _, down = played([row_of("c", parent_id="p"), row_of("p")], agents, look)

    assert (down.reason, down.restarting) == (reason, False)


def test_all_levels_of_a_family_keep_their_processes():
    """Each level waits for the calls of the one above, and the last one's are waited for, too."""
    rows = [row_of("g", parent_id="c"), row_of("c", parent_id="p"), row_of("p")]

    async def look(sessions):
        return {parent: {child.id for child in sessions.live[parent].children} for parent in "pcg"}

    result, children = played(rows, [Agent(session_id) for session_id in "gcp"], look)

    assert result == AdoptionResult(resumed=3, adopted=3)
    assert children == {"p": {"c"}, "c": {"g"}, "g": set()}


def test_sessions_that_are_each_others_parents_are_parked():
    """Rows that no daemon has written hold up nothing; who is only below them ends with them."""
    rows = [row_of("a", parent_id="b"), row_of("b", parent_id="a"), row_of("s")]
    rows.append(row_of("c", parent_id="a"))

    async def look(sessions):
        living = await sessions.journal.read(ListLiveSessions())
        return [await parked(sessions, name) for name in "abcs"], {one.session_id for one in living}

    result, ((of_a, of_b, *others), living) = played(rows, [], look)

    assert result == AdoptionResult(resumed=1, adopted=0)
    assert "parent_id: 'b' is below the session itself" in of_a
    assert "parent_id: 'a' is below the session itself" in of_b
    assert others == [None, None]
    assert living == {"a", "b", "s"}


def test_a_process_that_does_not_call_is_waited_for_once(monkeypatch):
    """Its subagents are not kept, and nobody else loses time by it."""
    monkeypatch.setattr(adoption, "ADOPT_WAIT_S", 0.01)
    parent, child = Agent("p", does=NEVER), Agent("c")
    child.at_end = lambda: monkeypatch.setattr(adoption, "ADOPT_WAIT_S", 10 * WAIT_S)

    result, taken, ended = taken_over([row_of("p"), row_of("c", parent_id="p")], [parent, child])

    assert (result, taken, ended) == (AdoptionResult(resumed=1, adopted=0), [parent], [child])


def test_a_process_that_is_kept_goes_on_as_what_it_was():
    """The same incarnation and number of restarts, and the next event has the next index."""

    async def look(sessions):
        session = sessions.live["s"]
        return session.info(), session.was_up, sessions.hub.last_index("s")

    _, (info, was_up, last) = played(
        [row_of("s", 3, restarts=2)], [Agent("s", 3, first=42)], look, newest=41
    )

    assert (info.incarnation, info.restarts, was_up, last) == (3, 2, True, 41)


def test_keys_of_sessions_that_are_no_more_are_forgotten():
    """Of one that goes on, and of one that is parked, they stay."""
    rows = [row_of("s"), row_of("damaged", spec=b"x")]

    async def main():
        async with asyncio.timeout(WAIT_S), begun(rows) as sessions:
            for name in ("s", "damaged", "ended"):
                sessions.keyring.put(name, {"openai": "k"})
            await Adoption(sessions, [], GONE).run()
            return {one for one in ("s", "damaged", "ended") if sessions.keyring.keys_of(one)}

    assert asyncio.run(main()) == {"s", "damaged"}


def test_a_process_that_dies_before_it_calls_is_followed_by_another():
    """It was up under the daemon before: nobody waits for its start, to hear that it failed."""

    async def look(sessions):
        return sessions.live["s"].phase

    result, phase = played([row_of("s")], [Agent("s", does=DIES)], look)

    assert result == AdoptionResult(resumed=1, adopted=0)
    assert phase in {Phase.RESTARTING, Phase.STARTING}


def test_what_a_process_says_before_it_calls_does_not_count():
    """It has not seen that its daemon is gone. Whoever hears of its events finds them lost, then.

    Else they would be in the journal, and passed over as never published.
    """

    async def look(sessions):
        async with asyncio.timeout(WAIT_S):
            while sessions.hub.last_index("s") < INDEX_JUMP:  # noqa: ASYNC110 - a hub has no word of it
                await asyncio.sleep(0)
        found = await sessions.hub.replay("s", 41, INDEX_JUMP)
        stored = await sessions.journal.read(ReplayEvents("s", 0, INDEX_JUMP, 1))
        down = await sessions.journal.read(FindNewestDown("s"))
        reason = decode_as(Down, down.body).reason
        return sessions.hub.last_index("s"), found.batches, stored, reason == EARLY

    agent = Agent("s", does=SPEAKS, first=42)
    _, found = played([row_of("s")], [agent], look, newest=41)

    assert found == (41 + INDEX_JUMP, (), [], False)
    assert agent.hosts == []


def test_a_session_without_a_process_gets_a_new_one():
    """One restart more, for a reason that is reported, behind all indexes that were ever used."""

    async def look(sessions):
        session = sessions.live["s"]
        down = await sessions.journal.read(FindNewestDown("s"))
        return (
            session.info(),
            session.was_up,
            sessions.hub.last_index("s"),
            decode_as(Down, down.body),
        )

    result, (info, was_up, last, down) = played([row_of("s", 3, restarts=2)], [], look, newest=41)

    assert result == AdoptionResult(resumed=1, adopted=0)
    assert (info.restarts, info.reason, was_up) == (3, GONE, True)
    assert last == 41 + INDEX_JUMP
    assert (down.reason, down.incarnation, down.restarting) == (GONE, 3, True)


STUCK = Unkillable(seconds=1.0)
UNBUILT = StartFailed(stage=CODE_STAGE, message="changed")


@pytest.mark.parametrize(
    ("row", "agent", "reason"),
    [
        (row_of("s", parent_id="p"), None, Shutdown(detail=PARENT_ENDED)),
        (row_of("s"), Agent("s", speaks=False, stuck=STUCK), STUCK),
    ],
    ids=["its parent has another process", "its process cannot be ended"],
)
def test_a_session_that_gets_no_new_process_is_over(row, agent, reason):
    """And its monitors learn why."""

    async def look(sessions):
        down = await sessions.journal.read(FindNewestDown("s"))
        found = await sessions.journal.read(FindSession("s"))
        return decode_as(Down, down.body), found, await sessions.journal.read(ListLiveSessions())

    result, (down, found, alive) = played([row], [agent] if agent else [], look)

    assert result == AdoptionResult(resumed=0, adopted=0)
    assert (down.reason, down.restarting) == (reason, False)
    assert (decode_as(AnyReason, found.reason), alive) == (reason, [])


def test_a_session_that_was_parked_stays_so():
    """Its last Down says that its code had changed."""
    down = Down(ref="", session_id="s", reason=UNBUILT, incarnation=1, restarting=False, restarts=0)
    row = DownRow(session_id="s", incarnation=1, restarting=False, at_ms=1, body=encode(down))

    async def look(sessions):
        return await parked(sessions, "s"), len(await sessions.journal.read(ListLiveSessions()))

    result, (why, alive) = played([row_of("s")], [], look, [row])

    assert result == AdoptionResult(resumed=0, adopted=0)
    assert "changed" in why
    assert alive == 1


def test_what_ended_under_an_earlier_daemon_is_listed_with_what_ended_now(monkeypatch):
    """Newest first, each once and with its reason; what is alive again is not among it."""
    monkeypatch.setattr(all_sessions, "INACTIVE_LISTED_MAX", 4)

    async def main():
        rows = [row_of(name) for name in ("live", "parked", "a", "b", "c", "d", "e")]
        rows[1] = row_of("parked", restarts=-1)
        async with asyncio.timeout(WAIT_S), begun(rows) as sessions:
            for at_ms, name in enumerate("abc"):
                await sessions.journal.write(EndSession(name, encode(Other(detail=name)), at_ms))
            await sessions.journal.write(EndSession("d", b"no reason", 9))
            sessions.live["c"] = sessions.live["live"] = None  # resumed, and not in the journal yet
            sessions.park(row_of("parked", restarts=-1), GONE)
            await sessions.stop("parked", "enough", 1.0)
            sessions.park(row_of("e", restarts=-1), GONE)
            return await sessions.inactive()

    found = asyncio.run(main())
    assert [(one.session_id, one.phase) for one in found] == [
        ("e", "parked"),
        ("parked", "ended"),
        ("d", "ended"),
        ("b", "ended"),
    ]
    reported = [str(one.reason) for one in found]
    assert reported[0] == str(GONE)
    assert reported[1] == str(Shutdown(detail="enough"))
    assert "cannot be read" in reported[2]
    assert reported[3] == str(Other(detail="b"))


@pytest.mark.parametrize("has_agent", [True, False])
@pytest.mark.parametrize(
    ("row", "newest", "why"),
    [
        (row_of("s", restarts=-1), 0, "restarts"),
        (row_of("s", spec=b"\xff"), 0, "ProtocolError"),
        (row_of("s", policy={"unresponsive_after": 0.0}), 0, "unresponsive_after"),
        (
            row_of("s", spec=row_of("s", parent_id="p").spec),
            0,
            "parent_id: none, and by its definition it has the parent 'p'",
        ),
        (
            row_of("s", parent_id="p", spec=row_of("s").spec),
            0,
            "parent_id: 'p', and by its definition it has none",
        ),
        (row_of("s", spec=row_of("t").spec), 0, "session_id: 't'"),
        (row_of("s"), INDEX_MAX - INDEX_JUMP + 1, "index"),
        (row_of("s"), JournalFailed("unread"), "unread"),
        (row_of("s"), ValueError("a bug"), "a bug"),
    ],
    ids=["row", "spec", "policy", "parent", "no parent", "name", "index", "journal", "bug"],
)
def test_a_session_that_cannot_be_gone_on_with_is_parked(row, newest, why, has_agent):
    """Whatever it is; its process is ended, and what cannot happen is in the log."""
    agents = [Agent("s")] if has_agent else []
    with capture_logs() as logs:
        result, found = played([row], agents, lambda one: parked(one, "s"), newest=newest)

    assert result == AdoptionResult(resumed=0, adopted=0)
    assert why in found
    assert all(agent.ends for agent in agents)
    is_bug = isinstance(newest, ValueError)
    assert [one["event"] for one in logs].count("session.not_resumed") == is_bug


def test_a_damaged_row_hinders_no_other_session():
    """It is parked before anything is done by it."""
    rows = [row_of("a", restarts=-1), row_of("s")]

    assert taken_over(rows, [])[0] == AdoptionResult(resumed=1, adopted=0)


@pytest.mark.parametrize(("problem", "fails"), [(JournalFull, False), (JournalFailed, True)])
def test_a_journal_that_gives_nothing_ends_the_daemon(problem, fails):
    """No session is to blame: each would be parked, and none of them is wrong."""

    async def main():
        async with asyncio.timeout(WAIT_S), begun([row_of("s")], newest=problem("x")) as sessions:
            if fails:
                sessions.journal.health.turn(Condition.FAILED, "x")
            with pytest.raises(problem, match="x"):
                await Adoption(sessions, [], GONE).run()
            return sessions._parked

    assert asyncio.run(main()) == {}
