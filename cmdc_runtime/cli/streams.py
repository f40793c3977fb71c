"""Standard streams of a command: what cannot be written there is an error of one line.

Standard output that takes no more ends the command with ``OutputLost``, wherever it is written:
by click, by rich, byte by byte. A pipe that nobody reads is a ``BrokenPipeError``, which ends it
quietly. Standard error that takes nothing is passed over: there is nobody who could be told.
"""

import errno
import io
import os
import select
import sys
from typing import IO, TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_CLOSED_MODES: Final = (os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)
"""How a standard stream that is closed is opened on the null device: input has an end, output
refuses what is written, and notes go nowhere."""


class OutputLost(click.ClickException):
    """Standard output cannot be written."""

    def __init__(self, error: OSError) -> None:
        """Say why."""
        super().__init__(f"standard output cannot be written: {error.strerror}")


class _Output(io.FileIO):
    """Standard output; once it is given up, whatever is still written is dropped."""

    is_given_up = False

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write some of ``data``, and wait where others made the stream non-blocking."""
        while not self.is_given_up:
            try:
                written = super().write(data)
            except BrokenPipeError:
                raise
            except OSError as error:
                raise OutputLost(error) from error
            if written is not None:  # it is, where the stream is full and does not block
                return written
            select.select((), (self,), ())
        return len(memoryview(data).cast("B"))


class _Notes(io.FileIO):
    """Standard error."""

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write some of ``data``, or drop it."""
        try:
            written = super().write(data)
        except OSError:
            written = None
        return len(memoryview(data).cast("B")) if written is None else written


def open_streams() -> None:
    """Put streams that keep the rules of this module in the place of Python's own."""
    for descriptor, mode in enumerate(_CLOSED_MODES):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, mode)  # the lowest that is free: this one
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(_Output(1, "w", closefd=False), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Notes(2, "w", closefd=False), sys.stderr)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115 - for good


def flush_output() -> None:
    """Have all that was printed on standard output written.

    Raises:
        OutputLost: it cannot be.
        BrokenPipeError: nobody reads it.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise OutputLost(error) from error


def give_up_output() -> None:
    """Let go of what could not be written, so that the end of the interpreter does not try."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _Output):
        raw.is_given_up = True


def _text(raw: io.FileIO, before: IO[str] | None) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(before, "encoding", "utf-8"),
        errors="backslashreplace",
        line_buffering=getattr(before, "line_buffering", False),
    )
