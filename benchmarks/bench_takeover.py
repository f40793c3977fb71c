"""How soon is a daemon there again that was killed, and how soon is each of its sessions decided?

1, 10, 100 and 500 idle sessions. *Ready* is the new daemon's exec until its sockets are bound,
*decided* until every session is up. First the agents live and are taken over; then they are killed
with the daemon, and every session needs another process. The baseline of *ready* is an exec of
Python that imports what the daemon imports.

Expected: a second for the import and the bind, next to nothing for each agent that is taken over;
some 15 ms for each that has to be forked, behind the zygote's start.
"""  # noqa: D400 - a question

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from benchmarks.daemon import Daemon
from benchmarks.metrics import Bar, Metric, measured
from benchmarks.processes import environment
from benchmarks.settings import Settings
from benchmarks.wire import Wire
from cmdc_runtime.requests import ListSessions, SessionInfo

SESSIONS: Final = 500
"""Of the goal: a daemon with so many is ready in a second and has decided all in five."""
READY: Final = Bar("value", "<=", 1_000.0)
DECIDED: Final = Bar("value", "<=", 5_000.0)
RESTARTS_MAX: Final = 100_000
DECIDED_S: Final = 120.0
LOOK_S: Final = 0.005


@dataclass(slots=True)
class Times:
    """Milliseconds since the exec; one of each restart."""

    ready: list[float] = field(default_factory=list)
    decided: list[float] = field(default_factory=list)


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject."""
    counts = [1, *settings.crowds] if max(settings.crowds, default=0) < SESSIONS else [1]
    counts += [SESSIONS] if settings.crowds else []
    with ExitStack() as stack:
        daemon = stack.enter_context(Daemon())
        daemon.await_warm()
        here = 0
        for count in counts:
            with Wire(daemon.runtime_dir) as wire:
                wire.crowd(count - here, max_restarts=RESTARTS_MAX, restart_delay=(0.0, 0.0))
            here = count
            yield from _measure(daemon, count, settings.rounds)


def _measure(daemon: Daemon, count: int, rounds: int) -> Iterator[Metric]:
    imports = [_import_ms() for _ in range(rounds)]
    for name, is_alive in (("adopted", True), ("forked", False)):
        times = Times()
        for _ in range(rounds):
            _restart(daemon, count, times, is_alive=is_alive)
        is_goal = count == SESSIONS
        yield measured(
            f"takeover.ready_of_{count}_{name}",
            "ms",
            times.ready,
            baseline=imports,
            bar=READY if is_goal else None,
        )
        yield measured(
            f"takeover.decided_of_{count}_{name}",
            "ms",
            times.decided,
            bar=DECIDED if is_goal else None,
        )


def _restart(daemon: Daemon, count: int, times: Times, *, is_alive: bool) -> None:
    with Wire(daemon.runtime_dir) as wire:
        daemon.await_spares(wire)
        pids = [] if is_alive else [one.pid for one in _sessions(wire) if one.pid is not None]
    daemon.kill()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    start = time.perf_counter()
    daemon.start_again()
    daemon.await_ready()
    times.ready.append((time.perf_counter() - start) * 1e3)
    with Wire(daemon.runtime_dir) as wire:
        deadline_s = time.monotonic() + DECIDED_S
        while len([one for one in _sessions(wire) if one.phase == "up"]) < count:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{count} sessions were not decided within {DECIDED_S:g} s")
            time.sleep(LOOK_S)
    times.decided.append((time.perf_counter() - start) * 1e3)


def _sessions(wire: Wire) -> tuple[SessionInfo, ...]:
    found: tuple[SessionInfo, ...] = wire.ask(ListSessions())
    return found


def _import_ms() -> float:
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-P", "-c", "import supervisor.daemon"], check=True, env=environment()
    )
    return (time.perf_counter() - start) * 1e3
