"""A small HTTP server on the loopback, in a thread of its own, for scripts that misbehave.

It exists because a test provider must do what servers avoid: fall silent, tear a stream, wait for
the test. Rules: one request per connection; one task per connection, cancelled as soon as its
client goes away or the server closes; nothing outlives ``close``. It knows nothing of models.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import structlog

HOST: Final = "127.0.0.1"
BACKLOG: Final = 512
HEAD_BYTES_MAX: Final = 64 * 1024
BODY_BYTES_MAX: Final = 64 * 1024 * 1024
REQUEST_S_MAX: Final = 30.0
"""How long a client may take to send its request."""
FLUSH_S_MAX: Final = 5.0
"""How long a client may take to read what it was sent before the connection is torn."""
START_S_MAX: Final = 10.0
CLOSE_S_MAX: Final = 5.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request, read to its end."""

    method: str
    path: str
    body: bytes


class Refused(Exception):
    """The request is not one that this server reads."""

    def __init__(self, status: HTTPStatus) -> None:
        """Keep the status that the client gets."""
        self.status = status
        super().__init__(status.phrase)


class Torn(Exception):
    """The handler wants the connection closed as it is, in the middle of the answer."""


class HttpReply:
    """The one response of a connection: ``whole``, or events until ``end``."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        """Write to ``writer``, which stays the caller's to close."""
        self._writer = writer
        self.is_begun = False

    async def whole(
        self, status: int, body: bytes, *, headers: tuple[str, ...] = (), sent: int | None = None
    ) -> None:
        """Send a JSON response; only the first ``sent`` bytes of the body if given."""
        await self._send(
            _head(status, "application/json", f"Content-Length: {len(body)}", *headers)
            + body[:sent]
        )

    async def event(self, data: bytes) -> None:
        """Send bytes of an event stream, its head first."""
        await self._send(self._chunk(data))

    async def end(self, data: bytes) -> None:
        """Send the last bytes of an event stream and end it well-formed.

        One write for both: a client that leaves once it has the last event has not left early.
        """
        await self._send(self._chunk(data) + b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> bytes:
        head = b""
        if not self.is_begun:
            head = _head(HTTPStatus.OK, "text/event-stream", "Transfer-Encoding: chunked")
        return head + b"%x\r\n%b\r\n" % (len(data), data)

    async def _send(self, data: bytes) -> None:
        self.is_begun = True
        self._writer.write(data)
        await self._writer.drain()


def _head(status: int, content_type: str, *headers: str) -> bytes:
    lines = (
        f"HTTP/1.1 {status} {_phrase(status)}",
        f"Content-Type: {content_type}",
        "Connection: close",
        *headers,
    )
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else "Unknown"


async def read_request(reader: asyncio.StreamReader) -> HttpRequest:
    """Return the request that the client sends.

    Raises:
        Refused: it is malformed or larger than the bounds above.
        EOFError: the client went away before its end.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from error
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3:  # noqa: PLR2004 - method, path, version
        raise Refused(HTTPStatus.BAD_REQUEST)
    fields = {name.strip().lower(): value.strip() for name, _, value in _split(lines)}
    if "transfer-encoding" in fields:
        raise Refused(HTTPStatus.LENGTH_REQUIRED)
    length = fields.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise Refused(HTTPStatus.BAD_REQUEST)
    if len(length) > len(str(BODY_BYTES_MAX)) or int(length) > BODY_BYTES_MAX:
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    body = await reader.readexactly(int(length))
    return HttpRequest(method=words[0], path=words[1].partition("?")[0], body=body)


def _split(lines: list[str]) -> list[tuple[str, str, str]]:
    return [line.partition(":") for line in lines]


Handler = Callable[[HttpRequest, HttpReply], Coroutine[Any, Any, None]]  # Any: what coroutines send
Gone = Callable[[], None]


class ServerThread:
    """Serves ``handle`` from ``start`` to ``close``; both may be called from any thread.

    ``handle`` runs as a task in the server's own event loop and is cancelled when its client goes
    away; ``gone`` is called then.
    """

    def __init__(self, handle: Handler, gone: Gone) -> None:
        """Start nothing yet."""
        self._handle = handle
        self._gone = gone
        self._ready: Future[int] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = asyncio.Event()
        self._connections: set[asyncio.Task[Any]] = set()  # Any: their result is not used
        self._thread = threading.Thread(target=self._run, name="scripted-model", daemon=True)

    def start(self) -> int:
        """Return the port, once connections to it are accepted."""
        self._thread.start()
        return self._ready.result(START_S_MAX)

    def call(self, function: Callable[[], object]) -> None:
        """Have ``function`` called in the server's loop, soon."""
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """Free the port and end every connection and the thread.

        Raises:
            TimeoutError: they did not end within ``CLOSE_S_MAX`` seconds.
        """
        self.call(self._closing.set)
        self._thread.join(CLOSE_S_MAX)
        if self._thread.is_alive():
            raise TimeoutError(f"the server did not end within {CLOSE_S_MAX} s")

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        with socket.create_server((HOST, 0), backlog=BACKLOG) as listener:
            listener.settimeout(0)
            loop.add_reader(listener, self._accept, listener)
            self._ready.set_result(listener.getsockname()[1])
            try:
                await self._closing.wait()
            finally:
                loop.remove_reader(listener)
                await _end(self._connections)
                await asyncio.sleep(0)  # transports that were aborted close in the next turn

    def _accept(self, listener: socket.socket) -> None:
        # asyncio's own server loses what it accepts in the moment in which it is closed.
        with contextlib.suppress(BlockingIOError, InterruptedError, ConnectionAbortedError):
            connection, _address = listener.accept()
            connection.settimeout(0)
            task = asyncio.create_task(self._serve_connection(connection))
            self._connections.add(task)
            task.add_done_callback(lambda done: self._forget(done, connection))

    def _forget(self, task: asyncio.Task[Any], connection: socket.socket) -> None:
        # One that was cancelled before its first step has closed nothing itself.
        connection.close()
        self._connections.discard(task)

    async def _serve_connection(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=HEAD_BYTES_MAX)
        try:
            if await self._conversed(reader, writer):
                await _flush(writer)
        finally:
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _conversed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer the one request; False if there is nobody to read the rest of the answer."""
        reply = HttpReply(writer)
        try:
            async with asyncio.timeout(REQUEST_S_MAX):
                request = await read_request(reader)
        except Refused as refused:
            await reply.whole(refused.status, b"{}")
            return True
        except (EOFError, ConnectionError, TimeoutError):
            return False
        try:
            if await _outrun(self._handle(request, reply), _eof(reader)):
                return True
        except Torn:
            return True
        except ConnectionError:
            pass  # who asked was killed, as losers of a vote are; a program's output is its own
        except Exception:
            log.exception("answer.failed")
            return False
        self._gone()
        return False


async def _eof(reader: asyncio.StreamReader) -> None:
    """Return once the client has gone away; what it says beyond its request is dropped."""
    with contextlib.suppress(ConnectionError):
        while await reader.read(HEAD_BYTES_MAX):
            pass


async def _outrun(work: Coroutine[Any, Any, None], event: Coroutine[Any, Any, None]) -> bool:
    """Return whether ``work`` ended before ``event`` did; both are over afterwards."""
    working, waiting = asyncio.create_task(work), asyncio.create_task(event)
    try:
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
            return True
        return False
    finally:
        await _end({working, waiting})


async def _end(tasks: set[asyncio.Task[Any]]) -> None:
    pending = list(tasks)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


async def _flush(writer: asyncio.StreamWriter) -> None:
    """Close after the client was handed everything, or after the bound."""
    writer.close()
    with contextlib.suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(FLUSH_S_MAX):
            await writer.wait_closed()
