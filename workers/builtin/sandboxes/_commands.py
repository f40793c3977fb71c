"""One command in a process group of its own, bounded in time and output.

The call ends when the command's process exits, not when its output is closed: a server started with
``&`` keeps the pipe open. Whatever is left of the group then is killed; what has left the group on
purpose lives until the session ends. At a timeout, a cancellation, or where a signal has ended the
command's process, everything that the command has started is killed, wherever it went: all of it
descends from a process of ours above the command (``_guardian.py``), which is a subreaper. A
command that kills that one is known by a mark in its environment. The group stays in the agent's
POSIX session, so that whoever ends an agent finds its commands too.
"""

import asyncio
import contextlib
import os
import select
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Final

from cmdc_runtime.confinement import landlock, namespaces
from cmdc_runtime.process_table import (
    ProcessLine,
    end_all,
    end_trees,
    process_table,
    with_descendants,
)
from workers.builtin.sandboxes._capture import Capture

DRAIN_S: Final = 0.25
"""How long output is read after the process has gone, once more after the group has."""
REAP_S: Final = 1.0
"""A killed process is gone in milliseconds, unless the kernel itself waits for a disk."""
END_S: Final = 1.0
"""For all that a command has started to be gone; it takes milliseconds, and the agent waits."""

_GUARDIAN: Final = Path(__file__).with_name("_guardian.py")
_GUARDED: Final = 2
"""The guardian and the command: where fewer are found, it was killed while they were looked for."""
_STATUS_BYTES_MAX: Final = 16
_MARK: Final = "CMDC_COMMAND_ID"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOrder:
    """One command as it is run."""

    program: Sequence[str]
    """With its arguments; the first is where it is."""
    working_dir: str
    environment: Mapping[str, str]
    timeout_s: float
    confines_itself: bool = False
    """The program puts more round itself than what keeps it from looking into other processes."""


@dataclass(slots=True, eq=False)
class Running:
    """A command under way."""

    guardian: subprocess.Popen[bytes]
    report: FileIO
    """Readable when the command's process has ended; at its end when the guardian has."""
    mark: bytes
    """As it stands in the environment of what the command starts."""
    status: int | None = field(default=None)
    """Of the command's process, negative for a signal; None while nobody knows it."""


async def run(order: CommandOrder, capture: Capture) -> int | None:
    """Return the exit status, negative for a signal, or None if the time was up.

    Raises:
        OSError: it can't be started.
        ValueError: it is none.
    """
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb", buffering=0) as pipe:
        with os.fdopen(write_end, "wb", buffering=0) as output:
            running = _start(order, output.fileno())
        with _no_survivor(running):
            in_time = await _follow(running, pipe, order.timeout_s, capture)
    if not in_time:
        return None
    return running.guardian.returncode if running.status is None else running.status


def _start(order: CommandOrder, output: int) -> Running:
    # Not asyncio's: its wait() ends only when every holder of the pipe has closed it.
    report, written = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    environment = {**order.environment, _MARK: uuid.uuid4().hex}
    locale = "kept" if "LC_CTYPE" in order.environment else "unset"
    ruleset = None if order.confines_itself else landlock.shield()
    given = (ruleset, *namespaces.OVER_PROCESSES)
    shield = "none" if ruleset is None else ",".join(map(str, given))
    guard = [sys.executable, "-I", "-S", str(_GUARDIAN), str(written), shield, locale]
    try:
        guardian = subprocess.Popen(  # noqa: S603 - running what the model wants is the tool
            [*guard, *order.program],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=order.working_dir,
            env=environment,
            process_group=0,
            pass_fds=(written,) if ruleset is None else (written, ruleset),
        )
    except BaseException:
        os.close(report)
        raise
    finally:
        os.close(written)
        if ruleset is not None:
            os.close(ruleset)
    mark = f"{_MARK}={environment[_MARK]}".encode()
    return Running(guardian, os.fdopen(report, "rb", buffering=0), mark)


@contextlib.contextmanager
def _no_survivor(running: Running) -> Iterator[None]:
    """Leave no process of the group behind, and nothing that could interrupt saying so."""
    try:
        yield
    finally:
        _end(running)
        running.report.close()


def _end(running: Running) -> None:
    """Kill the group of a command that has exited; of any other one, everything it has started."""
    guardian = running.guardian
    with contextlib.suppress(subprocess.TimeoutExpired):
        if running.status is not None and running.status >= 0:
            guardian.terminate()  # it ends the group
            guardian.wait(REAP_S)
    if guardian.returncode is not None:
        return
    with contextlib.suppress(OSError):  # somebody else has reaped it, or no descriptor is left
        deadline = time.monotonic() + END_S
        if _is_unguarded(running) or end_trees(lambda: [guardian.pid], deadline) < _GUARDED:
            end_all(lambda: _marked(running.mark), deadline)
    with contextlib.suppress(subprocess.TimeoutExpired):
        guardian.wait(REAP_S)


def _is_unguarded(running: Running) -> bool:
    """Say whether the guardian has ended, or is about to: its descriptors are closed before.

    In between its children are handed on one by one, so no look at them finds all.
    """
    look = select.poll()
    look.register(running.report, select.POLLIN)
    events = [event for _, event in look.poll(0)]
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return (
        events == [select.POLLHUP] or os.waitid(os.P_PID, running.guardian.pid, options) is not None
    )


def _marked(mark: bytes) -> list[ProcessLine]:
    """Return what bears the mark of a command, and all that descends from that."""
    table = process_table()
    roots = [line for line in table.values() if mark in _environment_of(line.pid)]
    return with_descendants(roots, table)


def _environment_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):  # it has ended, or is not ours
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


async def _follow(running: Running, pipe: FileIO, timeout_s: float, capture: Capture) -> bool:
    """Take the output until the command's process exits; say whether it did so in time."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    with contextlib.closing(transport):
        async with asyncio.TaskGroup() as tasks:
            pump = tasks.create_task(capture.pump(reader))
            try:
                in_time = await _has_ended(running, timeout_s)
                if running.status is not None and running.status >= 0:
                    await asyncio.wait({pump}, timeout=DRAIN_S)
            finally:
                _end(running)
            await asyncio.wait({pump}, timeout=DRAIN_S)
            transport.close()  # the pump ends with what it has
    return in_time


async def _has_ended(running: Running, timeout_s: float) -> bool:
    """Wait for the end of a command or of its guardian, and take its status; False: it is late."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    handle = os.pidfd_open(running.guardian.pid)  # a fork of ours may hold the other end of report
    sources = (running.report.fileno(), handle)
    for source in sources:
        loop.add_reader(source, ended.set)
    try:
        async with asyncio.timeout(timeout_s):
            await ended.wait()
    except TimeoutError:
        return False
    finally:
        for source in sources:
            loop.remove_reader(source)
        os.close(handle)
    status = running.report.read(_STATUS_BYTES_MAX)
    running.status = int(status) if status else None
    return True
