"""The daemon: the only place of this package that constructs, and the order of its life.

Claim the directory, open the journal, bind the sockets, go on with the sessions that an earlier
daemon left, say READY, warm the nursery, serve until a signal or the owner's end, and then stop
every session, so that nothing that was started here outlives it.
"""

import asyncio
import json
import os
import secrets
import signal
import tempfile
from pathlib import Path
from typing import Final

import structlog
import zmq

from cmdc_runtime.clock import now_ms
from cmdc_runtime.errors import CmdcError
from cmdc_runtime.frames import FromClient, FromWorker, ToClient, ToWorker
from cmdc_runtime.process import DAEMON_RESTARTED
from cmdc_runtime.reasons import Other
from cmdc_runtime.requests import DaemonFacts
from cmdc_runtime.runtime_dir import SOCKET_PATH_BYTES_MAX, Holder
from cmdc_runtime.sockets import Role
from cmdc_runtime.version import VERSION
from supervisor.adapters.endpoint import Endpoint
from supervisor.adapters.hub import Hub
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.adapters.nursery import Nursery, NurseryFailed, NurseryLost
from supervisor.adapters.orphans import set_child_subreaper
from supervisor.adapters.reaper import Reaper
from supervisor.adapters.router import Router
from supervisor.adapters.systemd import Notifier
from supervisor.config import DaemonConfig
from supervisor.core import lifecycle
from supervisor.core.limits import NURSERY_RETRY_S, STOP_ALL_S
from supervisor.frontdesk import FrontDesk
from supervisor.handlers import House
from supervisor.sessions import Sessions
from supervisor.workforce import Workforce

log = structlog.get_logger()

_LISTENER_BYTES_MAX: Final = len("/pymp-12345678/listener-12345678")
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Daemon:
    """One daemon, from claim to end."""

    def __init__(self, config: DaemonConfig, notifier: Notifier) -> None:
        """Construct every part; ``run`` brings them to life, in the running loop."""
        self._config = config
        self._notifier = notifier
        self._instance = secrets.token_hex(8)
        holder = Holder(pid=os.getpid(), version=VERSION, started_at_ms=now_ms())
        self._endpoint = Endpoint.claim(config.runtime_dir, holder, embedded=config.embedded)
        _keep_temporary_files_in(config.runtime_dir)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._journal = SqliteJournal(config.state_dir, durability=config.durability)
        self._nursery_problem = ""
        self._nursery_lost = asyncio.Event()
        self._nursery = Nursery(on_lost=lambda _lost: self._nursery_lost.set())
        self._reaper = Reaper()
        self._hub = Hub(self._context, self._journal)
        self._workforce = Workforce(
            self._nursery, self._reaper, self._endpoint.workers, config.spares
        )
        self._sessions = Sessions(self._workforce, self._hub, self._journal, config.max_sessions)
        accepts_code = config.allow_code_by_value != "never"
        house = House(self._sessions, self._hub, accepts_code, self.facts)
        self._desk = FrontDesk(house, self._sessions)
        self._control: Router[FromClient, ToClient] = Router(
            self._context, Role.CONTROL, FromClient, self._desk.receive
        )
        self._workers: Router[FromWorker, ToWorker] = Router(
            self._context, Role.WORKERS, FromWorker, self._workforce.receive
        )
        self._desk.control = self._sessions.control = self._control
        self._workforce.router = self._workers
        self._stop = asyncio.Event()

    def facts(self) -> DaemonFacts:
        """Return who the daemon is and how it stands."""
        return DaemonFacts(
            pid=os.getpid(),
            instance=self._instance,
            version=VERSION,
            nursery=self._nursery_state(),
            sessions=len(self._sessions.live),
            spares=self._workforce.spares,
            events_address=self._endpoint.events,
            refused_frames=self._control.refused + self._workers.refused,
        )

    async def run(self) -> None:
        """Serve until asked to stop; then end everything."""
        try:
            await self._journal.open()
            await self._serve()
        finally:
            await self._close()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        set_child_subreaper()
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGCHLD, self._workforce.reap)
        self._workers.bind(self._endpoint.workers)
        self._hub.bind(self._endpoint.events)
        # Before the first client is heard: one that waited for this daemon must not be told that
        # its session is gone because it was not taken over yet.
        resumed = await self._sessions.take_over(Other(detail=DAEMON_RESTARTED))
        self._control.bind(self._endpoint.control)
        if self._config.owner_pid is not None:
            self._watch_owner(self._config.owner_pid)
        self._say_ready()
        background = [
            asyncio.create_task(self._keep_warm(), name="nursery"),
            asyncio.create_task(self._workforce.keep_spares(), name="spares"),
            asyncio.create_task(self._notifier.keep_alive(), name="watchdog"),
        ]
        log.info("daemon.started", directory=str(self._endpoint.directory), resumed=resumed)
        try:
            await self._stop.wait()
        finally:
            self._notifier.stopping()
            log.info("daemon.stopping", sessions=len(self._sessions.live))
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)

    async def _keep_warm(self) -> None:
        """Warm the nursery, and a new one whenever it is lost; agents live on meanwhile."""
        while True:
            self._nursery_lost.clear()
            try:
                report = await self._nursery.warm()
            except (NurseryFailed, NurseryLost) as error:
                self._nursery_problem = str(error)
                log.error("nursery.not_warmed", problem=str(error), retry_s=NURSERY_RETRY_S)
                await asyncio.sleep(NURSERY_RETRY_S)
                continue
            self._nursery_problem = ""
            self._notifier.ready(f"nursery warmed in {report.total_ms:.0f} ms")
            await self._nursery_lost.wait()

    def _nursery_state(self) -> str:
        if self._nursery.is_warm:
            return "ready"
        return f"lost: {self._nursery_problem}" if self._nursery_problem else "warming"

    def _say_ready(self) -> None:
        """Tell an owner that waits on a pipe that the sockets are bound."""
        fd = self._config.ready_fd
        if fd is None:
            return
        line = json.dumps({"ready": True, "pid": os.getpid(), "instance": self._instance})
        with os.fdopen(fd, "w", encoding="utf-8") as pipe:
            pipe.write(line + "\n")

    def _watch_owner(self, pid: int) -> None:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._stop.set()
            return
        asyncio.get_running_loop().add_reader(fd, self._stop.set)

    async def _close(self) -> None:
        self._sessions.is_leaving = True
        try:
            await self._stop_sessions()
            await self._workforce.close()
            await self._desk.close()
            await self._nursery.close()
            self._workforce.reap()
            self._reaper.close()
            await self._journal.close()
        except CmdcError as error:
            log.error("stop.incomplete", problem=str(error))
        finally:
            for part in (self._control, self._workers, self._hub):
                part.close()
            self._context.destroy(linger=0)
            self._endpoint.close()
            log.info("daemon.stopped")

    async def _stop_sessions(self) -> None:
        live = list(self._sessions.live.values())
        for session in live:
            grace_s = session.spec.supervision.shutdown
            bound_s = STOP_ALL_S if grace_s is None else min(grace_s, STOP_ALL_S)
            session.take(lifecycle.Stop("the daemon is stopping", bound_s))
        if live:
            await asyncio.wait([session.ended for session in live], timeout=STOP_ALL_S + 1.0)


def _keep_temporary_files_in(directory: Path) -> None:
    """Let multiprocess make its socket's folder in ``directory``, where it is found and removed.

    Only the daemon's own files are meant: workers are other processes and keep their TMPDIR.
    """
    if len(os.fsencode(directory)) + _LISTENER_BYTES_MAX <= SOCKET_PATH_BYTES_MAX:
        tempfile.tempdir = str(directory)
