"""``shell``: one command in a process group of its own, bounded in time and output.

The call ends when the command's process exits, not when its output is closed: a server started
with ``&`` keeps the pipe open. Whatever is left of the group then is killed; what has left the
group on purpose lives until the session ends. At a timeout or a cancellation everything that the
command has started is killed, wherever it went: the shell is a subreaper, so all of it descends
from the shell for as long as that lives. The group stays in the agent's POSIX session, so that
whoever ends an agent finds its commands too.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta

from cmdc_runtime.extensions import Context, Tool, ToolError, tool
from cmdc_runtime.process_table import end_trees
from cmdc_runtime.tool_environment import passed_on
from cmdc_runtime.tools import SHELL_TIMEOUT_S
from workers.builtin.tools._capture import Capture

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
# What the kernel keeps over an exec and subprocess has no word for: 36 is PR_SET_CHILD_SUBREAPER.
# An interpreter ignores two signals, and may give itself a locale; the command is to have neither.
_LAUNCHER: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
if sys.argv[1] == "unset":
    os.environ.pop("LC_CTYPE", None)
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One command as it is run."""

    command: str
    working_dir: str
    environment: Mapping[str, str]
    timeout_s: float


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
        order = Order(
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
    }


def _output_path(context: Context) -> Path:
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    call_id = _NOT_IN_FILE_NAMES.sub("_", context.call_id)[:_CALL_ID_CHARS_MAX]
    return Path(context.working_dir).absolute() / ".cmdc" / "output" / f"{now}-{call_id}.txt"


async def _run(program: str, order: Order, capture: Capture) -> int | None:
    """Return the exit status, negative for a signal, or None if the time was up."""
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb", buffering=0) as pipe:
        with os.fdopen(write_end, "wb", buffering=0) as output:
            process = _start(program, order, output.fileno())
        with _no_survivor(process):
            in_time = await _follow(process, pipe, order.timeout_s, capture)
    return process.returncode if in_time else None


def _start(program: str, order: Order, output: int) -> subprocess.Popen[bytes]:
    # Not asyncio's: its wait() ends only when every holder of the pipe has closed it.
    locale = "kept" if "LC_CTYPE" in order.environment else "unset"
    launch = [sys.executable, "-I", "-S", "-c", _LAUNCHER, locale]
    try:
        return subprocess.Popen(  # noqa: S603 - running what the model wants is the tool
            [*launch, program, "-c", order.command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=order.working_dir,
            env=order.environment,
            process_group=0,
        )
    except (OSError, ValueError) as error:
        raise ToolError(f"Cannot run the command: {error}") from error


@contextlib.contextmanager
def _no_survivor(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave no process of the group behind, and nothing that could interrupt saying so."""
    try:
        yield
    finally:
        # The unreaped leader keeps the number of its group, so nobody else's is hit.
        _end(process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(REAP_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the group of a shell; with one that has not exited, everything that it has started."""
    with contextlib.suppress(OSError):  # somebody else has reaped it, or no descriptor is left
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            end_trees(lambda: [process.pid], time.monotonic() + END_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def _follow(
    process: subprocess.Popen[bytes], pipe: FileIO, timeout_s: float, capture: Capture
) -> bool:
    """Take the output until the process exits; say whether it did so in time."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    with contextlib.closing(transport):
        async with asyncio.TaskGroup() as tasks:
            pump = tasks.create_task(capture.pump(reader))
            try:
                in_time = await _is_within(timeout_s, _exit_of(process.pid))
                if in_time:
                    await asyncio.wait({pump}, timeout=DRAIN_S)
            finally:
                _end(process)
            await asyncio.wait({pump}, timeout=DRAIN_S)
            transport.close()  # the pump ends with what it has
    return in_time


async def _exit_of(pid: int) -> None:
    """Return when the process has exited; it is not reaped by this."""
    loop = asyncio.get_running_loop()
    exited = asyncio.Event()
    handle = os.pidfd_open(pid)
    loop.add_reader(handle, exited.set)
    try:
        await exited.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


async def _is_within(seconds: float, awaited: Awaitable[None]) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await awaited
    except TimeoutError:
        return False
    return True


def _result(status: int | None, order: Order, capture: Capture) -> str:
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
