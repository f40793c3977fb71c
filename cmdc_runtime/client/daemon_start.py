"""A daemon's process from the order to start it until it takes calls, or says why it can't.

The daemon is given a pipe (``--ready-fd``) into which it writes one line of JSON: that it is
ready, or what keeps it from that and the exit status for it. One that ends without a word has left
its reasons in its log. What takes longer than ``NOTICE_AFTER_S`` is announced to whoever sits at
the terminal, once: that is for programs, and ``cmdc`` shows it in its own way (``announce_by``).
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cmdc_runtime import installation
from cmdc_runtime.client.limits import (
    DAEMON_KILL_S,
    LOG_BYTES_SHOWN,
    LOG_LINES_SHOWN,
    READY_TIMEOUT_S,
)

MODULE: Final = "supervisor"
NOTICE_AFTER_S: Final = 1.0
"""A start that takes longer says what it does."""
_READ_BYTES: Final = 4096
_LOOK_AGAIN_S: Final = 0.2
_LOOK_S: Final = 10.0
"""For a look at what is installed, which reads some hundred small files."""
_SAID_CHARS_MAX: Final = 80
"""Of a line that is no answer of a daemon, how much is shown."""

# --- what is announced of it ----------------------------------------------------------------------

Announcer = Callable[[str], None]


def _announce_on_terminal(text: str) -> None:
    """Write a line to standard error if a person sees it."""
    stream = sys.stderr
    with contextlib.suppress(OSError, ValueError):  # it is closed
        if stream is not None and stream.isatty():
            stream.write(f"cmdc: {text}\n")
            stream.flush()


_announcers: Final[list[Announcer]] = [_announce_on_terminal]


@contextlib.contextmanager
def announce_by(announcer: Announcer) -> Iterator[None]:
    """Have ``announcer`` get meanwhile what would go to the terminal; any thread may call it."""
    _announcers.append(announcer)
    try:
        yield
    finally:
        _announcers.remove(announcer)


def announce(text: str) -> None:
    """Announce to a person what is waited for."""
    _announcers[-1](text)


@contextlib.contextmanager
def announced_if_long(text: str) -> Iterator[None]:
    """Show ``text`` if what is done meanwhile takes longer than ``NOTICE_AFTER_S``, by a thread."""
    timer = threading.Timer(NOTICE_AFTER_S, announce, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


# --- the process ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartOutcome:
    """How a start went: ``problem`` is empty where the daemon is ready at ``directory``.

    ``status`` is the exit status that the daemon gave with its problem, None where it gave none.
    """

    problem: str = ""
    pid: int = 0
    directory: str = ""
    status: int | None = None


class DaemonStart:
    """One start; ``arguments`` are the daemon's own."""

    def __init__(
        self, arguments: Sequence[str], log: Path, *, mode: str = "wb", fds: Collection[int] = ()
    ) -> None:
        """Start the process; what it prints goes to ``log``, and it has ``fds`` of ours.

        Raises:
            OSError: it can't be started, or the log can't be written.

        """
        self._log = log
        self._ready, ready_child = os.pipe()
        # -P: a file or folder named like the daemon in the working directory is not the daemon.
        command = [sys.executable, "-P", "-m", MODULE, *arguments, "--ready-fd", str(ready_child)]
        try:
            with log.open(mode) as output:
                self._begins_at = output.tell()
                self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(ready_child, *fds),
                    start_new_session=True,
                )
        except OSError:
            os.close(self._ready)
            raise
        finally:
            os.close(ready_child)

    def outcome(self) -> StartOutcome:
        """Return how it went, after ``READY_TIMEOUT_S`` at most; call it once."""
        try:
            line = self._line()
        finally:
            os.close(self._ready)
        if line is None:
            why = f"was not ready within {READY_TIMEOUT_S:g} s. {self.last_lines()}"
            return StartOutcome(problem=why)
        if not line.endswith(b"\n"):
            return StartOutcome(problem=self._silent_end())
        try:
            answer = json.loads(line)
        except ValueError:
            answer = {"error": f"it said {line[:_SAID_CHARS_MAX]!r}"}
        if answer.get("ready"):
            return StartOutcome(pid=answer.get("pid", 0), directory=answer.get("directory", ""))
        return StartOutcome(
            problem=f"cannot run: {answer.get('error')}", status=answer.get("status")
        )

    def last_lines(self) -> str:
        """Return the end of what this daemon has written to its log."""
        try:
            with self._log.open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(self._begins_at, log.tell() - LOG_BYTES_SHOWN))
                text = log.read().decode(errors="replace").strip()
        except OSError:
            return "Its log is gone."
        if not text:
            return "Its log is empty."
        return "Its log ends:\n" + "\n".join(text.splitlines()[-LOG_LINES_SHOWN:])

    def _line(self) -> bytes | None:
        """Return what it says: a line, less than one where it has ended, None if it is late."""
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        line = b""
        while not line.endswith(b"\n"):
            if time.monotonic() > deadline_s:
                return None
            if select.select([self._ready], [], [], _LOOK_AGAIN_S)[0]:
                piece = os.read(self._ready, _READ_BYTES)
                line += piece
                if not piece:
                    return line
            elif self.process.poll():  # one that has detached itself ends with 0, and is another
                return line
        return line

    def _silent_end(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(DAEMON_KILL_S)
        problem = _installation_problem()
        hint = f"{problem} " if problem else ""
        return f"did not start, status {self.process.poll()}. {hint}{self.last_lines()}"


def _installation_problem() -> str:
    """Return what another process of this interpreter says of our packages; it has no cwd either.

    Nothing where it can't say: then the log has to do.
    """
    command = [sys.executable, "-P", "-m", installation.__name__]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(  # noqa: S603 - our own interpreter and module
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_LOOK_S
        )
        return " ".join(done.stdout.decode(errors="replace").split())
    return ""
