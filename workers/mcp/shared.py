"""A shared MCP server as its sessions have it: a connection to its host, in place of a process.

The agent names the server by a digest of what it is, and the daemon says where a host for that
listens; what the server is, with its environment, is sent to the host alone. A host that ends
meanwhile is asked for again. To the rest it is what ``process.ServerProcess`` is: lines out, lines
in, and how it ended.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable
from typing import Final

import msgspec

from cmdc_runtime.wire.frames import ServerFound, ServerWanted
from workers.link import Link
from workers.mcp.host import ENDED, GREET_S, NOTICE, READY, Declared, Greeting, Notice
from workers.mcp.process import MESSAGE_BYTES_MAX, NotStartedError

FIND_S: Final = 30.0
"""For the daemon to name a host; it starts one within milliseconds, unless it is very busy."""
PAUSES_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 1.6)
"""Before the host is asked for again that was gone when it was connected to."""
_PEER: Final = struct.Struct("3i")


class ServerFinder:
    """Asks the daemon for hosts; all of it runs in the loop."""

    def __init__(self, link: Link) -> None:
        """Ask for nothing yet."""
        self._link = link
        self._waiting: dict[str, list[asyncio.Future[ServerFound]]] = {}

    def found(self, frame: ServerFound) -> None:
        """Take an answer of the daemon."""
        for waiter in self._waiting.pop(frame.key, ()):
            if not waiter.done():
                waiter.set_result(frame)

    async def find(self, key: str) -> ServerFound:
        """Return where the host of a server listens.

        Raises:
            TimeoutError: the daemon does not say, or went meanwhile.
        """
        await self._link.attached()
        waiter: asyncio.Future[ServerFound] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(waiter)
        self._link.send(ServerWanted(key=key))
        async with asyncio.timeout(FIND_S):
            return await waiter


class _Lines:
    """What the host sends, line by line; its own notices are kept from who reads."""

    def __init__(self, reader: asyncio.StreamReader, on_end: Callable[[Notice], None]) -> None:
        self._reader, self._on_end = reader, on_end

    async def readuntil(self, separator: bytes = b"\n") -> bytes:
        """Return the next line, as ``StreamReader.readuntil`` does."""
        try:
            line = await self._reader.readuntil(separator)
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                self._on_end(Notice(cmdc=ENDED, problem="its host is gone"))
            raise
        if not line.startswith(NOTICE):
            return line
        self._on_end(msgspec.json.decode(line, type=Notice))
        raise asyncio.IncompleteReadError(b"", None)

    def at_eof(self) -> bool:
        """Say whether there is no more to be read."""
        return self._reader.at_eof()


class SharedServer:
    """One connection to the host of a shared server; made by ``connect``, over with ``close``."""

    status: int | None = None
    """Of the server's process, which is the host's to know."""
    stderr_tail = ""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Own the connection, behind its greeting."""
        self.stdout = _Lines(reader, self._note)
        self.stdin = writer
        self.ended = asyncio.Event()
        """The server is gone, or cannot be reached any more."""
        self._end: Notice | None = None

    @classmethod
    async def connect(cls, finder: ServerFinder, server: Declared) -> "SharedServer":
        """Connect to the host of a server, which starts it for the first one; the caller closes it.

        Raises:
            NotStartedError: it can't be started, and another try would end alike.
            ConnectionError: it is not there now.
        """
        problem = ""
        for pause_s in PAUSES_S:
            found = await _found(finder, server.key)
            try:
                async with asyncio.timeout(GREET_S):
                    return await cls._greet(found, server)
            except (OSError, EOFError) as error:  # it ended when the daemon had just named it
                problem = str(error) or type(error).__name__
            await asyncio.sleep(pause_s)
        raise ConnectionError(f"its host does not answer: {problem}")

    @classmethod
    async def _greet(cls, found: ServerFound, server: Declared) -> "SharedServer":
        reader, writer = await asyncio.open_unix_connection(found.address, limit=MESSAGE_BYTES_MAX)
        try:
            _check_peer(writer.get_extra_info("socket"), found.pid)
            greeting = Greeting(token=found.token, server=server)
            writer.write(msgspec.json.encode(greeting) + b"\n")
            notice = msgspec.json.decode(await reader.readuntil(b"\n"), type=Notice)
        except BaseException:
            writer.transport.abort()
            raise
        if notice.cmdc == READY:
            return cls(reader, writer)
        writer.transport.abort()
        if notice.is_final:
            raise NotStartedError(notice.problem)
        raise ConnectionError(notice.problem)

    @property
    def is_final(self) -> bool:
        """Whether another start would end alike."""
        return self._end is not None and self._end.is_final

    def ending(self, problem: str = "") -> str:
        """Return how it ended; ``problem`` is what else is known of that."""
        return self._end.problem if self._end is not None else problem or "it was ended"

    async def close(self) -> None:
        """Let go of the server, which goes on for the others. Idempotent."""
        self.stdin.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(GREET_S):
                await self.stdin.wait_closed()

    def _note(self, end: Notice) -> None:
        self._end = self._end or end
        self.ended.set()


async def _found(finder: ServerFinder, key: str) -> ServerFound:
    try:
        found = await finder.find(key)
    except TimeoutError:
        raise ConnectionError(f"the daemon names no host within {FIND_S:g} s") from None
    if found.problem:
        raise ConnectionError(found.problem)
    return found


def _check_peer(connection: socket.socket, pid: int) -> None:
    """Make sure that it is the host that listens: it gets the server's environment."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    found, uid, _ = _PEER.unpack(peer)
    if found != pid or uid != os.geteuid():
        raise ConnectionRefusedError(f"process {found} of user {uid} listens there")
