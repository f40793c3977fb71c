"""The agents that a dead daemon left running, by the agent registry; a pidfd holds each.

A pid counts only together with the time at which its process started and the machine's boot, so a
stranger is never taken for an agent. An agent that cannot be adopted, because it speaks another
version of the wire or nobody knows its session, is ended before a process of its session is
started, and what it has started with it. So is what one has left behind that died meanwhile.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from cmdc_runtime.process_table import look_up
from cmdc_runtime.reasons import Unkillable
from cmdc_runtime.runtime_dir import Registration, boot_id, registrations, unregister
from cmdc_runtime.wire.frames import WIRE_VERSION
from supervisor.adapters.orphans import Mark, end_marked, end_sessions
from supervisor.adapters.pidfd import is_over, stuck_at
from supervisor.core.tree.messages import UNKILLABLE_AFTER_S

log = structlog.get_logger()

END_S: Final = UNKILLABLE_AFTER_S
"""For a killed agent and all that it has started to be gone; it takes milliseconds."""
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True, eq=False)
class Survivor:
    """One agent that lives; it is watched as a forked child is, but no zygote knows of it."""

    entry: Registration
    pidfd: int
    started_at: float
    """Monotonic seconds."""

    @property
    def pid(self) -> int:
        """Its pid."""
        return self.entry.pid

    @property
    def speaks(self) -> bool:
        """Whether it speaks this daemon's version of the wire."""
        return self.entry.wire == WIRE_VERSION

    def status(self) -> int | None:
        """Return None: there is no zygote that could tell."""
        return None

    def listen(self, listener: Callable[[], None]) -> None:
        """Call it at once: nobody but the kernel tells the status."""
        listener()

    def send_signal(self, number: int) -> bool:
        """Send a signal; False if the process has ended."""
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            return False
        return True

    def end(self) -> Unkillable | None:
        """Kill it and what it has started; None: it is gone, else what is known of one that is not.

        Blocks for milliseconds, and ``END_S`` at most.

        Raises:
            OSError: this process is out of descriptors.
        """
        deadline = time.monotonic() + END_S
        self.send_signal(signal.SIGKILL)
        try:
            end_sessions({self.pid: self.entry.start_ticks}, [_mark(self.entry)], (), deadline)
            if is_over(self.pidfd, max(0.0, deadline - time.monotonic())):
                return None
            stuck = stuck_at(self.pid, self.pidfd)
        finally:
            self.close()
        log.error("agent.not_ended", pid=self.pid, session_id=self.entry.session_id)
        state, wchan = ("", "") if stuck is None else (stuck.state, stuck.wchan)
        return Unkillable(seconds=END_S, state=state, wchan=wchan)

    def close(self) -> None:
        """Give back the descriptor; the process itself goes on. Idempotent."""
        pidfd, self.pidfd = self.pidfd, -1
        if pidfd >= 0:
            os.close(pidfd)


def find_survivors(directory: Path) -> list[Survivor]:
    """Return the agents in the registry of a runtime directory that live; the dead are removed.

    Of a dead one is ended what is in its POSIX session and bears its mark; the rest is in its
    cgroup, or can't be told from a stranger.
    """
    found, dead = [], []
    for entry in registrations(directory):
        survivor = _living(entry)
        if survivor is None:
            unregister(directory, entry.worker_id)
            dead.append(entry)
        else:
            found.append(survivor)
    of_now = {one.pid: _mark(one) for one in dead if one.boot_id == boot_id()}
    if of_now and (killed := end_marked(of_now, time.monotonic() + END_S)):
        log.info("orphan.killed", killed=killed)
    return found


def _mark(entry: Registration) -> Mark:
    return str(entry.session_id), int(entry.incarnation)


def _living(entry: Registration) -> Survivor | None:
    if entry.boot_id != boot_id():
        return None
    with suppress(OSError):
        pidfd = os.pidfd_open(entry.pid)
        line = look_up(entry.pid)  # behind the pidfd: from now on the pid is nobody else's
        if line is not None and not line.has_ended and line.start_ticks == entry.start_ticks:
            lived_s = time.clock_gettime(time.CLOCK_BOOTTIME) - entry.start_ticks / _TICKS_PER_S
            return Survivor(entry, pidfd, time.monotonic() - lived_s)
        os.close(pidfd)
    return None
