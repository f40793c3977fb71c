"""A daemon of one's own for incidents: its directories, its processes, its life and its death.

Everything is real, and all of it is gone when the place is closed. The folder ``app`` is on the
path of the daemon's processes: there is the application that goes wrong.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import psutil

import cmdc_runtime as cmdc
from cmdc_runtime.closing import Closing

READY_S: Final = 120.0
"""Until the zygote is warm; litellm's first import compiles it."""
STEP_S: Final = 30.0
"""For one step of an incident, the machine being busy."""
END_S: Final = 60.0
"""For a daemon to end in order; it needs 40 s in the worst case."""
LOOK_AGAIN_S: Final = 0.01
_BASE: Final = "/tmp"  # noqa: S108 - mkdtemp makes a private directory; a socket's path is short

_T = TypeVar("_T")


class StageError(Exception):
    """An incident did not go as it was meant to."""


class NotHere(Exception):
    """An incident cannot be staged on this machine; says why."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How a daemon is started: by which command, and with which variables beside ours."""

    command: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


def wait(condition: Callable[[], _T], what: str, bound_s: float = STEP_S) -> _T:
    """Return the first true answer of ``condition``; raises StageError when the time is up."""
    deadline_s = time.monotonic() + bound_s
    while not (found := condition()):
        if time.monotonic() > deadline_s:
            raise StageError(f"not within {bound_s:g} s: {what}")
        time.sleep(LOOK_AGAIN_S)
    return found


class Place(Closing):
    """One pair of directories, and the daemons that live there one after the other."""

    def __init__(self, setting: Setting) -> None:
        """Start a daemon and wait until it forks at once; raises StageError."""
        self.folder = Path(tempfile.mkdtemp(prefix="cmdc-why-", dir=_BASE))
        self.app = self.folder / "app"
        self.app.mkdir()
        self._setting = setting
        self._process: subprocess.Popen[bytes] | None = None
        self._client: cmdc.Client | None = None
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> Path:
        """Its runtime directory."""
        return self.folder / "run"

    @property
    def journal(self) -> Path:
        """The file of what must survive."""
        return self.folder / "state" / "journal.sqlite3"

    @property
    def daemon(self) -> "subprocess.Popen[bytes]":
        """The daemon that was started last."""
        assert self._process is not None  # noqa: S101 - the constructor starts the first
        return self._process

    @property
    def client(self) -> cmdc.Client:
        """A client of whichever daemon lives here."""
        if self._client is None:
            self._client = cmdc.Client(self.address)
        return self._client

    def log_text(self) -> str:
        """Return what the daemons have written so far."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start a daemon and wait until it forks at once; raises StageError."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                [*self._setting.command, sys.executable, "-P", "-m", "supervisor"],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self.wait_warm()
        except StageError as error:
            raise StageError(f"{error}\n{self.log_text()}") from error

    def wait_warm(self, old_pid: int | None = None) -> None:
        """Wait until there is a zygote that forks at once, another one than ``old_pid``."""
        wait(lambda: self._is_warm(old_pid), "the zygote is warm", READY_S)

    def zygote(self) -> psutil.Process:
        """Return the process that all workers are forked from."""
        (node,) = [one for one in self.client.tree().children if one.id == "nursery"]
        return psutil.Process(node.pid)

    def end(self) -> None:
        """End the daemon in order; its sessions go on with the next one."""
        self.daemon.send_signal(signal.SIGTERM)
        self.daemon.wait(END_S)

    def kill(self) -> None:
        """Kill the daemon."""
        self.daemon.kill()
        self.daemon.wait(STEP_S)

    def close(self) -> None:
        """End the daemon and remove the folder."""
        if self._client is not None:
            self._client.close()
        if self._process is not None and self._process.poll() is None:
            try:
                self.end()
            except subprocess.TimeoutExpired:
                self.kill()
        with contextlib.suppress(StageError):
            wait(lambda: not self._left(), "nothing is left")
        for process in self._left():
            with contextlib.suppress(psutil.Error):
                process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _environment(self) -> Mapping[str, str]:
        """Name the directories by variables, by which every process of a daemon is found."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith("CMDC_")}
        path = filter(None, [str(self.app), os.environ.get("PYTHONPATH", "")])
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join(path),
            "CMDC_RUNTIME_DIR": str(self.address),
            "CMDC_STATE_DIR": str(self.journal.parent),
            **dict(self._setting.variables),
        }

    def _is_warm(self, old_pid: int | None) -> bool:
        if self.daemon.poll() is not None:
            raise StageError(f"the daemon ended with status {self.daemon.returncode}")
        try:
            with contextlib.closing(cmdc.Client(self.address)) as client:
                nodes = client.tree().children
        except cmdc.CmdcError:  # its sockets are not there yet
            return False
        return any(
            one.id == "nursery" and one.state == "ready" and one.pid != old_pid for one in nodes
        )

    def _left(self) -> list[psutil.Process]:
        return [one for one in psutil.process_iter() if _mentions(one, str(self.folder))]


def _mentions(process: psutil.Process, text: str) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return any(text in word for word in [*process.cmdline(), *process.environ().values()])
    except (psutil.Error, OSError):
        return False
