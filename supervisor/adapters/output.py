"""What workers write to stdout and stderr: the socket that they connect, and a thread that reads.

A worker connects twice and says who it is (``cmdc_runtime.lines``); tools that it starts hold the
same sockets. Who has made a connection the kernel says: one that names a worker and comes from
another process than that worker's is closed. Rules: the thread serves everybody in turn,
``READ_BYTES`` each and at most once in ``ROUND_S``, and rests for as long as it has worked, or
until the daemon asks for something, which a Down may wait for. So it takes half of a core at most,
and reads 64 MiB/s of one stream at most: a worker that writes more waits in its ``write``. Nobody
else waits, for what the others wrote is read in the same round.
Every connection has bounded memory, and there is a bound of connections: one too many is closed at
once, since nobody would read it and its worker would wait for ever.

What becomes of the bytes stands in ``output_log``.
"""

import asyncio
import contextlib
import errno
import os
import select
import selectors
import socket
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from cmdc_runtime.ids import Incarnation, SessionId
from cmdc_runtime.lines import HEADER_BYTES_MAX, Stream, read_header
from supervisor.adapters.endpoint import private_umask
from supervisor.adapters.output_log import OutputLog, WorkerOutput
from supervisor.core.output import TAIL_BYTES_MAX, LineCutter, last_lines
from supervisor.logs import redact_text

# --- who is let in --------------------------------------------------------------------------------

BACKLOG: Final = 1024
"""Connections that wait to be accepted; the zygote forks a worker in some 5 ms."""
ACCEPTED_MAX: Final = 256
"""At once, so that those who are connected have their turn."""

_PEER: Final = struct.Struct("iII")
_OUT_OF_FDS: Final = (errno.EMFILE, errno.ENFILE)


class OutputListener:
    """Listens at a path from the beginning to ``close``.

    Only processes of this user are let in. Whoever can't be is closed and counted and never left to
    wait: a worker whose output nobody takes up would stand still as soon as the socket's buffer is
    full. So when the daemon has no descriptor left, one that was kept for it takes the connection
    and closes it.
    """

    def __init__(self, path: Path) -> None:
        """Bind the socket, in place of one that a killed daemon left; raises OSError."""
        self._path = path
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.unlink(missing_ok=True)
            with private_umask():
                self.sock.bind(os.fspath(path))
            self.sock.listen(BACKLOG)
        except OSError:
            self.sock.close()
            raise
        self.sock.settimeout(0)
        self._reserve = _reserve()
        self.turned_away = 0
        """Connections that were closed at once."""

    def accept(self) -> tuple[list[tuple[socket.socket, int]], bool]:
        """Return connections with their process, and whether these were all that waited."""
        accepted: list[tuple[socket.socket, int]] = []
        for _ in range(ACCEPTED_MAX):
            try:
                sock = self._next()
            except OSError:
                return accepted, True
            if sock is None:
                continue
            peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            pid, uid, _ = _PEER.unpack(peer)
            if uid != os.geteuid():
                self._turn_away(sock)
                continue
            sock.settimeout(0)
            accepted.append((sock, pid))
        return accepted, False

    def close(self) -> None:
        """Stop listening and remove the file; one that stays is replaced by the next listener."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        self.give_up()

    def give_up(self) -> None:
        """Stop listening; what is at the path is another listener's."""
        self.sock.close()
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None

    def _turn_away(self, sock: socket.socket) -> None:
        sock.close()
        self.turned_away += 1

    def _next(self) -> socket.socket | None:
        """Return the next connection, None for one that was turned away.

        Raises:
            OSError: nobody waits, or there is no descriptor to turn anybody away with.

        """
        try:
            return self.sock.accept()[0]
        except OSError as error:
            if error.errno not in _OUT_OF_FDS or not self._has_reserve():
                raise
        return self._next_with_reserve()

    def _next_with_reserve(self) -> socket.socket | None:
        """Accept with the descriptor that was kept, and close what came if there is no other.

        There may be one again by now: who ran out of them and who gives them back are others.
        """
        assert self._reserve is not None  # noqa: S101 - the caller has looked
        os.close(self._reserve)
        self._reserve = None
        sock, _ = self.sock.accept()
        if self._has_reserve():
            return sock
        self._turn_away(sock)
        self._has_reserve()
        return None

    def _has_reserve(self) -> bool:
        if self._reserve is None:
            self._reserve = _reserve()
        return self._reserve is not None


def _reserve() -> int | None:
    """Return a descriptor to give back when there is no other left, or None."""
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


# --- what is read ---------------------------------------------------------------------------------

READ_BYTES: Final = 64 * 1024
"""Of one stream in one round."""
ROUND_S: Final = 0.001
"""Rest after a round at least: with ``READ_BYTES`` this makes 64 MiB/s of one stream."""
REST_S_MAX: Final = 0.25
"""The longest rest: a round that took more was held up and has not worked all the time."""
CONNECTIONS_MAX: Final = 20_000
"""A session has two, and two more with a tool host: 5,000 busy sessions."""
HEADER_S: Final = 5.0
"""For a connection to say whose it is; a worker does it at once."""
NAMELESS_MAX: Final = 1_000
"""Connections that did not say it yet; the oldest gives way to one more."""
STREAMS_MAX: Final = 8
"""Connections of one worker; it makes two."""
UNNAMED_ENDED_MAX: Final = 256
"""Workers that ended before they were named, and and what they wrote last is still there."""
CLOSE_S: Final = 1.0
"""For what is written to be read when the daemon ends; then the thread is left alone."""
LAST_ROUNDS_MAX: Final = 16
"""For what is in the sockets then, which is at most four times ``READ_BYTES`` each."""
FAILED_REST_S: Final = 1.0
"""After a round that failed for a reason of our own, so that it can't fill the log."""

log = structlog.get_logger()

_Key: TypeAlias = tuple[str, int]
"""A worker as its first line names it, and the process that has said so."""


@dataclass(frozen=True, slots=True)
class _Known:
    """Says which process a worker is."""

    worker_id: str
    pid: int


@dataclass(slots=True, eq=False)
class _Connection:
    """One stream of one worker, or a connection that has not said whose it is."""

    sock: socket.socket
    pid: int
    opened_at: float
    head: bytes = b""
    worker: WorkerOutput | None = None
    worker_id: str = ""
    stream: Stream = "out"
    cutter: LineCutter = field(default_factory=LineCutter)


@dataclass(slots=True, eq=False)
class _Waiter:
    """Somebody who waits for a worker's connections to be at their end."""

    worker_id: str
    loop: asyncio.AbstractEventLoop
    drained: asyncio.Future[None]

    def wake(self) -> None:
        """Let it go on; called on the thread."""
        with contextlib.suppress(RuntimeError):  # its loop is closed
            self.loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        if not self.drained.done():
            self.drained.set_result(None)


class Outputs:
    """The listener at ``path`` and its thread; the methods are for the loop and return at once.

    ``close`` alone waits, ``CLOSE_S`` at most.
    """

    def __init__(
        self, path: Path, on_descriptor: Callable[[str, int, int], object] | None = None
    ) -> None:
        """Prepare; ``start`` listens.

        ``on_descriptor`` is called on the thread with a worker's id, its connection's pid and a
        descriptor that came with its first words, which is the callee's from then on.
        """
        self._path, self._on_descriptor = path, on_descriptor
        self._thread = threading.Thread(target=self._main, name="output", daemon=True)
        self._turn = threading.Lock()  # for ``_workers``, held as long as a look into it takes
        self._workers: dict[_Key, WorkerOutput] = {}
        self._pids: dict[str, int] = {}
        """The process of each worker that is known, which alone may write for it."""
        self._inbox: deque[_Waiter | WorkerOutput | OutputListener | _Known] = deque()
        self._is_running = self._is_closing = False
        self.echo_fd: int | None = None
        """Where an embedded daemon shows what tools print; to be set before ``start``."""
        self.refused = 0
        """Connections that were closed: too many, of another user or process, or nameless."""

    def start(self) -> None:
        """Listen and start the thread; raises OSError where that can't be."""
        self._listener = OutputListener(self._path)
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener.sock, selectors.EVENT_READ)
        self._selector.register(self._wake_fd, selectors.EVENT_READ)
        self._log = OutputLog(self.echo_fd)
        self._connections: set[_Connection] = set()
        self._streams: defaultdict[WorkerOutput, set[_Connection]] = defaultdict(set)
        self._nameless: dict[_Connection, None] = {}  # oldest first
        self._unnamed_ended: deque[_Key] = deque()
        self._waiters: list[_Waiter] = []
        self._is_running = True
        self._thread.start()

    def listen_again(self) -> None:
        """Listen at the path anew, since nobody finds the socket any more; raises OSError."""
        if self._is_running:
            self._inbox.append(OutputListener(self._path))
            self._wake()

    def close(self) -> None:
        """Read what is there, within ``CLOSE_S``, and close every connection; twice is once."""
        if not self._is_running:
            return
        self._is_running, self._is_closing = False, True
        self._wake()
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            log.error("output.not_closed", after_s=CLOSE_S)
        else:
            os.close(self._wake_fd)

    def name(
        self, worker_id: str, *, session_id: SessionId, incarnation: Incarnation, pid: int
    ) -> None:
        """Bind what the worker writes from now on; before, its lines have its own id.

        Whoever names a worker forgets it, too.
        """
        bound = {"session_id": session_id, "incarnation": incarnation, "pid": pid}
        self.expect(worker_id, pid)
        with self._turn:
            worker = self._workers.setdefault((worker_id, pid), WorkerOutput(bound))
            worker.is_named, worker.bound = True, bound

    def expect(self, worker_id: str, pid: int) -> None:
        """Let this process alone write for a worker; another one's connections are closed.

        What one of them has written before is logged with its own pid, and is not the worker's.
        """
        with self._turn:
            is_new, self._pids[worker_id] = self._pids.get(worker_id) != pid, pid
        if is_new and self._is_running:
            self._inbox.append(_Known(worker_id, pid))
            self._wake()

    def tail(self, worker_id: str, bytes_max: int = TAIL_BYTES_MAX) -> str:
        """Return the end of its stderr, records only where a tool wrote them; it is bounded."""
        worker = self._worker(worker_id)
        return "" if worker is None else last_lines(redact_text(worker.tail.text()), bytes_max)

    async def drained(self, worker_id: str, bound_s: float) -> None:
        """Return when all was read that a dead worker has written, or after ``bound_s``.

        What it has started may hold its sockets, and go on writing.
        """
        if not self._is_running:
            return
        loop = asyncio.get_running_loop()
        waiter = _Waiter(worker_id, loop, loop.create_future())
        self._inbox.append(waiter)
        self._wake()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(bound_s):
                await waiter.drained

    def forget(self, worker_id: str) -> None:
        """Let go of what it wrote last, and close its connections to whoever still holds them."""
        with self._turn:
            worker = self._workers.pop((worker_id, self._pids.pop(worker_id, -1)), None)
        if worker is not None and self._is_running:
            self._inbox.append(worker)
            self._wake()

    def _worker(self, worker_id: str) -> WorkerOutput | None:
        """Return a worker that is known, or has written."""
        with self._turn:
            return self._workers.get((worker_id, self._pids.get(worker_id, -1)))

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it was woken often enough
            os.eventfd_write(self._wake_fd, 1)

    # Everything below runs on the thread.

    def _main(self) -> None:
        while not self._is_closing:
            try:
                self._round(wait=True)
            except Exception:
                log.exception("output.failed")
                time.sleep(FAILED_REST_S)
        try:
            for _ in range(LAST_ROUNDS_MAX):
                if not self._round(wait=False):
                    break
        finally:
            self._let_go()

    def _round(self, *, wait: bool) -> bool:
        """Serve everybody who has something, once, and rest; False when nobody had."""
        is_asked = self._take_orders()
        ready = self._selector.select(self._patience_s() if wait and not is_asked else 0)
        began = time.monotonic()
        is_all_accepted = True
        for key, _ in ready:
            if isinstance(key.data, _Connection):
                self._serve(key.data)
            elif key.fileobj is self._listener.sock:
                is_all_accepted = self._accept()
            else:
                self._hear()
        while (
            self._nameless and (oldest := next(iter(self._nameless))).opened_at < began - HEADER_S
        ):
            self._refuse(oldest)
        if self._log.report_at is not None and began >= self._log.report_at:
            self._log.report_losses()
        if is_all_accepted:  # a dead worker's connection may be among the others
            self._waiters = [waiter for waiter in self._waiters if not self._is_answered(waiter)]
        self._rest(min(max(ROUND_S, time.monotonic() - began), REST_S_MAX))
        return bool(ready)

    def _rest(self, rest_s: float) -> None:
        """Rest for so long, or until something is asked for; what was asked for may be heard."""
        if not self._inbox:
            asked = select.poll()
            asked.register(self._wake_fd, select.POLLIN)
            asked.poll(rest_s * 1e3)

    def _take_orders(self) -> bool:
        """Do what was asked for; True when somebody waits who was not looked after yet."""
        is_asked = False
        while self._inbox:
            order = self._inbox.popleft()
            if isinstance(order, _Waiter):
                self._waiters.append(order)
                is_asked = True
                continue
            if isinstance(order, OutputListener):
                self._selector.unregister(self._listener.sock)
                self._listener.give_up()
                self._listener = order
                self._selector.register(order.sock, selectors.EVENT_READ)
                continue
            if isinstance(order, _Known):
                self._refuse_others(order)
                continue
            for connection in tuple(self._streams.get(order, ())):
                self._serve(connection)
                self._end(connection)
        return is_asked

    def _refuse_others(self, known: _Known) -> None:
        """Close what other processes have opened in the name of a worker."""
        with self._turn:
            others = [
                worker
                for (worker_id, pid), worker in self._workers.items()
                if worker_id == known.worker_id and pid != known.pid
            ]
        for worker in others:
            for connection in tuple(self._streams.get(worker, ())):
                self._refuse(connection)

    def _is_answered(self, waiter: _Waiter) -> bool:
        worker = self._worker(waiter.worker_id)
        if worker in self._streams and not waiter.drained.done():
            return False
        waiter.wake()
        return True

    def _patience_s(self) -> float | None:
        """Return when something is to be done even if nobody writes."""
        times = [] if self._log.report_at is None else [self._log.report_at]
        if self._nameless:
            times.append(next(iter(self._nameless)).opened_at + HEADER_S)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)

    def _accept(self) -> bool:
        """Take on whoever waits; False: there are more."""
        turned_away = self._listener.turned_away
        accepted, is_all = self._listener.accept()
        for sock, pid in accepted:
            connection = _Connection(sock, pid, time.monotonic())
            self._connections.add(connection)
            if len(self._connections) > CONNECTIONS_MAX:
                self._refuse(connection)
                continue
            self._nameless[connection] = None
            self._selector.register(sock, selectors.EVENT_READ, connection)
            self._serve(connection)  # who connects says at once who it is
            if len(self._nameless) > NAMELESS_MAX:
                self._refuse(next(iter(self._nameless)))
        self._note_refused(self._listener.turned_away - turned_away)
        return is_all

    def _serve(self, connection: _Connection) -> None:
        """Read once from a connection; one that we cannot cope with is closed, others go on."""
        try:
            self._read(connection)
        except Exception:
            log.exception("output.failed", pid=connection.pid)
            self._end(connection)

    def _read(self, connection: _Connection) -> None:
        brought: list[int] = []
        try:
            if connection.worker is None and self._on_descriptor is not None:
                chunk, brought, _, _ = socket.recv_fds(
                    connection.sock, READ_BYTES, 1, socket.MSG_CMSG_CLOEXEC
                )
            else:
                chunk = connection.sock.recv(READ_BYTES)  # descriptors, if any, come to nothing
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        try:
            self._take(connection, chunk)
        finally:
            self._hand_on(connection, brought)

    def _hand_on(self, connection: _Connection, brought: list[int]) -> None:
        """Give a descriptor that came along to its taker."""
        for fd in brought:
            if connection.worker is None or self._on_descriptor is None:
                os.close(fd)
            else:
                try:
                    self._on_descriptor(connection.worker_id, connection.pid, fd)
                except RuntimeError:  # the loop is closed
                    os.close(fd)

    def _take(self, connection: _Connection, chunk: bytes) -> None:
        if not chunk:
            self._end(connection)
            return
        if connection.worker is None:
            chunk = self._greet(connection, chunk)
        if connection.worker is not None and chunk:
            self._log.take(connection.worker, connection.stream, connection.cutter, chunk)

    def _greet(self, connection: _Connection, chunk: bytes) -> bytes:
        """Find out whose the connection is; return what comes after that."""
        connection.head += chunk
        line, newline, rest = connection.head.partition(b"\n")
        if not newline and len(line) < HEADER_BYTES_MAX:
            return b""
        found = read_header(line) if newline else None
        if found is None:
            self._refuse(connection)
            return b""
        worker_id, stream = found
        key = worker_id, connection.pid
        with self._turn:
            is_own = self._pids.get(worker_id, connection.pid) == connection.pid
            unnamed = WorkerOutput({"worker_id": worker_id, "pid": connection.pid})
            worker = self._workers.setdefault(key, unnamed) if is_own else unnamed
        if not is_own or len(self._streams.get(worker, ())) >= STREAMS_MAX:
            self._refuse(connection)
            return b""
        del self._nameless[connection]
        self._streams[worker].add(connection)
        connection.head, connection.worker_id = b"", worker_id
        connection.worker, connection.stream = worker, stream
        return rest

    def _refuse(self, connection: _Connection) -> None:
        self._note_refused(1)
        self._end(connection)

    def _note_refused(self, count: int) -> None:
        self.refused += count
        self._log.refuse(count)

    def _end(self, connection: _Connection) -> None:
        """Close a connection, once, and note that its worker has one less."""
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        self._nameless.pop(connection, None)
        with contextlib.suppress(KeyError):  # refused before it was registered
            self._selector.unregister(connection.sock)
        connection.sock.close()
        worker = connection.worker
        if worker is None:
            return
        self._log.end(worker, connection.stream, connection.cutter)
        self._streams[worker].discard(connection)
        if not self._streams[worker]:
            del self._streams[worker]
            self._log.report_loss(worker)
            self._keep_tail((connection.worker_id, connection.pid))

    def _keep_tail(self, key: _Key) -> None:
        """Forget by ourselves whom nobody named, and so nobody forgets."""
        self._unnamed_ended.append(key)
        while len(self._unnamed_ended) > UNNAMED_ENDED_MAX:
            oldest = self._unnamed_ended.popleft()
            with self._turn:
                worker = self._workers.get(oldest)
                if worker is not None and not worker.is_named and worker not in self._streams:
                    del self._workers[oldest]

    def _let_go(self) -> None:
        for connection in tuple(self._connections):
            self._end(connection)
        self._log.report_losses()
        self._take_orders()
        for waiter in self._waiters:
            waiter.wake()
        self._selector.close()
        self._listener.close()
