"""Where a worker's stdout and stderr go: to its daemon, over a socket each.

The descriptors 1 and 2 themselves are replaced, so what C code writes, what a tool's programs write
and what the interpreter says while it crashes goes the same way. What was written when the process
ends stays for the daemon to read. A worker that writes faster than the daemon reads waits in its
``write``; when the daemon is gone what Python code writes is lost, and nobody's ``print`` fails.

A socket is no file: a shell that opens ``/dev/stderr`` by name is refused by the kernel, as below a
service manager's journal. ``>&2`` works.
"""

import contextlib
import dataclasses
import io
import json
import mmap
import os
import select
import socket
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO

from cmdc_runtime.lines import (
    LINE_BYTES_MAX,
    RECORD_MARK,
    TOOL_WROTE,
    Stream,
    header,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

CONNECT_S: Final = 1.0
"""For the daemon to have room for one more connection; it makes room every millisecond."""
WRITABLE_S: Final = 1.0
"""For room in a socket that somebody made non-blocking for all who share it; then text is lost."""

MARKED_LINES_MAX: Final = 1_000
"""Of one call; the daemon's log takes no more of a worker at once."""
MARKED_BYTES_MAX: Final = LINE_BYTES_MAX // 2
"""Of one line: as JSON it may be longer."""

BEGUN_BYTES_MAX: Final = LINE_BYTES_MAX + 1
"""Of a line that has not ended: the daemon sees that it is too long, and cuts it."""

_LENGTH: Final = struct.Struct("I")
_SLOT_BYTES: Final = _LENGTH.size + BEGUN_BYTES_MAX
_STREAMS: Final[dict[int, Stream]] = {1: "out", 2: "err"}
_TIMEVAL: Final = struct.Struct("ll")
_FIRST_FREE: Final = 3


def send_output(path: str, worker_id: str, bring: int | None = None) -> bool:
    """Send all that this process writes from now on to the daemon that listens at ``path``.

    ``bring`` is a descriptor that the daemon gets a copy of. False, and nothing is changed, if it
    can't be reached. To be called before there are threads.
    """
    socks: dict[int, socket.socket] = {}
    try:
        for fd, stream in _STREAMS.items():
            socks[fd] = sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            fds = [] if bring is None or stream == "out" else [bring]
            _connect(sock, path, header(worker_id, stream), fds)
    except OSError:
        for sock in socks.values():
            sock.close()
        return False
    for text in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or none at all
            text.flush()
    for fd, sock in socks.items():
        os.dup2(sock.fileno(), fd)
        # Where it was closed, the socket has got this very number, and dup2 did nothing.
        os.set_inheritable(fd, True)  # noqa: FBT003 - os takes it so
        original = sock.detach()
        if original >= _FIRST_FREE:
            os.close(original)
    keep_printing()
    return True


def keep_printing() -> None:
    """Make ``sys.stdout`` and ``sys.stderr`` write each line at once, and never fail.

    Those who hold the streams of before write to the same descriptors, each line at once, too.
    """
    for text in (sys.stdout, sys.stderr):
        if isinstance(text, io.TextIOWrapper):
            with contextlib.suppress(OSError, ValueError):
                text.reconfigure(line_buffering=True)
    sys.stdout, sys.stderr = _text(1), _text(2)


class UnendedLines:
    """Memory for what a call's process has begun of its lines, which outlives that process.

    Made before the fork, by who reports it when the process was killed.
    """

    def __init__(self) -> None:
        """Begin with nothing; raises OSError where there is no memory."""
        self._memory = mmap.mmap(-1, len(_STREAMS) * _SLOT_BYTES)

    def hold(self, fd: int, begun: bytes) -> None:
        """Have ``begun`` as what is to be reported of a descriptor."""
        at = (fd - 1) * _SLOT_BYTES
        _LENGTH.pack_into(self._memory, at, 0)  # whoever is killed here leaves nothing
        self._memory[at + _LENGTH.size : at + _LENGTH.size + len(begun)] = begun
        _LENGTH.pack_into(self._memory, at, len(begun))

    def write(self, call_id: str, tool: str) -> None:
        """Write what is left as lines of the call."""
        marks = _Marks.of(call_id, tool)
        for fd in _STREAMS:
            at = (fd - 1) * _SLOT_BYTES
            (length,) = _LENGTH.unpack_from(self._memory, at)
            begun = self._memory[
                at + _LENGTH.size : at + _LENGTH.size + min(length, BEGUN_BYTES_MAX)
            ]
            marks.begun[_MarkingWriter(fd, marks)] = begun
        marks.end()

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()


def mark_lines(call_id: str, tool: str, unended: UnendedLines | None = None) -> None:
    """Have the daemon know which call prints, in a process of its own.

    Each line that Python code prints becomes a record that names the call, and so does what it has
    begun of one when ``end_lines`` is called. What a call's programs and C code write, lines beyond
    ``MARKED_LINES_MAX`` and very long ones come as they are, with the session alone. ``unended``
    has what is begun if the process is killed.
    """
    marks = _Marks.of(call_id, tool)
    marks.unended = unended
    for name, fd in (("stdout", 1), ("stderr", 2)):
        setattr(sys, name, _wrapped(_MarkingWriter(fd, marks)))
    _PRINTING.set(marks)


def end_lines() -> None:
    """Write what the call that prints here has begun of a line: nothing more of it is coming."""
    marks = _PRINTING.get()
    if marks is not None:
        marks.end()


@contextlib.contextmanager
def printing(call_id: str, tool: str) -> Iterator[None]:
    """Mark what this context prints, and those that come of it, as ``mark_lines`` does."""
    token = _PRINTING.set(_Marks.of(call_id, tool))
    try:
        yield
    finally:
        end_lines()
        _PRINTING.reset(token)


def own_lines() -> BinaryIO:
    """Return standard error for what is nobody's call, whoever's context writes it."""
    return io.BufferedWriter(_PatientWriter(2, "wb", closefd=False))


def _connect(sock: socket.socket, path: str, first: bytes, fds: Sequence[int]) -> None:
    # Python's own time limit would make the descriptor non-blocking, and with it those of tools.
    seconds, fraction = divmod(CONNECT_S, 1)
    limit = _TIMEVAL.pack(int(seconds), int(fraction * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    sock.connect(path)
    sent = socket.send_fds(sock, [first], fds) if fds else 0
    sock.sendall(first[sent:])
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(0, 0))


def _text(fd: int) -> TextIO:
    return _wrapped(_MarkingWriter(fd))


def _wrapped(raw: "_MarkingWriter") -> TextIO:
    # It keeps nothing back: what waits for the end of its line waits with the call that prints it.
    return io.TextIOWrapper(
        raw, encoding="utf-8", errors="backslashreplace", line_buffering=True, write_through=True
    )


class _PatientWriter(io.FileIO):
    """A descriptor that waits for a reader, and loses what is written when there is none."""

    def write(self, data: "ReadableBuffer", /) -> int:
        """Say that all was written, whatever became of it."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        with contextlib.suppress(OSError):
            while rest:
                written: int | None = super().write(rest)
                if written is None and not self._is_writable():
                    break
                rest = rest[written or 0 :]
        return size

    def _is_writable(self) -> bool:
        poll = select.poll()
        poll.register(self.fileno(), select.POLLOUT)
        return bool(poll.poll(WRITABLE_S * 1e3))


@dataclasses.dataclass(slots=True, eq=False)
class _Marks:
    """The fields of one call's records, how many lines may still be such, and what is begun.

    Who is nobody's call has no fields.
    """

    fields: dict[str, str]
    left: int = MARKED_LINES_MAX
    waits: bool = True
    """For the end of a line, where the call's own process flushes what is begun of it."""
    pid: int = dataclasses.field(default_factory=os.getpid)
    begun: dict["_MarkingWriter", bytes] = dataclasses.field(default_factory=dict)
    unended: UnendedLines | None = None

    @classmethod
    def of(cls, call_id: str, tool: str) -> "_Marks":
        return cls({"level": "info", "event": TOOL_WROTE, "call_id": call_id, "tool": tool})

    def end(self) -> None:
        """Write what is begun; whoever prints on has it written with each flush."""
        self.waits = False
        for writer in tuple(self.begun):
            writer.write_begun(self)

    def hold(self, writer: "_MarkingWriter") -> None:
        """Have what is begun reported if this process is killed, which is the call's own."""
        if self.unended is not None and self.pid == os.getpid():
            self.unended.hold(writer.fileno(), self.begun.get(writer, b""))

    def marked(self, line: bytes) -> bytes:
        """Return a line, given without its end, as it is written."""
        if self.fields and self.left and len(line) <= MARKED_BYTES_MAX:
            record_fields = {
                **self.fields,
                "line": line.removesuffix(b"\r").decode(errors="replace"),
            }
            record = RECORD_MARK + json.dumps(record_fields, ensure_ascii=False).encode()
            if len(record) <= LINE_BYTES_MAX:
                self.left -= 1
                return record + b"\n"
        return line + b"\n"


_PRINTING: Final[ContextVar[_Marks | None]] = ContextVar("call_that_prints", default=None)


class _MarkingWriter(_PatientWriter):
    """A descriptor to which each line of a call goes as a record, when it has ended.

    So lines of several calls that print at a time never mix. ``marks`` are of the call that the
    process is for.
    """

    def __init__(self, fd: int, marks: _Marks | None = None) -> None:
        super().__init__(fd, "wb", closefd=False)
        self._marks = marks or _Marks({}, waits=False)
        self._turn = threading.RLock()  # a handler of signals may print, too

    def write(self, data: "ReadableBuffer", /) -> int:
        """Say that all was written, whatever became of it."""
        given = bytes(data)
        marks = _PRINTING.get() or self._marks
        with self._turn:
            *lines, rest = (marks.begun.pop(self, b"") + given).split(b"\n")
            if lines:
                super().write(b"".join(map(marks.marked, lines)))
            if rest:
                marks.begun[self] = rest[:BEGUN_BYTES_MAX] if marks.waits else rest
            if len(rest) > BEGUN_BYTES_MAX and not marks.waits:
                self.write_begun(marks)
            marks.hold(self)
        return len(given)

    def flush(self) -> None:
        """Write what is begun of a line, but where its call reports it in the end."""
        marks = _PRINTING.get() or self._marks
        if not marks.waits or marks.pid != os.getpid():
            self.write_begun(marks)

    def write_begun(self, marks: _Marks) -> None:
        """Write what is begun of a line: that of a call is one."""
        with self._turn:
            begun = marks.begun.pop(self, b"")
            if begun:
                super().write(marks.marked(begun) if marks.fields else begun)
                marks.hold(self)
