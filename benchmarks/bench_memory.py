"""What does an idle session cost: private memory, its share of the common pages, and CPU time?

Expected: a raw fork 1 MiB private; an agent 3 or 4 MiB before its first model call and some 10 more
after it; next to no CPU. The common pages, 200 MiB, are there once.
"""  # noqa: D400 - a question

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final

import psutil

from benchmarks.daemon import Daemon
from benchmarks.metrics import Metric, measured, no_more_than
from benchmarks.processes import Peer
from benchmarks.settings import CROWD_BIG, Settings
from benchmarks.wire import Wire
from cmdc_runtime.commands import AwaitCycle, Prompt
from cmdc_runtime.ids import SessionId
from cmdc_runtime.requests import ListSessions, SessionInfo
from cmdc_runtime.testing import ScriptedModel, Text

MIB: Final = 2**20
BEFORE: Final = no_more_than(4)
AFTER: Final = no_more_than(8)
TOTAL: Final = no_more_than(5 * 1024)
IDLE: Final = no_more_than(2)
IDLE_S: Final = 5.0
"""How long nothing is done while CPU time is counted."""
SAMPLED_MAX: Final = 30
"""Sessions of a crowd whose private memory is read; one reading takes milliseconds."""
CALLS_MAX: Final = 100
"""A larger crowd makes no model call: it would take a minute of CPU time and teach nothing."""


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject."""
    with ExitStack() as stack:
        raw = stack.enter_context(Peer("benchmarks.frozen", "litellm"))
        model = stack.enter_context(ScriptedModel([], default=Text("An answer of some words.")))
        for count in settings.crowds or (settings.repeats,):
            yield from _crowd(raw, model, count)


def _crowd(raw: Peer, model: ScriptedModel, count: int) -> Iterator[Metric]:
    is_big = count >= CROWD_BIG
    with Daemon() as daemon, Wire(daemon.runtime_dir) as wire:
        daemon.await_warm()
        ids = wire.crowd(count, model=model)
        daemon.await_spares(wire)
        forks = raw.ask("hold", count=count)
        fork_mib, fork_pss_mib = _private(forks), _shared([raw.pid, *forks])
        raw.ask("release")
        name = f"at_{count}"
        idle = _idle_percent(daemon)
        before = _private(_pids(wire))
        total = _shared([process.pid for process in daemon.family()])
        yield measured(f"memory.idle_uss_{name}", "MiB", before, baseline=fork_mib, bar=BEFORE)
        yield measured(
            f"memory.pss_total_{name}",
            "MiB",
            total,
            baseline=fork_pss_mib,
            bar=TOTAL if is_big else None,
        )
        yield measured(f"memory.idle_cpu_{name}", "%", [idle], bar=IDLE if is_big else None)
        if count <= CALLS_MAX:
            _call_model(wire, ids)
            after = _private(_pids(wire))
            yield measured(f"memory.used_uss_{name}", "MiB", after, baseline=fork_mib, bar=AFTER)


def _call_model(wire: Wire, ids: Sequence[SessionId]) -> None:
    wire.send_all(ids, Prompt(text="say something"))
    wire.send_all(ids, AwaitCycle())


def _pids(wire: Wire) -> list[int]:
    sessions: tuple[SessionInfo, ...] = wire.ask(ListSessions())
    return [session.pid for session in sessions if session.pid is not None]


def _private(pids: Sequence[int]) -> list[float]:
    """Return the MiB that would be free if a process ended, for some of the processes."""
    step = max(1, len(pids) // SAMPLED_MAX)
    return [psutil.Process(pid).memory_full_info().uss / MIB for pid in pids[::step]]


def _shared(pids: Sequence[int]) -> list[float]:
    """Return the MiB of all processes, each common page divided among those who share it."""
    return [sum(psutil.Process(pid).memory_full_info().pss for pid in pids) / MIB]


def _idle_percent(daemon: Daemon) -> float:
    """Return the share of one core that the daemon and all below it use when nothing happens."""
    family = daemon.family()
    before, start = _cpu_s(family), time.monotonic()
    time.sleep(IDLE_S)
    return (_cpu_s(family) - before) / (time.monotonic() - start) * 100


def _cpu_s(family: Sequence[psutil.Process]) -> float:
    times = [process.cpu_times() for process in family]
    return sum(one.user + one.system for one in times)
