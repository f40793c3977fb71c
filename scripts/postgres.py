"""A PostgreSQL server of one's own, for tests and benchmarks: a Unix socket, no TCP, nothing kept.

Where there are no binaries, ``missing`` says so. PostgreSQL refuses to be root, so a root that
starts one lends it another account. The server ends with whoever started it.
"""

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psutil
import psycopg

PROGRAMS: Final = ("initdb", "postgres")
_DEBIAN: Final = Path("/usr/lib/postgresql")
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
_ACCOUNTS: Final = ("postgres", "nobody")
_START_S: Final = 60.0
_STOP_S: Final = 30.0
_LOOK_S: Final = 0.02
_PR_SET_PDEATHSIG: Final = 1
_SETTINGS: Final = {
    "listen_addresses": "",
    "shared_buffers": "32MB",
    "max_connections": "40",
    "autovacuum": "off",
}


def missing() -> str | None:
    """Say why there can be no server, None where there can."""
    if _binaries() is None:
        names = " and ".join(PROGRAMS)
        return f"there is no PostgreSQL: {names} are neither on PATH nor below {_DEBIAN}"
    return None


class Server:
    """A server in a temporary folder, in memory unless ``on_disk``."""

    def __init__(self, *, on_disk: bool = False) -> None:
        """Make its files; ``start`` brings it up."""
        found = _binaries()
        if found is None:
            raise FileNotFoundError(missing())
        self._binaries = found
        parent = None if on_disk or not os.access(_MEMORY, os.W_OK) else _MEMORY
        self._folder = Path(tempfile.mkdtemp(prefix="cmdc-pg-", dir=parent))
        self._log = self._folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._account: dict[str, Any] = {}  # Any: arguments of Popen
        if os.getuid() == 0:
            account = _account()
            os.chown(self._folder, account.pw_uid, account.pw_gid)
            self._account = {
                "user": account.pw_uid,
                "group": account.pw_gid,
                "extra_groups": [],
            }
        self._run("initdb", "-D", "files", "-U", "cmdc", "-A", "trust", "-E", "UTF8",
                  "--locale=C", "--no-sync", "--no-instructions")  # fmt: skip

    @property
    def url(self) -> str:
        """Where it is."""
        return f"postgresql://cmdc@/postgres?host={self._folder}"

    @property
    def pid(self) -> int:
        """The process from which all others of it are."""
        return self._running().pid

    def start(self) -> None:
        """Start it, also after a kill, and wait until it takes connections.

        Call it in the main thread: the kernel ends the server with the thread that started it.
        """
        until_s = time.monotonic() + _START_S
        pause = threading.Event()
        while True:
            if self._process is None or self._process.poll() is not None:
                self._process = self._spawn()  # what is left of a killed one may still be there
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
            except psycopg.OperationalError:
                if time.monotonic() > until_s:
                    raise
                pause.wait(_LOOK_S)
            else:
                return

    def kill(self) -> None:
        """Kill all of it with SIGKILL, as the end of its machine does.

        A backend whose postmaster is gone goes on until it looks, and would still commit.
        """
        family = psutil.Process(self.pid).children(recursive=True)
        self._end(signal.SIGKILL)
        for backend in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                backend.kill()
        psutil.wait_procs(family, _STOP_S)

    def stop(self) -> None:
        """Shut it down at once, but in order: clients lose their connections."""
        self._end(signal.SIGINT)

    def suspend(self) -> None:
        """Let nothing in or out, as a network does that is gone, until ``resume``."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Go on."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Stop it, and delete all that it was."""
        if self._process is not None and self._process.poll() is None:
            self._end(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it, and delete all that it was."""
        self.close()

    def _end(self, number: signal.Signals) -> None:
        process = self._running()
        process.send_signal(number)
        process.wait(_STOP_S)

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise RuntimeError("the server was not started")
        return self._process

    def _spawn(self) -> "subprocess.Popen[bytes]":
        settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
        with self._log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - our arguments
                [self._binaries / "postgres", "-D", "files", "-k", self._folder, *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - one call of libc, no lock
                **self._account,
            )

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(  # noqa: S603 - our arguments
            [self._binaries / program, *arguments],
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=_START_S,
            check=False,
            **self._account,
        )
        if done.returncode:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise RuntimeError(f"{program} failed:\n{done.stderr}")


def _binaries() -> Path | None:
    """Return the folder of the programs: where PATH leads, or where Debian puts the newest."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    if _DEBIAN.is_dir():
        folders += sorted(_DEBIAN.glob("*/bin"), key=lambda one: one.parent.name, reverse=True)
    whole = (one for one in folders if all((one / name).is_file() for name in PROGRAMS))
    return next(whole, None)


def _account() -> pwd.struct_passwd:
    for name in _ACCOUNTS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return pwd.getpwuid(65534)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)
