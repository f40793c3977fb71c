"""A daemon that may be killed, with the next one in its place: same directories, same fault plans.

``close`` checks as the fixtures of ``cmdc_runtime.testing`` do that nothing is left.
"""

import subprocess
from pathlib import Path

from cmdc_runtime import faults
from cmdc_runtime.testing.fixtures import DaemonProcess


class House(DaemonProcess):
    """A running daemon whose fault points look for plans in ``faults``."""

    log_to_end = ""
    """What all its daemons have written, once it is closed."""

    @property
    def faults(self) -> Path:
        """The folder of the plans."""
        return self._base / "faults"

    def kill(self) -> None:
        """End the daemon by SIGKILL; it may have been killed by a plan already."""
        self._process.kill()
        self._process.wait()

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
        return super()._environment() | {faults.VARIABLE: str(self.faults)}

    def _end(self) -> list[str]:
        problems = super()._end()
        self.log_to_end = self.log_text()
        return problems
