"""How long from ``create_agent`` to the first status reply, beside the least that a fork can cost?

Expected: a raw fork of a frozen process with litellm about 8 ms; ours about 4 ms with a spare ready
and 12 ms without; multiprocess's forkserver as it comes 20 ms. A crowd costs some 10 ms a head.
"""  # noqa: D400 - a question

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import cmdc_runtime as cmdc
from benchmarks.daemon import Daemon
from benchmarks.metrics import Bar, Metric, at_most, measured
from benchmarks.processes import Peer
from benchmarks.settings import CROWD_BIG, Settings
from benchmarks.wire import MODEL, Wire
from cmdc_runtime.ids import SessionId
from cmdc_runtime.requests import StopSession

SPARE: Final = at_most(0.5)
NO_SPARE: Final = at_most(1.0)
CROWD: Final = at_most(1.0)


@dataclass(frozen=True, slots=True)
class Place:
    """One daemon with a client of each kind."""

    daemon: Daemon
    client: cmdc.Client
    wire: Wire

    @classmethod
    def open(cls, stack: ExitStack, spares: int) -> "Place":
        """Start it and wait until it is warm."""
        daemon = stack.enter_context(Daemon(spares=spares))
        daemon.await_warm()
        client = stack.enter_context(cmdc.Client(daemon.runtime_dir))
        return cls(daemon, client, stack.enter_context(Wire(daemon.runtime_dir)))

    def create(self) -> float:
        """Time one agent through the public client, in ms; it is gone afterwards."""
        self.daemon.await_spares(self.wire)
        start = time.perf_counter()
        session = self.client.create_agent(model=MODEL)
        session.status()
        took_ms = (time.perf_counter() - start) * 1e3
        session.stop()
        return took_ms

    def create_by_wire(self) -> float:
        """Time one agent through bare frames, in ms; it is gone afterwards."""
        self.daemon.await_spares(self.wire)
        start = time.perf_counter()
        session_id = self.wire.start().session_id
        self.wire.status(session_id)
        took_ms = (time.perf_counter() - start) * 1e3
        self.wire.ask(StopSession(session_id=session_id))
        return took_ms


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject."""
    with ExitStack() as stack:
        raw = stack.enter_context(Peer("benchmarks.frozen", "litellm"))
        plain = stack.enter_context(Peer("benchmarks.plain_forkserver"))
        ready, bare = Place.open(stack, 2), Place.open(stack, 0)
        raw.ask("spawn")
        plain.ask("spawn")
        ready.create()
        bare.create()
        yield from _alone(settings, raw, plain, (ready, bare))
        for count in settings.crowds:
            yield from _in_crowd(settings, raw, ready, count)


def _alone(
    settings: Settings, raw: Peer, plain: Peer, places: tuple[Place, Place]
) -> Iterator[Metric]:
    ready, bare = places
    forks: list[float] = []
    spare: list[float] = []
    no_spare: list[float] = []
    wire: list[float] = []
    plains: list[float] = []
    for _ in range(settings.repeats):
        forks.append(raw.ask("spawn"))
        spare.append(ready.create())
        no_spare.append(bare.create())
        wire.append(ready.create_by_wire())
        plains.append(plain.ask("spawn"))
    yield measured("spawn.spare", "ms", spare, baseline=forks, bar=SPARE)
    yield measured("spawn.no_spare", "ms", no_spare, baseline=forks, bar=NO_SPARE)
    yield measured("spawn.spare_by_wire", "ms", wire, baseline=forks, bar=SPARE)
    yield measured("spawn.plain_forkserver", "ms", plains, baseline=forks)


def _in_crowd(settings: Settings, raw: Peer, place: Place, count: int) -> Iterator[Metric]:
    """Measure how long a crowd takes to come, and one more agent beside it."""
    is_big = count >= CROWD_BIG
    rounds = 1 if is_big else settings.rounds
    forks: list[float] = []
    sessions: list[float] = []
    ids: list[SessionId] = []
    for _ in range(rounds):
        place.wire.disband(ids)
        raw.ask("release")
        forks.append(raw.ask("crowd", count=count))
        place.daemon.await_spares(place.wire)
        start = time.perf_counter()
        ids = place.wire.crowd(count)
        sessions.append((time.perf_counter() - start) * 1e3)
    bar: Bar | None = CROWD if is_big else None
    yield measured(f"spawn.crowd_of_{count}", "ms", sessions, baseline=forks, bar=bar)
    beside_forks: list[float] = []
    beside: list[float] = []
    for _ in range(settings.fewer):
        beside_forks.append(raw.ask("spawn"))
        beside.append(place.create())
    yield measured(f"spawn.spare_beside_{count}", "ms", beside, baseline=beside_forks, bar=SPARE)
    place.wire.disband(ids)
    raw.ask("release")
