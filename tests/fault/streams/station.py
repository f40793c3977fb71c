"""A daemon's request router, hub, sockets and journal with sessions that a test plays.

There is no agent: the test says which sessions there are and what they publish. All between that
and the client is the daemon's own code, so thousands of sessions cost no process.
"""

import asyncio
import fcntl
import os
import selectors
import threading
import time

import zmq

from cmdc_runtime.events import AgentStart, MessageDelta
from cmdc_runtime.requests import DaemonFacts, SessionInfo
from cmdc_runtime.runtime_dir import LOCK_FILE
from cmdc_runtime.wire.codec import encode_events
from cmdc_runtime.wire.frames import Batch, FromClient
from cmdc_runtime.wire.sockets import Role
from supervisor.adapters.hub import Hub
from supervisor.adapters.journal.base import SessionRow
from supervisor.adapters.journal.operations import CreateSession
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.adapters.peers import PERSON
from supervisor.adapters.router import Router
from supervisor.api.backups import Backups
from supervisor.api.gate import Gate
from supervisor.api.handlers import ApiContext
from supervisor.api.request_router import RequestRouter
from supervisor.sessions.monitors import MonitorService
from supervisor.sessions.sessions import Sessions

WAIT_S = 60.0
CLOCK = time.monotonic


class OpenGate(Gate):
    """Takes everybody for a person: what a daemon's own process starts is a tool to it."""

    def peer(self, client):
        return PERSON


class Played:
    """A session that is up and says what the test lets it say."""

    def __init__(self, station, session_id):
        self.id = session_id
        self._station = station

    def info(self):
        return SessionInfo(
            session_id=self.id,
            phase="up",
            incarnation=1,
            restarts=0,
            pid=os.getpid(),
            parent_id=None,
            group_id=None,
            last_index=self._station.hub.taken_index(self.id),
            created_ms=1,
        )


class Leaping(selectors.DefaultSelector):
    """A selector whose loop waits for no timer while time is to pass: it leaps to the next one."""

    def __init__(self):
        super().__init__()
        self._ahead_s = self._left_s = 0.0
        self.is_there = threading.Event()

    def now_s(self):
        return CLOCK() + self._ahead_s

    def leap(self, loop, seconds):
        self.is_there.clear()
        loop.call_soon_threadsafe(self._begin, seconds)

    def _begin(self, seconds):
        self._left_s = seconds

    def select(self, timeout=None):
        if self._left_s <= 0 or timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            leap_s = min(timeout, self._left_s)
            self._ahead_s += leap_s
            self._left_s -= leap_s
            if self._left_s <= 0:
                self.is_there.set()
        return ready


class Station:
    """Listens in ``directory``; everything of it runs in a thread of its own."""

    def __init__(self, directory):
        self.directory = directory
        self.hub = None
        self._leaps = Leaping()
        self._loop = asyncio.SelectorEventLoop(self._leaps)
        self._ready, self._closing = threading.Event(), asyncio.Event()
        self._lock_file = (directory / LOCK_FILE).open("w")
        fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        self._thread = threading.Thread(target=self._run, name="station")
        self._thread.start()
        assert self._ready.wait(WAIT_S)

    def close(self):
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        self._lock_file.close()

    def do(self, work):
        """Run a coroutine in the station's loop and return what it returns."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    def now_s(self):
        """Return the time by the station's clock, which ``pass_time`` puts forward."""
        return self._leaps.now_s()

    def pass_time(self, seconds):
        """Have so much time pass for the station: each timer goes off, and none is waited for."""
        self._leaps.leap(self._loop, seconds)
        assert self._leaps.is_there.wait(WAIT_S)

    def add(self, *session_ids, events_max=1_000, last=0):
        """Begin sessions, whose next event has the index after ``last``."""

        async def begin():
            for session_id in session_ids:
                await self._journal.write(
                    CreateSession(SessionRow(session_id=session_id, created_ms=1, spec=b""))
                )
                self.hub.open_channel(session_id, events_max, last)
                self._sessions.live[session_id] = Played(self, session_id)

        self.do(begin())

    def publish(self, session_ids, count=1, *, durable=False, text=""):
        """Have each session publish so many events, one batch for each."""

        async def publish_all():
            for session_id in session_ids:
                first = self.hub.taken_index(session_id) + 1
                made = AgentStart(command_id=text) if durable else MessageDelta(delta=text)
                entries = [(1, made) for _ in range(count)]
                batch = Batch(first=first, count=count, durable=durable)
                assert self.hub.take(session_id, batch, encode_events(entries))
                await asyncio.sleep(0)

        self.do(publish_all())

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self):
        context = zmq.Context()
        journal = self._journal = SqliteJournal(self.directory / "state", durability="process")
        await journal.open()
        self.hub = Hub(context, journal)
        sessions = self._sessions = Sessions(None, None, self.hub, journal, None, sessions_max=1)
        monitors = MonitorService(journal, sessions.look_up, lambda client, notice: True)
        backups = Backups(journal, (self.directory / "state",))
        api = ApiContext(sessions, monitors, self.hub, False, self._facts, backups)
        requests = RequestRouter(api, sessions, OpenGate(sessions, None, "", None))
        router = Router(context, Role.CONTROL, FromClient, requests.receive)
        sessions.control = router
        router.bind(f"ipc://{self.directory}/control.sock")
        self.hub.bind(f"ipc://{self.directory}/events.sock")
        self._ready.set()
        await self._closing.wait()
        await requests.close()
        router.close()
        self.hub.close()
        await journal.close()
        context.term()

    def _facts(self):
        return DaemonFacts(
            pid=os.getpid(),
            instance="one",
            version="0",
            nursery="ready",
            sessions=len(self._sessions.live),
            spares=0,
            events_address="",
            refused_frames=0,
        )
