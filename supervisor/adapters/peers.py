"""Whose process it is that made a connection: a person's, an agent's, or a tool's.

The kernel vouches for the pid; everything else is read from /proc at that moment. Whatever a
session starts descends from its agent or its tool host, which are known, or, when these have ended,
from the daemon, which is a subreaper. What an agent of an earlier daemon has started may descend
from neither, and is known by its tool host's command, its POSIX session, its mark and its cgroup.
What a session of another daemon has started is a tool here too, unless it and this daemon come from
the same session: a tool may have a daemon of its own. See ``Origin``.

Rules: what can't be read makes nobody a person who may be a tool; one look takes less than a
millisecond, and is made once for each connection.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

from cmdc_runtime.ids import Incarnation, SessionId
from cmdc_runtime.process import DAEMON_TITLE, TITLE_PREFIX
from cmdc_runtime.process_table import ProcessLine, look_up
from supervisor.adapters.orphans import Mark, mark_of, own_mark
from supervisor.core.authority import PERSON, Kind, Peer
from supervisor.core.cgroups import base_name, is_base_name, parse_cgroup_name

ANCESTORS_MAX: Final = 4_096
"""Looked at; nobody has so many but to hide."""
WALKS_MAX: Final = 20
"""From one whose parents end under our eyes at each."""
COMMAND_BYTES_MAX: Final = 2**16
"""Of a command line that is looked through."""
_INIT: Final = 1
_HOST_SOCKET: Final = re.compile(rb"/h-[0-9a-f]{8}[0-9]{2}\Z")
"""In the command line of a tool host and of its calls."""
_MODULES: Final = (b"supervisor", b"workers")
"""Nothing but what sessions start descends from a process that runs one of these by ``-m``."""
_TITLE: Final = re.compile(rb"(?:%b(?: |\Z)|%b)" % (DAEMON_TITLE.encode(), TITLE_PREFIX.encode()))
"""The same of one that begins so: it has a title in place of its command line."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The sessions that a process comes from, of whichever daemon."""

    sessions: frozenset[tuple[str, str]] = frozenset()
    """Each as the name of its daemon's cgroups, or "" where its mark names it, and its id."""
    programs: frozenset[tuple[int, int]] = frozenset()
    """The processes of daemons, tool hosts and calls among its ancestors."""

    def is_within(self, other: "Origin") -> bool:
        """Say whether a process comes from nowhere that another one does not come from.

        Calls of one session are not each other's ancestors, so its name decides first.
        """
        if self.sessions:
            return self.sessions <= other.sessions
        return self.programs <= other.programs


@dataclass(frozen=True, slots=True)
class SessionProcesses:
    """The processes that the sessions of one daemon run in, by their pids; None: of no session."""

    agents: Mapping[int, Mark | None]
    hosts: Mapping[int, Mark | None]
    folder: Path
    """The runtime directory."""
    origin: Origin = Origin()
    """The sessions of other daemons that this daemon itself comes from."""


def own_origin() -> Origin:
    """Return the sessions that this process comes from, which may not read its own environment."""
    mark, before = own_mark(), _origin(_descent(os.getppid()))
    own = _cgroups_of(os.getpid()) | (set() if mark is None else {("", mark[0])})
    return Origin(before.sessions | own, before.programs)


def peer_of(pid: int | None, session_processes: SessionProcesses) -> Peer:
    """Return whose process this is; None is one that is on another machine, and has a key.

    0 is a process of a pid namespace that is none of ours: what a session starts is never there.
    """
    if not pid or pid == os.getpid():
        return PERSON
    if pid in session_processes.agents:
        return _peer(Kind.AGENT, session_processes.agents[pid])
    descent = _descent(pid)
    if not descent:
        return Peer(Kind.GONE) if _has_ended(pid) else PERSON  # of another user, and hidden
    for known in (session_processes.agents, session_processes.hosts):
        if (of := next((one for one in descent if one in known), None)) is not None:
            return _peer(Kind.TOOL, known[of])
    if len(descent) == ANCESTORS_MAX or any(
        _is_of_sessions(one, session_processes.folder) for one in descent
    ):
        return Peer(Kind.TOOL)
    return _by_traces(pid, descent, session_processes)


def _origin(descent: list[int]) -> Origin:
    """Return the origin of the first of these processes, the others being its ancestors."""
    sessions: set[tuple[str, str]] = set()
    for pid in descent:
        mark = mark_of(pid)
        sessions |= _cgroups_of(pid) | (set() if mark is None else {("", mark[0])})
    programs = (look_up(pid) for pid in descent if _is_of_any_daemon(pid))
    return Origin(frozenset(sessions), frozenset(line.name for line in programs if line))


def _is_of_any_daemon(pid: int) -> bool:
    """Say whether a process runs a program of which only what sessions start descends."""
    words = _words(pid)
    if words and _TITLE.match(words[0]):
        return True
    modules = (word for flag, word in pairwise(words) if flag == b"-m")
    return any(_HOST_SOCKET.search(word) for word in words) or any(
        module.split(b".")[0] in _MODULES for module in modules
    )


def _words(pid: int) -> list[bytes]:
    with suppress(OSError), Path(f"/proc/{pid}/cmdline").open("rb") as file:
        return file.read(COMMAND_BYTES_MAX).split(b"\0")
    return []


def _cgroups_of(pid: int) -> set[tuple[str, str]]:
    """Return the cgroups of sessions that a process is in, each with its daemon's base."""
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    pairs = (pair for line in text.splitlines() for pair in pairwise(line.split("/")))
    return {
        (base, str(named[0]) if (named := parse_cgroup_name(cgroup)) else cgroup)
        for base, cgroup in pairs
        if is_base_name(base) and cgroup.startswith("s-")
    }


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
    return any(word.startswith(os.fsencode(folder / "h-")) for word in _words(pid))


def _by_traces(pid: int, descent: list[int], session_processes: SessionProcesses) -> Peer:
    """Return whose a process is by what it can't easily lose."""
    line, mark = look_up(pid), mark_of(pid)
    if line is None:
        return Peer(Kind.GONE)
    if line.sid in session_processes.agents:
        return _peer(Kind.TOOL, session_processes.agents[line.sid])
    if mark is not None and mark in session_processes.agents.values():
        return _peer(Kind.TOOL, mark)
    cgroup = _cgroup_of(pid, base_name(str(session_processes.folder)))
    if cgroup is not None:
        return _peer(Kind.TOOL, parse_cgroup_name(cgroup))
    return PERSON if _origin(descent).is_within(session_processes.origin) else Peer(Kind.TOOL)


def _cgroup_of(pid: int, base: str) -> str | None:
    """Return the name of the cgroup that a process is in, "" for one that can't be named."""
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
