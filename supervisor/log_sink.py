"""Where log lines go: a bounded queue, and a thread that writes what is in it.

Rules: ``put`` never waits and never raises, whatever became of the reader or the disk; a full queue
drops the newest lines and counts them, and tells it when there is room; a write that fails is tried
again, so what was queued comes once that is possible. The thread starts with the first line and
ends with ``flush``; the next line starts one again, in a forked child too.
"""

import contextlib
import errno
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Final

STDERR: Final = 2
LINES_QUEUED_MAX: Final = 10_000
"""About what a daemon writes in minutes; a burst of restarts fits."""
BYTES_QUEUED_MAX: Final = 8 * 2**20
"""Of these lines together."""
WRITE_BYTES_MAX: Final = select.PIPE_BUF
"""Lines that go in one write. A pipe takes as much at once or not at all, so what others write to
standard error comes between lines and not into them."""
RETRY_S: Final = 0.5
"""Between two tries of a write that fails: a full disk is not asked more often."""
EXIT_FLUSH_S: Final = 2.0
"""For the queue to be written when the process ends; a reader that is gone takes no longer."""


@dataclass(frozen=True, slots=True)
class Losses:
    """What a sink could not write."""

    dropped_lines: int = 0
    dropped_bytes: int = 0
    write_errors: int = 0


class Sink:
    """One stream and its queue; ``tell`` is called, on the thread, with what was dropped."""

    def __init__(self, stream: BinaryIO | None, tell: Callable[[Losses], None]) -> None:
        """Write to ``stream`` by its descriptor, where it has one; None is standard error."""
        self._stream = stream
        self._tell = tell
        self._turn = threading.Condition()
        self._hurry = threading.Event()
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._thread: threading.Thread | None = None
        self._is_ending = False
        self._untold = Losses()
        self.losses = Losses()
        """All of them, told or not."""

    def put(self, line: bytes) -> None:
        """Queue one line, without its newline, or drop it."""
        with self._turn:
            size = len(line) + 1
            if len(self._lines) >= LINES_QUEUED_MAX or self._bytes + size > BYTES_QUEUED_MAX:
                self._note(Losses(dropped_lines=1, dropped_bytes=size))
                return
            self._lines.append(line + b"\n")
            self._bytes += size
            if self._thread is None:
                self._start()
            elif len(self._lines) == 1:  # the thread waits for nothing else
                self._turn.notify_all()

    def flush(self, bound_s: float) -> bool:
        """Write what is queued and end the thread; False if that took longer than ``bound_s``.

        A write that fails meanwhile is not tried again.
        """
        deadline = time.monotonic() + bound_s
        with self._turn:
            if self._thread is None and self._lines:
                self._start()
            self._is_ending = True
            self._hurry.set()
            self._turn.notify_all()
            try:
                while self._thread is not None:
                    if (left_s := deadline - time.monotonic()) <= 0:
                        return False
                    self._turn.wait(left_s)
            finally:
                self._is_ending = False
                self._hurry.clear()
            return not self._lines

    def begin_anew(self) -> None:
        """Forget thread, locks and queue: they are the parent's, and this is its child."""
        self._turn = threading.Condition()
        self._hurry = threading.Event()
        self._lines, self._bytes = deque(), 0
        self._thread, self._is_ending = None, False

    def _start(self) -> None:
        thread = threading.Thread(target=self._main, name="log", daemon=True)
        # No thread is to be had, now or at the interpreter's end: the next line tries again.
        with contextlib.suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def _note(self, lost: Losses) -> None:
        self._untold = _added(self._untold, lost)
        self.losses = _added(self.losses, lost)

    # Everything below runs on the thread.

    def _main(self) -> None:
        try:
            while batch := self._next():
                if self._write(memoryview(batch)):
                    self._tell_losses()
        finally:
            with self._turn:  # after a fault of ours, too: the next line starts another
                if self._thread is threading.current_thread():
                    self._thread = None
                    self._turn.notify_all()

    def _next(self) -> bytes:
        """Wait for lines and take them; nothing when the thread is to end."""
        with self._turn:
            while not self._lines:
                if self._is_ending:
                    self._thread = None
                    self._turn.notify_all()
                    return b""
                self._turn.wait()
            batch = [self._lines.popleft()]
            size = len(batch[0])
            while self._lines and size + len(self._lines[0]) <= WRITE_BYTES_MAX:
                batch.append(self._lines.popleft())
                size += len(batch[-1])
            self._bytes -= size
        return b"".join(batch)

    def _write(self, rest: memoryview) -> bool:
        """Write all of it, whenever that may be; False when it fails and the end has come."""
        while rest:
            try:
                rest = rest[self._write_some(rest) :]
            except (OSError, ValueError) as error:  # ValueError: somebody closed the stream
                if isinstance(error, OSError) and error.errno == errno.EAGAIN:
                    self._wait_writable()
                    continue
                with self._turn:
                    self._note(Losses(write_errors=1))
                    if self._is_ending:
                        lines = bytes(rest).count(b"\n")
                        self._note(Losses(dropped_lines=lines, dropped_bytes=len(rest)))
                        return False
                self._hurry.wait(RETRY_S)
        return True

    def _write_some(self, rest: memoryview) -> int:
        stream = self._stream
        if stream is None:
            return os.write(STDERR, rest)
        try:
            fd = stream.fileno()
        except OSError:  # a stream in memory has none
            stream.write(rest)
            stream.flush()
            return len(rest)
        return os.write(fd, rest)

    def _wait_writable(self) -> None:
        """Wait for room in a pipe that somebody made non-blocking, for all who share it."""
        poll = select.poll()
        poll.register(STDERR if self._stream is None else self._stream.fileno(), select.POLLOUT)
        poll.poll(RETRY_S * 1e3)

    def _tell_losses(self) -> None:
        """Tell what was dropped, as soon as there is room."""
        with self._turn:
            untold = self._untold
            has_room = (
                len(self._lines) <= LINES_QUEUED_MAX // 2 and self._bytes <= BYTES_QUEUED_MAX // 2
            )
            if not untold.dropped_lines or not has_room:
                return
            self._untold = Losses()
        self._tell(untold)


def _added(one: Losses, other: Losses) -> Losses:
    return Losses(
        one.dropped_lines + other.dropped_lines,
        one.dropped_bytes + other.dropped_bytes,
        one.write_errors + other.write_errors,
    )
