"""Where a call goes: from what the application says, or does not say, to one daemon's sockets.

In this order: the address given, ``CMDC_ADDRESS``, in a fork the embedded daemon of its parent, a
running daemon in one of the default places, one that is started there where ``CMDC_AUTOSTART`` says
so, an embedded daemon. An address is a runtime directory.

What blocks meanwhile is one call in a thread of its own (``offload``).
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from cmdc_runtime.client.detached import autostarted, is_autostart
from cmdc_runtime.client.embedded import Lease, inherited, lease
from cmdc_runtime.errors import DaemonUnavailable, InvalidOptions
from cmdc_runtime.plain import short
from cmdc_runtime.runtime_dir import (
    CONTROL_SOCKET,
    EVENTS_SOCKET,
    find_daemon,
    path_problem,
    running_daemon,
    socket_address,
)

# --- a blocking call in a thread ------------------------------------------------------------------

T = TypeVar("T")


async def offload(call: Callable[[], T], *, undo: Callable[[T], None] | None = None) -> T:
    """Return what ``call`` returns or raises, without blocking the loop.

    A call cannot be cancelled: when the caller is, ``undo`` gets what the call still returns.

    The thread is gone when the call is over. The loop's default executor would keep its threads
    until the loop ends, and the loop is the application's.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    returned: list[T] = []

    def run() -> None:
        try:
            value = call()
        except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
            report = partial(_fail, future, error)
        else:
            returned.append(value)
            report = partial(_succeed, future, value)
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits
            loop.call_soon_threadsafe(report)

    thread = threading.Thread(target=run, name="cmdc-offload", daemon=True)
    thread.start()
    try:
        return await future
    except asyncio.CancelledError:
        if undo is not None:
            cleanup = partial(_undo, thread, returned, undo)
            threading.Thread(target=cleanup, name="cmdc-undo", daemon=True).start()
        raise


def _succeed(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _undo(thread: threading.Thread, returned: list[T], undo: Callable[[T], None]) -> None:
    thread.join()
    for value in returned:
        undo(value)


# --- addresses ------------------------------------------------------------------------------------

VARIABLE: Final = "CMDC_ADDRESS"
_WAY_OUT: Final = "start one with `cmdc serve`, or unset the address to get one of your own"

Address = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class DaemonPlace:
    """One daemon's runtime directory; with a lease when the daemon is our own."""

    directory: Path
    lease: Lease | None = None

    @property
    def control(self) -> str:
        """Return the address for questions."""
        return socket_address(self.directory, CONTROL_SOCKET)

    @property
    def events(self) -> str:
        """Return the address for events."""
        return socket_address(self.directory, EVENTS_SOCKET)

    def absence(self) -> DaemonUnavailable | None:
        """Return the error that says that no daemon is there, or None."""
        if self.lease is not None:
            daemon = self.lease.daemon
            return None if daemon.is_alive else daemon.death()
        if running_daemon(self.directory) is not None:
            return None
        return DaemonUnavailable(f"no daemon runs at {self.directory}: {_WAY_OUT}")


async def resolve(address: Address | None, environ: Mapping[str, str]) -> DaemonPlace:
    """Return where the daemon is, which may start one.

    Raises:
        DaemonUnavailable: nobody is there, or none could be started.
        InvalidOptions: the address cannot be used.

    """
    chosen = address if address is not None else environ.get(VARIABLE) or None
    if chosen is not None:
        return at(chosen)
    if (of_parent := inherited()) is not None:  # its sessions are there, whoever serves meanwhile
        return DaemonPlace(of_parent)
    running = find_daemon(environ, uid=os.getuid(), home=Path.home())
    if running is not None:
        return DaemonPlace(running.directory)
    if is_autostart(environ):
        return DaemonPlace(await offload(partial(autostarted, dict(environ))))
    found = await offload(lease, undo=_give_back)
    return (
        DaemonPlace(found.daemon.directory, found)
        if isinstance(found, Lease)
        else DaemonPlace(found)
    )


def at(address: Address) -> DaemonPlace:
    """Return the place that ``address`` names.

    Raises:
        DaemonUnavailable: nobody is there.
        InvalidOptions: the address cannot be used.

    """
    place = DaemonPlace(directory_of(address))
    if absence := place.absence():
        raise absence
    return place


def checked_address(address: Address | None) -> Address | None:
    """Return where a daemon may be, or None: wherever there is one. Nobody is asked.

    Raises:
        InvalidOptions: the address cannot be used.

    """
    if address is not None:
        directory_of(address)
    return address


def directory_of(address: Address) -> Path:
    """Return the runtime directory that ``address`` names.

    Raises:
        InvalidOptions: the address cannot be used.

    """
    given: object = address
    if not isinstance(given, str | os.PathLike):
        expected = "expected the path of a runtime directory"
        raise InvalidOptions([f"address: {expected}, got {short(given)}"])
    text = os.fspath(given)
    if not isinstance(text, str) or not text:
        raise InvalidOptions([f"address: expected a path of text, got {short(text)}"])
    scheme, mark, rest = text.partition("://")
    if mark and scheme == "ipc":
        text = rest
    elif mark:
        raise InvalidOptions([f"address: {_refusal(scheme, text)}"])
    try:
        directory = Path(text).expanduser().absolute()
    except (OSError, RuntimeError) as error:  # no such home, or the working directory was removed
        raise InvalidOptions([f"address: {short(text)} is nowhere: {error}"]) from error
    if problem := path_problem(directory):
        raise InvalidOptions([f"address: {problem}"])
    return directory


def _refusal(scheme: str, text: str) -> str:
    if scheme == "tcp":
        return (
            f"{short(text)} would be open to anybody who reaches it: tcp needs keys (CURVE), which "
            "this version does not have; use a runtime directory"
        )
    return f"expected a runtime directory, got {short(text)}"


def _give_back(found: Lease | Path) -> None:
    if isinstance(found, Lease):
        found.release()
