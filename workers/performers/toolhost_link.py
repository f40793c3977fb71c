"""The agent's side of its tool host: asked for at the first isolated call, and again after a loss.

The agent listens at a socket of its own in the daemon's folder, asks the daemon for a host, and
takes one connection. Rules: a call that is given up is killed at once and its end is awaited for
``GONE_S``; when the host is lost every open call ends with the reason; the next call asks anew. A
host of a dead daemon ends its calls in peace, and then goes: the next daemon knows nothing of it.
"""

import asyncio
import os
import signal
import socket
import struct
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from cmdc_runtime import foreign
from cmdc_runtime.process_table import look_up
from cmdc_runtime.runtime_dir import host_socket
from cmdc_runtime.wire.frames import HostLost, HostWanted
from workers.link import Link
from workers.performers.toolbox import LoadedTool
from workers.toolhost.wire import (
    Begin,
    CallEnding,
    Close,
    Cut,
    Died,
    Emitted,
    Ended,
    Frames,
    FrameTooLargeError,
    Kill,
    Open,
    Refused,
    ReportFrame,
    RunCall,
    ToHost,
    decoded_report,
    framed,
    from_host,
)

log = structlog.get_logger()

START_S: Final = 120.0
"""For a host to connect: a fork of the zygote and the start of a small Python, 0.2 s when idle.

There may be no daemon now, or none whose zygote is warm; one that can't start a host says so.
"""
ASK_S: Final = 0.5
"""Between two looks whether there is another daemon, which knows nothing of what was asked."""
GONE_S: Final = 2.0
"""For the end of a killed call to arrive; it takes milliseconds."""
WHY_S: Final = 1.0
"""For the daemon to say how a host ended; it learns that when the agent does."""
CHUNK_BYTES: Final = 256 * 1024

_PEER: Final = struct.Struct("3i")

Emit = Callable[[str, Any], None]  # Any: the tool's own


class HostFailedError(Exception):
    """There is no tool host, and why."""


@dataclass(slots=True)
class _Open:
    """A call under way."""

    emit: Emit
    done: asyncio.Future[CallEnding]


@dataclass(slots=True, eq=False)
class _Host:
    """One connection; ``why`` is what the daemon says of its end."""

    pid: int
    pidfd: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    why: asyncio.Future[str]
    opened: set[int] = field(default_factory=set)
    calls: dict[int, _Open] = field(default_factory=dict)
    is_lost: bool = False
    is_retired: bool = False
    """It gets no other call, and goes after the last one."""

    def close_if_retired(self) -> None:
        """Let it go if it is retired and nothing runs in it."""
        if self.is_retired and not self.calls:
            self.writer.transport.abort()

    def send(self, message: ToHost) -> None:
        """Send a message; packed code and arguments are bounded, and so is what waits here."""
        if not self.is_lost:
            self.writer.write(framed(message))


class HostLink:
    """The tool host of one session, as its calls see it."""

    def __init__(self, begin: Begin, folder: Path, link: Link) -> None:
        """Start nothing yet; ``begin`` is what every host of the session gets first."""
        self._begin = framed(begin)  # now, since tools may put anything into ``user_data``
        self._folder = folder
        self._link = link
        self._numbers, self._places = count(1), count(1)
        self._host: _Host | None = None
        self._starting: asyncio.Task[_Host] | None = None
        self._readers: set[asyncio.Task[None]] = set()
        self._whys: dict[str, asyncio.Future[str]] = {}

    async def run(self, loaded: LoadedTool, order: RunCall, emit: Emit) -> CallEnding:
        """Make a call in a process of its own; ``order`` needs no number.

        Raises:
            HostFailedError: there is no host.
        """
        host = await self.connected()
        if host.is_lost:
            raise HostFailedError("it ended as soon as it was there")
        number = next(self._numbers)
        call = _Open(emit, asyncio.get_running_loop().create_future())
        try:
            request = framed(msgspec.structs.replace(order, number=number, tool=loaded.key))
        except (FrameTooLargeError, TypeError, ValueError, OverflowError) as error:
            return Refused(text=f"Error: the arguments can't be sent to a process: {error}")
        if loaded.key not in host.opened:
            host.send(Open(tool=loaded.key, packed=loaded.packed))
            host.opened.add(loaded.key)
        host.calls[number] = call
        host.writer.write(request)
        try:
            return await asyncio.shield(call.done)
        except asyncio.CancelledError:
            host.send(Kill(number=number))
            await _see_end(host, call)
            raise
        finally:
            host.calls.pop(number, None)
            host.close_if_retired()

    def renew(self) -> None:
        """Have the next call get another host; this one ends after the calls that it has."""
        host, self._host = self._host, None
        if host is not None:
            host.is_retired = True
            host.close_if_retired()

    async def connected(self) -> _Host:
        """Return the host, a new one where there is none.

        Raises:
            HostFailedError: there is none, and why.
        """
        if self._host is not None and not self._host.is_lost:
            return self._host
        if self._starting is None or self._starting.done():
            self._starting = asyncio.create_task(self._start(), name="tool-host")
            self._starting.add_done_callback(_check)
        # Shared: a call that is given up takes nothing from the others.
        return await asyncio.shield(self._starting)

    def lost(self, frame: HostLost) -> None:
        """Receive from the daemon that a host can't be started, or has ended."""
        why = self._whys.get(frame.address)
        if why is not None and not why.done():
            why.set_result(foreign.hidden(frame.message))

    def detach(self, loaded: LoadedTool) -> None:
        """Let the host forget a tool."""
        host = self._host
        if host is not None and loaded.key in host.opened:
            host.opened.discard(loaded.key)
            host.send(Close(tool=loaded.key))

    async def close(self) -> None:
        """Let the host go: it ends with its connection, and kills what runs in it."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    # --- a host's life --------------------------------------------------------------------------

    async def _start(self) -> _Host:
        """Start a host; one that was asked for of a daemon that died is asked for again."""
        while True:
            await self._link.attached()
            daemons_lost = self._link.daemons_lost
            try:
                return await self._start_once()
            except HostFailedError:
                if self._link.daemons_lost == daemons_lost:
                    raise

    async def _start_once(self) -> _Host:
        number = next(self._places)
        address = str(host_socket(self._folder, self._link.worker_id, number))
        why = self._whys[address] = asyncio.get_running_loop().create_future()
        try:
            peer, pid = await self._connect(address, why)
            pidfd = os.pidfd_open(pid)
            reader, writer = await asyncio.open_unix_connection(sock=peer)
        except BaseException as error:
            del self._whys[address]
            if isinstance(error, OSError):
                raise HostFailedError(f"no socket at {address}: {error.strerror}") from error
            raise
        host = self._host = _Host(pid, pidfd, reader, writer, why)
        writer.write(self._begin)
        task = asyncio.create_task(self._follow(host, address), name="tool-host-reader")
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)
        task.add_done_callback(_check)
        return host

    async def _connect(self, address: str, why: asyncio.Future[str]) -> tuple[socket.socket, int]:
        """Ask the daemon for a host and return its connection and its pid."""
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listener:
            listener.settimeout(0)
            listener.bind(address)
            listener.listen(1)
            accept = asyncio.create_task(_accept(listener))
            either: set[asyncio.Future[Any]] = {accept, why}  # Any: a socket, or a text
            try:
                await self._asked(address, either)
                if accept.done():
                    return accept.result()
            finally:
                accept.cancel()
                _remove(address)
            late = f"it did not connect within {START_S:g} s"
            raise HostFailedError(why.result() if why.done() else late)

    async def _asked(self, address: str, either: Collection[asyncio.Future[Any]]) -> None:
        """Ask the daemon, and each that takes its place, until one of ``either`` is done."""
        loop = asyncio.get_running_loop()
        deadline_s, asked = loop.time() + START_S, -1
        while (left_s := deadline_s - loop.time()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, ASK_S)):
                    await self._link.attached()
                    if asked != self._link.daemons_lost:
                        asked = self._link.daemons_lost
                        self._link.send(HostWanted(address=address))
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                    return

    async def _follow(self, host: _Host, address: str) -> None:
        """Read from the host until its end; then every call that is open ends too."""
        problem = ""
        try:
            await self._read(host)
        except (FrameTooLargeError, msgspec.MsgspecError) as error:
            problem = f"it sent what can't be read: {error}"
        except OSError as error:
            log.debug("tool_host.disconnected", problem=str(error))
        finally:
            host.is_lost = True
            host.writer.transport.abort()
            os.close(host.pidfd)
        if host.calls and not problem:
            await asyncio.wait({host.why}, timeout=WHY_S)
        if host.why.done():
            problem = host.why.result()
        self._whys.pop(address, None)
        if not host.is_retired:
            log.warning("tool_host.lost", problem=problem, calls=len(host.calls))
        text = f"Error: the tool host ended with this call in it: {problem or 'nobody knows why'}"
        for call in host.calls.values():
            if not call.done.done():
                call.done.set_result(Cut(text=text))

    async def _read(self, host: _Host) -> None:
        frames = Frames()
        while chunk := await host.reader.read(CHUNK_BYTES):
            for body in frames.feed(chunk):
                self._take(host, from_host.decode(body))
            await self._link.room()  # what calls emit goes on to the daemon

    def _take(self, host: _Host, message: ReportFrame | Ended) -> None:
        call = host.calls.get(message.number)
        if call is None:
            return  # it was given up
        match message:
            case ReportFrame(report=report):
                _take_report(call, report)
            case Ended(reason=reason) if not call.done.done():
                call.done.set_result(Died(reason=reason))
            case Ended():
                return


def _take_report(call: _Open, body: bytes) -> None:
    report = decoded_report(body)
    if isinstance(report, Emitted):
        call.emit(report.name, report.payload)
    elif not call.done.done():
        call.done.set_result(report)


async def _see_end(host: _Host, call: _Open) -> None:
    """Return when a killed call has ended; a host that does not end it is killed, with all of its.

    One that was stopped is seen at once.
    """
    line = look_up(host.pid)
    if line is None or not line.is_stopped:
        await asyncio.wait({call.done}, timeout=GONE_S)
    if call.done.done() or host.is_lost:
        return
    log.warning("tool_host.hung", pid=host.pid, calls=len(host.calls))
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(host.pidfd, signal.SIGKILL)


async def _accept(listener: socket.socket) -> tuple[socket.socket, int]:
    """Return the first connection from a process of this user, and the pid of that."""
    while True:
        peer, _ = await asyncio.get_running_loop().sock_accept(listener)
        pid, uid, _ = _PEER.unpack(
            peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        )
        if uid == os.geteuid():
            return peer, pid
        log.warning("tool_host.refused", uid=uid)
        peer.close()


def _remove(address: str) -> None:
    Path(address).unlink(missing_ok=True)


def _check(task: "asyncio.Task[Any]") -> None:  # Any: a host, or nothing
    """Pass over a failure that its callers have got already; a bug of ours is raised."""
    if task.cancelled():
        return
    with suppress(HostFailedError):
        task.result()
