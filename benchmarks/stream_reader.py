"""Whoever reads streams: applications of this project, of the openai SDK, of aiohttp, of a socket.

``python -m benchmarks.stream_reader KIND``: ``aio`` and ``client`` subscribe to sessions of a
daemon by the public clients, ``sdk`` and ``aiohttp`` ask the provider themselves, all in one loop,
and ``socket`` takes its bytes and looks for the end alone. Each prints how long stamped chunks were
under way (``delays``), or how many a second it gets of many streams at once (``rate``).
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import cmdc_runtime as cmdc
from benchmarks.chunk_format import HOST, KEY, LAST, MODEL, PATH, TEXT
from benchmarks.chunk_stream import raw_session, texts_of
from benchmarks.processes import serve, serve_in_loop
from benchmarks.stamps import Delays
from cmdc_runtime import events

PROMPT: Final = "say something"
TYPES: Final = (events.MessageDelta, events.AgentEnd, events.AgentError, events.AgentAbort)
RECEIVE_BYTES: Final = 65_536
READ_S: Final = 120.0
"""Of one answer: far beyond the slowest."""

Orders = dict[str, Callable[..., Awaitable[Any]]]  # Any: whatever goes through JSON


class Aio:
    """Subscribes by the client for asyncio, in this process to all sessions."""

    def __init__(self, client: cmdc.AsyncClient) -> None:
        """Read by ``client``."""
        self._client = client
        self._streams: list[cmdc.AsyncEventStream] = []
        self._ids: list[str] = []

    async def subscribe(self, session_ids: Sequence[str]) -> bool:
        """Subscribe to each session, a stream each."""
        for session_id in session_ids:
            self._streams.append(await self._client.subscribe(session_id, types=TYPES))
            self._ids.append(session_id)
        return True

    async def delays(self) -> list[float]:
        """Prompt the first session; return how long each stamp of its answer took to come here."""
        found = Delays()
        await self._client.prompt(self._ids[0], PROMPT)
        await _read(self._streams[0], found.take)
        return found.found_ms

    async def rate(self) -> dict[str, float]:
        """Prompt all; return how many chunks came, and how many a second since before that."""
        got = 0

        def count(text: str) -> None:
            nonlocal got
            got += len(text)

        began = time.perf_counter()
        reads = [asyncio.create_task(_read(stream, count)) for stream in self._streams]
        await asyncio.gather(*(self._client.prompt(id_, PROMPT) for id_ in self._ids))
        await asyncio.gather(*reads)
        return _rated(got // len(TEXT), began)


async def _read(stream: cmdc.AsyncEventStream, on_text: Callable[[str], None]) -> None:
    """Hand the text of one answer over as it comes."""
    async for envelope in stream:
        match envelope.event:
            case events.MessageDelta(delta=delta):
                on_text(delta)
            case events.AgentEnd():
                return
            case events.AgentError() | events.AgentAbort() as event:
                raise RuntimeError(f"there was no answer: {event}")
            case _:  # EventsLost: what is lost is not counted
                pass


class Sync:
    """Subscribes by the client for threads, to one session."""

    def __init__(self, runtime_dir: Path) -> None:
        """Connect."""
        self._client = cmdc.Client(runtime_dir)

    def subscribe(self, session_ids: Sequence[str]) -> bool:
        """Subscribe to the first session."""
        self._id = session_ids[0]
        self._stream = self._client.subscribe(self._id, types=TYPES)
        return True

    def delays(self) -> list[float]:
        """Prompt the session; return how long each stamp of its answer took to come here."""
        found = Delays()
        self._client.prompt(self._id, PROMPT)
        for envelope in self._stream:
            if isinstance(envelope.event, events.MessageDelta):
                found.take(envelope.event.delta)
            elif isinstance(envelope.event, events.AgentEnd):
                return found.found_ms
            elif isinstance(envelope.event, events.AgentError):
                break
        raise RuntimeError("there was no answer")

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class Sdk:
    """Asks the provider by the openai SDK."""

    def __init__(self, sdk: Any) -> None:  # Any: the module, which only this reader imports
        """Use the SDK's client."""
        self._sdk = sdk
        self._clients: dict[str, Any] = {}  # Any: the SDK's client

    async def rate(self, base: str, streams: int) -> dict[str, float]:
        """Ask for all streams at once; return how many chunks came and how many a second."""
        client = self._clients.get(base) or self._sdk.AsyncOpenAI(base_url=base, api_key=KEY)
        self._clients[base] = client
        began = time.perf_counter()
        counts = await asyncio.gather(*(_by_sdk(client) for _ in range(streams)))
        return _rated(sum(counts), began)


async def _by_sdk(client: Any) -> int:  # Any: the SDK's client
    answer = await client.chat.completions.create(
        model=MODEL.partition(":")[2],
        messages=[{"role": "user", "content": PROMPT}],
        stream=True,
    )
    count = 0
    async for chunk in answer:
        count += bool(chunk.choices[0].delta.content)
    return count


class Aiohttp:
    """Asks the provider by aiohttp and msgspec."""

    async def delays(self, base: str) -> list[float]:
        """Ask; return how long each stamp of the answer took to come here."""
        found = Delays()
        async for texts in texts_of(base):
            for text in texts:
                found.take(text)
        return found.found_ms


class Sockets:
    """Asks the provider by sockets, and reads nothing but the end."""

    async def rate(self, base: str, streams: int, chunks: int) -> dict[str, float]:
        """Ask for all streams at once; return how many chunks came and how many a second."""
        began = time.perf_counter()
        await asyncio.gather(*(_by_socket(base) for _ in range(streams)))
        return _rated(streams * chunks, began)


async def _by_socket(base: str) -> None:
    place, _, path = base.removeprefix("http://").partition("/")
    reader, writer = await asyncio.open_connection(HOST, int(place.partition(":")[2]))
    writer.write(f"POST /{path}{PATH} HTTP/1.1\r\ncontent-length: 2\r\n\r\n{{}}".encode())
    end = b""
    while not end.endswith(LAST):
        data = await reader.read(RECEIVE_BYTES)
        if not data:
            raise RuntimeError("the server has closed the connection")
        end = (end + data)[-len(LAST) :]
    writer.close()


def _rated(got: int, began: float) -> dict[str, float]:
    return {"got": got, "per_s": got / (time.perf_counter() - began)}


def _orders(reader: object) -> Orders:
    names = ("subscribe", "delays", "rate")
    return {name: getattr(reader, name) for name in names if hasattr(reader, name)}


async def _serve(kind: str, arguments: Sequence[str]) -> None:
    async with AsyncExitStack() as stack:
        reader: Aio | Sdk | Aiohttp | Sockets
        match kind:
            case "aio":
                client = cmdc.AsyncClient(Path(arguments[0]))
                reader = Aio(await stack.enter_async_context(client))
            case "sdk":
                import openai  # noqa: PLC0415 - seconds, for this reader alone

                reader = Sdk(openai)
            case "aiohttp":
                stack.push_async_callback(raw_session().close)
                reader = Aiohttp()
            case _:
                reader = Sockets()
        await serve_in_loop(_orders(reader))


def main() -> None:
    """Be what the argument says, until stdin ends."""
    kind, *arguments = sys.argv[1:]
    if kind == "client":
        reader = Sync(Path(arguments[0]))
        serve({"subscribe": reader.subscribe, "delays": reader.delays})
        reader.close()
        return
    asyncio.run(_serve(kind, arguments))


if __name__ == "__main__":
    main()
