"""``shell``: one command in a process group of its own, bounded in time and output.

The call ends when the command's process exits, not when its output is closed: a server started with
``&`` keeps the pipe open. Whatever is left of the group then is killed; what has left the group on
purpose lives until the session ends. At a timeout, a cancellation, or where a signal has ended the
command's process, everything that the command has started is killed, wherever it went: all of it
descends from a process of ours above the command (``_guardian.py``), which is a subreaper. A
command that kills that one is known by a mark in its environment. The group stays in the agent's
POSIX session, so that whoever ends an agent finds its commands too.

The output is kept in a file if it is long; the model gets its two ends. Memory is bounded whatever
the command writes.
"""

import asyncio
import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta

from cmdc_runtime.confinement import landlock, namespaces
from cmdc_runtime.extensions import Context, Tool, ToolError, tool
from cmdc_runtime.process_table import (
    ProcessLine,
    end_all,
    end_trees,
    process_table,
    with_descendants,
)
from cmdc_runtime.tool_environment import passed_on
from cmdc_runtime.tools import SHELL_TIMEOUT_S

# --- output ---------------------------------------------------------------------------------------

LINES_MAX: Final = 2000
BYTES_MAX: Final = 50 * 1024
FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""What is kept on disk of one command; the rest is counted and dropped."""
_FLUSH_BYTES: Final = 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024


class Capture:
    """Takes output as it comes; ``path`` is where the full text goes if it is long."""

    def __init__(self, path: Path) -> None:
        """Touch no disk yet: most output is short."""
        self._path = path
        self._first = bytearray()
        self._last = bytearray()
        self._pending = bytearray()
        self._bytes = 0
        self._lines = 0
        self._written = 0
        self._trouble: str | None = None

    async def pump(self, reader: asyncio.StreamReader) -> None:
        """Take everything up to the end of ``reader``; writing holds back reading."""
        while chunk := await reader.read(_CHUNK_BYTES):
            self._take(chunk)
            if self._is_long and len(self._pending) >= _FLUSH_BYTES:
                await asyncio.to_thread(self._flush)
        if self._is_long:
            await asyncio.to_thread(self._flush)

    def text(self) -> str:
        """Return what the model reads: everything, or the two ends and where the rest is."""
        if not self._is_long:
            return _decode(self._first)
        head, tail = self._ends()
        shown = head.count(b"\n") + tail.count(b"\n")
        left_out = (
            f"[{self._bytes - len(head) - len(tail)} bytes of {self._bytes} left out,"
            f" {max(self._lines - shown, 0)} lines of {self._lines}; {self._where()}]"
        )
        return f"{_decode(head).rstrip()}\n{left_out}\n{_decode(tail)}"

    @property
    def _is_long(self) -> bool:
        return self._bytes > BYTES_MAX or self._lines > LINES_MAX

    def _take(self, chunk: bytes) -> None:
        self._bytes += len(chunk)
        self._lines += chunk.count(b"\n")
        self._first += chunk[: BYTES_MAX - len(self._first)]
        self._last = (self._last + chunk)[-BYTES_MAX:]
        if self._trouble is None:
            room = FILE_BYTES_MAX - self._written - len(self._pending)
            self._pending += chunk[:room]

    def _flush(self) -> None:
        is_new = self._written == 0
        flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        flags |= os.O_CREAT | os.O_EXCL if is_new else os.O_APPEND
        pending, self._pending = self._pending, bytearray()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(self._path, flags, 0o600), "ab") as file:
                file.write(pending)
        except OSError as error:  # the command goes on; the result says that its text is gone
            self._trouble = error.strerror or str(error)
        self._written += len(pending)

    def _ends(self) -> tuple[bytes, bytes]:
        half = BYTES_MAX // 2
        if self._bytes <= BYTES_MAX:  # too many lines, and all of them are here
            lines = bytes(self._first).splitlines(keepends=True)
            return b"".join(lines[: LINES_MAX // 2]), b"".join(lines[-(LINES_MAX // 2) :])
        head = bytes(self._first[:half]).splitlines(keepends=True)
        tail = bytes(self._last[-half:]).splitlines(keepends=True)
        return b"".join(head[: LINES_MAX // 2]), b"".join(tail[-(LINES_MAX // 2) :])

    def _where(self) -> str:
        if self._trouble is not None:
            return f"the full text could not be kept: {self._trouble}"
        if self._bytes > FILE_BYTES_MAX:
            return f"the first {FILE_BYTES_MAX} bytes are in {self._path}"
        return f"the full text is in {self._path}"


def _decode(output: bytes | bytearray) -> str:
    return output.decode("utf-8", errors="replace")


# --- the tool -------------------------------------------------------------------------------------

DRAIN_S: Final = 0.25
"""How long output is read after the process has gone, once more after the group has."""
REAP_S: Final = 1.0
"""A killed process is gone in milliseconds, unless the kernel itself waits for a disk."""
END_S: Final = 1.0
"""For all that a command has started to be gone; it takes milliseconds, and the agent waits."""
TIMEOUT_MARGIN_S: Final = 10.0
"""The runner's own timeout comes after ours, which says more."""

_NOT_IN_FILE_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
_CALL_ID_CHARS_MAX: Final = 64
_GUARDIAN: Final = Path(__file__).with_name("_guardian.py")
_GUARDED: Final = 2
"""The guardian and the command: where fewer are found, it was killed while they were looked for."""
_STATUS_BYTES_MAX: Final = 16
_MARK: Final = "CMDC_COMMAND_ID"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellOrder:
    """One command as it is run."""

    command: str
    working_dir: str
    environment: Mapping[str, str]
    timeout_s: float


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


def create(timeout: float = SHELL_TIMEOUT_S, env: Mapping[str, str] | None = None) -> Tool:
    """Return the tool; no command takes longer than ``timeout`` seconds."""
    longest_s, extra = timeout, dict(env or {})
    program = shutil.which("bash") or "/bin/sh"

    async def shell(  # noqa: D417 - the context is not the model's
        command: Annotated[str, Meta(min_length=1)],
        timeout: Annotated[float, Meta(gt=0, le=longest_s)] = longest_s,  # noqa: ASYNC109
        *,
        context: Context,
    ) -> str:
        """Run a shell command in the working directory and return its output and errors.

        There is no terminal and no input. Long output is cut in the middle and kept in a file.

        Args:
            command: The command line.
            timeout: Seconds after which the command is killed, if it is to be sooner than usual.
        """
        order = ShellOrder(
            command=command,
            working_dir=context.working_dir,
            environment=_environment(context, extra),
            timeout_s=timeout,
        )
        capture = Capture(_output_path(context))
        return _result(await _run(program, order, capture), order, capture)

    return tool(effects="write", meta=_meta, timeout=longest_s + TIMEOUT_MARGIN_S)(shell)


def _meta(args: dict[str, Any]) -> str:
    return f"Run {args.get('command')}"


def _environment(context: Context, extra: Mapping[str, str]) -> dict[str, str]:
    return {
        **passed_on(os.environ),
        "PWD": context.working_dir,
        **extra,
        "CMDC_SESSION_ID": context.session_id,
        "CMDC_INCARNATION": str(context.incarnation),
        _MARK: uuid.uuid4().hex,
    }


def _output_path(context: Context) -> Path:
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    call_id = _NOT_IN_FILE_NAMES.sub("_", context.call_id)[:_CALL_ID_CHARS_MAX]
    return Path(context.working_dir).absolute() / ".cmdc" / "output" / f"{now}-{call_id}.txt"


async def _run(program: str, order: ShellOrder, capture: Capture) -> int | None:
    """Return the exit status, negative for a signal, or None if the time was up."""
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb", buffering=0) as pipe:
        with os.fdopen(write_end, "wb", buffering=0) as output:
            running = _start(program, order, output.fileno())
        with _no_survivor(running):
            in_time = await _follow(running, pipe, order.timeout_s, capture)
    if not in_time:
        return None
    return running.guardian.returncode if running.status is None else running.status


def _start(program: str, order: ShellOrder, output: int) -> Running:
    # Not asyncio's: its wait() ends only when every holder of the pipe has closed it.
    report, written = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    locale = "kept" if "LC_CTYPE" in order.environment else "unset"
    ruleset = landlock.shield()
    given = (ruleset, *namespaces.OVER_PROCESSES)
    shield = "none" if ruleset is None else ",".join(map(str, given))
    guard = [sys.executable, "-I", "-S", str(_GUARDIAN), str(written), shield, locale]
    try:
        guardian = subprocess.Popen(  # noqa: S603 - running what the model wants is the tool
            [*guard, program, "-c", order.command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=order.working_dir,
            env=order.environment,
            process_group=0,
            pass_fds=(written,) if ruleset is None else (written, ruleset),
        )
    except (OSError, ValueError) as error:
        os.close(report)
        raise ToolError(f"Cannot run the command: {error}") from error
    finally:
        os.close(written)
        if ruleset is not None:
            os.close(ruleset)
    mark = f"{_MARK}={order.environment[_MARK]}".encode()
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


def _result(status: int | None, order: ShellOrder, capture: Capture) -> str:
    output = capture.text().rstrip("\n")
    if status == 0:
        return output or "(no output)"
    if status is None:
        end = f"[killed: not done within {order.timeout_s:g} s]"
    elif status < 0:
        end = f"[killed by {signal.Signals(-status).name}]"
    else:
        end = f"[exit status {status}]"
    raise ToolError(f"{output}\n{end}" if output else end)
