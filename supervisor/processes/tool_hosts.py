"""The tool hosts: a second process beside a worker, which speaks to that worker alone.

A worker has one at a time, from its first process-isolated call on, in its own cgroup. A worker is
finalized, and so replaced, only when its host and all that ran in it are gone.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog

from cmdc_runtime.errors import CmdcError
from cmdc_runtime.ids import WorkerId, new_worker_id
from cmdc_runtime.process import EXIT_OK, HOST_MODULE
from cmdc_runtime.reasons import NurseryLost as ZygoteLostReason
from cmdc_runtime.reasons import PlainReason, StartFailed
from supervisor.adapters.orphans import end_calls, sweep
from supervisor.adapters.pidfd import Reaper
from supervisor.adapters.zygote import Boot, Child, Zygote, ZygoteFailed, ZygoteLost
from supervisor.core.exits import ExitRecord, classify
from supervisor.core.limits import HOST_END_S
from supervisor.processes.containment import Containment

log = structlog.get_logger()

SpawnErrors: Final = (ZygoteFailed, ZygoteLost, CmdcError, OSError, TimeoutError)
"""What forking and greeting a process may fail with."""


@dataclass(slots=True, eq=False)
class ToolHost:
    """One tool host; ``gone`` is set when nothing of it runs any more."""

    address: str
    child: Child
    output_id: WorkerId
    gone: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, eq=False)
class ToolHosts:
    """The tool hosts of one worker, of which at most one is not about to end.

    ``on_lost`` gets the address and why: it can't be had, or has ended. ``spawn`` runs a task
    that whoever gave it looks after.
    """

    zygote: Zygote
    reaper: Reaper
    containment: Containment
    on_lost: Callable[[str, str], None]
    spawn: Callable[[Coroutine[Any, Any, None], str], None]  # Any: asyncio's own
    check_open: Callable[[], None]
    own_pids: Callable[[], frozenset[int]]
    """Children of the daemon that are waited for elsewhere."""
    all: set[ToolHost] = field(default_factory=set)
    max_open_files: int | None = None
    _is_forking: bool = False
    _number: int = 0

    def start(self, address: str) -> None:
        """Start one that connects to ``address``, in place of any that there is.

        The address is the worker's own to give, which the caller has checked: it is removed later.
        That happens in the background; ``on_lost`` is called if it can't be, and at the host's end.
        """
        if self.containment.has_ended:
            _remove(address)
            return
        if self._is_forking:
            self.on_lost(address, "another is being started")
            return
        self._is_forking = True
        self.spawn(self._acquire(address), f"host-{address}")

    async def end(self) -> None:
        """Return when nothing runs any more in any of them; a worker that ended gets no other."""
        gone = [asyncio.ensure_future(host.gone.wait()) for host in self.all]
        for host in self.all:
            host.child.send_signal(signal.SIGKILL)
        if gone:
            _, late = await asyncio.wait(gone, timeout=HOST_END_S)
            for waiter in late:
                waiter.cancel()
                log.error(
                    "host.not_ended", worker_id=self.containment.worker_id, after_s=HOST_END_S
                )

    async def _acquire(self, address: str) -> None:
        for old in self.all:
            old.child.send_signal(signal.SIGKILL)
        self._number += 1
        output_id = new_worker_id(self._number)
        try:
            child = await self._fork(address, output_id)
        except SpawnErrors as error:
            self.on_lost(address, f"it could not be started: {error}")
            return
        finally:
            self._is_forking = False
        host = ToolHost(address, child, output_id)
        self.all.add(host)
        self.reaper.watch(
            child, lambda record: self.spawn(self._finalize(host, record), f"finalize-{address}")
        )
        is_in = not self.containment.has_ended  # else its worker died while it was forked
        if is_in:
            self.containment.name(output_id, child.pid)
            is_in = await self.containment.admit(child.pid, _place(host))
        log.debug("host.forked", pid=child.pid, worker_id=self.containment.worker_id)
        if self.containment.has_ended or not is_in:
            child.send_signal(signal.SIGKILL)

    async def _fork(self, address: str, output_id: WorkerId) -> Child:
        self.check_open()
        boot: Boot = {
            "address": address,
            "output": str(self.containment.shared.outputs_path),
            "output_id": output_id,
            "max_open_files": self.max_open_files or 0,
        }
        try:
            return await self.zygote.fork(boot, module=HOST_MODULE)
        except ZygoteLost:  # it died over this very fork: the next one comes from a new zygote
            return await self.zygote.fork(boot, module=HOST_MODULE)

    async def _end_calls(self, host: ToolHost) -> None:
        """End what a dead host's calls have started, wherever it went."""
        if await self.containment.end_subgroup(_place(host)):
            return
        known = self.own_pids()
        try:
            name = Path(host.address).name
            await asyncio.to_thread(end_calls, name, self.containment.bearer, known)
        except OSError as error:  # no descriptor is left; the session's end finds it
            log.warning("orphan.not_swept", problem=str(error))

    async def _finalize(self, host: ToolHost, record: ExitRecord) -> None:
        # Its calls die with it; what they have started is still there.
        if record.status != EXIT_OK:  # else it has ended its calls, and what is left may stay
            await self._end_calls(host)
        await asyncio.to_thread(sweep, {host.child.pid})
        await asyncio.to_thread(_remove, host.address)
        self.containment.shared.outputs.forget(host.output_id)
        self.all.discard(host)
        host.gone.set()
        self.on_lost(host.address, str(classify(record)))


def _remove(address: str) -> None:
    try:
        Path(address).unlink(missing_ok=True)
    except OSError as error:  # the daemon's end removes what can be removed then
        log.warning("host.socket_left", path=address, problem=str(error))


def _place(host: ToolHost) -> str:
    """Return where in the cgroup of its session a host is."""
    return f"host-{host.output_id}"


def spawn_failure(error: Exception) -> PlainReason:
    """Return why there is no process, as the reason of an end."""
    if isinstance(error, ZygoteLost):
        return ZygoteLostReason()
    return StartFailed(stage="spawn", message=str(error))
