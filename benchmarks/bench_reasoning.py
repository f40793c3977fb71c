"""What do 32 branches of one run cost: time beside the ideal, memory for each, and what is left?

And what does a branch cost that begins with the session's conversation, beside one that does not?

Expected: a run whose branches all start at once takes the time of one answer and what the machine
takes to start 32 sessions; half a MiB more for each than a session without a parent; nothing left.
A fork of 5 MB takes some 300 ms more: as many bytes are saved, read by the new session and sent to
the model. Each has a copy of its own in the journal, which is written twice, to its log and to its
table: some 12 MiB. Nothing of the session is played again.
"""  # noqa: D400 - a question

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import msgspec
import psutil

import cmdc_runtime as cmdc
from benchmarks.daemon import LOOK_S, Daemon
from benchmarks.metrics import Metric, measured, no_more_than
from benchmarks.settings import Settings
from benchmarks.wire import Wire
from cmdc_runtime.commands import AwaitCycle, Prompt, Status
from cmdc_runtime.messages import Message
from cmdc_runtime.testing import Delay, Hold, ScriptedModel, Text

BRANCHES: Final = 32
PARALLEL: Final = (8, BRANCHES)
THINK_S: Final = 1.0
"""How long each answer takes: with all at once it is the time of the ideal run."""
MIB: Final = 2**20
TALK_MESSAGES: Final = 50
TALK_CHARS: Final = 100_000
"""Of each message: 5 MB, the conversation that is forked."""
FORKS: Final = (1, 8)
"""At a time. Of one run of n forks some 10 + 5 n MiB go to the journal's log and the state that all
begin with, and 5 n to its tables, then or later; encoding takes 4 ms once, decoding 1 ms each."""
NOTHING: Final = no_more_than(0)
GONE_S: Final = 30.0


class Fan(cmdc.ReasoningStrategy):
    """Asks all at once and counts the answers."""

    def step(self, _state: object, context: cmdc.ReasoningContext) -> list[cmdc.Branch]:
        """Ask."""
        return [cmdc.Branch(context.question) for _ in range(BRANCHES)]

    def aggregate(self, thoughts: list[cmdc.Thought], _state: object) -> cmdc.Done:
        """Count."""
        return cmdc.Done(sum(one.error is None for one in thoughts))


class Copies(cmdc.ReasoningStrategy):
    """Asks so many branches at once, each with the session's conversation or none with it."""

    class Config(msgspec.Struct):
        """How many, and whether they fork."""

        count: int
        fork: bool

    def step(self, _state: object, context: cmdc.ReasoningContext) -> list[cmdc.Branch]:
        """Ask."""
        return [cmdc.Branch(context.question, fork=self.opts.fork)] * int(self.opts.count)

    def aggregate(self, thoughts: list[cmdc.Thought], _state: object) -> cmdc.Done:
        """Count."""
        return cmdc.Done(sum(one.error is None for one in thoughts))


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject."""
    with ExitStack() as stack:
        thinks = stack.enter_context(ScriptedModel([], default=(Delay(THINK_S), "Well.")))
        daemon = stack.enter_context(Daemon())
        daemon.await_warm()
        wire = stack.enter_context(Wire(daemon.runtime_dir))
        client = stack.enter_context(cmdc.Client(daemon.runtime_dir))
        alone: list[float] = []
        took: dict[int, list[float]] = {parallel: [] for parallel in PARALLEL}
        for _ in range(settings.rounds):
            alone.append(_crowd(wire, daemon, thinks))
            for parallel in PARALLEL:
                took[parallel].append(_run(client, thinks, parallel))
                daemon.await_spares(wire)
        for parallel in PARALLEL:
            ideal = BRANCHES / parallel * THINK_S * 1e3
            name = f"reasoning.{BRANCHES}_branches_{parallel}_at_a_time"
            yield measured(f"{name}_over_ideal", "ms", [one - ideal for one in took[parallel]])
            if parallel == BRANCHES:
                yield measured(name, "ms", took[parallel], baseline=alone)
        yield from _memory(client, daemon, wire)
        yield from _forks(client, daemon, wire, settings)


def _forks(client: cmdc.Client, daemon: Daemon, wire: Wire, settings: Settings) -> Iterator[Metric]:
    """Yield what it takes to begin with a long conversation, and what the daemon writes for it."""
    talk = [
        maker("x" * TALK_CHARS)
        for _ in range(TALK_MESSAGES // 2)
        for maker in (Message.user, Message.assistant)
    ]
    with (
        ScriptedModel([], default="Well.") as quick,
        client.create_agent(model=quick, messages=talk) as session,
    ):
        for count in FORKS:
            took: dict[bool, list[float]] = {True: [], False: []}
            written: dict[bool, list[float]] = {True: [], False: []}
            for _ in range(settings.fewer):
                for fork in (True, False):
                    took_ms, written_mib = _copied(session, daemon, count, fork=fork)
                    took[fork].append(took_ms)
                    written[fork].append(written_mib)
                    daemon.await_spares(wire)
            name = f"reasoning.{count}_forks_of_5_mb"
            yield measured(name, "ms", took[True], baseline=took[False])
            yield measured(f"{name}_written", "MiB", written[True], baseline=written[False])


def _copied(
    session: cmdc.Session, daemon: Daemon, count: int, *, fork: bool
) -> tuple[float, float]:
    """Return the milliseconds of a run in a session, and the MiB that the daemon wrote for it."""
    written = psutil.Process(daemon.pid).io_counters().write_chars
    start = time.perf_counter()
    strategy = (Copies, {"count": count, "fork": fork})
    result = cmdc.Runner.run(strategy, "Well?", session=session, max_parallel=count)
    took_ms = (time.perf_counter() - start) * 1e3
    if result.answer != count:
        raise RuntimeError(f"not all branches had an answer: {result.status}, {result.reason}")
    return took_ms, (psutil.Process(daemon.pid).io_counters().write_chars - written) / MIB


def _run(client: cmdc.Client, model: Any, parallel: int) -> float:  # Any: a model source
    start = time.perf_counter()
    result = cmdc.Runner.run(Fan, "Well?", model=model, max_parallel=parallel, client=client)
    if result.answer != BRANCHES:
        raise RuntimeError(f"not all branches had an answer: {result.status}, {result.reason}")
    return (time.perf_counter() - start) * 1e3


def _crowd(wire: Wire, daemon: Daemon, model: ScriptedModel) -> float:
    """Return the milliseconds of as many sessions without a strategy, started and asked at once."""
    start = time.perf_counter()
    ids = wire.crowd(BRANCHES, model=model)
    wire.send_all(ids, Prompt(text="Well?"))
    wire.send_all(ids, AwaitCycle())
    took_ms = (time.perf_counter() - start) * 1e3
    wire.disband(ids)
    daemon.await_spares(wire)
    return took_ms


def _memory(client: cmdc.Client, daemon: Daemon, wire: Wire) -> Iterator[Metric]:
    """Yield what each branch takes while all wait for the model, and what is left afterwards."""
    before = len(daemon.family())
    with ScriptedModel([], default=(Hold(), Text("Well."))) as held:
        running = threading.Thread(target=_run, args=(client, held, BRANCHES))
        running.start()
        held.wait_held(count=BRANCHES)
        private = _private(one for one in client.list_sessions() if one.parent_id is not None)
        held.release(BRANCHES)
        running.join()
        left = _left(daemon, before)
        ids = wire.crowd(BRANCHES, model=held)
        wire.send_all(ids, Prompt(text="Well?"))
        held.wait_held(count=BRANCHES)
        alone = _private(client.list_sessions())
        held.release(BRANCHES)
        wire.disband(ids)
    yield measured("reasoning.branch_uss", "MiB", private, baseline=alone)
    yield measured("reasoning.left", "processes", [left], bar=NOTHING)


def _private(sessions: Iterable[Status]) -> list[float]:
    """Return the MiB that would be free if a session's process ended, for each."""
    pids = [one.pid for one in sessions if one.pid is not None]
    return [psutil.Process(pid).memory_full_info().uss / MIB for pid in pids]


def _left(daemon: Daemon, before: int) -> float:
    """Return how many more processes there are than before, once no more end."""
    deadline_s = time.monotonic() + GONE_S
    while len(daemon.family()) > before and time.monotonic() < deadline_s:
        time.sleep(LOOK_S)
    return float(max(0, len(daemon.family()) - before))
