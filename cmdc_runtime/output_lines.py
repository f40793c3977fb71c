"""What a worker and its daemon agree on about the lines that a worker writes.

A worker sends its standard output and its standard error over a socket each, and says first whose
they are. A line that begins with ``RECORD_MARK`` holds one JSON object and is a log record; any
other line is text. Who holds such a socket is believed in what it says about itself, and in
nothing else: the daemon binds session and process by itself.
"""

import re
from typing import Final, Literal

Stream = Literal["out", "err"]

LINE_BYTES_MAX: Final = 8 * 1024
"""Of one line; a stack of 60 frames fits, and 10,000 half-written lines are 80 MB."""
HEADER_BYTES_MAX: Final = 128
"""Of the first line; the name of a worker has about 30."""
RECORD_MARK: Final = b"\x1e"
"""ASCII's record separator, which no text has: in front of a record, and so behind half a line that
somebody else has written."""
TOOL_WROTE: Final = "tool.wrote"
"""The event of a record that is a line which a tool call has printed."""

_HEADER: Final = re.compile(rb"([!-~]{1,64}) (out|err)")


def header(worker_id: str, stream: Stream) -> bytes:
    """Return what a worker sends first."""
    return f"{worker_id} {stream}\n".encode()


def read_header(line: bytes) -> tuple[str, Stream] | None:
    """Return the worker and the stream that a first line names, without its newline, or None."""
    match = _HEADER.fullmatch(line)
    if match is None:
        return None
    return match[1].decode(), "out" if match[2] == b"out" else "err"
