"""The zygote: a process that has all worker code in memory, and forks the workers.

The daemon starts it as ``python -P -m workers.zygote <socket> <daemon's pid> <niceness>``, and both
speak the frames of ``cmdc_runtime.wire.forks``. It ends with its daemon, whatever it is about, and
its children live on. Rules: it has one thread, and forks no more when it has got another one, whose
locks a child would have for ever; a child has none of its descriptors; a fork that the kernel
refuses costs nobody anything; each child that has ended is reaped, and said so. It and what it
forks yield to whoever is at work: an agent until it is up, a tool's process as long as it runs.
"""

import importlib
import os
import resource
import select
import signal
import socket
import stat
import sys
import time
import traceback
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any, Final, NoReturn

import multiprocess

from cmdc_runtime.prctl import (
    is_eager,
    keep_small,
    set_parent_death_signal,
    set_title,
    yield_to_others,
)
from cmdc_runtime.process import EXIT_OK, EXIT_ORPHANED, TITLE_PREFIX, run_module
from cmdc_runtime.wire.forks import (
    FAILURE_CHARS_MAX,
    MESSAGE_BYTES_MAX,
    Begin,
    ChildEnded,
    Fork,
    Forked,
    ForkRefused,
    FromZygote,
    Learn,
    Learned,
    Preloaded,
    Unsafe,
    encode,
    order_of,
)

REAP_S: Final = 0.02
"""Between two looks for children that have ended: each look asks for every one of them."""
_FDS_MAX: Final = 2**31 - 1
_FDS_MESSAGE: Final = 1
"""Descriptors that come with an order, at most."""
_STDIN: Final = 0
_PIPE_ENDS: Final = 4
"""Of the two pipes that multiprocess makes before it forks; where it can't, it leaves them open."""
_CONTEXT: Final = multiprocess.get_context("fork")


class Zygote:
    """Does what the daemon says, from its first frame to the end of its socket."""

    def __init__(self, control: socket.socket) -> None:
        """Take over the socket."""
        self._control = control
        self._children: dict[int, Any] = {}  # Any: multiprocess has no types
        self._on_interrupt = signal.getsignal(signal.SIGINT)
        self._woken, self._waker = socket.socketpair()
        self._own = {one.fileno() for one in (control, self._woken, self._waker)}
        self._inherited: list[int] = []
        """Descriptors that a child has, too: what was open when everything was imported."""
        self._keeps_small = False
        """Whether children are to ask the kernel to make no huge pages of their memory."""
        self._is_due = False
        """Whether a child may have ended that was not looked for."""
        self._looked_at = 0.0

    def serve(self) -> None:
        """Preload, and fork until the daemon is gone."""
        order = self._receive()[0]
        if not isinstance(order, Begin):
            return
        self._wake_at_ends()
        answer, preload = preloaded(order), order.preload
        self._send(answer)
        if answer.report is None:
            return
        kind = " with ".join(("zygote", *answer.versions))
        set_title("cmdc-zygote", f"{TITLE_PREFIX}{kind}")
        self._inherited = sorted(open_fds() - self._own)
        self._keeps_small = is_eager()
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        wait_ms: float | None = None
        while True:
            ready = {fd for fd, _ in poll.poll(wait_ms)}
            wait_ms = self._reap(is_woken=self._woken.fileno() in ready)
            if self._control.fileno() in ready:
                order, fd = self._receive()
                if isinstance(order, Learn):
                    self._send(learned(preload, order.name))
                    self._inherited = sorted(open_fds() - self._own)
                elif not isinstance(order, Fork) or not self._fork(order, fd):
                    return

    # --- children ---------------------------------------------------------------------------------

    def _fork(self, order: Fork, fd: int | None) -> bool:
        """Fork a child and say so; False: nothing may be forked any more."""
        if (threads := thread_count()) > 1:
            self._send(Unsafe(threads=threads))
            return False
        boot = order.boot if fd is None else order.boot | {order.fd_name: fd}
        child = _CONTEXT.Process(target=self._become, args=(order.module, boot, fd), name="cmdc")
        pipes = next_fds(_PIPE_ENDS)
        try:
            child.start()
        except OSError as error:
            close_pipes(pipes)
            self._send(ForkRefused(number=order.number, errno=error.errno or 0))
            return True
        finally:
            if fd is not None:
                os.close(fd)
        self._children[child.pid] = child
        self._announce(order, child)
        return True

    def _announce(self, order: Fork, child: Any) -> None:  # Any: as above
        """Hand the child to the daemon; without a descriptor for it, it must not live."""
        try:
            pidfd = os.pidfd_open(child.pid)
        except OSError as error:
            child.kill()
            self._send(ForkRefused(number=order.number, errno=error.errno or 0))
            return
        try:
            self._send(Forked(number=order.number, pid=child.pid), pidfd)
        finally:
            os.close(pidfd)

    def _become(self, module: str, boot: dict[str, Any], fd: int | None) -> None:
        """Be a child that has of the zygote's descriptors only the one that is for it."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, self._on_interrupt)
        for own in (self._control, self._woken, self._waker):
            own.detach()
        low = 0
        for kept in sorted({*self._inherited, *(() if fd is None else (fd,))}):
            if low < kept:  # CPython closes all of them for the range that begins and ends at 0
                os.closerange(low, kept)
            low = kept + 1
        os.closerange(low, _FDS_MAX)
        if self._keeps_small:
            keep_small()
        set_title("cmdc-spare", f"{TITLE_PREFIX}spare")
        run_module(module, boot)

    def _wake_at_ends(self) -> None:
        """Have the end of a child wake the loop; ctrl-c, which is for the daemon, ends nothing."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for end in (self._woken, self._waker):
            end.settimeout(0.0)
        signal.signal(signal.SIGCHLD, _do_nothing)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)

    def _reap(self, *, is_woken: bool) -> float | None:
        """Reap who has ended, but not at once again; returns after how many ms to look anew."""
        if is_woken:
            with suppress(BlockingIOError):
                while self._woken.recv(MESSAGE_BYTES_MAX):
                    pass
            self._is_due = True
        if not self._is_due:
            return None
        left_s = self._looked_at + REAP_S - time.monotonic()
        if left_s > 0:
            return left_s * 1e3
        self._looked_at, self._is_due = time.monotonic(), False
        for pid, child in [*self._children.items()]:
            if (status := child.exitcode) is not None:
                del self._children[pid]
                child.close()
                self._send(ChildEnded(pid=pid, status=status))
        return None

    # --- the daemon -------------------------------------------------------------------------------

    def _receive(self) -> tuple[Begin | Fork | Learn | None, int | None]:
        """Return the next order and the descriptor beside it; None: the daemon is gone."""
        try:
            data, fds, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES_MAX, _FDS_MESSAGE)
        except ConnectionError:
            return None, None
        return (order_of(data), fds[0] if fds else None) if data else (None, None)

    def _send(self, frame: FromZygote, *fds: int) -> None:
        """Say something to the daemon; one that is gone is found by the next ``_receive``."""
        with suppress(ConnectionError):
            socket.send_fds(self._control, [encode(frame)], fds)


def preloaded(begin: Begin) -> Preloaded:
    """Import all that children need, and return what came of it."""
    sys.path[:] = begin.path
    try:
        report = importlib.import_module(begin.preload).preload(begin.needs)
    except BaseException:  # noqa: BLE001 - foreign code at import: the daemon says it
        return Preloaded(report=None, failure=traceback.format_exc(limit=-8)[-FAILURE_CHARS_MAX:])
    loaded = [name for name in begin.needs if name in sys.modules]
    return Preloaded(
        report=report,
        threads=thread_count(),
        versions={name: _version(name) for name in loaded},
    )


def learned(preload: str, name: str) -> Learned:
    """Import one more module, and return what came of it."""
    try:
        problems = importlib.import_module(preload).learn(name)
    except BaseException:  # noqa: BLE001 - as above
        return Learned(problem=traceback.format_exc(limit=-8)[-FAILURE_CHARS_MAX:])
    return Learned(problem="; ".join(problems)[-FAILURE_CHARS_MAX:])


def open_fds() -> set[int]:
    """Return the descriptors of this process."""
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not files
        with suppress(OSError):  # the one that listdir itself had open
            os.fstat(int(name))
            found.add(int(name))
    return found


def next_fds(count: int) -> list[int]:
    """Return the numbers of the descriptors that will be opened next: always the lowest free ones.

    Fewer where there can't be so many.
    """
    found: list[int] = []
    with suppress(OSError):
        while len(found) < count:
            found.append(os.dup(_STDIN))
    for fd in found:
        os.close(fd)
    return found


def close_pipes(fds: list[int]) -> None:
    """Close those of these descriptors that are ends of pipes."""
    for fd in fds:
        with suppress(OSError):
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.close(fd)


def thread_count() -> int:
    """Return how many threads this process has, those that Python knows nothing of among them."""
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - only the number counts


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _do_nothing(*_: object) -> None:
    """Be a handler: without one, nothing is written where the loop waits."""


def main() -> NoReturn:
    """Be the zygote of the daemon that has started this process; never returns."""
    fd, daemon, nice = map(int, sys.argv[1:])
    set_parent_death_signal()
    resource.setrlimit(resource.RLIMIT_NICE, (0, 0))  # the daemon's alone
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    yield_to_others()
    if os.getppid() != daemon:  # it ended before the kernel was asked
        os._exit(EXIT_ORPHANED)
    sys.modules["__main__"] = ModuleType("__main__")  # a child's is its session's
    Zygote(socket.socket(fileno=fd)).serve()
    os._exit(EXIT_OK)


if __name__ == "__main__":
    main()
