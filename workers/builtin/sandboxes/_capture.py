"""What a command writes: bounded in memory whatever it is, and kept in a file if it is long."""

import asyncio
from contextlib import AbstractContextManager
from typing import BinaryIO, Final, Protocol

from workers.builtin.tools._files import reason_of

LINES_MAX: Final = 2000
BYTES_MAX: Final = 50 * 1024
FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""What is kept on disk of one command; the rest is counted and dropped."""
_FLUSH_BYTES: Final = 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024


class OutputFile(Protocol):
    """Where the full text goes."""

    @property
    def path(self) -> str:
        """What the model reads of it."""

    def opened(self, *, is_new: bool) -> AbstractContextManager[BinaryIO]:
        """Return the file to write more to, a new one with the folders it needs.

        Raises:
            OSError: it can't be opened, or a new one is there.
            ValueError: it can't be reached.
        """


class Capture:
    """Takes output as it comes; ``file`` is where the full text goes if it is long."""

    def __init__(self, file: OutputFile) -> None:
        """Touch no disk yet: most output is short."""
        self._file = file
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
        pending, self._pending = self._pending, bytearray()
        try:
            with self._file.opened(is_new=is_new) as file:
                file.write(pending)
        except (OSError, ValueError) as error:  # the command goes on, and the result says it
            self._trouble = reason_of(error)
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
            return f"the first {FILE_BYTES_MAX} bytes are in {self._file.path}"
        return f"the full text is in {self._file.path}"


def _decode(output: bytes | bytearray) -> str:
    return output.decode("utf-8", errors="replace")
