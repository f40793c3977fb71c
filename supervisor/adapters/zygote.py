"""The zygote: a process that has litellm and all worker code in memory, and forks the workers.

Rules: starting a process blocks, so it happens in one thread that lives as long as the zygote, one
fork at a time; a zygote that died is never replaced unseen, the next ``warm`` or ``fork`` starts
and probes a new one. What multiprocess does is in ``forkserver``.

The zygote's first child is the probe: it tells the daemon what is preloaded, and whether to fork
on. multiprocess swallows the import errors of preload modules, so only a child can say what came of
them. ``main`` runs in that child, never in the daemon; it names the preload module by a string
only.
"""

import asyncio
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import msgspec
import structlog

import cmdc_runtime
from cmdc_runtime.errors import Overloaded
from cmdc_runtime.process import PRELOAD_MODULE, WORKER_MODULE
from supervisor.adapters import forkserver
from supervisor.adapters.awake import awake_timeout
from supervisor.adapters.forkserver import Boot, Child, Server, ServerGone

# --- the probe, in a child of the zygote ---------------------------------------------------------


class ProbeReport(msgspec.Struct, frozen=True, kw_only=True):
    """The first child's word; ``preload`` is the preload module's own report, None if it failed."""

    zygote_pid: int
    zygote_threads: int
    loaded: tuple[str, ...]
    """Which of the needed modules the zygote had loaded before this child asked."""
    versions: dict[str, str]
    preload: dict[str, Any] | None = None  # Any: each preload module reports in its own words
    failure: str = ""
    """The traceback of the preload module's import."""


def main(boot: dict[str, str | int | float]) -> None:
    """Write the report to the file ``boot["path"]`` and return, which ends the child.

    ``boot["preload"]`` is the preload module's name, ``boot["needs"]`` the modules that must have
    been loaded by it, separated by commas.
    """
    needs = tuple(name for name in str(boot["needs"]).split(",") if name)
    loaded = tuple(name for name in needs if name in sys.modules)
    preload, failure = _preload_report(str(boot["preload"]))
    zygote = os.getppid()
    report = ProbeReport(
        zygote_pid=zygote,
        zygote_threads=len(list(Path(f"/proc/{zygote}/task").iterdir())),
        loaded=loaded,
        versions={name: _version(name) for name in loaded},
        preload=preload,
        failure=failure,
    )
    with suppress(FileNotFoundError):  # the daemon was killed, and the next one has cleared away
        Path(str(boot["path"])).write_bytes(msgspec.json.encode(report))


def _preload_report(name: str) -> tuple[dict[str, Any] | None, str]:
    """Return the module's ``REPORT``, or why there is none; imported already if all is well."""
    try:
        report = importlib.import_module(name).REPORT
        return json.loads(msgspec.json.encode(report)), ""
    except Exception:  # noqa: BLE001 - the child's last act is to tell it
        return None, traceback.format_exc(limit=-8)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


# --- the zygote ----------------------------------------------------------------------------------

__all__ = ["Child", "WarmReport", "Zygote", "ZygoteFailed", "ZygoteLost", "ZygoteOptions"]

FORKS_QUEUED_MAX: Final = 1024
"""Forks that wait or run; one takes some 10 ms, so the last of them starts after 10 s."""
PROBE_MODULE: Final = "supervisor.adapters.zygote"

_T = TypeVar("_T")

log = structlog.get_logger()


class ZygoteFailed(Exception):
    """A zygote or a fork failed; ``stage`` is launch, preload, probe or fork."""

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
    needs: tuple[str, ...] = ("litellm",)
    """Modules without which the zygote is of no use."""
    warm_s_max: float = 120.0
    """From launch to the probe's report; 3 s on an idle machine."""
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
    """From launch to the probe's report."""
    import_ms: float
    warm_ms: float
    """Of the warm-up call; 0 if it failed."""
    versions: dict[str, str]
    problems: tuple[str, ...]
    """What a person should see to; the zygote forks all the same."""


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
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="zygote")
        self._turn = asyncio.Lock()
        self._queued = 0
        self._generation = 0
        self._server: Server | None = None
        self._warm: WarmReport | None = None
        self.warmed = asyncio.Event()
        """Set while a fork would start at once."""
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """The forkserver's pid while one runs."""
        return self._server.pid if self._server else None

    @property
    def is_warm(self) -> bool:
        """Whether a fork would start at once."""
        return self._warm is not None

    @property
    def pids(self) -> frozenset[int]:
        """Children of the daemon that the zygote waits for itself; nobody else may reap them.

        A forkserver that is being ended is still one of them, though ``pid`` is None by then.
        """
        ours = (forkserver.server_pid(), forkserver.tracker_pid())
        return frozenset(pid for pid in ours if pid is not None)

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
            async with self._turn:
                server, _ = await self._ready()
                return await self._fork(server, module, boot)
        finally:
            self._queued -= 1

    async def close(self) -> None:
        """End the forkserver and the resource tracker; children live on. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        server = self._server
        if server and self._turn.locked():
            server.kill()  # somebody waits for a fork: nothing gentle would be heard
        async with self._turn:
            if self._server:
                await self._end(self._server)
            await self._run(forkserver.stop_tracker)
        self._thread.shutdown(wait=True)  # idle by now

    async def _ready(self) -> tuple[Server, WarmReport]:
        if self._is_closed:
            raise ZygoteLost("the zygote is closed")
        if self._server and self._server.has_ended():
            self._lose(self._server)
        if self._server and self._warm:
            return self._server, self._warm
        if self._server:
            await self._end(self._server)
        started_at = time.monotonic()
        try:
            server = await self._launch()
            probe = await self._probe(server)
            self._warm = self._judge(probe, (time.monotonic() - started_at) * 1e3)
        except BaseException:
            if self._server:
                self._server.kill()
            raise
        self.warmed.set()
        log.info("zygote.warmed", **_fields(self._warm))
        return server, self._warm

    async def _launch(self) -> Server:
        loop = asyncio.get_running_loop()
        launch = loop.run_in_executor(self._thread, Server.launch, self._options.preload)
        try:
            await asyncio.shield(launch)
        except OSError as problem:
            raise ZygoteFailed("launch", str(problem)) from problem
        except asyncio.CancelledError:
            self._server = await launch  # short, and it must not be lost
            raise
        server = self._server = launch.result()
        self._generation += 1
        loop.add_reader(server.pidfd, self._lose, server)
        if self._is_closed:  # before there was a server that it could have killed
            raise ZygoteLost("the zygote is closed")
        return server

    async def _probe(self, server: Server) -> ProbeReport:
        options = self._options
        work = partial(_probe, server, options)
        try:
            async with asyncio.timeout(options.warm_s_max):
                answer = await self._run(work)
        except TimeoutError as problem:
            raise ZygoteFailed("preload", f"not ready in {options.warm_s_max:g} s") from problem
        except ServerGone as gone:
            raise ZygoteFailed("preload", f"{gone}; its stderr says why") from gone
        except OSError as problem:
            raise ZygoteFailed("probe", str(problem)) from problem
        if not answer:
            raise ZygoteFailed("probe", "the first child ended without a word; see its stderr")
        return msgspec.json.decode(answer, type=ProbeReport)

    def _judge(self, probe: ProbeReport, total_ms: float) -> WarmReport:
        """Turn the probe's word into a report, or raise for what makes forking pointless."""
        preload = probe.preload
        if preload is None:
            raise ZygoteFailed("preload", probe.failure)
        problems = tuple(preload["problems"])
        ours = Path(cmdc_runtime.__file__).parent.parent
        if Path(preload["origin"]).parent != ours:
            raise ZygoteFailed(
                "preload", f"{preload['origin']} was imported, which is not beside {ours}"
            )
        missing = [name for name in self._options.needs if name not in probe.loaded]
        if missing:
            told = "; ".join(problems) or "and it reports no problem"
            raise ZygoteFailed("preload", f"{', '.join(missing)} not loaded: {told}")
        if probe.zygote_threads != 1:
            raise ZygoteFailed("preload", f"{probe.zygote_threads} threads run: unsafe to fork")
        return WarmReport(
            pid=probe.zygote_pid,
            generation=self._generation,
            total_ms=round(total_ms, 1),
            import_ms=round(preload["import_ms"], 1),
            warm_ms=round(preload["warm_ms"], 1),
            versions=probe.versions,
            problems=problems,
        )

    async def _fork(self, server: Server, module: str, boot: Boot) -> Child:
        bound_s = self._options.fork_s_max
        loop = asyncio.get_running_loop()
        call = loop.run_in_executor(self._thread, _start, server, module, boot)
        try:
            async with awake_timeout(bound_s):
                return await asyncio.shield(call)
        except ServerGone as gone:
            self._lose(server)
            raise ZygoteLost(str(gone)) from gone
        except TimeoutError as problem:
            call.add_done_callback(_abandon)
            server.kill()
            self._lose(server)
            raise ZygoteLost(f"no fork within {bound_s:g} s; the zygote was killed") from problem
        except OSError as problem:
            raise ZygoteFailed("fork", str(problem)) from problem
        except asyncio.CancelledError:
            call.add_done_callback(_abandon)
            raise

    def _lose(self, server: Server) -> None:
        """Clear up after a forkserver that ended; runs in the loop, from its pidfd."""
        if not asyncio.get_running_loop().remove_reader(server.pidfd):
            return
        was_warm, self._warm = self._warm is not None, None
        self.warmed.clear()
        if not was_warm or self._is_closed:
            return
        lost = ZygoteLost(f"the zygote (pid {server.pid}) ended with status {server.status()}")
        log.warning("zygote.lost", pid=server.pid, status=server.status())
        if self._on_lost:
            self._on_lost(lost)

    async def _end(self, server: Server) -> None:
        """Stop and reap the server: gently, then by SIGKILL."""
        self._server, self._warm = None, None
        self.warmed.clear()
        asyncio.get_running_loop().remove_reader(server.pidfd)
        stopping = asyncio.get_running_loop().run_in_executor(self._thread, server.stop)
        try:
            async with asyncio.timeout(self._options.close_s_max):
                await asyncio.shield(stopping)
        except TimeoutError:
            server.kill()
        finally:
            await stopping
            server.close()

    async def _run(self, work: Callable[[], _T]) -> _T:
        """Run blocking work in the zygote's thread, which outlives a cancelled caller."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _start(server: Server, module: str, boot: Boot) -> Child:
    """Fork a child from a zygote that is as it was when it was probed.

    A fork copies the calling thread alone, and with it every lock that another one holds: a zygote
    that has got a second thread is ended, and the next one is warmed.
    """
    if (threads := server.threads()) > 1:
        server.end()
        log.error("zygote.poisoned", pid=server.pid, threads=threads)
        raise ServerGone(f"the zygote (pid {server.pid}) had {threads} threads: unsafe to fork")
    return server.start(module, boot)


def _probe(server: Server, options: ZygoteOptions) -> bytes:
    """Fork the first child and return what it wrote; empty if it wrote nothing."""
    with TemporaryDirectory(prefix="cmdc-zygote-") as folder:
        path = Path(folder, "report.json")
        needs = ",".join(options.needs)
        boot: Boot = {"path": str(path), "preload": options.preload, "needs": needs}
        child = server.start(PROBE_MODULE, boot)
        if not forkserver.wait_ended(child, options.warm_s_max):
            child.send_signal(signal.SIGKILL)
        child.close()
        return path.read_bytes() if path.exists() else b""


def _abandon(call: "asyncio.Future[Child]") -> None:
    """End a child that nobody waits for any more."""
    if call.cancelled() or call.exception() is not None:
        return
    child = call.result()
    child.send_signal(signal.SIGKILL)
    child.close()


def _fields(report: WarmReport) -> dict[str, object]:
    return {name: getattr(report, name) for name in WarmReport.__slots__}
