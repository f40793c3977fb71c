"""What does a status round trip client -> daemon -> agent -> client cost beside two bare hops?

Expected: bare hops about 300 us p50 on two cores and half of it on one; ours below 1.5 times that
by bare frames, and some 100 us more through the clients, which hand over between threads or tasks.
"""  # noqa: D400 - a question

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
import zmq

import cmdc_runtime as cmdc
from benchmarks.daemon import Daemon
from benchmarks.metrics import Bar, Metric, at_most, measured
from benchmarks.processes import ROOT, Peer, environment
from benchmarks.settings import Settings
from benchmarks.wire import ANSWER_MS, Wire
from cmdc_runtime.commands import GetStatus
from cmdc_runtime.ids import SessionId, new_command_id
from cmdc_runtime.wire.codec import encode, raw
from cmdc_runtime.wire.frames import HEADER, Send, ValueReply
from cmdc_runtime.wire.sockets import Role, open_socket

Bars = Mapping[str, Bar]
"""Of each way to ask."""
BARS: Final[Bars] = {"wire": at_most(1.5), "aio": at_most(2.0), "client": at_most(2.5)}
ONE_CORE: Final[Bars] = {"wire": at_most(2.0), "aio": at_most(3.0), "client": at_most(4.0)}
BLOCK: Final = 20
"""Round trips in a row before it is the next one's turn; the first two warm up."""
WARM: Final = 2
PINNED_CPU: Final = 0


class Echo:
    """A client of the two bare hops."""

    def __init__(self, stack: ExitStack, request: bytes, answer_bytes: int) -> None:
        """Start both processes and connect."""
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cmdc-bench-"))
        front, back = (f"ipc://{Path(folder, name)}" for name in ("front", "back"))
        stack.enter_context(Peer("benchmarks.echo", "broker", front, back))
        stack.enter_context(Peer("benchmarks.echo", "worker", back, str(answer_bytes)))
        stack.enter_context(self)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = open_socket(self._context, Role.CLIENT)
        self._socket.connect(front)
        self._request = [HEADER, request]

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the socket."""
        self._context.destroy(linger=0)

    def trip(self) -> None:
        """Send the request and receive the answer."""
        self._socket.send_multipart(self._request)
        if not self._socket.poll(ANSWER_MS):
            raise TimeoutError("no echo")
        self._socket.recv_multipart()


class Trips:
    """Samples of each kind, in microseconds."""

    def __init__(self) -> None:
        """Begin with none."""
        self.echo: list[float] = []
        self.wire: list[float] = []
        self.client: list[float] = []
        self.aio: list[float] = []


@dataclass(frozen=True, slots=True)
class Place:
    """One daemon with one session, a client of each kind, and the two bare hops."""

    daemon: Daemon
    session_id: SessionId
    wire: Wire
    client: cmdc.Client
    echo: Echo

    @classmethod
    def open(cls, stack: ExitStack) -> "Place":
        """Start everything."""
        daemon = stack.enter_context(Daemon())
        daemon.await_warm()
        wire = stack.enter_context(Wire(daemon.runtime_dir))
        client = stack.enter_context(cmdc.Client(daemon.runtime_dir))
        session_id = wire.start().session_id
        daemon.await_spares(wire)
        return cls(daemon, session_id, wire, client, Echo(stack, *_same_bytes(wire, session_id)))


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject; those of one core come from a process of their own."""
    yield from _run(settings, "roundtrip", BARS)
    if len(os.sched_getaffinity(0)) > 1:
        yield from _pinned(settings)


def run_pinned(settings: Settings) -> Iterator[Metric]:
    """Yield the metrics with everything on one core."""
    os.sched_setaffinity(0, {PINNED_CPU})
    yield from _run(Settings(settings.repeats, ()), "roundtrip.one_core", ONE_CORE)


def _run(settings: Settings, name: str, bars: Bars) -> Iterator[Metric]:
    with ExitStack() as stack:
        place = Place.open(stack)
        session_id = place.session_id
        trips = asyncio.run(_measure(settings.repeats, session_id, place))
        for kind, bar in bars.items():
            found = getattr(trips, kind)
            yield measured(f"{name}.{kind}", "us", found, baseline=trips.echo, bar=bar)
        here = 1
        for count in settings.crowds:
            place.wire.crowd(count - here)
            here = count
            place.daemon.await_spares(place.wire)
            trips = asyncio.run(_measure(settings.fewer, session_id, place))
            beside = f"{name}.wire_beside_{count}"
            yield measured(beside, "us", trips.wire, baseline=trips.echo, bar=bars["wire"])


async def _measure(rounds: int, session_id: SessionId, place: "Place") -> Trips:
    """Take turns, a block each; the blocking ones block this loop, which has nothing else."""
    trips = Trips()
    async with cmdc.AsyncClient(place.daemon.runtime_dir) as aio:
        for _ in range(rounds):
            trips.echo += _block(place.echo.trip)
            trips.wire += _block(lambda: place.wire.status(session_id))
            trips.client += _block(lambda: place.client.status(session_id))
            trips.aio += await _async_block(aio, session_id)
    return trips


def _block(trip: Callable[[], object]) -> list[float]:
    samples: list[float] = []
    for _ in range(BLOCK):
        start = time.perf_counter()
        trip()
        samples.append((time.perf_counter() - start) * 1e6)
    return samples[WARM:]


async def _async_block(client: cmdc.AsyncClient, session_id: SessionId) -> list[float]:
    samples: list[float] = []
    for _ in range(BLOCK):
        start = time.perf_counter()
        await client.status(session_id)
        samples.append((time.perf_counter() - start) * 1e6)
    return samples[WARM:]


def _same_bytes(wire: Wire, session_id: SessionId) -> tuple[bytes, int]:
    """Return the frame that asks for a status, and how long the frame of the answer is."""
    id_ = new_command_id()
    ask = Send(id=id_, session_id=session_id, durable=False, body=raw(GetStatus()))
    answer = ValueReply(id=id_, body=raw(wire.status(session_id)))
    return encode(ask), len(encode(answer))


def _pinned(settings: Settings) -> Iterator[Metric]:
    """Run this subject again with everything on one core."""
    command = [sys.executable, "-m", "benchmarks", "roundtrip", "--one-core", "--json"]
    command += ["--no-save", "--repeats", str(settings.repeats)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, check=True)
    for line in done.stdout.splitlines():
        yield msgspec.json.decode(line, type=Metric)
