"""``python -m scripts.hops``: plays a text-only prompt, and prints what ran for it, and where.

A daemon and an agent of their own run, and a model that a script plays. A first prompt is answered
before; what counts ran for each of the next five: so it is of the prompt, and not what a daemon
does now and then besides. A function counts once, however often it is called; comprehensions and
lambdas belong to the function that they stand in. ``--list`` names all.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scripts.hops import inside

if TYPE_CHECKING:
    from cmdc_runtime import Session

ROUNDS: Final = 5
LOOK_S: Final = 0.01
WRITE_S: Final = 30.0
TURN_S: Final = 30.0
_WATCHED: Final = ("supervisor.daemon", "workers.preload")
"""Modules that are imported before what is to be seen: by the daemon, and by what forks agents."""

Calls = Mapping[str, frozenset[tuple[str, str]]]
"""By process: the modules and the functions that ran there."""


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.hops", description=__doc__)
    parser.add_argument("--list", action="store_true", help="name each function")
    given = parser.parse_args()
    sys.stdout.writelines(f"{line}\n" for line in lines_of(played(), names=given.list))
    return 0


def lines_of(calls: Calls, *, names: bool = False) -> Iterator[str]:
    """Yield the table of what ran, and the functions by their names if these are wanted."""
    together = frozenset().union(*calls.values())
    yield "process modules functions"
    for process, own in {**calls, "together": together}.items():
        yield f"{process:8} {len({module for module, _ in own}):6} {len(own):9}"
    if names:
        yield from (f"{module} {name}" for module, name in sorted(together))


def read(lines: Iterable[str]) -> frozenset[tuple[str, str]]:
    """Return the modules and functions that a process has written down."""
    found = set()
    for line in lines:
        path, name = line.split(" ", 1)
        function = name.partition(".<locals>.<")[0]
        if "<" not in function.rpartition(".")[2]:
            found.add((path, function))
    return frozenset(found)


def played() -> Calls:
    """Play the prompt and return what ran in client, daemon and agent."""
    with _folder() as folder:
        inside.watch()
        # These are to be seen from their beginning on, and so is what forks the agents.
        import cmdc_runtime as cmdc  # noqa: PLC0415
        from benchmarks.daemon import Daemon  # noqa: PLC0415
        from cmdc_runtime.testing import ScriptedModel  # noqa: PLC0415

        with Daemon() as daemon, ScriptedModel([], default="Hello.") as model:
            daemon.await_warm()
            with (
                cmdc.Client(daemon.runtime_dir) as client,
                client.create_agent(model=model) as session,
            ):
                session.run("Hi.", timeout=TURN_S)
                agent = session.status().pid
                pids = {"client": os.getpid(), "daemon": daemon.pid, "agent": agent}
                rounds = [_round(folder, session, pids) for _ in range(ROUNDS)]
        return {name: frozenset.intersection(*(one[name] for one in rounds)) for name in pids}


def _round(folder: Path, session: "Session", pids: Mapping[str, int | None]) -> Calls:
    _flag(folder, inside.NOTE)
    session.run("Hi again.", timeout=TURN_S)
    _flag(folder, inside.WRITE)
    session.status()  # each process calls something, and has nothing else to do
    written = {name: _written(folder, pid) for name, pid in pids.items()}
    _flag(folder, inside.WAIT)
    return written


@contextmanager
def _folder() -> Iterator[Path]:
    """Make the folder, and have the processes that are started from here on find it."""
    site = Path(inside.ROOT, "scripts/mutants/site")
    watched = " ".join(f"{name}=scripts.hops.inside:watch" for name in _WATCHED)
    with tempfile.TemporaryDirectory(prefix="cmdc-hops-") as name:
        _flag(Path(name), inside.WAIT)
        os.environ[inside.FOLDER] = name
        os.environ["AFTER_IMPORT"] = watched
        os.environ["PYTHONPATH"] = f"{site}{os.pathsep}{inside.ROOT}"
        yield Path(name)


def _flag(folder: Path, value: int) -> None:
    """Write in place: others have mapped the file."""
    descriptor = os.open(folder / inside.FLAG, os.O_RDWR | os.O_CREAT)
    os.pwrite(descriptor, bytes([value]), 0)
    os.close(descriptor)


def _written(folder: Path, pid: int | None) -> frozenset[tuple[str, str]]:
    file, deadline_s = folder / f"{pid}.calls", time.monotonic() + WRITE_S
    while not file.exists():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"process {pid} has written nothing within {WRITE_S:g} s")
        time.sleep(LOOK_S)
    written = read(file.read_text().splitlines())
    file.unlink()
    return written


if __name__ == "__main__":
    sys.exit(main())
