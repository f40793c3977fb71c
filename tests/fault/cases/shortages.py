"""Takes from a running daemon what it needs to fork, and gives it back.

The machine's limits are lowered around it, so what fails is what fails elsewhere.
"""

import contextlib
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

PIDS = Path("/sys/fs/cgroup/pids")
CROWD = 9
"""One more than the daemon has threads: each end keeps one of them at work."""
DESCRIPTORS_FREE = 24
"""Enough for what runs, and too few for a fork, which wants 64, also when two spares and two agents
have given back theirs: they hold 8 each."""


@dataclass(frozen=True)
class Shortage:
    """What there is no more of: ``begin`` and ``end`` it, and the error of a fork then."""

    begin: Callable[[], None]
    end: Callable[[], None]
    number: int
    killed: int
    """Agents that are killed meanwhile; what they held is free then."""


@contextlib.contextmanager
def no_processes(pids):
    """Let some processes have as many processes and threads as they have."""
    lines = Path(f"/proc/{pids[0]}/cgroup").read_text().splitlines()
    paths = (line.split(":", 2)[2] for line in lines if line.split(":", 2)[1] == "pids")
    home = PIDS / next(paths, "").strip("/")
    cell = home / f"cmdc-test-{os.getpid()}"
    try:
        cell.mkdir()
    except OSError as error:
        pytest.skip(f"there is no pids controller of cgroup v1 for us: {error}")

    def begin():
        for pid in pids:
            (cell / "cgroup.procs").write_text(str(pid))
        (cell / "pids.max").write_text((cell / "pids.current").read_text())

    def end():
        (cell / "pids.max").write_text("max")

    yield Shortage(begin, end, errno.EAGAIN, CROWD)
    end()
    for pid in (cell / "cgroup.procs").read_text().split():
        (home / "cgroup.procs").write_text(pid)
    cell.rmdir()


@contextlib.contextmanager
def no_descriptors(pids):
    """Leave the running daemon with hardly any descriptors."""
    daemon = psutil.Process(pids[0])
    soft, hard = daemon.rlimit(psutil.RLIMIT_NOFILE)

    def begin():
        daemon.rlimit(psutil.RLIMIT_NOFILE, (daemon.num_fds() + DESCRIPTORS_FREE, hard))

    def end():
        daemon.rlimit(psutil.RLIMIT_NOFILE, (soft, hard))

    yield Shortage(begin, end, errno.EMFILE, 2)
    end()
