"""A private daemon: started on first use, shared by all clients of this process, gone with it.

Whoever needs it takes a lease; the last one that is given back ends it. The daemon watches this
process and ends by itself when it is gone, however it went. A fork of this process finds the
parent's daemon and uses it, but neither ends it nor keeps it.
"""

import atexit
import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Final

from cmdc_runtime.client.daemon_start import DaemonStart, announced_if_long
from cmdc_runtime.client.limits import DAEMON_KILL_S, DAEMON_STOP_S
from cmdc_runtime.errors import DaemonUnavailable
from cmdc_runtime.runtime_dir import path_problem, running_daemon

_STDERR: Final = 2
_PREFIX: Final = "cmdc-"
_SHORT_PLACE: Final = "/tmp"  # noqa: S108 - mkdtemp makes a private directory in it
_LOG: Final = "daemon.log"
_NOTICE: Final = (
    "starting a private daemon for this program; `cmdc serve --detach` starts one that lasts"
)


class EmbeddedDaemon:
    """One daemon that is a child of this process."""

    def __init__(self) -> None:
        """Start it and wait until its sockets are bound.

        Raises:
            DaemonUnavailable: it ended, said why it cannot, or took too long.

        """
        self.owner_pid = os.getpid()
        self.leases = 0
        self._log_end: str | None = None
        try:
            self.directory = _new_directory()
        except OSError as error:
            raise DaemonUnavailable(
                f"no embedded daemon could be started, for want of a temporary directory: {error}"
            ) from error
        with announced_if_long(_NOTICE):
            self._start()

    @property
    def is_alive(self) -> bool:
        """Say whether its process runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End it, politely first, and remove what it leaves; does nothing in a fork."""
        if os.getpid() != self.owner_pid:
            return
        for end, patience_s in (
            (self._process.terminate, DAEMON_STOP_S),
            (self._process.kill, DAEMON_KILL_S),
        ):
            end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)
                break
        self._remove()

    def finalize(self) -> None:
        """Remove what a dead one leaves; the end of its log is kept."""
        self._log_end = self._last_lines()
        self.stop()

    def death(self) -> DaemonUnavailable:
        """Return the error that says that it died, with the last lines of its log."""
        status = self._process.poll()
        return DaemonUnavailable(
            f"the embedded daemon (pid {self.pid}) is gone, status {status}, and with it the state "
            f"of its sessions; `cmdc serve` runs one that lasts. {self._last_lines()}"
        )

    def _start(self) -> None:
        try:
            self._starting = self._spawn()
        except OSError as error:
            self._remove()
            raise DaemonUnavailable(f"no embedded daemon could be started: {error}") from error
        self._process = self._starting.process
        self.pid = self._process.pid
        try:
            outcome = self._starting.outcome()
        except BaseException:
            self.stop()
            raise
        if outcome.problem:
            self.stop()
            raise DaemonUnavailable(f"the embedded daemon {outcome.problem}")

    def _spawn(self) -> DaemonStart:
        arguments = ["--embedded", "--runtime-dir", str(self.directory)]
        arguments += ["--state-dir", str(self.directory / "state")]
        arguments += ["--owner-pid", str(self.owner_pid)]
        echo = _own_stderr()
        if echo is None:
            return DaemonStart(arguments, self.directory / _LOG)
        try:
            echoing = [*arguments, "--echo-fd", str(echo)]
            return DaemonStart(echoing, self.directory / _LOG, fds=(echo,))
        finally:
            os.close(echo)

    def _last_lines(self) -> str:
        return self._starting.last_lines() if self._log_end is None else self._log_end

    def _remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


class Lease:
    """The right to use an embedded daemon until ``release``."""

    def __init__(self, daemon: EmbeddedDaemon) -> None:
        """Count as one more user of ``daemon``."""
        self.daemon = daemon
        daemon.leases += 1
        self._is_held = True

    def release(self) -> None:
        """Give it back; the last one ends the daemon, which takes a moment."""
        with _place.lock:
            if not self._is_held:
                return
            self._is_held = False
            self.daemon.leases -= 1
            if self.daemon.leases > 0:
                return
            if _place.daemon is self.daemon:
                _place.daemon = None
            self.daemon.stop()


class _Place:
    """The one place of a process for its embedded daemon."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.daemon: EmbeddedDaemon | None = None
        self.dead: list[EmbeddedDaemon] = []
        """Those before it: what they had started may have written once more as it ended."""


_place: Final = _Place()


def lease() -> Lease | Path:
    """Return a lease of this process's daemon, started if need be; blocks for its start.

    In a fork of the process that owns a living one it is only the daemon's runtime directory.

    Raises:
        DaemonUnavailable: it could not be started.

    """
    with _place.lock:
        if (directory := inherited()) is not None:
            return directory
        daemon = _place.daemon
        if daemon is not None and daemon.owner_pid != os.getpid():
            daemon = None
        if daemon is not None and not daemon.is_alive:
            daemon.finalize()  # who has a lease of it may never give it back
            _place.dead.append(daemon)
            daemon = _place.daemon = None
        if daemon is None:
            daemon = _place.daemon = EmbeddedDaemon()
        return Lease(daemon)


def inherited() -> Path | None:
    """Return where the daemon of the process that this one was forked from is, if it lives.

    No lock is taken: whoever holds it may be starting a daemon.
    """
    daemon = _place.daemon
    if daemon is None or daemon.owner_pid == os.getpid():
        return None
    return daemon.directory if running_daemon(daemon.directory) is not None else None


def _own_stderr() -> int | None:
    """Return a duplicate of this program's standard error, None where that is closed."""
    try:
        return os.dup(_STDERR)
    except OSError:
        return None


def _new_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
    if path_problem(directory) is None:
        return directory
    directory.rmdir()
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_SHORT_PLACE))


def _stop_at_exit() -> None:
    last, _place.daemon = _place.daemon, None
    for daemon in (*_place.dead, *([] if last is None else [last])):
        daemon.stop()


def _after_fork() -> None:
    _place.lock = threading.Lock()  # whoever held it is not in this process


atexit.register(_stop_at_exit)
os.register_at_fork(after_in_child=_after_fork)
