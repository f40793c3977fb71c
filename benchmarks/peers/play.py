"""One peer's turn: its script is started, given orders, and looked at from outside."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

import psutil

from benchmarks.peers.catalogue import Candidate
from benchmarks.peers.prompts import CHUNKS, PAGE
from benchmarks.processes import ROOT, Peer, end, environment

PYTHON: Final = ROOT / ".peers" / "bin" / "python"
"""Of the environment that ``make bench-peers`` makes."""
MIB: Final = 2**20
END_S: Final = 30.0
"""For a script to take everything away; a cluster needs some seconds."""
LOG_LINES: Final = 20
_SCHED_CLOCK: Final = 2
"""The kernel's number for the time that the scheduler has counted, in a clock of a process."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a peer plays."""

    python: str
    folder: Path
    """For what it writes; short, since sockets are in it."""
    url: str
    """The model's API."""

    def command(self, candidate: Candidate, *flags: str) -> list[str]:
        """Return how the peer's script is started."""
        python = self.python if candidate.needs else sys.executable
        return [python, "-m", "benchmarks.peers.script", candidate.module, self.url, *flags]

    def environment(self) -> Mapping[str, str]:
        """Return its variables: no daemon that runs already is found by them."""
        folder = str(self.folder)
        return environment() | {"TMPDIR": folder, "XDG_RUNTIME_DIR": folder}


class Play(Peer):
    """A user's script that waits for orders."""

    def __init__(self, place: Place, candidate: Candidate, *flags: str) -> None:
        """Start it; its fleet is there when its first answer comes."""
        self._name = candidate.name
        self._log = place.folder / f"{candidate.name}.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                place.command(candidate, *flags),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env=place.environment(),
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._known: list[psutil.Process] = []

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it; its last words are shown when the benchmark failed."""
        if exc is not None and not isinstance(exc, KeyboardInterrupt | SystemExit):
            sys.stderr.write(last_lines(self._log))
        self.close()

    def family(self) -> list[psutil.Process]:
        """Return every process that the peer runs."""
        self._known = family(self.ask("roots"))
        return self._known

    def cpu_us(self) -> tuple[float, float]:
        """Return the CPU time of a streamed chunk, in us: of the agent's process, and of all."""
        agent = self.ask("hold")
        pids = [process.pid for process in self.family()]
        own, whole = cpu_s([agent]), cpu_s(pids)
        self.ask("answer", prompt=PAGE)
        took = cpu_s([agent]) - own, cpu_s(pids) - whole
        self.ask("release")
        return took[0] / CHUNKS * 1e6, took[1] / CHUNKS * 1e6

    def crash(self) -> tuple[float | None, bool]:
        """Return the ms until a killed agent goes on, None: never; and whether the script lives.

        Raises:
            RuntimeError: the script ended by itself.
        """
        self.family()
        try:
            return self.ask("crash"), True
        except RuntimeError:
            if self._process.wait(END_S) != -signal.SIGKILL:
                raise
            return None, False

    def close(self) -> None:
        """End the script and whatever it has left."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        alive = (process.pid for process in self._known if process.is_running())
        known = family([self.pid, *alive])
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        end(self._process, END_S)
        self._process.stdout.close()
        for process in known:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(known, END_S)


def cold_s(place: Place, candidate: Candidate) -> float:
    """Return the seconds from starting a script to the first piece that it hears.

    Raises:
        RuntimeError: it heard none.
    """
    start = time.perf_counter()
    with Play(place, candidate, "--cold") as play:
        play.answer()
        return time.perf_counter() - start


def family(roots: Iterable[int]) -> list[psutil.Process]:
    """Return the processes and every one below them, each once."""
    found: dict[int, psutil.Process] = {}
    for root in roots:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(root)
            found |= {one.pid: one for one in (process, *process.children(recursive=True))}
    return list(found.values())


def pss_mib(processes: Iterable[psutil.Process]) -> float:
    """Return their memory in MiB, each common page divided among those who share it."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total / MIB


def cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU time that processes have had, by the scheduler's own clock."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            total += time.clock_gettime((~pid << 3) | _SCHED_CLOCK)
    return total


def last_lines(log: Path) -> str:
    """Return how a log ends."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return os.linesep.join([f"{log.name} ends:", *lines[-LOG_LINES:], ""])
