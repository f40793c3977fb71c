"""Server-sent events, taken from pieces of any size and bounded as they come."""

from typing import Final

from workers.builtin.providers import _metering as metering

_DATA: Final = b"data:"


class Events:
    """What the events of one answer say: their data, in order, each without its lines' ends."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._is_after_cr = False
        self._bytes = self._count = 0
        self._event_bytes = self._event_lines = 0

    def take(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that end in ``piece``.

        Raises:
            RefusedAnswerError: the answer is too much.
        """
        self._bytes += len(piece)
        metering.check("bytes", self._bytes, metering.REPLY_BYTES_MAX)
        piece = self._with_line_feeds(piece)
        first, *others = piece.split(b"\n")
        self._event_bytes += len(first)
        metering.check("bytes in one event", self._event_bytes, metering.EVENT_BYTES_MAX)
        self._line.append(first)
        if not others:
            return []
        told: list[bytes] = []
        self._take_line(b"".join(self._line), told)
        for line in others[:-1]:
            self._event_bytes += len(line)
            self._take_line(line, told)
        self._line = [others[-1]]
        self._event_bytes += len(others[-1])
        metering.check("bytes in one event", self._event_bytes, metering.EVENT_BYTES_MAX)
        return told

    def rest(self) -> list[bytes]:
        """Return the data of the last event, where no empty line has ended it."""
        told: list[bytes] = []
        self._take_line(b"".join(self._line), told)
        self._take_line(b"", told)
        return told

    def _with_line_feeds(self, piece: bytes) -> bytes:
        if self._is_after_cr and piece[:1] == b"\n":
            piece = piece[1:]
            self._is_after_cr = False
        if b"\r" in piece:
            self._is_after_cr = piece.endswith(b"\r")
            return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._is_after_cr = self._is_after_cr and not piece
        return piece

    def _take_line(self, line: bytes, told: list[bytes]) -> None:
        if line:
            self._event_lines += 1
            metering.check("lines in one event", self._event_lines, metering.EVENT_LINES_MAX)
            metering.check("bytes in one event", self._event_bytes, metering.EVENT_BYTES_MAX)
            if line.startswith(_DATA):
                self._data.append(line[len(_DATA) :].strip())
            return
        self._event_bytes = self._event_lines = 0
        if self._data:
            self._count += 1
            metering.check("events", self._count, metering.EVENTS_MAX)
            told.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
            self._data = []
