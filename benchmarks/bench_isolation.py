"""What do a hundred sessions feel of one neighbour that misbehaves, or of a crowd that comes?

Others are asked for their status in turn, for a second at rest and a second beside the neighbour,
and so on. The baseline is the same percentile of the seconds at rest.

Expected: what takes a core away is felt on two cores, by whoever waits for the scheduler; what only
the neighbour's own process suffers from is not.
"""  # noqa: D400 - a question

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Final

import cmdc_runtime as cmdc
from benchmarks.daemon import Daemon
from benchmarks.flood import flood
from benchmarks.metrics import TAIL, Metric, at_most, measured
from benchmarks.processes import Peer
from benchmarks.settings import Settings
from benchmarks.wire import Wire
from cmdc_runtime.events import ToolExecutionStart
from cmdc_runtime.ids import SessionId
from cmdc_runtime.testing import ScriptedModel, ToolCalls, ToolUse

FELT: Final = at_most(1.2, rank=TAIL)
OTHERS: Final = 100
WINDOW_S: Final = 1.0
EVENTS: Final = 10_000_000
"""More than a window can hold; an abort ends it."""
STEPS: Final = 10_000
RESTARTS_MAX: Final = 100_000

Request = dict[str, Any]  # Any: the body of a model request


@cmdc.tool(effects="read", isolation="process")
def burn(events: int) -> str:
    """Burn CPU until it is killed."""
    while events:
        sum(range(STEPS))
    return "never"


def _obey(request: Request) -> ToolCalls:
    """Answer a prompt by a call of the tool that it names."""
    return ToolCalls(ToolUse(str(request["messages"][-1]["content"]), {"events": EVENTS}))


@dataclass(slots=True)
class Trips:
    """Milliseconds of each status, at rest and beside the neighbour."""

    rest: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)


class Stage:
    """One daemon, the sessions that are asked, one that misbehaves, and who makes it do so."""

    def __init__(self, stack: ExitStack, others: int) -> None:
        """Start everything."""
        model = stack.enter_context(ScriptedModel([], default=_obey))
        daemon = stack.enter_context(Daemon())
        daemon.await_warm()
        self._client = stack.enter_context(cmdc.Client(daemon.runtime_dir))
        self._wire = stack.enter_context(Wire(daemon.runtime_dir))
        self._others = cycle(self._wire.crowd(others))
        self.session = self._client.create_agent(
            model=model,
            tools=[flood, burn],
            max_restarts=RESTARTS_MAX,
            restart_delay=(0.0, 0.0),
        )
        self.peer = stack.enter_context(Peer("benchmarks.neighbour", str(daemon.runtime_dir)))
        self._daemon = daemon

    @contextmanager
    def calls(self, tool: str) -> Iterator[None]:
        """Have the session run a tool meanwhile."""
        with self.session.subscribe() as events:
            self.session.prompt(tool)
            next(one for one in events if isinstance(one.event, ToolExecutionStart))
        yield
        self.session.abort()

    @contextmanager
    def orders(self, order: str, **arguments: object) -> Iterator[None]:
        """Have the peer do something meanwhile."""
        self.peer.post(order, session_id=self.session.id, seconds=WINDOW_S, **arguments)
        yield
        self.peer.answer()

    def at_rest(self) -> list[float]:
        """Return what each status takes while nothing else happens."""
        self._daemon.await_spares(self._wire)
        return self.ask_for(WINDOW_S)

    def ask_for(self, seconds: float) -> list[float]:
        """Ask one after the other for so long."""
        until_s = time.perf_counter() + seconds
        return self.ask_while(lambda: time.perf_counter() < until_s)

    def ask_while(self, goes_on: Callable[[], bool]) -> list[float]:
        """Ask one after the other, each for its status."""
        found: list[float] = []
        while goes_on():
            found.append(self._ask(next(self._others)))
        return found

    def _ask(self, session_id: SessionId) -> float:
        start = time.perf_counter()
        self._wire.status(session_id)
        return (time.perf_counter() - start) * 1e3


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject."""
    with ExitStack() as stack:
        stage = Stage(stack, min(OTHERS, max(settings.crowds, default=1)))
        stage.at_rest()
        for name, neighbour in _neighbours(stage).items():
            trips = Trips()
            for _ in range(settings.fewer):
                trips.rest += stage.at_rest()
                with neighbour():
                    trips.beside += stage.ask_for(WINDOW_S)
            yield _felt(name, trips)
        for count in settings.crowds:
            yield _felt(f"{count}_creates", _beside_creates(stage, count, settings.rounds))


def _neighbours(stage: Stage) -> "dict[str, Callable[[], Any]]":
    return {
        "flood": lambda: stage.calls("flood"),
        "burn": lambda: stage.calls("burn"),
        "flap": lambda: stage.orders("flap"),
        "stall": lambda: stage.orders("pile", pid=stage.session.agent_pid()),
    }


def _beside_creates(stage: Stage, count: int, rounds: int) -> Trips:
    trips = Trips()
    for _ in range(rounds):
        trips.rest += stage.at_rest()
        stage.peer.post("create", count=count)
        trips.beside += stage.ask_while(lambda: not stage.peer.has_answer)
        stage.peer.answer()
        stage.peer.ask("disband")
    return trips


def _felt(name: str, trips: Trips) -> Metric:
    return measured(f"isolation.{name}_p99", "ms", trips.beside, baseline=trips.rest, bar=FELT)
