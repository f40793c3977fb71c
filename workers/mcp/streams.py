"""Messages of MCP servers on their way to the SDK, each passed through a function."""

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self

import httpx2
from mcp.client._transport import ReadStream, TransportStreams
from mcp.shared.message import SessionMessage

Transport = AbstractAsyncContextManager[TransportStreams]
Item = SessionMessage | Exception


class SaysTooMuchError(httpx2.StreamError):
    """A server says more at once than is taken.

    In the answer to a request by HTTP it is the SDK that makes an error of the request of it, as of
    every StreamError; among the items of a stream it is the last one.
    """

    def __init__(self, bytes_max: int) -> None:
        """Name the bound."""
        super().__init__(said_too_much(bytes_max))


def said_too_much(bytes_max: int) -> str:
    """Return what is said of a server that says more at once than is taken."""
    return f"it says more than {bytes_max} bytes at once"


@contextlib.asynccontextmanager
async def passed(
    transport: Transport, change: Callable[[Item], Item]
) -> AsyncIterator[TransportStreams]:
    """Carry messages by ``transport``; what comes from the server is passed through ``change``."""
    async with transport as (incoming, outgoing):
        yield _Passed(incoming, change), outgoing


class _Passed:
    """A stream of messages, each passed through a function."""

    def __init__(self, stream: ReadStream[Item], change: Callable[[Item], Item]) -> None:
        self._stream, self._change = stream, change

    @property
    def last_context(self) -> Any:  # Any: the SDK's, which asks for it by name
        """What the transport has with the last message."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Item:
        """Return the next message."""
        return self._change(await self._stream.receive())

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        return self._change(await self._stream.__anext__())

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)
