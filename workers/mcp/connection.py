"""A connection to an MCP server by the official SDK, over the pipes of a process of ours.

Nothing but ``servers`` loads this module, in a thread and when a session has servers: the SDK takes
a second and 60 MB. What the SDK raises is translated here. The SDK's own way to end a call, when
the task that made it is cancelled, is kept: it tells the server, within a bound of its own.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import anyio
import mcp_types as types
import pydantic
from mcp import Client, MCPError
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage

from cmdc_runtime.extensions.tool import ToolError
from cmdc_runtime.version import VERSION
from workers.mcp.process import ServerProcess

PAGES_MAX: Final = 100
"""Of one list of tools; a server whose list goes on has failed."""
TOOLS_MAX: Final = 512
"""Of one server: as many as a session may have."""
LIST_BYTES_MAX: Final = 4 * 2**20
"""Of what one server says about all its tools."""


class OnProgress(Protocol):
    """Takes how far a call is, of how much, and in words."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """Tell it."""


class ConnectionFailedError(Exception):
    """The server cannot be spoken to; the message says why."""


@dataclass(frozen=True, slots=True)
class ListedTool:
    """One tool as its server lists it."""

    name: str
    description: str
    parameters: dict[str, Any]  # Any: a JSON Schema


class Connection:
    """An open connection; made by ``connected``."""

    def __init__(self, client: Client) -> None:
        """Speak by ``client``."""
        self._client = client

    async def tools(self) -> tuple[ListedTool, ...]:
        """Return all tools that the server lists, in its order.

        Raises:
            ConnectionFailedError: it lists none, or too many.
        """
        with _translated():
            if self._client.server_capabilities.tools is None:
                return ()
            found = await self._pages()
        if len(found) > TOOLS_MAX:
            raise ConnectionFailedError(f"it lists {len(found)} tools, more than {TOOLS_MAX}")
        size = sum(len(json.dumps(one.parameters)) + len(one.description) for one in found)
        if size > LIST_BYTES_MAX:
            raise ConnectionFailedError(f"its tools take {size:,} bytes, over {LIST_BYTES_MAX:,}")
        return found

    async def _pages(self) -> tuple[ListedTool, ...]:
        found: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            page = await self._client.list_tools(cursor=cursor, cache_mode="refresh")
            found += page.tools
            cursor = page.next_cursor
            if cursor is None or len(found) > TOOLS_MAX:
                break
        else:
            raise ConnectionFailedError(f"its list of tools has more than {PAGES_MAX} pages")
        return tuple(
            ListedTool(one.name, one.description or one.title or "", dict(one.input_schema))
            for one in found
        )

    async def call(
        self,
        name: str,
        arguments: dict[str, Any],  # Any: whatever the tool takes
        on_progress: OnProgress,
    ) -> str:
        """Call a tool and return what the model reads.

        Raises:
            ToolError: the tool says so, the server refuses the call, or it is gone.
        """
        try:
            result = await self._client.call_tool(name, arguments, progress_callback=on_progress)
        except MCPError as error:
            raise ToolError(f"the server says: {error}") from error
        except (RuntimeError, pydantic.ValidationError, anyio.ClosedResourceError) as error:
            raise ToolError(f"the server's answer cannot be used: {error}") from error
        text = _text_of(result)
        if result.is_error:
            raise ToolError(text or "the tool failed, and does not say why")
        return text or "(no output)"


@contextlib.asynccontextmanager
async def connected(process: ServerProcess) -> AsyncIterator[Connection]:
    """Speak to a process until the block ends.

    Raises:
        ConnectionFailedError: there is no common version of the protocol, or nobody answers.
    """
    client = Client(
        _pipes_of(process),
        mode="auto",
        client_info=types.Implementation(name="cmdc-runtime", version=VERSION),
        cache=None,
    )
    async with contextlib.AsyncExitStack() as stack:
        with _translated():
            await stack.enter_async_context(client)
        yield Connection(client)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except BaseExceptionGroup as group:
        raise ConnectionFailedError("; ".join(_leaves(group))) from group
    except (MCPError, RuntimeError, ValueError, OSError, anyio.ClosedResourceError) as error:
        raise ConnectionFailedError(str(error) or type(error).__name__) from error


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[str]:
    found: list[str] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [str(error)]
    return found


# --- over pipes -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _pipes_of(process: ServerProcess) -> AsyncIterator[TransportStreams]:
    """Carry messages as lines of JSON; the connection is closed where the server is gone."""
    arrived, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, written = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.create_task(_read(process, arrived), name="mcp-read"),
        asyncio.create_task(_write(process, written, arrived), name="mcp-write"),
    ]
    try:
        yield incoming, outgoing
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in (arrived, incoming, outgoing, written):
            stream.close()


async def _read(process: ServerProcess, arrived: Any) -> None:  # Any: anyio's stream
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError), arrived:
        while True:
            try:
                line = await process.stdout.readuntil(b"\n")
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
                return  # it is gone, or says more than we take at once
            if line.strip():
                await arrived.send(_message(line))


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:  # what it prints besides is no message; the session goes on
        return error


async def _write(process: ServerProcess, written: Any, arrived: Any) -> None:  # Any: as above
    try:
        async for one in written:
            text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()
    except OSError:
        arrived.close()


# --- results --------------------------------------------------------------------------------------


def _text_of(result: types.CallToolResult) -> str:
    """Return a result as text: what is no text is named, with its type and size."""
    parts = [_part_text(part) for part in result.content]
    if not any(parts) and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(filter(None, parts))


def _part_text(part: Any) -> str:  # Any: a part of any kind
    match part:
        case types.TextContent():
            return str(part.text)
        case types.ImageContent() | types.AudioContent():
            return f"[{part.type}: {part.mime_type}, {len(part.data) * 3 // 4:,} bytes]"
        case types.ResourceLink():
            return f"[resource: {part.name}, {part.uri}]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as inner):
            return f"[resource: {inner.uri}]\n{inner.text}"
        case types.EmbeddedResource(resource=types.BlobResourceContents() as inner):
            return f"[resource: {inner.uri}, {len(inner.blob) * 3 // 4:,} bytes]"
        case _:
            return f"[{getattr(part, 'type', 'a part of an unknown kind')}]"
