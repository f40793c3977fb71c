"""How much CPU time does a streamed chunk cost, from the socket to a chunk of the provider?

Expected, in us: 4 for aiohttp and msgspec alone, at most six times that for the provider's own way,
and 400 where litellm is asked.
"""  # noqa: D400 - a question

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from benchmarks.chunk_stream import WAYS
from benchmarks.metrics import Metric, at_most, measured
from benchmarks.processes import Peer
from benchmarks.settings import Settings

CHUNKS: Final = 300
"""Of one answer: a page of text."""
MODULE: Final = "benchmarks.chunk_stream"
OVER_RAW: Final = at_most(6)
OVER_LITELLM: Final = at_most(0.1)


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    with ExitStack() as stack:
        server = stack.enter_context(Peer(MODULE, "server"))
        reader = stack.enter_context(Peer(MODULE, "reader"))
        port = server.ask("port")
        for turn in range(settings.repeats + 1):
            for way, samples in found.items():
                took_us = reader.ask("read", way=way, port=port, chunks=CHUNKS)
                if turn:  # the first one imports, and opens a connection
                    samples.append(took_us)
    lean = found["lean"]
    yield measured("chunks.lean", "us", lean, baseline=found["raw"], bar=OVER_RAW)
    yield measured(
        "chunks.lean_by_litellm", "us", lean, baseline=found["litellm"], bar=OVER_LITELLM
    )
    yield measured("chunks.litellm", "us", found["litellm"], baseline=found["raw"])
