"""A real daemon for one benchmark: in a directory of its own, and gone with everything it started.

It runs as ``cmdc serve`` runs it, with its default options unless a benchmark asks for others, and
logs into a file that is shown when something fails.
"""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from benchmarks.processes import end, environment
from benchmarks.wire import Wire
from cmdc_runtime.requests import DaemonFacts, GetFacts

SPARES: Final = 2
"""The default of the daemon."""
READY_S: Final = 60.0
WARM_S: Final = 120.0
STOP_S: Final = 60.0
"""A daemon with 1,000 sessions takes its time."""
LOOK_S: Final = 0.005
"""Between two looks at a state that nobody announces."""
LOG_LINES: Final = 20


MODULE: Final = (sys.executable, "-P", "-m", "supervisor")
"""What ``cmdc serve`` turns into."""


class Daemon:
    """One daemon; a context manager that ends it."""

    def __init__(
        self, *, spares: int = SPARES, notify_socket: str = "", program: Sequence[str] = MODULE
    ) -> None:
        """Start it by ``program``; ``await_ready`` waits until its sockets are bound."""
        self._program = program
        self.directory = Path(tempfile.mkdtemp(prefix="cmdc-bench-"))
        self._spares = spares
        self._variables = {"NOTIFY_SOCKET": notify_socket} if notify_socket else {}
        self._start()

    def _start(self) -> None:
        self._ready, theirs = os.pipe()
        command = [*self._program, "--runtime-dir", str(self.directory / "run")]
        command += ["--state-dir", str(self.directory / "state")]
        command += ["--spares", str(self._spares), "--max-sessions", "20000"]
        command += ["--owner-pid", str(os.getpid()), "--ready-fd", str(theirs)]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment() | self._variables,
                pass_fds=(theirs,),
                start_new_session=True,
            )
        os.close(theirs)
        self.pid = self._process.pid

    def kill(self) -> None:
        """End the daemon alone by SIGKILL; its agents wait for the next one."""
        self._process.kill()
        self._process.wait()
        os.close(self._ready)
        self._ready = -1

    def start_again(self) -> None:
        """Start another one in the same directories."""
        self._start()

    def __enter__(self) -> Self:
        """Return the daemon."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it; its last words are shown when the benchmark failed."""
        if exc is not None and not isinstance(exc, KeyboardInterrupt | SystemExit):
            sys.stderr.write(self._last_lines())
        self.close()

    @property
    def runtime_dir(self) -> Path:
        """Where its sockets are."""
        return self.directory / "run"

    def await_ready(self) -> None:
        """Return when its sockets are bound."""
        with os.fdopen(self._ready, closefd=False) as pipe:
            if not select.select([pipe], [], [], READY_S)[0]:
                raise TimeoutError(f"the daemon was not ready within {READY_S:g} s")
            line = pipe.readline()
        if not line or not json.loads(line).get("ready"):
            raise RuntimeError(f"the daemon did not start: {line!r}")

    def await_warm(self) -> None:
        """Return when the zygote is warm and the spares are there."""
        self.await_ready()
        with Wire(self.runtime_dir) as wire:
            self.await_spares(wire)

    def await_spares(self, wire: Wire) -> None:
        """Return when all spares are there, and nothing is being forked any more."""
        deadline_s = time.monotonic() + WARM_S
        while True:
            facts: DaemonFacts = wire.ask(GetFacts())
            if facts.nursery == "ready" and facts.spares == self._spares:
                return
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"no {self._spares} spares within {WARM_S:g} s: {facts}")
            time.sleep(LOOK_S)

    def family(self) -> list[psutil.Process]:
        """Return the daemon and every process below it."""
        process = psutil.Process(self.pid)
        return [process, *process.children(recursive=True)]

    def close(self) -> None:
        """End it and remove its directory; does nothing the second time."""
        if self._ready >= 0:
            os.close(self._ready)
            self._ready = -1
        if self._process.poll() is None:
            self._process.terminate()
            end(self._process, STOP_S)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _last_lines(self) -> str:
        lines = (self.directory / "log").read_text(errors="replace").splitlines()
        return "\n".join(["the daemon's log ends:", *lines[-LOG_LINES:], ""])
