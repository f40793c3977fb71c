"""How late does a streamed chunk reach a subscriber, and how many a second pass through one daemon?

Expected: aiohttp and msgspec in one process have a chunk 0.2 ms after it was sent, a subscriber
less than 1 ms later; one process reads some 7,000 chunks a second by the openai SDK, and 100
sessions with a subscriber each at least twice as many on two cores.
"""  # noqa: D400 - a question

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from benchmarks.chunk_format import HOST, KEY, MODEL
from benchmarks.daemon import Daemon
from benchmarks.metrics import Metric, at_least, at_most_more, measured, tail
from benchmarks.processes import Peer
from benchmarks.settings import Settings
from benchmarks.wire import Wire
from cmdc_runtime.ids import SessionId

READER: Final = "benchmarks.stream_reader"
LATE: Final = at_most_more(1.0)
FAST: Final = at_least(2.0)
INTERVAL_US: Final = 2_000
PACED: Final = 500
"""Chunks of a paced answer: one second of it."""
STREAMS: Final = 100
UNPACED: Final = 500
"""Chunks of each of many answers: a page and a half, so that their beginnings weigh little."""


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject."""
    with ExitStack() as stack:
        port = stack.enter_context(Peer("benchmarks.stream_server")).ask("port")
        daemon = stack.enter_context(Daemon())
        daemon.await_warm()
        wire = stack.enter_context(Wire(daemon.runtime_dir))
        base = f"http://{HOST}:{port}"
        yield from _delays(settings, daemon, wire, f"{base}/{PACED}/{INTERVAL_US}")
        yield from _rates(settings, daemon, wire, f"{base}/{UNPACED}")


def _sessions(wire: Wire, base: str, count: int) -> list[SessionId]:
    return wire.crowd(count, model=MODEL, provider_opts={"api_base": base, "api_key": KEY})


def _delays(settings: Settings, daemon: Daemon, wire: Wire, base: str) -> Iterator[Metric]:
    found: dict[str, list[float]] = {"aio": [], "client": []}
    raw: list[float] = []
    with ExitStack() as stack:
        session_ids = _sessions(wire, base, len(found))
        beside = stack.enter_context(Peer(READER, "aiohttp"))
        readers = {
            kind: stack.enter_context(Peer(READER, kind, str(daemon.runtime_dir))) for kind in found
        }
        for reader, session_id in zip(readers.values(), session_ids, strict=True):
            reader.ask("subscribe", session_ids=[session_id])
        for turn in range(settings.rounds + 1):
            raw_now = beside.ask("delays", base=base)
            now = {kind: reader.ask("delays") for kind, reader in readers.items()}
            if turn:  # the first one opens connections and touches pages
                raw += raw_now
                for kind, delays in now.items():
                    found[kind] += delays
        wire.disband(session_ids)
    for kind, delays in found.items():
        name = f"stream.chunk_{kind}"
        yield measured(name, "ms", delays, baseline=raw, bar=LATE)
        yield tail(f"{name}_p99", "ms", delays, baseline=raw)


def _rates(settings: Settings, daemon: Daemon, wire: Wire, base: str) -> Iterator[Metric]:
    ours: list[float] = []
    lost: list[float] = []
    sdk: list[float] = []
    served: list[float] = []
    with ExitStack() as stack:
        reader = stack.enter_context(Peer(READER, "aio", str(daemon.runtime_dir)))
        by_sdk = stack.enter_context(Peer(READER, "sdk"))
        by_socket = stack.enter_context(Peer(READER, "socket"))
        session_ids = _sessions(wire, base, STREAMS)
        reader.ask("subscribe", session_ids=session_ids)
        for turn in range(settings.rounds + 1):
            served_now = by_socket.ask("rate", base=base, streams=STREAMS, chunks=UNPACED)
            sdk_now = by_sdk.ask("rate", base=base, streams=STREAMS)
            ours_now = reader.ask("rate")
            if turn:  # the first one opens connections and touches pages
                served.append(served_now["per_s"])
                sdk.append(sdk_now["per_s"])
                ours.append(ours_now["per_s"])
                lost.append(STREAMS * UNPACED - ours_now["got"])
        wire.disband(session_ids)
    name = f"stream.tokens_of_{STREAMS}"
    yield measured(name, "1/s", ours, baseline=sdk, bar=FAST)
    yield measured(f"{name}_lost", "tokens", lost)
    yield measured(f"{name}_served", "1/s", served, baseline=ours)
