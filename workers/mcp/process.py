"""The process of an MCP server: started without a session of its own, ended with all it started.

The SDK's own start calls ``setsid``, after which nobody who sweeps an agent's processes finds the
server. Here it stays in the agent's POSIX session and cgroup, below ``launcher``, and bears the
session's marks in an environment of what tools get. The session's sandbox says what is run for it;
where that confines nothing, a domain of Landlock keeps it from looking into other processes. Its
stderr goes to the agent's log by lines, and the end of it is reported where the server fails.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cmdc_runtime.confinement import landlock, namespaces
from cmdc_runtime.plain import without_controls

MESSAGE_BYTES_MAX: Final = 16 * 2**20
"""Of one message of a server; a longer one ends it."""
LINE_BYTES_MAX: Final = 4_096
"""Of one line of its stderr; a longer one is logged in pieces."""
LINES_MAX: Final = 1_000
"""Of its stderr in the log, over one life of the process; later ones are read and left out."""
TAIL_LINES: Final = 5
"""Of its stderr, reported where it fails."""
GRACE_S: Final = 0.5
"""For a server to end by itself when its stdin is closed, as the protocol has it."""
END_S: Final = 2.0
"""For the launcher to have killed all; it takes milliseconds."""
NOT_STARTED: Final = 126
_LAUNCHER: Final = Path(__file__).with_name("launcher.py")
_STATUS_BYTES_MAX: Final = 16


class NotStartedError(Exception):
    """The program cannot be run, and another try would end alike."""


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """What is run, where, and with which environment."""

    command: Sequence[str]
    working_dir: str
    environment: Mapping[str, str]
    confines_itself: bool = False
    """The command puts more round itself than what keeps it from looking into other processes."""


class ServerProcess:
    """One life of a server's process; made by ``start``, over with ``close``."""

    def __init__(self, launcher: subprocess.Popen[bytes], on_line: Callable[[str], None]) -> None:
        """Own the launcher; ``start`` opens the pipes."""
        self._launcher = launcher
        self._on_line = on_line
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._tasks: list[asyncio.Task[None]] = []
        self._transports: list[asyncio.BaseTransport] = []
        self.ended = asyncio.Event()
        """The server, and all that it had started, is gone."""
        self.status: int | None = None
        """Of the server, negative for a signal; None while nobody knows it."""
        self.stdout: asyncio.StreamReader
        self.stdin: asyncio.StreamWriter

    @classmethod
    async def start(cls, program: ServerProgram, on_line: Callable[[str], None]) -> "ServerProcess":
        """Start a server; the caller closes it.

        Raises:
            NotStartedError: the system does not start it.
        """
        ours, theirs = _pipes()
        try:
            launcher = _launched(program, theirs)
        except (OSError, ValueError) as error:
            for descriptor in ours:
                os.close(descriptor)
            raise NotStartedError(f"it cannot be started: {error}") from error
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        process = cls(launcher, on_line)
        try:
            await process._open(ours)
        except BaseException:
            launcher.kill()  # the kernel kills the server with it
            launcher.wait()
            raise
        return process

    @property
    def stderr_tail(self) -> str:
        """The end of what it wrote to stderr, in one line."""
        return " | ".join(self._tail)

    @property
    def is_final(self) -> bool:
        """Whether another start would end alike: the program could not be run."""
        return self.status == NOT_STARTED

    def ending(self, problem: str = "") -> str:
        """Return how it ended by itself, and its stderr's end; ``problem``: where nobody knows."""
        status = self.status
        if status is None:
            text = problem or "it was ended"
        elif status < 0:
            text = f"it was killed by signal {-status}"
        else:
            text = f"it exited with status {status}"
        return f"{text}: {self.stderr_tail}" if self.stderr_tail else text

    async def close(self, grace_s: float = GRACE_S) -> None:
        """End the server with all it has started; bounded, and the same when it is cancelled."""
        try:
            self.stdin.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self.ended.wait()
        finally:
            if self._launcher.poll() is None:
                self._launcher.terminate()  # it kills all that is below it
            for transport in self._transports:
                transport.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self.ended.wait()
        if self._launcher.poll() is None:
            self._launcher.kill()
            self._launcher.wait()  # it is killed: milliseconds
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _open(self, ours: Sequence[int]) -> None:
        """Read and write by the pipes, of which ``ours`` are our ends."""
        stdin, stdout, stderr, report = ours
        loop = asyncio.get_running_loop()
        self.stdout = await self._reader(stdout, MESSAGE_BYTES_MAX)
        errors = await self._reader(stderr, LINE_BYTES_MAX)
        status = await self._reader(report, _STATUS_BYTES_MAX)
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()),
            os.fdopen(stdin, "wb", buffering=0),
        )
        self._transports.append(transport)
        self.stdin = asyncio.StreamWriter(transport, protocol, None, loop)
        self._tasks = [
            asyncio.create_task(self._log(errors), name="mcp-stderr"),
            asyncio.create_task(self._await_end(status), name="mcp-end"),
        ]

    async def _reader(self, descriptor: int, limit: int) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(limit=limit)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
        )
        self._transports.append(transport)
        return reader

    async def _await_end(self, report: asyncio.StreamReader) -> None:
        """Remember the status; at the end of the pipe the launcher is gone."""
        digits = await report.read()
        self.status = int(digits) if digits else None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._launcher.wait(END_S)  # it has closed its last descriptor, and exits
        self.ended.set()

    async def _log(self, errors: asyncio.StreamReader) -> None:
        """Log the lines of stderr, as many as there is room for, and keep the last."""
        count = 0
        async for line in _lines(errors):
            self._tail.append(line)
            count += 1
            if count <= LINES_MAX:
                self._on_line(line)
            if count == LINES_MAX:
                self._on_line(f"(more than {LINES_MAX} lines: the rest is left out)")


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                yield _text(error.partial)
            return
        except asyncio.LimitOverrunError as error:
            line = await reader.readexactly(min(error.consumed, LINE_BYTES_MAX) or 1)
        if text := _text(line):
            yield text


def _text(line: bytes) -> str:
    return without_controls(line.decode(errors="replace").strip())


def _pipes() -> tuple[tuple[int, int, int, int], tuple[int, int, int, int]]:
    """Return our ends of stdin, stdout, stderr and report, and the server's."""
    stdin_read, stdin = os.pipe2(os.O_CLOEXEC)
    stdout, stdout_write = os.pipe2(os.O_CLOEXEC)
    stderr, stderr_write = os.pipe2(os.O_CLOEXEC)
    report, report_write = os.pipe2(os.O_CLOEXEC)
    return (stdin, stdout, stderr, report), (stdin_read, stdout_write, stderr_write, report_write)


def _launched(program: ServerProgram, theirs: Sequence[int]) -> subprocess.Popen[bytes]:
    stdin, stdout, stderr, report = theirs
    locale = "kept" if "LC_CTYPE" in program.environment else "unset"
    ruleset = None if program.confines_itself else landlock.shield()
    given = (ruleset, *namespaces.OVER_PROCESSES)
    shield = "none" if ruleset is None else ",".join(map(str, given))
    script = [sys.executable, "-I", "-S", str(_LAUNCHER)]
    try:
        # By this thread: the kernel signals the launcher when the thread that started it ends.
        return subprocess.Popen(  # noqa: S603 - running what the application declares
            [*script, str(os.getpid()), str(report), shield, locale, *program.command],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=program.working_dir,
            env=program.environment,
            process_group=0,
            pass_fds=(report,) if ruleset is None else (report, ruleset),
        )
    finally:
        if ruleset is not None:
            os.close(ruleset)
