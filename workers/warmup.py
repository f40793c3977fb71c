"""Real streamed model calls to a throwaway server, so that the first call of a child is cheap.

One goes as a vendor's own wire is spoken, and where litellm is there one by it, which imports some
500 modules and builds its clients, TLS contexts and schemas at the first call. Paid for here,
before the zygote freezes its memory, they are shared by every child. Rules: one thread, one event
loop, and nothing of either is left when ``warm`` returns.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, Final

from cmdc_runtime.extensions.provider import ModelRequest, ToolSpec
from cmdc_runtime.messages import Message
from cmdc_runtime.provider_options import LITELLM, VIA
from workers.build import PROVIDER
from workers.builtin.wires import http
from workers.core.assemble import assemble
from workers.loader import load_provider

CALL_WAIT_S: Final = 20.0
"""Bound of the whole warm-up; it takes about half a second."""
REQUEST_BYTES_MAX: Final = 1 << 20
"""No request of the warm-up comes near it."""

_PARAMETERS: Final[dict[str, object]] = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
}


def warm() -> None:
    """Make a streamed call with a tool in each way.

    No thread, socket, client or loop is left behind.

    Raises what litellm raises, and TimeoutError after ``CALL_WAIT_S``.
    """
    with _unproxied():
        asyncio.run(_warm())


@contextlib.contextmanager
def _unproxied() -> Iterator[None]:
    """Have no proxy of the environment be asked: the server is in this process."""
    names = ("no_proxy", "NO_PROXY")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "*"))
    try:
        yield
    finally:
        for name, text in before.items():
            del os.environ[name]
            if text is not None:
                os.environ[name] = text


async def _warm() -> None:
    # Any, as litellm is typed in part only; None in a zygote that does not have it.
    litellm: Any = sys.modules.get("litellm")
    ways: list[dict[str, object]] = [{}] if litellm is None else [{}, {VIA: LITELLM}]
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, limit=REQUEST_BYTES_MAX)
    port = server.sockets[0].getsockname()[1]
    try:
        async with asyncio.timeout(CALL_WAIT_S):
            for way in ways:
                await _call({"api_base": f"http://127.0.0.1:{port}/v1", "api_key": "none", **way})
    finally:
        await http.close()
        server.close()
        await server.wait_closed()
        if litellm is not None:
            await litellm.close_litellm_async_clients()
            # Clients are cached under the id of their loop; a child's new loop may get the same id.
            litellm.in_memory_llm_clients_cache.flush_cache()


async def _call(options: dict[str, object]) -> None:
    """Ask as an agent does, through the provider that it uses."""
    request = ModelRequest(
        model="openai/warm-up",
        system="s",
        messages=(Message.user("u"),),
        tools=(ToolSpec(name="echo", description="Return the text.", parameters=_PARAMETERS),),
        provider_opts=options,
    )
    async with contextlib.aclosing(load_provider(PROVIDER).stream(request)) as stream:
        reply = assemble([chunk async for chunk in stream], id_prefix="warm-up")
    if len(reply.tool_calls) != 1:
        raise RuntimeError(f"the warm-up call came back without its tool call: {reply}")


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request with a stream of every kind of delta."""
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(_content_length(head))
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
    writer.writelines(b"data: " + event + b"\n\n" for event in _events())
    await writer.drain()
    writer.close()
    await writer.wait_closed()


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return int(value)
    return 0


def _events() -> Iterator[bytes]:
    call = {"index": 0, "id": "call_1", "type": "function"}
    deltas: tuple[dict[str, Any], ...] = (
        {"role": "assistant", "content": "a"},
        {"content": "b"},
        {"tool_calls": [call | {"function": {"name": "echo", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"text": "a"}'}}]},
    )
    for delta in deltas:
        yield _chunk([{"index": 0, "delta": delta, "finish_reason": None}])
    yield _chunk([{"index": 0, "delta": {}, "finish_reason": "tool_calls"}])
    yield _chunk([], usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2})
    yield b"[DONE]"


def _chunk(choices: list[dict[str, Any]], **more: object) -> bytes:
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "warm-up"}
    return json.dumps(chunk | {"choices": choices} | more).encode()
