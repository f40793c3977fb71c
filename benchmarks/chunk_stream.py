"""Both ends of a streamed answer: a server that sends it, and a process that reads it.

``python -m benchmarks.chunk_stream server`` answers every request with as many chunks as its path
asks for, each by a call of its own; ``… reader`` reads such an answer in one of ``WAYS`` and prints
the CPU time that a chunk has cost it.
"""

import asyncio
import contextlib
import functools
import importlib
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Final

import aiohttp
import msgspec

from benchmarks.chunk_format import (
    END_OF_HEAD,
    EVENT,
    HEAD,
    HOST,
    KEY,
    LAST,
    MODEL,
    PATH,
    body_bytes,
    wanted,
)
from benchmarks.processes import serve
from cmdc_runtime.extensions.provider import ModelRequest, TextChunk
from cmdc_runtime.messages import Message
from workers.builtin.providers import default
from workers.builtin.wires import http

# --- the server -----------------------------------------------------------------------------------


class Server:
    """Answers on a port of the loopback, in a thread of its own."""

    def __init__(self) -> None:
        """Listen; the thread ends with the process."""
        self._port = 0
        self._is_up = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()

    def port(self) -> int:
        """Return where it answers."""
        self._is_up.wait()
        return self._port

    async def _serve(self) -> None:
        server = await asyncio.start_server(_answer, HOST, 0)
        self._port = server.sockets[0].getsockname()[1]
        self._is_up.set()
        await server.serve_forever()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readuntil(END_OF_HEAD)
            await reader.readexactly(body_bytes(head))
            chunks, _ = wanted(head)
            writer.write(HEAD)
            for _ in range(chunks):
                writer.write(EVENT)
                await writer.drain()
                await asyncio.sleep(0)
            writer.write(LAST)
            await writer.drain()
    writer.close()


# --- the reader -----------------------------------------------------------------------------------


class _Delta(msgspec.Struct):
    content: str = ""


class _Choice(msgspec.Struct):
    delta: _Delta


class _Event(msgspec.Struct):
    choices: list[_Choice]


async def texts_of(base: str) -> AsyncGenerator[list[str], None]:
    """Yield the texts of the chunks of each piece that arrives, by aiohttp and msgspec alone."""
    decoder, rest = msgspec.json.Decoder(_Event), b""
    async with raw_session().post(base + PATH, data=b"{}") as answer:
        async for piece in answer.content.iter_any():
            *events, rest = (rest + piece).split(b"\n\n")
            yield [
                decoder.decode(event[6:]).choices[0].delta.content
                for event in events
                if event.endswith(b"}")
            ]


async def _raw(base: str) -> int:
    """Read by ``texts_of``; return how many chunks had a text."""
    count = 0
    async for texts in texts_of(base):
        count += sum(map(bool, texts))
    return count


@functools.cache
def raw_session() -> aiohttp.ClientSession:
    """Return the session of ``texts_of``, which keeps connections until somebody closes it."""
    return aiohttp.ClientSession()


async def _provided(base: str, **options: object) -> int:
    """Read by the product's provider; return how many chunks had a text."""
    request = ModelRequest(
        model=MODEL,
        messages=(Message.user("hi"),),
        provider_opts={"api_base": base, "api_key": KEY, **options},
    )
    count = 0
    async for chunk in default.create().stream(request):
        count += isinstance(chunk, TextChunk)
    return count


async def _by_litellm(base: str) -> int:
    return await _provided(base, via="litellm")


WAYS: Final[Mapping[str, Callable[[str], Awaitable[int]]]] = {
    "raw": _raw,
    "lean": _provided,
    "litellm": _by_litellm,
}


class Reader:
    """Reads in one loop, as an agent does, so that connections are kept."""

    def __init__(self, runner: asyncio.Runner) -> None:
        """Read in the loop of ``runner``."""
        self._runner = runner

    def read(self, way: str, port: int, chunks: int) -> float:
        """Return the us of CPU time that a chunk costs, with its share of the request.

        Raises:
            RuntimeError: not all have come.
        """
        began = time.process_time()
        count = self._runner.run(_counted(way, f"http://{HOST}:{port}/{chunks}"))
        took_us = (time.process_time() - began) * 1e6
        if count != chunks:
            raise RuntimeError(f"{count} of {chunks} chunks have come by {way}")
        return took_us / chunks

    def close(self) -> None:
        """Close all connections."""
        self._runner.run(raw_session().close())
        self._runner.run(http.close())
        library = importlib.import_module("workers.builtin.providers.litellm").litellm
        self._runner.run(library.close_litellm_async_clients())


async def _counted(way: str, base: str) -> int:
    return await WAYS[way](base)


def main() -> None:
    """Be what the argument says, until stdin ends."""
    if sys.argv[1] == "server":
        serve({"port": Server().port})
        return
    with asyncio.Runner() as runner:
        reader = Reader(runner)
        serve({"read": reader.read})
        reader.close()


if __name__ == "__main__":
    main()
