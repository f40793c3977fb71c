"""The daemon: the only place of this package that constructs, and the order of its life.

Claim the directory, open the journal, bind the sockets, go on with the sessions that an earlier
daemon left, say READY, warm the zygote, serve until a signal or the owner's end, and then stop
every session, so that nothing that was started here outlives it; or, asked for by SIGUSR2, leave
every agent to the daemon that comes next.

Signals are heard whatever else comes at the time (``on_signal``), and the threads for blocking work
of the loop are all there from the beginning (``started_threads``).
"""

import asyncio
import json
import os
import secrets
import shutil
import signal
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog
import zmq

from cmdc_runtime.clock import now_ms
from cmdc_runtime.errors import CmdcError
from cmdc_runtime.ids import SessionId
from cmdc_runtime.prctl import set_child_subreaper
from cmdc_runtime.process import DAEMON_RESTARTED
from cmdc_runtime.reasons import AnyReason, Other
from cmdc_runtime.requests import DaemonFacts
from cmdc_runtime.runtime_dir import Holder, socket_path
from cmdc_runtime.version import VERSION
from cmdc_runtime.wire.frames import FromClient, FromWorker, Notify, ToClient, ToWorker
from cmdc_runtime.wire.sockets import Role
from supervisor.adapters.accept_gate import AcceptGate
from supervisor.adapters.endpoint import Endpoint
from supervisor.adapters.hub import Hub
from supervisor.adapters.journal.base import JournalFailed
from supervisor.adapters.journal.opening import open_journal, with_fault_points
from supervisor.adapters.keyring import Keyring
from supervisor.adapters.orphans import end_strangers, find_survivors
from supervisor.adapters.pidfd import Reaper
from supervisor.adapters.presence import KeptPath, Presence, log_file
from supervisor.adapters.router import Router
from supervisor.adapters.self_check import Caller, FlushBarrier, ask_journal, ask_reaper
from supervisor.adapters.systemd import Notifier
from supervisor.adapters.tasks import BackgroundTasks
from supervisor.adapters.zygote import Zygote, ZygoteLost
from supervisor.api.backups import Backups
from supervisor.api.gate import Admission, Gate
from supervisor.api.handlers import ApiContext
from supervisor.api.request_router import RequestRouter
from supervisor.config import DaemonConfig
from supervisor.core.cgroups import cgroup_name
from supervisor.core.limits import STOP_ALL_S
from supervisor.core.self_check import status_line
from supervisor.core.session_phase import SHOWN
from supervisor.core.session_tree import root_spec
from supervisor.core.storage import Condition
from supervisor.core.tree.messages import Label, Report
from supervisor.logs import log_losses, log_path, set_level
from supervisor.processes.containment import Containments
from supervisor.processes.pool import WorkerPool
from supervisor.processes.starts import Starts
from supervisor.processes.worker import VICTIMS, pids_of
from supervisor.processes.zygotes import Zygotes
from supervisor.sessions.adoption import Adoption, AdoptionResult
from supervisor.sessions.monitors import MonitorService
from supervisor.sessions.sessions import Sessions
from supervisor.sessions.tree_runtime import Reports, TreeRuntime, ZygoteChild, write_recording
from supervisor.upkeep.memory import MemoryWatch, WatchedSocket, cut
from supervisor.upkeep.pruning import Pruning
from supervisor.upkeep.reload import Hangup, Reload
from supervisor.upkeep.self_check import SelfCheck

# --- signals --------------------------------------------------------------------------------------


def on_signal(number: signal.Signals, call: Callable[[], object]) -> None:
    """Have the running loop call this for signals of this number: once for some that come at once.

    It ends with the loop. To be called in the main thread.

    asyncio goes by a byte for each signal in a pipe of its own, which holds some hundreds: a storm
    of ends of processes (SIGCHLD) fills it while the loop is busy, and what comes then is lost, a
    SIGTERM, too. Here the byte only wakes the loop. What notifies it is Python's own handler, which
    runs once for all signals of a number that have come, see
    https://docs.python.org/3/library/signal.html.
    """
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(number, _woken)
    signal.signal(number, partial(_call_in, loop, call))
    signal.siginterrupt(number, False)  # noqa: FBT003 - it has no name for it
    signal.set_wakeup_fd(signal.set_wakeup_fd(-1), warn_on_full_buffer=False)


def _woken() -> None:
    """Do nothing: the handler has notified the loop."""


# Any: the number and the frame that was interrupted.
def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], object], *_: Any) -> None:
    loop.call_soon_threadsafe(call)


# --- threads --------------------------------------------------------------------------------------

THREADS: Final = 8
"""For files and cgroups, of which one piece of work takes milliseconds. One that hangs keeps its
thread for ``cgroups.KILL_S``, so some are spare."""
START_S: Final = 10.0
"""For all of them to run; a busy machine needs milliseconds."""


def started_threads(count: int = THREADS) -> ThreadPoolExecutor:
    """Return an executor whose threads run already.

    Python starts a thread when it is needed first. That may be when the system gives none, and just
    then much ends at once: what would have reported it is not done.

    Raises:
        RuntimeError: the system gives no more threads.
        threading.BrokenBarrierError: they were not running in time.
    """
    executor = ThreadPoolExecutor(count, thread_name_prefix="work")
    # Who waits at the barrier is not idle, so each piece of work gets a thread of its own.
    barrier = threading.Barrier(count + 1, timeout=START_S)
    try:
        for _ in range(count):
            executor.submit(barrier.wait)
        barrier.wait()
    except BaseException:
        barrier.abort()
        executor.shutdown(wait=False)
        raise
    return executor


# --- the daemon -----------------------------------------------------------------------------------

log = structlog.get_logger()

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class RootGaveUp(CmdcError):
    """The root of the supervision tree ended, and with it the daemon."""


class Daemon:
    """One daemon, from claim to end."""

    def __init__(
        self, config: DaemonConfig, notifier: Notifier, read_again: Callable[[], DaemonConfig]
    ) -> None:
        """Construct every part; ``run`` brings them to life, in the running loop."""
        self._config = config
        self._notifier = notifier
        self._instance = secrets.token_hex(8)
        holder = Holder(pid=os.getpid(), version=VERSION, started_at_ms=now_ms())
        self._endpoint = Endpoint.claim(config.runtime_dir, holder, embedded=config.embedded)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._journal = with_fault_points(open_journal(config), VICTIMS, self._pids_of)
        self._zygote = Zygote(on_lost=self._zygote_lost)
        self._zygote_child = ZygoteChild(self._zygote, self._warmed)
        self._runtime = self._zygote_child.runtime = TreeRuntime(
            root_spec(self._zygote_child), self._report
        )
        self._reaper = Reaper()
        self._hub = Hub(self._context, self._journal, self._cut_follower)
        self._pruning = Pruning(self._journal, config.retain_days)
        self._reports = Reports(self._hub)
        self._survivors = find_survivors(config.runtime_dir)
        self._containments = self._make_containments(config)
        self._pool = self._make_pool(config)
        caller = Caller(self._context, self._endpoint.control, "flush-barrier")
        self._flush_barrier = FlushBarrier(caller)
        self._sessions = Sessions(
            self._runtime,
            self._pool,
            self._hub,
            self._journal,
            self._flush_barrier,
            config.max_sessions,
            config.starts_waiting,
            Keyring(config.runtime_dir),
        )
        accepts_code = config.allow_code_by_value != "never"
        monitors = MonitorService(self._journal, self._sessions.look_up, self._notify)
        self._sessions.monitors = monitors
        self._sessions.state_dir = str(config.state_dir.absolute())
        backups = Backups(self._journal, (config.state_dir, config.runtime_dir))
        context = ApiContext(self._sessions, monitors, self._hub, accepts_code, self.facts, backups)
        gate = self._make_gate()
        self._admission = Admission(self._context, gate.lets_listen, self._hub.bars)
        self._requests = RequestRouter(context, self._sessions, gate)
        self._control: Router[FromClient, ToClient] = Router(
            self._context, Role.CONTROL, FromClient, self._requests.receive, check=gate.check
        )
        self._sessions.control = self._control
        self._workers = self._pool.router = self._make_workers()
        self._memory = self._memory_watch()
        self._caller = Caller(self._context, self._endpoint.control)
        self._stop = asyncio.Event()
        self._is_handing_over = False
        self._is_orphan = False
        """What runs is left to the next daemon."""
        self._gave_up: AnyReason | None = None
        """Why the tree's root ended by itself, None while it has not."""
        self._reload = self._reloading(read_again)

    def _make_gate(self) -> Gate:
        """Return who is asked about each frame of a client, and about each who follows events."""
        token, keep_token = self._endpoint.token, self._endpoint.keep_token
        return Gate(self._sessions, self._pool.session_processes, token, keep_token)

    def _make_workers(self) -> Router[FromWorker, ToWorker]:
        context, pool = self._context, self._pool
        return Router(
            *(context, Role.WORKERS, FromWorker, pool.receive),
            check=pool.check,
            on_refused=pool.refused,
        )

    def _cut_follower(self, pid: int) -> int:
        """Cut the connections of a process that follows too much; return how many."""
        return len(cut(socket_path(self._endpoint.events), lambda of, _is_sending: of == pid))

    def _memory_watch(self) -> MemoryWatch:
        """Watch what peers make this process remember; a worker's connection is never cut."""
        pool, reaper, places = self._pool, self._reaper, self._endpoint

        def ours() -> frozenset[int]:
            return reaper.pids | frozenset(list(pool.awaited.values()))

        return MemoryWatch(
            (
                WatchedSocket(Role.CONTROL, socket_path(places.control), self._control.heard),
                WatchedSocket(Role.WORKERS, socket_path(places.workers), self._workers.heard, ours),
                WatchedSocket(Role.EVENTS, socket_path(places.events), self._hub.heard),
            )
        )

    def _reloading(self, read_again: Callable[[], DaemonConfig]) -> Reload:
        take_over: dict[str, Callable[[Any], None]] = {  # Any: the type of its option
            "log_level": set_level,
            "max_sessions": self._allow_sessions,
            "retain_days": self._pruning.retain,
            "spares": self._pool.want_spares,
        }
        return Reload(self._config, read_again, take_over, self._notifier)

    def _make_containments(self, config: DaemonConfig) -> Containments:
        kept = [cgroup_name(one.entry.session_id, one.entry.incarnation) for one in self._survivors]
        folders = config.runtime_dir, config.state_dir
        return Containments(*folders, config.log_level, kept, lambda: self._pool.own_pids)

    def _make_pool(self, config: DaemonConfig) -> WorkerPool:
        return WorkerPool(
            Zygotes(self._zygote),
            self._reaper,
            self._containments,
            self._endpoint.workers,
            config.spares,
            grace_s=0.0 if config.embedded else config.agent_grace,
            starts=Starts(config.starts_at_once),
        )

    def facts(self) -> DaemonFacts:
        """Return who the daemon is and how it stands."""
        return DaemonFacts(
            pid=os.getpid(),
            instance=self._instance,
            version=VERSION,
            nursery=self._zygote_child.state,
            sessions=len(self._sessions.live),
            spares=self._pool.spares,
            events_address=self._endpoint.events,
            refused_frames=self._control.refused + self._workers.refused,
            layers=self._containments.layers,
            journal=str(self._journal.health),
            cut_connections=self._memory.cut + self._hub.cut,
            lost_log_lines=log_losses().dropped_lines,
            starts=self._pool.starts.facts(),
            log=log_path(),
        )

    async def run(self) -> None:
        """Serve until asked to stop; then end everything."""
        self._journal.health.on_change = self._journal_turned
        has_begun = False
        try:
            await self._journal.open()
            has_begun = True
            await self._serve()
        finally:
            await self._close()
            if has_begun:  # else whoever started it gets the reason
                log.info("daemon.stopped")

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(started_threads())
        set_child_subreaper()
        for number in _STOP_SIGNALS:
            on_signal(number, self._stop.set)
        hangup = Hangup(on_reload=self._reload.request, on_gone=self._stop.set)
        on_signal(signal.SIGHUP, hangup.hear)
        on_signal(signal.SIGCHLD, self._pool.sweeper.reap)
        on_signal(signal.SIGUSR1, partial(self._record, "asked for by SIGUSR1"))
        on_signal(signal.SIGUSR2, self._hand_over)
        self._containments.start(self._config.echo_fd)
        self._pool.awaited = {one.entry.worker_id: one.pid for one in self._survivors}
        self._workers.bind(self._endpoint.workers)
        self._admission.open()
        self._hub.bind(self._endpoint.events)
        self._memory.start()
        # Before the first client is heard: one that waited for this daemon must not read that
        # its session is gone because it was not adopted yet.
        self._runtime.begin()
        taken = await self._adopt_sessions()
        if taken is None:
            return
        self._pool.awaited = {}
        self._control.bind(self._endpoint.control)
        if self._config.owner_pid is not None:
            self._watch_owner(self._config.owner_pid)
        self._say_ready()
        accept_gate = AcceptGate(self._endpoint.directory)
        background = BackgroundTasks()
        background.spawn(self._pool.keep_spares(), "spares")
        if not self._config.embedded:
            background.spawn(self._pool.zygotes.warm_full(), "zygote")
        background.spawn(self._containments.watch(), "containments")
        background.spawn(self._pruning.keep(), "pruning")
        background.spawn(accept_gate.keep(), "accept_gate")
        background.spawn(self._presence(accept_gate).keep(), "presence")
        background.spawn(self._self_check().keep(), "self-check")
        background.spawn(self._notifier.keep_status(self._status), "status")
        background.spawn(self._reload.keep(), "reload")
        log.info(
            "daemon.started",
            directory=str(self._endpoint.directory),
            resumed=taken.resumed,
            adopted=taken.adopted,
        )
        try:
            await self._stop.wait()
            self._check_end()
        finally:
            self._announce_stop()
            background.cancel()
            await background.wait()

    async def _adopt_sessions(self) -> AdoptionResult | None:
        """Go on with what an earlier daemon left; None where a stop comes first.

        Then all of it is the next daemon's: of an agent that has not called nobody knows here what
        it has done, and nobody was served.
        """
        begun = Adoption(self._sessions, self._survivors, Other(detail=DAEMON_RESTARTED))
        taking = asyncio.create_task(begun.run(), name="adoption")
        stopped = asyncio.create_task(self._stop.wait(), name="stop")
        await asyncio.wait({taking, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not self._stop.is_set():
            return await taking
        taking.cancel()
        await asyncio.gather(taking, stopped, return_exceptions=True)
        self._announce_stop()
        self._check_end()
        self._hand_over()
        return None

    def _announce_stop(self) -> None:
        self._notifier.stopping()
        log.info("daemon.stopping", sessions=len(self._sessions.live))

    def _check_end(self) -> None:
        """Raise where it was not asked to end."""
        if self._journal.health.has_failed:
            raise JournalFailed(self._journal.health.cause)
        if self._gave_up is not None:
            self._record("the root gave up")
            raise RootGaveUp(f"the supervision tree gave up: {self._gave_up}")

    def _presence(self, accept_gate: AcceptGate) -> Presence:
        """Return who sees that everything that others look for is there."""
        places = self._endpoint
        listeners = {
            places.control: self._control.listen,
            places.workers: self._workers.listen,
            places.events: self._hub.listen,
        }
        kept = [
            KeptPath(Path(socket_path(address)), partial(listen, address))
            for address, listen in listeners.items()
        ]
        kept += (*self._containments.kept(), *log_file())
        return Presence(
            places.lock,
            accept_gate,
            kept,
            self._pool.register_again,
            may_restore=not self._config.embedded,
        )

    def _hand_over(self) -> None:
        """Stop, and leave the agents to the next daemon, if they are allowed to wait for one."""
        self._is_handing_over = self._pool.grace_s > 0
        self._stop.set()

    def _journal_turned(self, condition: Condition) -> None:
        """End where nothing is stored any more; the next daemon reads what is really there."""
        if condition is Condition.FAILED:
            self._hand_over()
        elif condition is Condition.FULL:
            for session in self._sessions.live.values():
                session.disk_full()
        self._notifier.status(self._status())

    def _allow_sessions(self, count: int) -> None:
        self._sessions.sessions_max = count

    def _self_check(self) -> SelfCheck:
        questions = {
            "reaper": ask_reaper,
            "journal": lambda: ask_journal(self._journal),
            "router": self._caller.ask_router,
        }
        return SelfCheck(questions, self._notifier.alive, self._notifier.watchdog_s)

    def _status(self) -> str:
        phases = (SHOWN[session.phase] for session in self._sessions.live.values())
        journal = str(self._journal.health)
        return status_line(phases, self._pool.spares, self._zygote_child.state, journal)

    def _notify(self, client: bytes, notice: Notify) -> bool:
        """Send a client an end, unless that may be only this daemon's: the journal has none."""
        if notice.seq is None and self._sessions.is_silent:
            return True  # the client asks the next daemon
        return self._control.send(client, notice)

    def _record(self, note: str) -> None:
        lines = self._runtime.record(note)
        self._containments.spawn(asyncio.to_thread(write_recording, self._config.state_dir, lines))

    def _zygote_lost(self, lost: ZygoteLost) -> None:
        self._zygote_child.lost(lost)

    def _warmed(self) -> None:
        self._notifier.status(self._status())
        self._notifier.ready()

    def _report(self, report: Report) -> None:
        if report.label is Label.SHUTDOWN and not report.path:
            # The root gives up: what stops now is not over, the next daemon goes on with it. It
            # would wait for sessions as long as they may take; the daemon's own end has a bound.
            self._sessions.is_leaving = True
            self._gave_up = report.reason
            self._stop.set()
        self._reports.publish(report)

    def _pids_of(self, victim: str, session_id: str) -> tuple[int, ...]:
        """Return whom a fault point kills."""
        session = self._sessions.live.get(SessionId(session_id))
        family = () if session is None else (session, *session.children)
        return pids_of(victim, self._zygote, lambda: [one.worker for one in family])

    def _say_ready(self) -> None:
        """Report to an owner that waits on a pipe that the sockets are bound."""
        fd = self._config.ready_fd
        if fd is None:
            return
        ready_facts = {"ready": True, "pid": os.getpid(), "instance": self._instance}
        line = json.dumps(ready_facts | {"directory": str(self._config.runtime_dir)})
        with os.fdopen(fd, "w", encoding="utf-8") as pipe:
            pipe.write(line + "\n")

    def _watch_owner(self, pid: int) -> None:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._lose_owner()
            return
        asyncio.get_running_loop().add_reader(fd, self._lose_owner)

    def _lose_owner(self) -> None:
        self._is_orphan = True
        self._stop.set()

    async def _close(self) -> None:
        self._sessions.is_leaving = True
        leaving = (self._requests.close, self._pool.leave, self._containments.leave)
        ending = (
            self._stop_tree,
            self._pool.close,
            self._requests.close,
            self._zygote.close,
            self._end_strangers,
            self._containments.close,
        )
        if self._is_handing_over:
            self._workers.close()  # what comes now is the next daemon's, of which they keep it all
        ends = leaving if self._is_handing_over else ending
        try:
            for end in (*ends, self._flush_barrier.close, self._journal.close):
                await self._try(end)
        finally:
            self._memory.stop()
            for part in (
                self._caller,
                self._control,
                self._workers,
                self._hub,
                self._admission,
            ):
                part.close()
            self._context.destroy(linger=0)
            self._endpoint.close()
            if self._is_orphan and self._config.owned_dir is not None:
                shutil.rmtree(self._config.owned_dir, ignore_errors=True)

    async def _try(self, end: Callable[[], Awaitable[None]]) -> None:
        """End one part; what stands behind it ends all the same, the journal above all."""
        try:
            await end()
        except Exception:
            log.exception("stop.incomplete", part=end.__qualname__)

    async def _end_strangers(self) -> None:
        """End what came to this process from its dead workers and that no sweep has known."""
        self._pool.sweeper.reap()
        killed = await asyncio.to_thread(end_strangers, self._pool.own_pids)
        if killed:
            log.warning("orphan.killed", killed=killed)
        self._reaper.close()

    async def _stop_tree(self) -> None:
        self._runtime.stop("the daemon is stopping", STOP_ALL_S)
        await asyncio.wait([self._runtime.ended], timeout=STOP_ALL_S + 1.0)
