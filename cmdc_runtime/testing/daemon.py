"""A real daemon for tests: alone, watched, and gone with all that it had.

It has directories of its own and sees no ``CMDC_*`` variable of the caller. What it leaves behind
when it is closed, process, socket or temporary file, is an error. Where the process that started it
is killed it ends by itself, and its directories go with it. It needs psutil, which the extra
``testing`` has: ``pip install 'cmdc-runtime[testing]'``.
"""

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import psutil

from cmdc_runtime.client.sync.session import Client
from cmdc_runtime.errors import DaemonUnavailable
from cmdc_runtime.requests import TreeNode
from cmdc_runtime.runtime_dir import KEYS

READY_S_MAX: Final = 120.0
"""Until the sockets are bound and the zygote is warm; litellm's first import compiles it."""
END_S_MAX: Final = 30.0
"""From SIGTERM to the end of the daemon; SIGKILL follows."""
GONE_S_MAX: Final = 10.0
"""From the end of the daemon to that of every process of it."""
LOOK_AGAIN_S: Final = 0.05
_BASE: Final = "/tmp"  # noqa: S108 - mkdtemp makes a private directory; a socket's path is short
_PREFIX: Final = "CMDC_"
_SYSTEMD: Final = frozenset({"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS"})


class DaemonProcess:
    """A running daemon; ``address`` is its runtime directory, for clients and ``CMDC_ADDRESS``."""

    def __init__(self) -> None:
        """Start it and wait until its zygote is warm.

        Raises:
            AssertionError: it ended or took too long; holds its log.

        """
        self._base = Path(tempfile.mkdtemp(prefix="cmdc-test-", dir=_BASE))
        self.address = self._base / "run"
        self._tmp = self._base / "tmp"
        self._tmp.mkdir()
        self._clients: list[Client] = []
        self._process = self._spawn()
        self.pid = self._process.pid
        try:
            self._await_warm()
        except BaseException:
            self._process.kill()
            self._process.wait()
            _kill(self._processes())
            shutil.rmtree(self._base, ignore_errors=True)
            raise

    @property
    def state_dir(self) -> Path:
        """Where its journal is."""
        return self._base / "state"

    def client(self) -> Client:
        """Return a new client of it, which is closed at the end if nobody did."""
        client = Client(self.address)
        self._clients.append(client)
        return client

    def log_text(self) -> str:
        """Return what it has written so far."""
        return (self._base / "log").read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        """End it and check that nothing of it is left.

        Raises:
            AssertionError: it had ended already, had to be killed, or left something behind.

        """
        for client in self._clients:
            client.close()
        problems = []
        if (status := self._process.poll()) is not None:
            problems.append(f"the daemon ended before, with status {status}")
        known = self._processes()
        problems += self._end()
        left = self._wait_gone(known)
        problems += [f"a process is left: {_described(process)}" for process in left]
        _kill(left)
        problems += [f"a file is left: {path.relative_to(self._base)}" for path in self._litter()]
        log = self.log_text()
        shutil.rmtree(self._base, ignore_errors=True)
        if problems:
            raise AssertionError("\n".join([*problems, "The daemon's log:", log]))

    def _environment(self) -> dict[str, str]:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_PREFIX) and name not in _SYSTEMD
        }
        # By variable, so that every process of it is known by its environment.
        environment["CMDC_RUNTIME_DIR"] = str(self.address)
        environment["CMDC_STATE_DIR"] = str(self.state_dir)
        environment["TMPDIR"] = str(self._tmp)
        return environment

    def _spawn(self) -> "subprocess.Popen[bytes]":
        # Where this process is killed nobody closes it: the daemon ends then, and clears all away.
        owner = ["--owner-pid", str(os.getpid()), "--owned-dir", str(self._base)]
        with (self._base / "log").open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
                [sys.executable, "-P", "-m", "supervisor", *owner],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _await_warm(self) -> None:
        deadline_s = time.monotonic() + READY_S_MAX
        while not self._is_warm():
            assert self._process.poll() is None, f"the daemon did not start:\n{self.log_text()}"  # noqa: S101 - for tests
            assert time.monotonic() < deadline_s, f"the daemon took too long:\n{self.log_text()}"  # noqa: S101
            time.sleep(LOOK_AGAIN_S)

    def _is_warm(self) -> bool:
        try:
            with contextlib.closing(Client(self.address)) as client:
                tree = client.tree()
        except DaemonUnavailable:
            return False
        return any(_is_warm_zygote(node) for node in tree.children)

    def _end(self) -> list[str]:
        self._process.terminate()
        try:
            status = self._process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return [f"the daemon did not end within {END_S_MAX:g} s and was killed"]
        return [] if status in (0, -signal.SIGTERM) else [f"the daemon ended with status {status}"]

    def _processes(self) -> set[psutil.Process]:
        """Return what runs because of this daemon, the daemon included."""
        everything = set(psutil.process_iter())
        found = {process for process in everything if self._is_named(process)}
        with contextlib.suppress(psutil.NoSuchProcess):
            daemon = psutil.Process(self.pid)
            found |= {daemon, *daemon.children(recursive=True)}
        leaders = {process.pid for process in found}
        found |= {process for process in everything if _posix_session(process) in leaders}
        return found - {psutil.Process(), *psutil.Process().parents()}

    def _is_named(self, process: psutil.Process) -> bool:
        try:
            words = [*process.cmdline(), *process.environ().values()]
        except (psutil.Error, OSError):  # gone, a zombie, or not ours to ask
            return False
        return any(str(self._base) in word for word in words)

    def _wait_gone(self, known: set[psutil.Process]) -> list[psutil.Process]:
        deadline_s = time.monotonic() + GONE_S_MAX
        while left := [one for one in known | self._processes() if _is_alive(one)]:
            if time.monotonic() > deadline_s:
                break
            time.sleep(LOOK_AGAIN_S)
        return left

    def _litter(self) -> list[Path]:
        """Return the temporary files and the sockets that are left, sorted.

        Keys of sessions are none: as the journal is, they are for the next daemon.
        """
        sockets = [path for path in self._base.rglob("*") if stat.S_ISSOCK(path.lstat().st_mode)]
        keys = self.address / KEYS
        left = {*self._tmp.iterdir(), *sockets, *self.address.rglob("*")}
        return sorted(left - {keys, *keys.glob("*")})


def _is_warm_zygote(node: TreeNode) -> bool:
    return node.id == "nursery" and node.state == "ready"


def _posix_session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except OSError:
        return None


def _is_alive(process: psutil.Process) -> bool:
    try:
        # A zombie is what its new parent has not yet waited for.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _described(process: psutil.Process) -> str:
    try:
        return f"pid {process.pid} {process.cmdline()}"
    except psutil.Error:
        return f"pid {process.pid}"


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
