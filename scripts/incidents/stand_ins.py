"""What differs from run to run, replaced by what always reads the same. Pure: text in, text out.

A number that means something (a limit, a signal, a count of restarts) stays. ``StandIns`` is made
for one incident, so that a process has one pid in all that is shown of it.
"""

import re
from collections.abc import Mapping
from typing import Final

FIRST_PID: Final = 4001
"""Of the first process of an incident; the others are counted from there."""
APP: Final = "/srv/shop"
"""Where the application lies that goes wrong."""

_PID: Final = re.compile(r"(?:\bpid[ =]|\bworker |\(pid )(\d+)\b")
_ALWAYS: Final = (
    (r"\b\d{4}-\d\d-\d\dT(\d\d:\d\d:\d\d)\.\d+Z", "03:12:07"),
    (r"^\d{13}(?= )", "1772334727104"),
    (r"\b\d\d:\d\d:\d\d\b", "03:12:07"),
    (r"\b0x[0-9a-f]{6,}", "0x00007f5c1a2b3740"),
    (r"\bc-[0-9a-f]{16}\b", "c-5d2f8e1b9a4c7036"),
    (r"it lived for [\d.]+ m?s", "it lived for 41.3 s"),
    (r"its last event is [1-9]\d*", "its last event is 7"),
    (r"[\d.]+ [KMG]iB resident at most", "224 MiB resident at most"),
    (r"CPU [\d.]+ m?s user, [\d.]+ m?s system", "CPU 310 ms user, 40 ms system"),
    (
        r"all its processes together [\d.]+ (?:bytes|[KMG]iB) at most$",
        "all its processes together 15 MiB at most",
    ),
    (r"(?<![\d.])(?!128 MiB)[\d.]+ MiB resident, limit", "331 MiB resident, limit"),
    (r"unresponsive: silent for [\d.]+ s", "unresponsive: silent for 31.2 s"),
    (r"(?<=, )\d+ tokens(?=, rest_for_one)", "820 tokens"),
    (r"finished: (\d+) messages, \d+ tokens", r"finished: \1 messages, 360 tokens"),
)
_PATTERNS: Final = tuple((re.compile(one, re.MULTILINE), by) for one, by in _ALWAYS)
_CELLS: Final[Mapping[str, str]] = {"UP": "4.2 s"}
"""Of the table that ``cmdc ps`` prints: columns that differ from run to run."""
_TOKENS: Final = "820"
_GAP: Final = 2
"""Blanks between two columns of a table."""


class StandIns:
    """The stand-ins of one incident; ``paths`` are replaced as they are given, longest first."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        """Know no process yet."""
        self._paths = sorted(paths.items(), key=lambda one: -len(one[0]))
        self._pids: dict[str, str] = {}

    def put(self, text: str) -> str:
        """Return ``text`` with everything replaced that differs from run to run."""
        if text.startswith("SESSION "):
            return self._table(text)
        for path, by in self._paths:
            text = text.replace(path, by)
        for pattern, by in _PATTERNS:
            text = pattern.sub(by, text)
        return _PID.sub(lambda found: found[0].replace(found[1], self._pid(found[1])), text)

    def _pid(self, pid: str) -> str:
        return self._pids.setdefault(pid, str(FIRST_PID + len(self._pids)))

    def _table(self, text: str) -> str:
        """Return the table of ``cmdc ps`` as if its cells had always been so."""
        head, *lines = text.splitlines()
        starts = [found.start() for found in re.finditer(r"\S+", head)]
        names = head.split()
        rows = [names]
        for line in lines:
            ends = [*starts[1:], len(line)]
            cells = [line[at:end].strip() for at, end in zip(starts, ends, strict=True)]
            rows.append([self._cell(*one) for one in zip(names, cells, strict=True)])
        widths = [max(map(len, column)) + _GAP for column in zip(*rows, strict=True)]
        return "\n".join(
            "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )

    def _cell(self, name: str, value: str) -> str:
        if name == "PID" and value.isdecimal():
            return self._pid(value)
        if name == "TOKENS" and value != "0":
            return _TOKENS
        return _CELLS.get(name, value)
