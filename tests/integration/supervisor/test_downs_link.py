"""Down notices over real sockets that break: what is lost on the way is asked for again, once.

A thread is the daemon: router, ``MonitorService`` and journal are the real ones. The client's
sockets lead through a proxy that can be cut.
"""

import asyncio
import contextlib
import fcntl
import os
import random
import signal
import subprocess
import sys
import threading

import pytest
import zmq

import cmdc_runtime as cmdc
from cmdc_runtime.client import connection
from cmdc_runtime.client.open_requests import OpenRequests
from cmdc_runtime.reasons import Down, Normal, Signal
from cmdc_runtime.requests import (
    DaemonFacts,
    Demonitor,
    GetFacts,
    Monitor,
    Request,
    SessionInfo,
)
from cmdc_runtime.runtime_dir import LOCK_FILE
from cmdc_runtime.wire import sockets
from cmdc_runtime.wire.codec import decode, encode, raw
from cmdc_runtime.wire.frames import Ask, FromClient, ValueReply
from cmdc_runtime.wire.sockets import Role
from supervisor.adapters.journal.base import SessionRow
from supervisor.adapters.journal.operations import CreateSession
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.adapters.router import Router
from supervisor.sessions.monitors import NOBODY, MonitorService

pytestmark = pytest.mark.slow

WAIT_S = 20.0
SOON_S = 0.05
RACES = 300
SESSIONS = tuple(f"s{number}" for number in range(10))
KILLED = Signal(number=9, name="SIGKILL")


class Daemon:
    """Sessions that end when the test says so, and who is notified of it."""

    def __init__(self, directory):
        self.directory = directory
        self.incarnations = dict.fromkeys(SESSIONS, 1)
        self.over = set()
        self.answers = {}
        self.tasks = set()
        self.pipes = set()
        self.unreachable = 0
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.do(self.open())

    def do(self, work):
        """Run a coroutine in the daemon's thread and return what it returns."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT_S)

    async def open(self):
        self.lock = (self.directory / LOCK_FILE).open("w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.journal = SqliteJournal(self.directory / "state")
        await self.journal.open()
        for name in SESSIONS:
            await self.journal.write(
                CreateSession(SessionRow(session_id=name, created_ms=1, spec=b""))
            )
        self.context = zmq.Context()
        self.router = Router(self.context, Role.CONTROL, FromClient, self.receive)
        self.monitors = MonitorService(self.journal, self.look_up, self.send)
        self.router.bind(f"ipc://{self.directory}/back.sock")
        self.proxy = await asyncio.start_unix_server(self.forward, self.directory / "control.sock")

    def close(self):
        self.do(self.shut())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(WAIT_S)
        self.loop.close()
        self.lock.close()

    async def shut(self):
        self.proxy.close()
        self.cut()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.router.close()
        await self.journal.close()
        self.context.term()

    def send(self, client, notice):
        is_there = self.router.send(client, notice)
        self.unreachable += not is_there
        return is_there

    async def look_up(self, session_id):
        return SessionInfo(
            session_id=session_id,
            phase="ended" if session_id in self.over else "up",
            incarnation=self.incarnations[session_id],
            restarts=0,
            pid=None,
            parent_id=None,
            group_id=None,
            last_index=0,
            reason=Normal(),
        )

    def receive(self, client, ask, _more):
        assert isinstance(ask, Ask)
        if (client, ask.id) in self.answers:
            self.router.send_encoded(client, self.answers[client, ask.id])
        else:
            self.spawn(self.answer(client, ask))

    def spawn(self, work):
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def answer(self, client, ask):
        request, value = decode(Request, ask.body), None
        if isinstance(request, Monitor):
            value = await self.monitors.set(request, client)
        elif isinstance(request, Demonitor):
            self.monitors.demonitor(request.ref)
        elif isinstance(request, GetFacts):
            value = self.facts(client)
        frame = self.answers[client, ask.id] = encode(ValueReply(id=ask.id, body=raw(value)))
        self.router.send_encoded(client, frame)

    def facts(self, client):
        return DaemonFacts(
            pid=1,
            instance="one",
            version="0",
            nursery="ready",
            sessions=0,
            spares=0,
            events_address="",
            refused_frames=0,
            notices=self.monitors.notices(client),
        )

    async def end(self, session_id, *, restarting=True):
        """Let a session's process end."""
        incarnation = self.incarnations[session_id]
        down = Down(
            ref=NOBODY,
            session_id=session_id,
            reason=KILLED,
            incarnation=incarnation,
            restarting=restarting,
        )
        if restarting:
            self.incarnations[session_id] += 1
        else:
            self.over.add(session_id)
        self.monitors.publish(down)

    async def forward(self, reader, writer):
        """Connect one client to the router, until the pipe is cut."""
        with contextlib.suppress(OSError):
            back_reader, back_writer = await asyncio.open_unix_connection(
                self.directory / "back.sock"
            )
            self.pipes |= {writer, back_writer}
            self.spawn(copied(reader, back_writer))
            self.spawn(copied(back_reader, writer))

    def cut(self):
        """Break all connections, and lose what is in them."""
        while self.pipes:
            self.pipes.pop().transport.abort()


async def copied(reader, writer):
    with contextlib.suppress(OSError):
        while some := await reader.read(4096):
            writer.write(some)
            await writer.drain()
    writer.transport.abort()


@pytest.fixture
def daemon(tmp_path_factory, monkeypatch):
    """A daemon whose clients notice a loss soon, and that notices a silent client soon."""
    monkeypatch.setattr(connection, "FACTS_S", SOON_S)
    monkeypatch.setitem(OpenRequests.__init__.__kwdefaults__, "resend_every_s", SOON_S)
    beating = {zmq.HEARTBEAT_IVL: 100, zmq.HEARTBEAT_TIMEOUT: 300}
    options = {**sockets.OPTIONS, Role.CONTROL: {**sockets.OPTIONS[Role.CONTROL], **beating}}
    monkeypatch.setattr(sockets, "OPTIONS", options)
    found = Daemon(tmp_path_factory.mktemp("d"))
    yield found
    found.close()


async def cut(daemon):
    daemon.cut()


def test_each_end_is_heard_once_however_often_the_connection_breaks(daemon):
    """By persistent monitors each in its order, by others the first since they were set."""
    rounds = 30
    chance = random.Random(7)
    with cmdc.Client(daemon.directory) as client:
        every = {name: client.monitor(name, persistent=True) for name in SESSIONS}
        first = {}
        for turn in range(rounds):
            for name in SESSIONS:
                if chance.random() < 0.1:
                    daemon.do(cut(daemon))
                daemon.do(daemon.end(name))
            name = SESSIONS[turn % len(SESSIONS)]
            first[turn] = name, daemon.incarnations[name], client.monitor(name)
        for name in SESSIONS:
            daemon.do(daemon.end(name))
            daemon.do(cut(daemon))
            daemon.do(daemon.end(name, restarting=False))
        heard = {
            name: [monitor.wait(WAIT_S).incarnation for _ in range(rounds + 2)]
            for name, monitor in every.items()
        }
        firsts = {turn: monitor.wait(WAIT_S) for turn, (_, _, monitor) in first.items()}
        left = {name: monitor.wait(0).incarnation for name, monitor in every.items()}

    assert heard == {name: [*range(1, rounds + 3)] for name in SESSIONS}
    assert left == dict.fromkeys(SESSIONS, rounds + 2)
    for turn, (name, incarnation, _) in first.items():
        assert (firsts[turn].session_id, firsts[turn].incarnation) == (name, incarnation)


AWAY = """
import sys
import cmdc_runtime as cmdc
from cmdc_runtime.client import connection

connection.FACTS_S = 0.05
with cmdc.Client(sys.argv[1]) as client:
    once, every = client.monitor("s0"), client.monitor("s0", persistent=True)
    print("set", flush=True)
    while True:
        down = every.wait()
        print(down.incarnation, flush=True)
        if not down.restarting:
            break
    print(once.wait(0).incarnation, every.wait(0).incarnation, flush=True)
"""


@pytest.mark.fault
@pytest.mark.process
def test_a_client_that_was_stopped_hears_what_it_missed(daemon):
    """For so long that the daemon has given its connection up."""
    (daemon.directory / "control.sock").unlink()
    os.link(daemon.directory / "back.sock", daemon.directory / "control.sock")
    process = subprocess.Popen(
        [sys.executable, "-c", AWAY, str(daemon.directory)], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "set\n"
        process.send_signal(signal.SIGSTOP)
        count = 0
        never = threading.Event()
        while daemon.unreachable == 0 and count < WAIT_S / SOON_S:
            daemon.do(daemon.end("s0"))
            count += 1
            never.wait(SOON_S)
        daemon.do(daemon.end("s0", restarting=False))
        process.send_signal(signal.SIGCONT)
        heard = process.stdout.read().splitlines()

    assert daemon.unreachable > 0
    assert heard == [*map(str, range(1, count + 2)), f"1 {count + 1}"]
    assert process.returncode == 0


def test_nothing_is_heard_after_a_removal(daemon):
    """However the end and the removal cross on their way."""
    heard, known = [], []
    with cmdc.Client(daemon.directory) as client:
        for turn in range(RACES):
            name = SESSIONS[turn % len(SESSIONS)]
            monitor = client.monitor(name, heard.append, persistent=bool(turn % 3))
            ending = asyncio.run_coroutine_threadsafe(daemon.end(name), daemon.loop)
            if turn % 2:
                ending.result(WAIT_S)
            client.demonitor(name, monitor)
            known.append((monitor, sum(down.ref == monitor.ref for down in heard)))
            ending.result(WAIT_S)
        client.monitor("s0")

    for monitor, count in known:
        assert count == sum(down.ref == monitor.ref for down in heard)
        with pytest.raises(cmdc.UsageError, match="removed"):
            monitor.wait(0)
    assert len(daemon.monitors) == 1
