"""The product's provider against a server that streams what it likes.

Each input is one request over HTTP: the provider's own path, or litellm's. What comes of it is
put together, written as the journal writes it, read back and sent to the model again, as the next
turn of a session does.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from cmdc_runtime.extensions.provider import Chunk, ModelRequest, ProviderError, ToolSpec
from cmdc_runtime.ids import new_message_id
from cmdc_runtime.messages import Message
from cmdc_runtime.provider_options import LITELLM, VIA
from scripts.fuzz.entropy import Entropy, pick
from scripts.fuzz.shapes import mutated
from scripts.fuzz.wires import WIRES
from workers.builtin.providers.default import create
from workers.builtin.providers.litellm import call_arguments
from workers.builtin.wires import http
from workers.core.assemble import assemble, fit
from workers.core.records import MessageAdded, decode_record

HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
TOOL: Final = ToolSpec(
    name="read_file",
    description="Read a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}},
)


@contextlib.contextmanager
def provider_target() -> Iterator[Callable[[Entropy], None]]:
    """Yield the target; its server ends with it."""
    with asyncio.Runner() as runner:
        stage = _Stage()
        runner.run(stage.open())
        try:
            yield lambda entropy: runner.run(stage.play(entropy))
        finally:
            runner.run(stage.close())


class _Stage:
    """A server that answers whatever it is asked with the bytes of the moment."""

    def __init__(self) -> None:
        """Have nothing to say yet."""
        self._body = b""
        self._provider = create()
        self._server: asyncio.Server | None = None
        self._base = ""

    async def open(self) -> None:
        """Listen on the loopback."""
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self._base = f"http://127.0.0.1:{port}"

    async def close(self) -> None:
        """Listen no more."""
        assert self._server is not None  # noqa: S101 - it was opened
        await http.close()
        self._server.close()
        await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1])
                for line in head.splitlines()
                if line.lower().startswith(b"content-length:")
            )
            await reader.readexactly(length)
            body = self._body
            writer.write(HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            await writer.drain()
        writer.close()

    async def play(self, entropy: Entropy) -> None:
        """Have one reply streamed, kept, and sent back to the model."""
        model = pick(entropy, list(WIRES))
        lines = WIRES[model](entropy)
        self._body = mutated("".join(lines).encode("utf-8", "surrogatepass"), entropy)
        request = self._request(model, (Message.user("hello"),))
        if entropy.below(2):
            request.provider_opts[VIA] = LITELLM
        chunks: list[Chunk] = []
        try:
            async for chunk in self._provider.stream(request):
                chunks.append(fit(chunk))  # noqa: PERF401 - what came before a failure counts
        except ProviderError as error:
            msgspec.msgpack.encode([str(error), str(error.kind)])
        kept(chunks, lambda messages: call_arguments(self._request(model, messages)))

    def _request(self, model: str, messages: tuple[Message, ...]) -> ModelRequest:
        base = f"{self._base}/v1" if model.startswith("openai") else self._base
        return ModelRequest(
            model=model,
            system="You are kind.",
            messages=messages,
            tools=(TOOL,),
            provider_opts={"api_key": "sk-fuzz-0123456789", "api_base": base, "timeout": 5.0},
        )


def kept(chunks: list[Chunk], send: Callable[[tuple[Message, ...]], Any]) -> None:  # Any: unread
    """Put a reply together, write it down, read it back, and send it with the next request.

    Raises:
        AssertionError: what was read is not what was written.
    """
    reply = assemble(chunks, id_prefix="f")
    said = MessageAdded(
        message=Message(
            id=new_message_id(),
            role="assistant",
            content=reply.text,
            tool_calls=reply.tool_calls,
            thinking=reply.thinking,
        )
    )
    body = msgspec.msgpack.encode(said)
    read = decode_record(body)
    assert read == said, "what was read back is not what was written"  # noqa: S101 - the oracle
    assert isinstance(read, MessageAdded)  # noqa: S101 - equal to one
    msgspec.msgpack.encode(reply.usage)
    results = [Message.tool_result(call.call_id, "done") for call in read.message.tool_calls]
    msgspec.json.encode(send((Message.user("hello"), read.message, *results)))
