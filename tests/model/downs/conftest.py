"""One daemon after the other, driven step by step: sessions, a journal and the ``MonitorService``.

The ``MonitorService`` are the real ones, and so are the statements of the journal, which commits
when the test says so. To add a step, add a coroutine method of ``Daemons`` that takes a session's
name.
"""

import asyncio
import tempfile
from collections import defaultdict, deque
from dataclasses import dataclass
from pathlib import Path

import pytest

from cmdc_runtime.reasons import Down, Normal, Other
from cmdc_runtime.requests import Demonitor, GetFacts, Monitor, SessionInfo
from cmdc_runtime.wire.codec import decode_as
from supervisor.adapters.journal.base import SessionRow
from supervisor.adapters.journal.operations import (
    BeginIncarnation,
    CreateSession,
    EndSession,
    FindSession,
    ListDowns,
    ListLiveSessions,
    Query,
    RecordDown,
    Write,
)
from supervisor.adapters.journal.sqlite import SqliteStore
from supervisor.adapters.journal.store import Health
from supervisor.sessions.monitors import NOBODY, MonitorService

CLIENT = b"c-1"
RESTARTED = Other(detail="the daemon was restarted")
MEMORY = Path("/dev/shm")
"""A file system that has nothing to wait for."""
TURNS = 30
"""Of the loop, until nothing of one step is left to do."""


async def quiet():
    """Let the loop do what it can do now."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def key(down):
    """Return what distinguishes one end from all others of its session."""
    return down.at_ms, down.incarnation, down.restarting


class Journal:
    """The real statements, done at ``commit``; as in a group, the reads come after the writes."""

    def __init__(self, directory):
        self.store = SqliteStore(directory, "process")
        self.store.open()
        self.health = Health()
        self.waiting = []

    def write(self, operation):
        future = asyncio.get_running_loop().create_future()
        self.waiting.append((operation, future))
        return future

    read = write

    def commit(self, group_max=10**6):
        waiting, self.waiting = self.waiting[:group_max], self.waiting[group_max:]
        self.store.begin()
        results = [self._done(*one) for one in waiting if isinstance(one[0], Write)]
        self.store.commit()
        results += [self._done(*one) for one in waiting if isinstance(one[0], Query)]
        for future, result in results:
            if not future.done():
                future.set_result(result)

    def _done(self, operation, future):
        return future, self.store.perform(operation)

    def log(self, session_id):
        """Return what is recorded of a session, oldest first."""
        return [
            key(decode_as(Down, row.body))
            for row in self.store.perform(ListDowns(session_id, 0, 10**6))
        ]


@dataclass
class Session:
    """A session as the daemon has it; ``phase`` in the daemon's words."""

    phase: str = "up"
    incarnation: int = 1
    is_closed: bool = False


class Daemons:
    """The daemon that runs now, and its journal."""

    def __init__(self, directory):
        self.directory = directory
        self.journal = Journal(directory)
        self.clock = 0
        self.instance = 0
        self.sessions = {}
        self.published = defaultdict(list)  # name -> ends that a daemon published and could record
        self.outward = deque()  # (None, notice) and (id, answer), on their way to the client
        self._start()

    def _start(self):
        self.instance += 1
        self.answers = {}  # id -> answer, as far as it is remembered
        self.serving = {}  # id -> task
        self.monitors = MonitorService(self.journal, self._look_up, self._send)

    def receive(self, number, request):
        """Take a request, once."""
        if number in self.answers:
            self.outward.append((number, self.answers[number]))
        elif number not in self.serving:
            self.serving[number] = asyncio.create_task(self._serve(number, request))

    async def _serve(self, number, request):
        answer = None
        if isinstance(request, Monitor):
            answer = await self.monitors.set(request, CLIENT)
        elif isinstance(request, Demonitor):
            self.monitors.demonitor(request.ref)
        elif isinstance(request, GetFacts):
            answer = (self.monitors.notices(CLIENT), self.instance)
        del self.serving[number]
        self.answers[number] = answer
        self.outward.append((number, answer))

    def _send(self, _client, notice):
        self.outward.append((None, notice))
        return True

    async def _look_up(self, session_id):
        session = self.sessions[session_id]
        return SessionInfo(
            session_id=session_id,
            phase=session.phase,
            incarnation=session.incarnation,
            restarts=0,
            pid=None,
            parent_id=None,
            group_id=None,
            last_index=0,
            reason=Normal(),
        )

    def _now(self):
        self.clock += 1
        return self.clock

    def ends(self, name):
        """Return all ends of a session, those that are not recorded yet included."""
        rows = [one.row for one, _ in self.journal.waiting if isinstance(one, RecordDown)]
        bodies = [row.body for row in rows if row.session_id == name and row.body]
        return self.journal.log(name) + [key(decode_as(Down, body)) for body in bodies]

    async def create(self, name):
        """Start a session; under the same name only when the one before is over."""
        if name not in self.sessions or self.sessions[name].is_closed:
            row = SessionRow(session_id=name, created_ms=self._now(), spec=b"", incarnation=1)
            self.sessions[name] = Session()
            self.journal.write(CreateSession(row))
            self.journal.commit()

    def _end(self, name, *, restarting):
        session = self.sessions[name]
        session.phase = "restarting" if restarting else "ended"
        down = Down(
            ref=NOBODY,
            session_id=name,
            reason=Normal(),
            incarnation=session.incarnation,
            restarting=restarting,
            at_ms=self._now(),
        )
        self.monitors.publish(down)
        self.published[name].append(key(down))

    async def crash(self, name):
        """Let its process end."""
        if self.sessions[name].phase == "up":
            self._end(name, restarting=True)

    async def stop(self, name):
        """Let it end, with a process or without."""
        if self.sessions[name].phase != "ended":
            self._end(name, restarting=False)

    async def close(self, name):
        """Write the end down, which takes a while after it was published."""
        session = self.sessions[name]
        if session.phase == "ended" and not session.is_closed:
            session.is_closed = True
            self.journal.write(EndSession(name, b"", self._now()))

    async def next(self, name):
        """Begin its next process."""
        session = self.sessions[name]
        if session.phase in {"restarting", "hibernated"}:
            session.phase, session.incarnation = "up", session.incarnation + 1
            self.journal.write(BeginIncarnation(name, session.incarnation, 0))

    async def replace(self, name):
        """Let its process end and the next one begin."""
        await self.crash(name)
        await self.next(name)

    async def fail(self, name):
        """Let a start fail before the journal knows of it."""
        session = self.sessions[name]
        if session.phase == "restarting":
            session.incarnation += 1
            self._end(name, restarting=True)

    async def hibernate(self, name):
        """Let it give up its process."""
        session = self.sessions[name]
        if session.phase == "up":
            session.phase = "hibernated"
            self.monitors.record_hibernation(name, session.incarnation)

    async def commit(self, _name):
        """Let the journal do what waits."""
        self.journal.commit()

    async def commit_one(self, _name):
        """Let the journal do the first of what waits."""
        self.journal.commit(1)

    async def forget(self, _name):
        """Forget the answers: so many are remembered."""
        self.answers.clear()

    async def kill(self, _name):
        """Kill the daemon and start the next; what was not committed was never written."""
        for name, ends in self.published.items():
            recorded = self.journal.log(name)
            self.published[name] = [end for end in ends if end in recorded]
        await self.abandon()
        self.journal = Journal(self.directory)
        self._start()
        rows = {row.session_id: row for row in self.journal.store.perform(ListLiveSessions())}
        for name in self.sessions:
            await self._take_over(rows.get(name), name)

    async def abandon(self):
        """End the daemon at once."""
        tasks = list(self.serving.values())
        for one in (*tasks, *(future for _, future in self.journal.waiting)):
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await quiet()
        self.outward.clear()
        self.journal.store.close()

    async def _take_over(self, row, name):
        session = self.sessions[name] = Session("ended", is_closed=True)
        if row is None:
            return
        settling = asyncio.create_task(self.monitors.recover(row, RESTARTED, restarting=True))
        while not settling.done():
            self.journal.commit()
            await quiet()
        if settling.result() is not None:
            self.journal.write(EndSession(name, b"", self._now()))
            return
        # The row as it is now: an end may have been recorded of a start that it knew nothing of.
        session.incarnation = self.journal.store.perform(FindSession(name)).incarnation
        session.phase, session.is_closed = "restarting", False
        await self.next(name)


@pytest.fixture(scope="session")
def play():
    """Run a coroutine function with daemons of its own."""

    def run(scenario):
        async def whole(directory):
            daemons = Daemons(directory)
            try:
                await scenario(daemons)
            finally:
                await daemons.abandon()

        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
            asyncio.run(whole(Path(directory) / "state"))

    return run
