"""A peer that speaks a daemon's frames over real sockets and does as the test says.

It is a thread with its own ROUTER and XPUB. What it knows is plain attributes; what it received is
a list. Tests change it between calls, through ``do`` where a socket is concerned.
"""

import contextlib
import fcntl
import queue
import threading
import time
from collections import Counter
from concurrent.futures import Future

import msgspec
import pytest
import zmq

from cmdc_runtime.commands import Command
from cmdc_runtime.errors import CmdcError, InvalidSession
from cmdc_runtime.events import MessageDelta
from cmdc_runtime.reasons import Down, NoProcess
from cmdc_runtime.requests import (
    DaemonFacts,
    Demonitor,
    FindSession,
    GetFacts,
    ListSessions,
    Monitor,
    Monitored,
    Replay,
    Replayed,
    ReplayedBatch,
    Request,
    SessionInfo,
)
from cmdc_runtime.runtime_dir import LOCK_FILE
from cmdc_runtime.wire import codec
from cmdc_runtime.wire.frames import (
    HEADER,
    Ask,
    Events,
    FromClient,
    Notify,
    PagedReply,
    ValueReply,
    Watermark,
    topic_of,
)
from cmdc_runtime.wire.sockets import Role, open_socket

POLL_MS = 10
WAIT_S = 10.0
PAGE_EVENTS = 2_000


class Peer:
    """A daemon's end of the wire."""

    def __init__(self, directory):
        self.directory = directory
        self.instance = "one"
        self.header = HEADER
        self.sessions = {}  # id -> SessionInfo
        self.logs = {}  # id -> {index: (at_ms, event)}, what a replay still finds
        self.answers = {}  # class -> answer, error or function of (request, frame); None: silence
        self.received = []  # (frame id, request or command), in order
        self.monitors = {}  # ref -> (identity, request)
        self.notices = Counter()  # identity -> how many notices it was sent, lost ones included
        self.newest_down = 0  # where a new monitor watches from, as its answer says
        self.welcomes = True
        self.subscribed = []  # (topic, is it a subscription)
        self._jobs = queue.SimpleQueue()
        self._lock_file = (directory / LOCK_FILE).open("w")
        fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        self._is_running = True
        self._context = zmq.Context()
        self._bind()
        self._thread = threading.Thread(target=self._work, name="peer")
        self._thread.start()

    def close(self):
        self._is_running = False
        self._thread.join(WAIT_S)
        self._lock_file.close()

    def do(self, job):
        """Run ``job`` in the peer's thread and return what it returns."""
        future = Future()
        self._jobs.put((job, future))
        return future.result(WAIT_S)

    def add(self, session_id, **fields):
        """Know a session."""
        given = {"phase": "up", "incarnation": 1, "restarts": 0, "pid": 4321, "last_index": 0}
        given |= {"parent_id": None, "group_id": None, "session_id": session_id}
        self.sessions[session_id] = SessionInfo(**given | fields)
        self.logs.setdefault(session_id, {})

    def set(self, session_id, **fields):
        """Change what is known about a session."""
        self.sessions[session_id] = msgspec.structs.replace(self.sessions[session_id], **fields)

    def publish(self, session_id, *texts, is_lost=False, is_kept=True):
        """Publish one batch of deltas; ``is_lost``: on no wire, not ``is_kept``: in no replay."""
        self.do(lambda: self._publish(session_id, texts, is_lost, is_kept))

    def publish_events(self, session_id, *events):
        """Publish one batch of any events; called by an answer, it is in the peer's thread."""
        if threading.current_thread() is self._thread:
            self._publish_events(session_id, events)
        else:
            self.do(lambda: self._publish_events(session_id, events))

    def publish_each(self, pairs):
        """Publish one delta for each (session id, text)."""
        self.do(lambda: [self._publish(one, (text,), False, True) for one, text in pairs])

    def watermark(self, session_id):
        """Publish the newest index."""
        last = self.sessions[session_id].last_index
        self.do(lambda: self._say(topic_of(session_id), Watermark(last=last)))

    def down(self, ref, reason, *, seq=None, is_lost=False, **more):
        """Notify one monitor of an end; ``is_lost``: the notice is counted and never arrives."""

        def job():
            identity, request = self.monitors[ref]
            notice = Notify(down=_down_of(request, reason, **more), seq=seq)
            self._notify(identity, notice, is_lost=is_lost)

        self.do(job)

    def restart(self, instance):
        """Come back as another daemon that knows no monitor."""

        def job():
            self._control.close()
            self._events.close()
            self.instance = instance
            self.monitors.clear()
            self.notices.clear()
            self._bind()

        self.do(job)

    def mute(self):
        """Keep the lock, and hear nobody any more."""

        def job():
            self._control.unbind(self._control.last_endpoint)
            self._control.close()
            self._control = open_socket(self._context, Role.CONTROL)

        self.do(job)

    def of(self, kind):
        """Return what was received of one class."""
        return [body for _, body in list(self.received) if isinstance(body, kind)]

    def ids_of(self, kind):
        """Return the frame ids under which one class was received."""
        return [id_ for id_, body in list(self.received) if isinstance(body, kind)]

    def wait_for(self, condition):
        """Wait until a condition on what was received holds."""
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, self.received
            self.do(lambda: None)

    def _bind(self):
        self._control = open_socket(self._context, Role.CONTROL)
        self._events = open_socket(self._context, Role.EVENTS)
        self._control.bind(f"ipc://{self.directory}/control.sock")
        self._events.bind(f"ipc://{self.directory}/events.sock")

    def _work(self):
        while self._is_running:
            poller = zmq.Poller()
            poller.register(self._control, zmq.POLLIN)
            poller.register(self._events, zmq.POLLIN)
            ready = dict(poller.poll(POLL_MS))
            if self._control in ready:
                self._on_control(self._control.recv_multipart())
            if self._events in ready:
                self._on_subscription(self._events.recv())
            while not self._jobs.empty():
                job, future = self._jobs.get()
                try:
                    future.set_result(job())
                except Exception as error:  # noqa: BLE001 - it is the test's, and raised there
                    future.set_exception(error)
        self._control.close()
        self._events.close()
        self._context.term()

    def _on_control(self, message):
        identity, _header, data = message
        frame = codec.decode(FromClient, data)
        body = codec.decode(Request if isinstance(frame, Ask) else Command, frame.body)
        self.received.append((frame.id, body))
        answer = self.answers.get(type(body), self._own_answer)
        if callable(answer):
            answer = answer(body, frame) if answer != self._own_answer else answer(identity, body)
        if isinstance(answer, CmdcError):
            self._answer(identity, codec.failed(frame.id, answer))
        elif isinstance(answer, PagedReply):
            self._answer(identity, answer)
        elif answer is not None:
            value = None if answer is True else answer
            self._answer(identity, ValueReply(id=frame.id, body=codec.raw(value)))
        if isinstance(body, Monitor) and body.session_id not in self.sessions:
            self._notify(identity, Notify(down=_down_of(body, NoProcess(), incarnation=0)))

    def _own_answer(self, identity, body):
        answers = {
            GetFacts: lambda: self._facts(identity),
            FindSession: lambda: self.sessions.get(body.session_id) or InvalidSession("unknown"),
            ListSessions: lambda: tuple(self.sessions.values()),
            Monitor: lambda: self._monitored(identity, body),
            Demonitor: lambda: self.monitors.pop(body.ref, None) is None or True,
            Replay: lambda: self._replayed(body),
        }
        return answers.get(type(body), lambda: None)()

    def _monitored(self, identity, request):
        self.monitors[request.ref] = (identity, request)
        return Monitored(since=request.since or self.newest_down)

    def _facts(self, identity):
        return DaemonFacts(
            pid=1,
            instance=self.instance,
            version="0",
            nursery="ready",
            sessions=len(self.sessions),
            spares=0,
            events_address="",
            refused_frames=0,
            notices=self.notices[identity],
        )

    def _replayed(self, request):
        last = self.sessions[request.session_id].last_index
        through = min(request.through, last, request.after + PAGE_EVENTS)
        log = self.logs[request.session_id]
        batches = tuple(
            ReplayedBatch(first=index, count=1, body=codec.encode_events([log[index]]))
            for index in range(request.after + 1, through + 1)
            if index in log
        )
        return Replayed(batches=batches, through=max(through, request.after), last=last)

    def _publish(self, session_id, texts, is_lost, is_kept):
        deltas = [MessageDelta(delta=text) for text in texts]
        self._publish_events(session_id, deltas, is_lost=is_lost, is_kept=is_kept)

    def _publish_events(self, session_id, events, *, is_lost=False, is_kept=True):
        first = self.sessions[session_id].last_index + 1
        entries = list(enumerate(events, first))
        self.set(session_id, last_index=first + len(events) - 1)
        if is_kept:
            self.logs[session_id] |= dict(enumerate(entries, first))
        if not is_lost:
            frame = Events(first=first, count=len(events))
            self._say(topic_of(session_id), frame, codec.encode_events(entries))

    def _say(self, topic, frame, *rest):
        self._events.send_multipart([topic, self.header, codec.encode(frame), *rest])

    def _answer(self, identity, frame):
        with contextlib.suppress(zmq.ZMQError):  # the client is gone
            self._control.send_multipart([identity, self.header + codec.encode(frame)])

    def _notify(self, identity, notice, *, is_lost=False):
        self.notices[identity] += 1
        if not is_lost:
            numbered = msgspec.structs.replace(notice, number=self.notices[identity])
            self._answer(identity, numbered)

    def _on_subscription(self, message):
        topic = message[1:]
        self.subscribed.append((topic, message[:1] == b"\1"))
        if message[:1] != b"\1" or not self.welcomes:
            return
        session = self.sessions.get(topic[:-1].decode())
        self._say(topic, Watermark(last=session.last_index if session else 0))


def _down_of(request, reason, *, incarnation=1, restarting=False):
    return Down(
        ref=request.ref,
        session_id=request.session_id,
        reason=reason,
        incarnation=incarnation,
        restarting=restarting,
    )


@pytest.fixture
def peer(tmp_path_factory, monkeypatch):
    """A peer in a directory of its own that is where the default client looks, too."""
    directory = tmp_path_factory.mktemp("d")
    monkeypatch.setenv("CMDC_ADDRESS", str(directory))
    found = Peer(directory)
    yield found
    found.close()


@pytest.fixture
def no_peer(tmp_path, monkeypatch):
    """A place where no daemon runs, and no daemon elsewhere that could be found instead."""
    monkeypatch.delenv("CMDC_ADDRESS", raising=False)
    monkeypatch.setenv("CMDC_RUNTIME_DIR", str(tmp_path / "nowhere"))
    return tmp_path


@pytest.fixture(autouse=True)
def _nothing_left_behind():
    """No test leaves a thread of the client running; another folder's client may live longer."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + WAIT_S
    while left := [
        one for one in threading.enumerate() if one.name.startswith("cmdc-") and one not in before
    ]:
        assert time.monotonic() < deadline, left
        left[0].join(POLL_MS / 1000)
