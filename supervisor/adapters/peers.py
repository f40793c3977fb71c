"""Whose process it is that made a connection: a person's, an agent's, or a tool's.

The kernel vouches for the pid; everything else is read from /proc at that moment. Whatever a
session starts descends from its agent or its tool host, which are known, or, when these have ended,
from the daemon, which is a subreaper. What an agent of an earlier daemon has started may descend
from neither, and is told by its tool host's command, its POSIX session, its mark and its cgroup.

Rules: what can't be read makes nobody a person who may be a tool; one look takes less than a
millisecond, and is made once for each connection.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from cmdc_runtime.ids import Incarnation, SessionId
from cmdc_runtime.process_table import ProcessLine, look_up
from supervisor.adapters.orphans import Mark, mark_of
from supervisor.core.authority import PERSON, Kind, Peer
from supervisor.core.cells import base_name, parse_cell_name

ANCESTORS_MAX: Final = 4_096
"""Looked at; nobody has so many but to hide."""
WALKS_MAX: Final = 20
"""From one whose parents end under our eyes at each."""
_INIT: Final = 1


@dataclass(frozen=True, slots=True)
class Staff:
    """The processes that the sessions of one daemon run in, by their pids; None: of no session."""

    agents: Mapping[int, Mark | None]
    hosts: Mapping[int, Mark | None]
    folder: Path
    """The runtime directory."""


def peer_of(pid: int | None, staff: Staff) -> Peer:
    """Return whose process this is; None is one that is on another machine, and has a key.

    0 is a process of a pid namespace that is none of ours: what a session starts is never there.
    """
    if not pid or pid == os.getpid():
        return PERSON
    if pid in staff.agents:
        return _peer(Kind.AGENT, staff.agents[pid])
    descent = _descent(pid)
    if not descent:
        return Peer(Kind.GONE) if _has_ended(pid) else PERSON  # of another user, and hidden
    for known in (staff.agents, staff.hosts):
        if (of := next((one for one in descent if one in known), None)) is not None:
            return _peer(Kind.TOOL, known[of])
    if len(descent) == ANCESTORS_MAX or any(_is_of_sessions(one, staff.folder) for one in descent):
        return Peer(Kind.TOOL)
    return _by_traces(pid, staff)


def _descent(pid: int) -> list[int]:
    """Return a process, its parent, its grandparent …, as far as they are to be seen."""
    lines: list[ProcessLine] = []
    for _ in range(WALKS_MAX):
        lines = list(islice(_line_of_descent(pid), ANCESTORS_MAX))
        # One whose parent has just ended has another one by now.
        if not lines or not lines[-1].ppid or not _has_ended(lines[-1].ppid):
            break
    return [line.pid for line in lines]


def _line_of_descent(pid: int) -> Iterator[ProcessLine]:
    line = look_up(pid)
    while line is not None:
        yield line
        line = look_up(line.ppid) if line.ppid else None


def _is_of_sessions(pid: int, folder: Path) -> bool:
    """Say whether only what sessions start descends from a process.

    From this one, unless it is everybody's last parent, and from a tool host of this directory,
    whichever daemon's.
    """
    if pid == os.getpid():
        return pid != _INIT
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return any(word.startswith(os.fsencode(folder / "h-")) for word in words)
    return False


def _by_traces(pid: int, staff: Staff) -> Peer:
    """Return whose a process is by what it can't easily lose."""
    line, mark = look_up(pid), mark_of(pid)
    if line is None:
        return Peer(Kind.GONE)
    if line.sid in staff.agents:
        return _peer(Kind.TOOL, staff.agents[line.sid])
    if mark is not None and mark in staff.agents.values():
        return _peer(Kind.TOOL, mark)
    cell = _cell_of(pid, base_name(str(staff.folder)))
    return PERSON if cell is None else _peer(Kind.TOOL, parse_cell_name(cell))


def _cell_of(pid: int, base: str) -> str | None:
    """Return the name of the cell that a process is in, "" for one that can't be named."""
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        parts = line.split("/")
        if base in parts:
            return next(iter(parts[parts.index(base) + 1 :]), "")
    return None


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return look_up(pid) is None


def _peer(kind: Kind, mark: tuple[str, int] | None) -> Peer:
    if mark is None:
        return Peer(Kind.TOOL)  # a spare is nobody's agent yet
    session_id, incarnation = mark
    return Peer(kind, SessionId(session_id), Incarnation(incarnation))
