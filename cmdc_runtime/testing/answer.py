"""Performs one answer of a script on one HTTP response, streamed or whole.

Rules: the HTTP head goes out with the first bytes of the body, so whatever comes first in a script
also comes before the head. Every wait is cancelled from outside when the client goes away.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from cmdc_runtime.testing import wire
from cmdc_runtime.testing.server import HttpReply, Torn
from cmdc_runtime.testing.steps import (
    Delay,
    Disconnect,
    Error,
    Hold,
    Piece,
    Request,
    Sequence,
    Stall,
    ToolCalls,
    Truncate,
)

STALL_S_MAX: Final = 300.0
"""A stalled connection is closed after this time if its client waits that long."""

Wait = Callable[[], Awaitable[None]]


class Performance:
    """One answer to one request."""

    def __init__(
        self, heading: wire.Heading, request: Request, answer: Sequence, *, hold: Wait
    ) -> None:
        """Take everything that the answer depends on; ``hold`` returns when released."""
        self._heading = heading
        self._request = request
        self._pieces = answer.pieces
        self._hold = hold
        self._calls_sent = 0

    async def send(self, reply: HttpReply) -> None:
        """Answer.

        Raises:
            Torn: the script wants the connection closed in the middle.
        """
        if self._request.get("stream"):
            await self._stream(reply)
        else:
            await self._whole(reply)

    async def _stream(self, reply: HttpReply) -> None:
        opening: wire.Json = {"role": "assistant"}
        for piece in self._pieces:
            await self._wait(piece)
            if isinstance(piece, Error):
                await self._fail(piece, reply)
                return
            for at, delta in enumerate(wire.deltas(piece, self._heading, self._calls_sent)):
                if at:
                    await asyncio.sleep(getattr(piece, "delay", 0.0))
                await reply.event(wire.event(self._heading.chunk(opening | delta)))
                opening = {}
            await self._cut(piece)
            self._calls_sent += len(piece.calls) if isinstance(piece, ToolCalls) else 0
        if isinstance(self._pieces[-1], Truncate):
            await reply.end(wire.event(self._heading.chunk(opening)))
        else:
            await self._finish(opening, reply)

    async def _finish(self, opening: wire.Json, reply: HttpReply) -> None:
        last = self._heading.chunk(opening, wire.finish_reason(self._pieces))
        await reply.event(wire.event(last))
        options = self._request.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage"):
            usage = wire.usage(self._pieces, self._request)
            await reply.event(wire.event(self._heading.usage_chunk(usage)))
        await reply.end(wire.DONE)

    async def _whole(self, reply: HttpReply) -> None:
        for piece in self._pieces:
            await self._wait(piece)
            if isinstance(piece, Error):
                await self._fail(piece, reply)
                return
        body = wire.encode(
            self._heading.completion(
                wire.message(self._pieces, self._heading),
                wire.finish_reason(self._pieces),
                wire.usage(self._pieces, self._request),
            )
        )
        last = self._pieces[-1]
        if not isinstance(last, Stall | Disconnect):
            await reply.whole(200, body)
        elif last.after_chars:
            await reply.whole(200, body, sent=min(last.after_chars, len(body) - 1))
        await self._cut(last)

    async def _wait(self, piece: Piece) -> None:
        if isinstance(piece, Delay):
            await asyncio.sleep(piece.seconds)
        elif isinstance(piece, Hold):
            await self._hold()

    async def _cut(self, piece: Piece) -> None:
        if isinstance(piece, Stall):
            await asyncio.sleep(STALL_S_MAX)
        if isinstance(piece, Stall | Disconnect):
            raise Torn

    async def _fail(self, error: Error, reply: HttpReply) -> None:
        body = wire.error_body(error)
        if reply.is_begun:
            await reply.end(wire.event(body))
            return
        wait = () if error.retry_after is None else (f"Retry-After: {error.retry_after:g}",)
        await reply.whole(error.status, wire.encode(body), headers=wait)
