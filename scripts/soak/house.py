"""A daemon that may be killed, with the next one in its place: same directories, same fault plans.

``close`` checks as the fixtures of ``cmdc_runtime.testing`` do that nothing is left.
"""

import os
import signal
import subprocess
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from cmdc_runtime import faults
from cmdc_runtime.process_table import look_up
from cmdc_runtime.runtime_dir import registrations
from cmdc_runtime.testing.daemon import DaemonProcess
from scripts.mutants.place import ROOT, SITE
from scripts.soak import inside

REMEMBERING: Final = f"{inside.AGENT}={inside.__name__}:{inside.write_memories.__name__}"
"""Has agents write their memories down, by a word of ``AFTER_IMPORT``."""


class House(DaemonProcess):
    """A running daemon whose fault points look for plans in ``faults``."""

    log_to_end = ""
    """What all its daemons have written, once it is closed."""

    def __init__(self, planted: Sequence[str] = ()) -> None:
        """Start it; ``planted`` are further words of ``AFTER_IMPORT``, for its processes."""
        self._planted = (REMEMBERING, *planted)
        super().__init__()

    @property
    def memories(self) -> Path:
        """The folder where agents write what they remember."""
        return self._base / "memories"

    @property
    def faults(self) -> Path:
        """The folder of the plans."""
        return self._base / "faults"

    def kill(self) -> None:
        """End the daemon by SIGKILL; it may have been killed by a plan already."""
        self._process.kill()
        self._process.wait()

    def kill_agents(self, session_ids: Collection[str]) -> None:
        """End the agents of these sessions that are up, by SIGKILL; a daemon need not be there."""
        for entry in registrations(self.address):
            if entry.session_id in session_ids:
                _kill(entry.pid, entry.start_ticks)

    def wait_dead(self, timeout_s: float) -> bool:
        """Say whether the daemon dies within the time."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def start_again(self) -> None:
        """Start the next daemon; clients wait for its sockets themselves."""
        self._process = self._spawn()
        self.pid = self._process.pid

    def wait_warm(self) -> None:
        """Return when the daemon forks at once."""
        self._await_warm()

    def _environment(self) -> dict[str, str]:
        self.faults.mkdir(exist_ok=True)
        self.memories.mkdir(exist_ok=True)
        return super()._environment() | {
            faults.VARIABLE: str(self.faults),
            inside.FOLDER: str(self.memories),
            "AFTER_IMPORT": " ".join(self._planted),
            "PYTHONPATH": f"{SITE}{os.pathsep}{ROOT}",
        }

    def _end(self) -> list[str]:
        problems = super()._end()
        self.log_to_end = self.log_text()
        return problems


def _kill(pid: int, start_ticks: int) -> None:
    with suppress(ProcessLookupError):
        pidfd = os.pidfd_open(pid)
        try:
            line = look_up(pid)  # behind the pidfd: from now on the pid is nobody else's
            if line is not None and line.start_ticks == start_ticks:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)
