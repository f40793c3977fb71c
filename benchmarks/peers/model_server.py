"""``python -m benchmarks.peers.model_server``: a model's server on the loopback, for all peers.

It speaks streamed chat completions. The last prompt of a request says how long the answer is and
how quickly it comes; what the newest request knew of the conversation is returned to who asks.
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.chunk_format import END_OF_HEAD, EVENT, HEAD, HOST, LAST, body_bytes
from benchmarks.peers.prompts import order_in
from benchmarks.processes import serve

SPOKEN: Final = frozenset({"user", "assistant"})


class ModelServer:
    """Answers on a port of the loopback, in a thread of its own that ends with the process."""

    def __init__(self) -> None:
        """Listen."""
        self._port = 0
        self._history = 0
        self._is_up = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()

    def url(self) -> str:
        """Return the base of the API."""
        self._is_up.wait()
        return f"http://{HOST}:{self._port}/v1"

    def history(self) -> int:
        """Return how many messages came before the prompt in the newest request."""
        return self._history

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._answer, HOST, 0, backlog=1024)
        self._port = server.sockets[0].getsockname()[1]
        self._is_up.set()
        await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(END_OF_HEAD)
                request = json.loads(await reader.readexactly(body_bytes(head)))
                self._history, prompt = spoken(request["messages"])
                await _stream(writer, *order_in(prompt))
        writer.close()


async def _stream(writer: asyncio.StreamWriter, words: int, pause_s: float) -> None:
    writer.write(HEAD)
    for _ in range(words):
        await asyncio.sleep(pause_s)
        writer.write(EVENT)
        await writer.drain()
    writer.write(LAST)
    await writer.drain()


def spoken(messages: Sequence[Mapping[str, Any]]) -> tuple[int, str]:
    """Return how many messages of user and assistant came before the last prompt, and the prompt.

    Raises:
        ValueError: nobody has asked anything.
    """
    parts = [message for message in messages if message["role"] in SPOKEN]
    asked = [at for at, message in enumerate(parts) if message["role"] == "user"]
    if not asked:
        raise ValueError("a request without a prompt")
    return asked[-1], str(parts[asked[-1]]["content"])


if __name__ == "__main__":
    server = ModelServer()
    serve({"url": server.url, "history": server.history})
