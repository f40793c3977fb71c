"""The bytes of images and files on their way into a request, read from the journal.

A message has of each its digest alone. ``BlobProvider`` stands between the agent and its provider:
it has the bytes of a request read, from the daemon or from memory, and hands the request on. Where
all of them are too much for one request, the newest go; the model reads of the others.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any, Final

import msgspec
import structlog

from cmdc_runtime.errors import CmdcError
from cmdc_runtime.extensions.provider import (
    Chunk,
    FailureKind,
    ModelRequest,
    Provider,
    ProviderError,
)
from cmdc_runtime.ids import SessionId
from cmdc_runtime.message_parts import PROMPT_PARTS_BYTES_MAX, MessagePart
from cmdc_runtime.requests import BlobFound, GetBlob, Request

log = structlog.get_logger()

SENT_BYTES_MAX: Final = PROMPT_PARTS_BYTES_MAX
"""Of all images and files in one request."""
KEPT_BYTES_MAX: Final = SENT_BYTES_MAX
"""In memory between two requests: the next one has mostly the same."""

Ask = Callable[[Request], Awaitable[Any]]  # Any: what the request's ``answer`` says


class Blobs:
    """The bytes that one session's messages name."""

    def __init__(self, session_id: SessionId, ask: Ask) -> None:
        """Read them by ``ask``, from the daemon."""
        self._session_id = session_id
        self._ask = ask
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    async def filled(self, request: ModelRequest) -> ModelRequest:
        """Return the request with the bytes that it can carry.

        Raises:
            ProviderError: they could not be read now.
        """
        found: dict[str, bytes] = {}
        for part in _fitting(request):
            try:
                body = await self._read(part)
            except CmdcError as error:
                unread = f"{part} could not be read from the journal: {error}"
                raise ProviderError(FailureKind.TRANSIENT, unread) from error
            if body is not None:
                found[part.digest] = body
        return msgspec.structs.replace(request, blobs=found)

    async def _read(self, part: MessagePart) -> bytes | None:
        kept = self._kept.get(part.digest)
        if kept is not None:
            self._kept.move_to_end(part.digest)
            return kept
        asked = GetBlob(session_id=self._session_id, digest=part.digest)
        answer: BlobFound = await self._ask(asked)
        body = answer.body
        if body is None or await asyncio.to_thread(_digest_of, body) != part.digest:
            log.warning("blob.lost", digest=part.digest, media_type=part.media_type, size=part.size)
            return None
        self._kept[part.digest] = body
        while sum(map(len, self._kept.values())) > KEPT_BYTES_MAX:
            self._kept.popitem(last=False)
        return body


def _fitting(request: ModelRequest) -> Iterator[MessagePart]:
    """Yield the parts with bytes that go into one request, the newest first, each once."""
    left, seen = SENT_BYTES_MAX, set[str]()
    for message in reversed(request.messages):
        for part in message.parts:
            if part.digest in seen or not part.digest:
                continue
            seen.add(part.digest)
            if part.size <= left:
                left -= part.size
                yield part


def _digest_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


class BlobProvider:
    """A provider whose requests have their images and files."""

    def __init__(self, provider: Provider, blobs: Blobs) -> None:
        """Ask ``provider``; ``blobs`` has the bytes."""
        self._provider, self._blobs = provider, blobs

    def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Return the chunks of the reply; see ``Provider.stream``."""
        if any(message.parts for message in request.messages):
            return self._stream(request)
        return self._provider.stream(request)

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        filled = await self._blobs.filled(request)
        async with aclosing(self._provider.stream(filled)) as chunks:
            async for chunk in chunks:
                yield chunk
