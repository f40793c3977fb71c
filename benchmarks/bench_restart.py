"""How soon after kill -9 does a monitor know, and how soon does the restarted agent answer?

Expected: the kernel needs about 7 ms to take a process of litellm's size down; a Down follows 1 or
2 ms later. The restarted agent answers after 10 to 15 ms, a raw kill, wait, fork, ping takes 15.
"""  # noqa: D400 - a question

import os
import shutil
import signal
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.daemon import Daemon
from benchmarks.metrics import TAIL, Metric, at_most, measured
from benchmarks.processes import Peer
from benchmarks.settings import Settings
from benchmarks.wire import Wire, wait_ended
from cmdc_runtime.commands import AwaitCycle, Prompt, Status
from cmdc_runtime.ids import SessionId, new_monitor_ref
from cmdc_runtime.requests import Monitor
from cmdc_runtime.testing import ScriptedModel, Text

DOWN: Final = at_most(0.6)
DOWN_P99: Final = at_most(0.6, rank=TAIL)
ANSWERS: Final = at_most(0.6)
RECOVERS: Final = at_most(3.0)
CYCLES: Final = 20
"""Of five durable events and as many records each: a history of 100."""
LONG_CYCLES: Final = 300
"""A history of 1,500 events."""
RESTARTS_MAX: Final = 100_000
RUN_S: Final = 3_600.0
_ROWS: Final = """
    WITH last AS (SELECT coalesce(max(seq), 0) AS seq FROM snapshots WHERE session_id = :id)
    SELECT body FROM snapshots, last WHERE session_id = :id AND snapshots.seq = last.seq
    UNION ALL SELECT body FROM records, last WHERE session_id = :id AND records.seq > last.seq
"""


@dataclass(frozen=True, slots=True)
class Place:
    """One daemon, its client, and the raw forks."""

    daemon: Daemon
    wire: Wire
    session_id: SessionId
    raw: Peer

    def kill_raw(self) -> float:
        """Time kill -9 of a raw fork to its pidfd, in ms."""
        (pid,) = self.raw.ask("hold", count=1)
        pidfd = os.pidfd_open(pid)
        try:
            start = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            wait_ended(pidfd)
            took_ms = (time.perf_counter() - start) * 1e3
        finally:
            os.close(pidfd)
            self.raw.ask("reap")
        return took_ms

    def kill_to_pidfd(self) -> float:
        """Time kill -9 of an agent to its pidfd, in ms."""
        pid = self._settled().pid
        assert pid is not None
        pidfd = os.pidfd_open(pid)
        try:
            start = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            wait_ended(pidfd)
            return (time.perf_counter() - start) * 1e3
        finally:
            os.close(pidfd)
            self.wire.wait_down()

    def kill_to_down(self) -> float:
        """Time kill -9 of an agent to the Down at its monitor, in ms."""
        pid = self._settled().pid
        assert pid is not None
        start = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        self.wire.wait_down()
        return (time.perf_counter() - start) * 1e3

    def kill_to_answer(self) -> float:
        """Time kill -9 of an agent to the first status of its successor, in ms."""
        before = self._settled()
        assert before.pid is not None
        start = time.perf_counter()
        os.kill(before.pid, signal.SIGKILL)
        after: Status = self.wire.status(self.session_id)
        took_ms = (time.perf_counter() - start) * 1e3
        self.wire.wait_down()
        if after.incarnation != before.incarnation + 1:
            raise RuntimeError(f"incarnation {after.incarnation} after {before.incarnation}")
        return took_ms

    def read_rows(self) -> float:
        """Time to read and decode the rows that a restart stands on, in ms.

        Of a copy: the daemon alone has the journal's lock.
        """
        with tempfile.TemporaryDirectory(prefix="cmdc-bench-") as folder:
            for path in (self.daemon.directory / "state").glob("journal.sqlite3*"):
                shutil.copy(path, folder)
            with closing(sqlite3.connect(Path(folder) / "journal.sqlite3")) as db:
                start = time.perf_counter()
                for (body,) in db.execute(_ROWS, {"id": self.session_id}):
                    msgspec.msgpack.decode(body)
                return (time.perf_counter() - start) * 1e3

    def _settled(self) -> Status:
        """Return the status of an agent that is up beside all its spares."""
        self.daemon.await_spares(self.wire)
        status: Status = self.wire.status(self.session_id)
        return status


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject."""
    with ExitStack() as stack:
        raw = stack.enter_context(Peer("benchmarks.frozen", "litellm"))
        model = stack.enter_context(ScriptedModel([], default=Text("An answer of some words.")))
        daemon = stack.enter_context(Daemon())
        daemon.await_warm()
        wire = stack.enter_context(Wire(daemon.runtime_dir))
        session_id = _with_history(wire, model)
        place = Place(daemon, wire, session_id, raw)
        raw.ask("hold", count=1)
        for warm in (place.kill_raw, place.kill_to_down, place.kill_to_answer):
            warm()
        yield from _measure(place, settings.repeats, "")
        here = 1
        for count in settings.crowds:
            wire.crowd(count - here)
            here = count
            yield from _measure(place, settings.fewer, f"_beside_{count}")
        if settings.crowds:
            yield from _recovery_of_1500(place, model, settings.fewer)


def _recovery_of_1500(place: Place, model: ScriptedModel, repeats: int) -> Iterator[Metric]:
    """Measure the answer of an agent with a long history, and how much later it is for that."""
    long = replace(place, session_id=_with_history(place.wire, model, LONG_CYCLES))
    new = replace(place, session_id=_with_history(place.wire, model, 0))
    found = [
        (new.kill_to_answer(), long.kill_to_answer(), long.read_rows()) for _ in range(repeats)
    ]
    without, answers, rows = ([*column] for column in zip(*found, strict=True))
    later = [answer - first for first, answer, _ in found]
    yield measured("restart.answers_1500_events", "ms", answers, baseline=without)
    yield measured("restart.recovers_1500_events", "ms", later, baseline=rows, bar=RECOVERS)


def _measure(place: Place, repeats: int, suffix: str) -> Iterator[Metric]:
    ended: list[float] = []
    own: list[float] = []
    down: list[float] = []
    restart: list[float] = []
    answer: list[float] = []
    for _ in range(repeats):
        ended.append(place.kill_raw())
        down.append(place.kill_to_down())
        own.append(place.kill_to_pidfd())
        restart.append(place.raw.ask("restart"))
        answer.append(place.kill_to_answer())
    name = f"restart.down{suffix}"
    yield measured(name, "ms", down, baseline=ended, bar=DOWN)
    yield measured(f"{name}_p99", "ms", down, baseline=ended, bar=DOWN_P99)
    yield measured(f"restart.agent_pidfd{suffix}", "ms", own, baseline=ended)
    yield measured(f"restart.answers{suffix}", "ms", answer, baseline=restart, bar=ANSWERS)


def _with_history(wire: Wire, model: ScriptedModel, cycles: int = CYCLES) -> SessionId:
    """Start a session that may die often, with a monitor and its history."""
    session_id = wire.start(
        model=model,
        max_restarts=RESTARTS_MAX,
        max_seconds=RUN_S,
        restart_delay=(0.0, 0.0),
    ).session_id
    for _ in range(cycles):
        receipt = wire.send(session_id, Prompt(text="say something"))
        wire.send(session_id, AwaitCycle(prompt_id=receipt.command_id))
    wire.ask(Monitor(session_id=session_id, ref=new_monitor_ref(), persistent=True))
    return session_id
