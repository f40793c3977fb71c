"""The zygote, as its daemon sees it: a process that has all worker code in memory, and forks.

``workers.zygote`` is its program; ``cmdc_runtime.wire.forks`` says what both say to each other.
Rules: nothing here blocks; a zygote that died is never replaced unseen, the next ``warm`` or
``fork`` starts a new one; who waits for a fork hears of it within a bound, whatever the zygote
does; a child whose caller went away is ended.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import structlog

import cmdc_runtime
from cmdc_runtime.errors import Overloaded
from cmdc_runtime.prctl import NICE_AT_FIRST
from cmdc_runtime.process import PRELOAD_MODULE, WORKER_MODULE, ZYGOTE_MODULE
from cmdc_runtime.wire.forks import (
    MESSAGE_BYTES_MAX,
    Begin,
    ChildEnded,
    Fork,
    Forked,
    ForkRefused,
    Learn,
    Learned,
    Preloaded,
    ToZygote,
    Unsafe,
    answer_of,
    encode,
)
from supervisor.adapters.accept_gate import check_descriptors
from supervisor.adapters.pidfd import is_over, reap
from supervisor.adapters.tasks import awake_timeout

log = structlog.get_logger()
T = TypeVar("T")

FORKS_QUEUED_MAX: Final = 1024
"""Forks that wait or run; one takes some 10 ms, so the last of them starts after 10 s."""
FORKS_SENT_MAX: Final = 4
"""Orders that the zygote has at a time: what it has to do next is there when it has done the first,
and the descriptors that are kept free are enough for all of them."""
_FDS_MESSAGE: Final = 1


class ZygoteFailed(Exception):
    """A zygote or a fork failed; ``stage`` is launch, preload, learn or fork."""

    def __init__(self, stage: str, message: str) -> None:
        """Keep where and why."""
        self.stage = stage
        self.message = message
        super().__init__(f"zygote failed at {stage}: {message}")


class ZygoteLost(Exception):
    """The zygote died; its children live on, the next ``warm`` or ``fork`` starts a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZygoteOptions:
    """What a zygote loads and how long it may take."""

    preload: str = PRELOAD_MODULE
    needs: tuple[str, ...] = ()
    """Modules beside what every worker needs, without which the zygote is of no use."""
    warm_s_max: float = 120.0
    """From launch to its report; 3 s on an idle machine."""
    fork_s_max: float = 10.0
    """For one fork; some 10 ms on an idle machine."""
    close_s_max: float = 2.0
    """How long the zygote may take to end by itself before it is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmReport:
    """A zygote that is ready to fork."""

    pid: int
    generation: int
    """1 for the first zygote of the daemon, one more after each loss."""
    total_ms: float
    """From launch to its report."""
    import_ms: float
    warm_ms: float
    """Of the warm-up call; 0 if it failed."""
    huge_mib: int
    """Of its memory in huge pages."""
    versions: dict[str, str]
    problems: tuple[str, ...]
    """What a person should see to; the zygote forks all the same."""


# --- children -------------------------------------------------------------------------------------


class Handed:
    """A descriptor for a child that is about to be forked, which finds its own number in its boot.

    It is closed here when nobody has this object any more: a fork that was given up goes on.
    """

    def __init__(self, fd: int) -> None:
        """Own ``fd`` from now on."""
        self.fd: Final = fd
        weakref.finalize(self, os.close, fd)


Boot: TypeAlias = dict[str, str | int | float | Handed]
"""What a child is started with: small and flat, with one ``Handed`` at most."""


@dataclass(slots=True, eq=False)
class Child:
    """A forked process: signals go through its pidfd only, so never to a reused pid."""

    pid: int
    pidfd: int
    """Readable when the process has ended; the truth about that. -1 after ``close``."""
    started_at: float = field(default_factory=time.monotonic)
    _status: int | None = None
    _is_known: bool = False
    _listener: Callable[[], None] | None = None

    def send_signal(self, number: int) -> bool:
        """Send a signal; False if the process has ended."""
        if self.pidfd < 0:
            return False
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            return False
        return True

    def status(self) -> int | None:
        """Return the exit code, or minus the signal's number; None if it was not reported (yet)."""
        return self._status

    def listen(self, listener: Callable[[], None]) -> None:
        """Call this when the zygote reports the status, or can't any more: at once, if it has."""
        self._listener = listener
        if self._is_known:
            listener()

    def reported(self, status: int | None) -> None:
        """Record what the zygote said of its end; None: it died before that."""
        self._status, self._is_known = status, True
        if self._listener is not None:
            self._listener()

    def close(self) -> None:
        """Give back the descriptor; the process itself goes on. Idempotent."""
        pidfd, self.pidfd, self._listener = self.pidfd, -1, None
        if pidfd >= 0:
            os.close(pidfd)


# --- one zygote process ---------------------------------------------------------------------------


class _Server:
    """One running zygote, from its launch to ``reaped``; all of it runs in the loop."""

    def __init__(
        self, options: ZygoteOptions, learned: Iterable[str], on_end: Callable[["_Server"], None]
    ) -> None:
        """Start it; the kernel ties it to the calling thread. Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line = [sys.executable, "-P", "-m", ZYGOTE_MODULE]
        line += map(str, (theirs.fileno(), os.getpid(), NICE_AT_FIRST))
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603 - our own program
                    line, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
                )
            self.pidfd = os.pidfd_open(self._process.pid)
        except OSError:
            ours.close()
            raise
        ours.setblocking(False)  # noqa: FBT003 - socket takes it so
        self.pid: Final = self._process.pid
        self._socket = ours
        self._on_end = on_end
        self._forks: dict[int, asyncio.Future[Child]] = {}
        self._children: dict[int, Child] = {}
        self._number = 0
        loop = asyncio.get_running_loop()
        self.preloaded: asyncio.Future[Preloaded] = loop.create_future()
        self._learning: asyncio.Future[Learned] = loop.create_future()
        self.is_ended = False
        self.reaped = asyncio.Event()
        self.status: int | None = None
        loop.add_reader(self._socket, self._receive)
        loop.add_reader(self.pidfd, self._end)
        needs = (*options.needs, *learned)
        self._send(Begin(preload=options.preload, path=tuple(sys.path), needs=needs))

    def fork(self, module: str, boot: Boot) -> asyncio.Future[Child]:
        """Order a fork; raises OSError where there can't be another process now."""
        check_descriptors()
        self._number += 1
        handed = [(name, value) for name, value in boot.items() if isinstance(value, Handed)]
        plain = {name: value for name, value in boot.items() if not isinstance(value, Handed)}
        fd_name, *_ = [name for name, _ in handed] or [""]
        order = Fork(number=self._number, module=module, boot=plain, fd_name=fd_name)
        forked: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        self._forks[self._number] = forked
        self._send(order, *(value.fd for _, value in handed))
        return forked

    def learn(self, name: str) -> "asyncio.Future[Learned]":
        """Order an import, when the one before was answered."""
        self._learning = asyncio.get_running_loop().create_future()
        self._send(Learn(name=name))
        return self._learning

    def kill(self) -> None:
        """End it at once; whoever waits for a fork gets ZygoteLost."""
        if not self.is_ended:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def hang_up(self) -> None:
        """Have it end by itself, or at once while it works on an order, which may hang."""
        if self._forks or not self.preloaded.done():
            self.kill()
        elif not self.is_ended:
            self._socket.shutdown(socket.SHUT_WR)

    def notice_end(self) -> None:
        """Do now what the loop would do when it comes to the end of this process."""
        if not self.is_ended and is_over(self.pidfd):
            self._end()

    def _send(self, frame: ToZygote, *fds: int) -> None:
        """Send an order; where that fails the process is gone or hangs, which shows elsewhere."""
        with suppress(ConnectionError, BlockingIOError):
            socket.send_fds(self._socket, [encode(frame)], fds)

    def _receive(self) -> None:
        """Take everything that it has said so far."""
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self._socket, MESSAGE_BYTES_MAX, _FDS_MESSAGE)
            except BlockingIOError:
                return
            except ConnectionError:
                data, fds = b"", []
            if not data:
                asyncio.get_running_loop().remove_reader(self._socket)
                return
            self._take(data, fds)

    def _take(self, data: bytes, fds: list[int]) -> None:
        match answer_of(data):
            case Preloaded() as reported:
                _complete(self.preloaded, reported)
            case Learned() as reported:
                _complete(self._learning, reported)
            case Forked(number=number, pid=pid):
                self._children[pid] = child = Child(pid, fds[0])
                _hand_over(self._forks.pop(number), child)
            case ForkRefused(number=number, errno=errno):
                forked = self._forks.pop(number)
                if not forked.done():
                    what = f"no process could be forked: {os.strerror(errno)}"
                    forked.set_exception(OSError(errno, what))
            case Unsafe(threads=threads):
                log.error("zygote.poisoned", pid=self.pid, threads=threads)
                self._refuse_all(f"had {threads} threads: unsafe to fork")
            case ChildEnded(pid=pid, status=status):
                if (ended := self._children.pop(pid, None)) is not None:
                    ended.reported(status)

    def _end(self) -> None:
        """Reap it, and notify all who wait for something of it."""
        self._receive()
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket)
        loop.remove_reader(self.pidfd)
        self.is_ended = True
        ended = reap(self.pidfd)
        self.status = None if ended is None else ended.code
        self._process.returncode = self.status or 0  # nobody else is to reap it
        self._socket.close()
        os.close(self.pidfd)
        self._refuse_all("has ended")
        for child in self._children.values():
            child.reported(None)
        self._children.clear()
        self.reaped.set()
        self._on_end(self)

    def _refuse_all(self, why: str) -> None:
        """Fail all who wait for something of it: it will not come."""
        all_waiting: list[asyncio.Future[Any]] = [self.preloaded, self._learning]
        all_waiting += self._forks.values()
        for waiting in all_waiting:  # Any: whatever they wait for
            if not waiting.done():
                waiting.set_exception(ZygoteLost(f"the zygote (pid {self.pid}) {why}"))
                waiting.exception()  # whoever waited for it may be gone
        self._forks.clear()


def _complete(waiting: "asyncio.Future[T]", reported: T) -> None:
    """Give it to whoever waits, if anybody does."""
    if not waiting.done():
        waiting.set_result(reported)


def _hand_over(forked: "asyncio.Future[Child]", child: Child) -> None:
    """Give a child to who waits for it; one that nobody waits for is ended."""
    if forked.done():
        child.send_signal(signal.SIGKILL)
        child.close()
    else:
        forked.set_result(child)


# --- the zygote of a daemon -----------------------------------------------------------------------


class Zygote:
    """Forks workers from one warm process; for one event loop."""

    def __init__(
        self,
        options: ZygoteOptions | None = None,
        *,
        on_lost: Callable[[ZygoteLost], None] | None = None,
    ) -> None:
        """Start nothing yet; ``on_lost`` is called in the loop when a warm zygote dies."""
        self._options = options or ZygoteOptions()
        self._on_lost = on_lost
        self._turn = asyncio.Lock()
        self._sent = asyncio.Semaphore(FORKS_SENT_MAX)
        self._queued = 0
        self._generation = 0
        self._learned: list[str] = []
        self._server: _Server | None = None
        self._unreaped: set[_Server] = set()
        self._warm: WarmReport | None = None
        self.warmed = asyncio.Event()
        """Set while a fork would start at once."""
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """The zygote's pid while one runs."""
        return self._server.pid if self._server else None

    @property
    def is_warm(self) -> bool:
        """Whether a fork would start at once."""
        return self._warm is not None

    @property
    def pids(self) -> frozenset[int]:
        """Children of the daemon that are waited for here; nobody else may reap them.

        A zygote that is about to end is still one of them, though ``pid`` is None by then.
        """
        return frozenset(server.pid for server in tuple(self._unreaped))

    async def warm(self) -> WarmReport:
        """Return when a zygote is ready to fork, at once if one is; raises ZygoteFailed."""
        async with self._turn:
            return (await self._ready())[1]

    async def fork(self, boot: Boot, *, module: str = WORKER_MODULE) -> Child:
        """Start a process that calls ``main(boot)`` of ``module``; the caller owns the child.

        Warms a new zygote first when there is none. Raises ZygoteLost when the zygote died or
        hung over this fork, ZygoteFailed when no new one could be made ready, and Overloaded
        when ``FORKS_QUEUED_MAX`` forks wait already.
        """
        if self._queued >= FORKS_QUEUED_MAX:
            raise Overloaded(f"{self._queued} processes are waiting to be forked")
        self._queued += 1
        try:
            async with self._sent:
                async with self._turn:
                    server, _ = await self._ready()
                return await self._fork(server, module, boot)
        finally:
            self._queued -= 1

    async def learn(self, name: str) -> None:
        """Have one more module in each child that is forked from now on; forks wait meanwhile.

        Where no zygote is warm the next one has it. Raises ZygoteFailed when it can't be loaded,
        and ZygoteLost when the zygote died or hung over it; the next one is without it.
        """
        async with self._turn:
            if name in self._learned:
                return
            if self._server is not None and self._warm is not None:
                await self._teach(self._server, name)
            self._learned.append(name)

    async def _teach(self, server: _Server, name: str) -> None:
        bound_s = self._options.warm_s_max
        try:
            async with asyncio.timeout(bound_s):
                reported = await asyncio.shield(server.learn(name))
        except BaseException as problem:
            server.kill()
            self._forget(server)
            if isinstance(problem, TimeoutError):
                raise ZygoteLost(f"{name} was not loaded in {bound_s:g} s") from problem
            raise
        if reported.problem:  # a thread may run, or half of it is there
            server.kill()
            self._forget(server)
            raise ZygoteFailed("learn", reported.problem)
        log.info("zygote.learned", pid=server.pid, module=name)

    async def close(self) -> None:
        """End the zygote; its children live on. Idempotent."""
        self._is_closed = True
        for server in self._unreaped:
            server.hang_up()
        ends = [server.reaped.wait() for server in self._unreaped]
        try:
            async with asyncio.timeout(self._options.close_s_max):
                await asyncio.gather(*ends)
        except TimeoutError:
            for server in self._unreaped:
                server.kill()
            await asyncio.gather(*[server.reaped.wait() for server in self._unreaped])

    async def _ready(self) -> tuple[_Server, WarmReport]:
        if self._is_closed:
            raise ZygoteLost("the zygote is closed")
        if self._server:
            self._server.notice_end()
        if self._server and self._warm:
            return self._server, self._warm
        started_at = time.monotonic()
        server = self._launch()
        try:
            reported = await self._preloaded(server)
            self._warm = self._judge(server, reported, (time.monotonic() - started_at) * 1e3)
        except BaseException:
            server.kill()
            self._forget(server)
            raise
        self.warmed.set()
        log.info("zygote.warmed", **_fields(self._warm))
        return server, self._warm

    def _launch(self) -> _Server:
        try:
            server = self._server = _Server(self._options, self._learned, self._ended)
        except OSError as problem:
            raise ZygoteFailed("launch", str(problem)) from problem
        self._unreaped.add(server)
        self._generation += 1
        return server

    async def _preloaded(self, server: _Server) -> Preloaded:
        bound_s = self._options.warm_s_max
        try:
            async with asyncio.timeout(bound_s):
                return await asyncio.shield(server.preloaded)
        except TimeoutError as problem:
            raise ZygoteFailed("preload", f"not ready in {bound_s:g} s") from problem
        except ZygoteLost as gone:
            if self._is_closed:
                raise
            raise ZygoteFailed("preload", f"{gone}; its stderr says why") from gone

    def _judge(self, server: _Server, reported: Preloaded, total_ms: float) -> WarmReport:
        """Turn what it said into a report, or raise for what makes forking pointless."""
        if (report := reported.report) is None:
            raise ZygoteFailed("preload", reported.failure)
        ours = Path(cmdc_runtime.__file__).parent.parent
        if Path(report.origin).parent != ours:
            raise ZygoteFailed(
                "preload", f"{report.origin} was imported, which is not beside {ours}"
            )
        missing = [name for name in self._options.needs if name not in reported.versions]
        if missing:
            why = "; ".join(report.problems) or "and it reports no problem"
            raise ZygoteFailed("preload", f"{', '.join(missing)} not loaded: {why}")
        if reported.threads != 1:
            raise ZygoteFailed("preload", f"{reported.threads} threads run: unsafe to fork")
        return WarmReport(
            pid=server.pid,
            generation=self._generation,
            total_ms=round(total_ms, 1),
            import_ms=round(report.import_ms, 1),
            warm_ms=round(report.warm_ms, 1),
            huge_mib=report.huge_bytes >> 20,
            versions=reported.versions,
            problems=report.problems,
        )

    async def _fork(self, server: _Server, module: str, boot: Boot) -> Child:
        bound_s = self._options.fork_s_max
        try:
            forked = server.fork(module, boot)
        except OSError as problem:
            raise ZygoteFailed("fork", str(problem)) from problem
        try:
            async with awake_timeout(bound_s):
                return await asyncio.shield(forked)
        except TimeoutError as problem:
            _abandon(forked)
            server.kill()
            self._forget(server)
            raise ZygoteLost(f"no fork within {bound_s:g} s; the zygote was killed") from problem
        except ZygoteLost:  # it forks no more, and may be there a moment longer
            self._forget(server)
            raise
        except OSError as problem:
            raise ZygoteFailed("fork", str(problem)) from problem
        except asyncio.CancelledError:
            _abandon(forked)
            raise

    def _ended(self, server: _Server) -> None:
        """Clear up after a zygote that has been reaped."""
        self._unreaped.discard(server)
        self._forget(server)

    def _forget(self, server: _Server) -> None:
        """Fork no more from this one, and say so where it was warm. Idempotent."""
        if server is not self._server:
            return
        was_warm, self._warm, self._server = self._warm is not None, None, None
        self.warmed.clear()
        if not was_warm or self._is_closed:
            return
        log.warning("zygote.lost", pid=server.pid, status=server.status)
        if self._on_lost:
            self._on_lost(
                ZygoteLost(f"the zygote (pid {server.pid}) ended with status {server.status}")
            )


def _abandon(forked: "asyncio.Future[Child]") -> None:
    """End a child that nobody waits for any more, now or as soon as it is there."""

    def end(done: "asyncio.Future[Child]") -> None:
        if not done.cancelled() and done.exception() is None:
            child = done.result()
            child.send_signal(signal.SIGKILL)
            child.close()

    forked.add_done_callback(end)


def _fields(report: WarmReport) -> dict[str, object]:
    return {name: getattr(report, name) for name in WarmReport.__slots__}
