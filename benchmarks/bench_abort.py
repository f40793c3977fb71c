"""How soon after an abort does a subscriber know, whatever the agent is doing?

Expected: 1 or 2 ms in every state, a status round trip and one commit of the journal; 5 to 10 where
a thread of the agent burns CPU, since it keeps Python's lock for 5 ms at a time. Promised: 100 ms.
"""  # noqa: D400 - a question

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import cmdc_runtime as cmdc
from benchmarks.daemon import LOOK_S, Daemon
from benchmarks.ear import Ear
from benchmarks.metrics import TAIL, Metric, measured, no_more_than
from benchmarks.settings import Settings
from benchmarks.wire import Wire, wait_ended
from cmdc_runtime.commands import Abort, Prompt
from cmdc_runtime.events import AgentAbort, Event, MessageDelta, PluginEvent
from cmdc_runtime.testing import ScriptedModel, Stall, ToolCalls, ToolUse

SOON: Final = no_more_than(10.0, rank=TAIL)
BLOCK: Final = 6
"""Aborts of one session before it is the next situation's turn; the first two warm up."""
WARM: Final = 2
PARALLEL: Final = 8
"""The default of ``max_parallel_tools``."""
SETTLE_S: Final = 30.0
STALL_CHARS: Final = 40
WORKS: Final = "works"
"""The event by which a tool says that it runs, and in which process."""
STEPS: Final = 10_000
"""Of a piece of work that burns CPU: a fraction of a millisecond, all of it with Python's lock."""
LOOK_AGAIN_S: Final = 0.05
"""Between a thread's looks at the flag: each look gives Python's lock away for a moment."""
FLAG: Final = "enough"
"""The file that ends a thread, which nothing else can."""

Request = dict[str, Any]  # Any: the body of a model request


@cmdc.tool(effects="read", isolation="task")
async def wait(number: int, context: cmdc.Context) -> str:
    """Wait for ever."""
    _report(context)
    await asyncio.Event().wait()
    return f"{number}"


@cmdc.tool(effects="read", isolation="process")
def burn(number: int, context: cmdc.Context) -> str:
    """Burn CPU for ever."""
    _report(context)
    while number < PARALLEL:
        sum(range(STEPS))
    return f"{number}"


@cmdc.tool(effects="read", isolation="thread")
def burn_beside(number: int, context: cmdc.Context) -> str:
    """Burn CPU beside the agent's loop until the flag is there, and remove it."""
    flag = Path(context.working_dir, FLAG)
    _report(context)
    while not flag.exists():
        until_s = time.monotonic() + LOOK_AGAIN_S
        while time.monotonic() < until_s:
            sum(range(STEPS))
    flag.unlink()
    return f"{number}"


def _report(context: cmdc.Context) -> None:
    assert context.session is not None
    context.session.emit(WORKS, os.getpid())


def _is_text(event: Event) -> bool:
    return isinstance(event, MessageDelta)


def _is_work(event: Event) -> bool:
    return isinstance(event, PluginEvent) and event.name == WORKS


def _is_abort(event: Event) -> bool:
    return isinstance(event, AgentAbort)


@dataclass(frozen=True, slots=True)
class Situation:
    """What the agent does when the abort comes."""

    name: str
    prompt: str = ""
    """What brings it there; empty: it is idle."""
    shows: Callable[[Event], bool] | None = None
    """By which events one knows that it is there; None: the model has its request."""
    count: int = 1
    """How many such events."""
    has_thread: bool = False


SITUATIONS: Final = (
    Situation("idle"),
    Situation("running", "hang"),
    Situation("streaming", "stall", _is_text),
    Situation("task", "wait 1", _is_work),
    Situation("process", "burn 1", _is_work),
    Situation("thread", "burn_beside 1", _is_work, has_thread=True),
    Situation(f"{PARALLEL}_tasks", f"wait {PARALLEL}", _is_work, PARALLEL),
    Situation(f"{PARALLEL}_processes", f"burn {PARALLEL}", _is_work, PARALLEL),
)


def _obey(request: Request) -> Stall | ToolCalls:
    """Answer ``hang`` by nothing, ``stall`` by half an answer, and ``NAME N`` by N calls."""
    name, *count = str(request["messages"][-1]["content"]).split()
    if not count:
        return Stall(after_chars=0 if name == "hang" else STALL_CHARS)
    return ToolCalls(*(ToolUse(name, {"number": at}) for at in range(int(count[0]))))


class Stage:
    """One daemon and its model, a client, and both ends of the bare frames."""

    def __init__(self, stack: ExitStack) -> None:
        """Start everything."""
        self._folder = stack.enter_context(TemporaryDirectory(prefix="cmdc-bench-"))
        self._model = stack.enter_context(ScriptedModel([], default=_obey))
        self._daemon = stack.enter_context(Daemon())
        self._daemon.await_warm()
        self._client = stack.enter_context(cmdc.Client(self._daemon.runtime_dir))
        self._wire = stack.enter_context(Wire(self._daemon.runtime_dir))
        self._ear = stack.enter_context(Ear(self._daemon.runtime_dir))
        self._requests = 0
        with self._session() as session:
            self._ear.attune(session.abort)

    def block(self, situation: Situation) -> list[tuple[float, float]]:
        """Return what a new session's aborts took, each with the status before it, in ms."""
        with self._session() as session:
            self._daemon.await_spares(self._wire)
            found = [self._sample(session, situation) for _ in range(BLOCK)]
        return found[WARM:]

    def _session(self) -> cmdc.Session:
        return self._client.create_agent(
            model=self._model,
            tools=[wait, burn, burn_beside],
            working_dir=self._folder,
            max_parallel_tools=PARALLEL,
        )

    def _sample(self, session: cmdc.Session, situation: Situation) -> tuple[float, float]:
        with ExitStack() as stack:
            self._enter(session, situation, stack)
            start = time.perf_counter()
            self._wire.status(session.id)
            status_ms = (time.perf_counter() - start) * 1e3
            self._ear.forget()
            start = time.perf_counter()
            command_id = self._wire.post_command(session.id, Abort())
            self._ear.hear(_is_abort)
            abort_ms = (time.perf_counter() - start) * 1e3
            self._wire.answer(command_id)
        return status_ms, abort_ms

    def _enter(self, session: cmdc.Session, situation: Situation, after: ExitStack) -> None:
        """Bring the agent there; ``after`` gets what awaits the end of everything that burns."""
        if not situation.prompt:
            return
        self._wire.send(session.id, Prompt(text=situation.prompt))
        self._requests += 1
        self._model.wait_request(self._requests)
        if situation.shows is None:
            return
        heard = self._ear.hear(situation.shows, situation.count)
        pids = {event.payload for event in heard if isinstance(event, PluginEvent)}
        for pid in pids - {session.agent_pid()}:
            pidfd = os.pidfd_open(pid)
            after.callback(os.close, pidfd)
            after.callback(wait_ended, pidfd)
        if situation.has_thread:
            after.callback(self._end_thread)

    def _end_thread(self) -> None:
        flag = Path(self._folder, FLAG)
        flag.touch()
        deadline_s = time.monotonic() + SETTLE_S
        while flag.exists():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"the thread of a tool runs on after {SETTLE_S:g} s")
            time.sleep(LOOK_S)


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with ExitStack() as stack:
        stage = Stage(stack)
        for _ in range(settings.repeats):
            for situation in SITUATIONS:
                found[situation.name] += stage.block(situation)
    for situation in SITUATIONS:
        statuses, aborts = zip(*found[situation.name], strict=True)
        name = f"abort.{situation.name}"
        yield measured(name, "ms", aborts, baseline=statuses)
        yield measured(f"{name}_p99", "ms", aborts, baseline=statuses, bar=SOON)
