"""A wire between a client and its daemon that loses, doubles, delays and cuts what passes.

It stands in a directory of its own, where a client takes it for the daemon. Every message passes
through real sockets on both sides; what becomes of it is drawn from a seed. Subscriptions pass as
they are: ZeroMQ loses none of them, and a cut takes them all.
"""

import contextlib
import fcntl
import random
import threading
from dataclasses import dataclass

import zmq

from cmdc_runtime.errors import ProtocolError
from cmdc_runtime.runtime_dir import LOCK_FILE, read_token
from cmdc_runtime.wire.codec import decode
from cmdc_runtime.wire.frames import Published

POLL_MS = 5
HELD_STEPS_MAX = 30
"""A message that is delayed lets at most so many others pass it."""
JOIN_S = 10.0


@dataclass(frozen=True)
class Faults:
    """How often something happens to a message, and after how many the connection is cut."""

    lost: float = 0.0
    doubled: float = 0.0
    delayed: float = 0.0
    cut_every: int = 0


CALM = Faults()


class Wire:
    """Passes everything between the sockets in ``directory`` and those of ``daemon``."""

    def __init__(self, directory, daemon, *, seed=0, events=CALM, control=CALM):
        self.directory = directory
        self.events, self.control = events, control
        self.spoil = lambda topic, frame: False
        """Says of what is published, decoded, whether it is lost, beside what chance does."""
        self.cuts = self.lost = self.passed = 0
        self._daemon = daemon
        self._chance = random.Random(seed)
        self._context = zmq.Context()
        self._held = []  # (steps left, send)
        self._since_cut = 0
        self._is_running = True
        self._is_cut = threading.Event()
        directory.mkdir(mode=0o700)
        self._lock_file = (directory / LOCK_FILE).open("w")
        fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        self._open()
        self._thread = threading.Thread(target=self._work, name="wire")
        self._thread.start()

    def cut(self):
        """Cut all connections, on both sides, and let them be made again."""
        self._is_cut.set()

    def lend_token(self):
        """Have clients find here what the daemon is shown."""
        (self.directory / "token").write_text(read_token(self._daemon))

    def close(self):
        self._is_running = False
        self._thread.join(JOIN_S)
        assert not self._thread.is_alive()
        self._lock_file.close()

    # --- the thread --------------------------------------------------------------------------

    def _open(self):
        self.lend_token()
        self._front_events = self._socket(zmq.XPUB)
        self._front_events.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._front_events.bind(f"ipc://{self.directory}/events.sock")
        self._back_events = self._socket(zmq.XSUB)
        self._back_events.connect(f"ipc://{self._daemon}/events.sock")
        self._front_control = self._socket(zmq.ROUTER)
        self._front_control.bind(f"ipc://{self.directory}/control.sock")
        self._backs = {}  # a client's identity -> its connection to the daemon
        self._poller = zmq.Poller()
        for socket in (self._front_events, self._back_events, self._front_control):
            self._poller.register(socket, zmq.POLLIN)

    def _socket(self, kind):
        socket = self._context.socket(kind)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.SNDHWM, 0),
            (zmq.RCVHWM, 0),
            (zmq.RECONNECT_IVL, 10),
            (zmq.RECONNECT_IVL_MAX, 100),
        ):
            socket.setsockopt(option, value)
        return socket

    def _close(self):
        self._held.clear()
        for socket in (
            self._front_events,
            self._back_events,
            self._front_control,
            *self._backs.values(),
        ):
            socket.close()

    def _work(self):
        while self._is_running:
            ready = dict(self._poller.poll(POLL_MS))
            if self._is_due_for_a_cut():
                self._close()
                self._open()
                continue
            if not ready:
                self._let_go(HELD_STEPS_MAX)
            self._pass_all(ready)
        self._close()
        self._context.term()

    def _is_due_for_a_cut(self):
        is_due = self._is_cut.is_set()
        if self.events.cut_every and self._since_cut >= self.events.cut_every:
            is_due = True
        if is_due:
            self.cuts += 1
            self._since_cut = 0
            self._is_cut.clear()
        return is_due

    def _pass_all(self, ready):
        if self._front_events in ready:
            self._each(self._front_events, self._back_events.send_multipart)
        if self._back_events in ready:
            self._each(self._back_events, self._publish)
        if self._front_control in ready:
            self._each(self._front_control, self._ask)
        for identity, socket in list(self._backs.items()):
            if socket in ready:
                self._each(socket, lambda parts, to=identity: self._answer(to, parts))

    def _each(self, socket, take):
        with contextlib.suppress(zmq.Again):
            for _ in range(200):
                take(socket.recv_multipart(zmq.NOBLOCK))

    def _publish(self, parts):
        if self._is_spoiled(parts):
            self.lost += 1
            return
        self._since_cut += 1
        self._fate(self.events, lambda: self._front_events.send_multipart(parts))

    def _is_spoiled(self, parts):
        try:
            return self.spoil(parts[0], decode(Published, parts[2]))
        except ProtocolError:
            return False

    def _ask(self, message):
        identity, *parts = message
        back = self._backs.get(identity)
        if back is None:
            back = self._backs[identity] = self._socket(zmq.DEALER)
            back.setsockopt(zmq.ROUTING_ID, identity)
            back.connect(f"ipc://{self._daemon}/control.sock")
            self.lend_token()
            self._poller.register(back, zmq.POLLIN)
        self._fate(self.control, lambda: back.send_multipart(parts))

    def _answer(self, identity, parts):
        message = [identity, *parts]
        self._fate(self.control, lambda: self._front_control.send_multipart(message))

    def _fate(self, faults, send):
        """Send a message now, later, twice or never; what was delayed long enough goes first."""
        self._let_go(1)
        drawn = self._chance.random()
        if drawn < faults.lost:
            self.lost += 1
            return
        self.passed += 1
        copies = 2 if self._chance.random() < faults.doubled else 1
        for _ in range(copies):
            if self._chance.random() < faults.delayed:
                self._held.append((self._chance.randint(1, HELD_STEPS_MAX), send))
            else:
                send()

    def _let_go(self, steps):
        held, self._held = self._held, []
        for left, send in held:
            if left <= steps:
                send()
            else:
                self._held.append((left - steps, send))
