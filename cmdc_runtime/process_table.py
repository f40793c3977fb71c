"""The process table, and how to end processes in it that go on forking.

Rules: a process is signalled through a pidfd and only after it was seen again behind that pidfd, so
a pid that was given to another process meanwhile hits nobody; every loop has a bound. Everything is
synchronous and reads /proc, so call it in a thread.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Self

ROUNDS_MAX: Final = 20
"""A round ends what there is; more come only if something forks meanwhile."""
HELD_MAX: Final = 256
"""Processes that one round ends, each behind a descriptor of ours."""
STILL_S_MAX: Final = 0.5
"""For those of one look to stand still. One that waits for a disk does not, nor does it fork."""
_STILL_LOOK_S: Final = 0.0005
WALKS_MAX: Final = 20
"""Through a tree from which something is reaped at each."""

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_STAT_BYTES_MAX: Final = 4_096
"""Of a line with 52 numbers and a name of 64 bytes at most."""
_ENDED_STATES: Final = frozenset("ZXx")
_STOPPED_STATES: Final = frozenset("Tt")
_STILL_STATES: Final = _ENDED_STATES | _STOPPED_STATES
_LISTS_CHILDREN: Final = Path("/proc/thread-self/children").exists()
"""Not every kernel lists the children of a process (CONFIG_PROC_CHILDREN)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLine:
    """The fields of a line of /proc/<pid>/stat that distinguish a process from its successors."""

    pid: int
    state: str
    ppid: int
    sid: int
    start_ticks: int
    """Since the machine's boot; with the pid it names a process for good."""
    threads: int
    rss_bytes: int

    @property
    def has_ended(self) -> bool:
        """A zombie, or on its way to be one; a main thread can be that while others go on."""
        return self.state in _ENDED_STATES and self.threads <= 1

    @property
    def is_stopped(self) -> bool:
        """A signal, or a debugger, keeps it from running."""
        return self.state in _STOPPED_STATES

    @property
    def name(self) -> tuple[int, int]:
        """What no other process ever is."""
        return self.pid, self.start_ticks


Table = Mapping[int, ProcessLine]
"""All processes of a moment, by pid."""


class Census(dict[int, ProcessLine]):
    """A table that is asked for many: who belongs together is found out once."""

    @classmethod
    def of(cls, table: Table) -> Self:
        """Return ``table`` as one."""
        return table if isinstance(table, cls) else cls(table)

    @cached_property
    def by_sid(self) -> Mapping[int, list[ProcessLine]]:
        """The members of each POSIX session."""
        return _grouped(self, lambda line: line.sid)

    @cached_property
    def by_parent(self) -> Mapping[int, list[ProcessLine]]:
        """The children of each process."""
        return _grouped(self, lambda line: line.ppid)


def _grouped(table: Table, key: Callable[[ProcessLine], int]) -> Mapping[int, list[ProcessLine]]:
    groups: dict[int, list[ProcessLine]] = {}
    for line in table.values():
        groups.setdefault(key(line), []).append(line)
    return groups


def parse_stat(line: str) -> ProcessLine:
    """Read a line of /proc/<pid>/stat; the command may hold blanks and parentheses."""
    pid, _, rest = line.partition(" ")
    fields = rest.rpartition(")")[2].split()
    return ProcessLine(
        pid=int(pid),
        state=fields[0],
        ppid=int(fields[1]),
        sid=int(fields[3]),
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        rss_bytes=int(fields[21]) * PAGE_BYTES,
    )


def look_up(pid: int) -> ProcessLine | None:
    """Return the process that has this pid now; None also for one that is hidden from us."""
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        return _stat(f"/proc/{pid}/stat")
    return None


def _stat(path: str | Path) -> ProcessLine:
    descriptor = os.open(path, os.O_RDONLY)  # a third of the time of a file object
    try:
        return parse_stat(os.read(descriptor, _STAT_BYTES_MAX).decode(errors="replace"))
    finally:
        os.close(descriptor)


def process_table() -> Census:
    """Return all processes of this moment; it takes about 10 us for each."""
    return Census((line.pid, line) for line in _lines())


def _lines() -> Iterator[ProcessLine]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - half the time of Path.iterdir
        line = look_up(int(name)) if name.isdecimal() else None
        if line is not None:
            yield line


def with_descendants(
    roots: Iterable[ProcessLine], table: Table, spared: Collection[int] = ()
) -> list[ProcessLine]:
    """Return the roots and all that descends from them; a spared pid hides its descendants too."""
    children = Census.of(table).by_parent
    found: dict[int, ProcessLine] = {}
    waiting = list(roots)
    while waiting:
        line = waiting.pop()
        if line.pid not in found and line.pid not in spared:
            found[line.pid] = line
            waiting += children.get(line.pid, ())
    return list(found.values())


def children_of(pid: int) -> list[int]:
    """Return the pids of a process's children, ended ones that nobody has reaped included.

    Exact while all of them stand still; one that ends meanwhile may hide another one.
    """
    if not _LISTS_CHILDREN:
        return [line.pid for line in process_table().values() if line.ppid == pid]
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            found += map(int, task.read_text(encoding="ascii").split())
    return found


def end_trees(roots: Callable[[], Iterable[int]], deadline: float) -> int:
    """Kill processes and all that descends from them; returns how many were killed.

    ``roots`` are children of this process, so their pids are nobody else's; they are asked for
    again at each look. What has lost its parent still descends from one that is a subreaper,
    whatever it has called itself and its session. Returns soon after ``deadline``, of the monotonic
    clock.

    Raises:
        OSError: this process is out of descriptors.

    """
    ended: set[int] = set()

    def find() -> Iterator[ProcessLine]:
        for _ in range(WALKS_MAX):
            has_missed = yield from _walk(roots(), ended)
            if not has_missed:
                break

    return end_all(find, deadline)


def are_gone(roots: Iterable[int]) -> bool:
    """Say whether processes, and all that descends from them, have ended; reaped or not."""
    return all(line.has_ended for line in _walk(roots, set()))


def _walk(roots: Iterable[int], ended: set[int]) -> Generator[ProcessLine, None, bool]:
    """Yield processes and all below them, but those known to have ended; each before its children.

    Returns whether one was reaped under our eyes: its children have another parent then, which may
    have been looked at before.
    """
    seen, waiting, has_missed = set(ended), list(roots), False
    while waiting:
        pid = waiting.pop()
        if pid in seen:
            continue
        seen.add(pid)
        line = look_up(pid)
        if line is None:
            has_missed = True
            continue
        if line.has_ended:
            ended.add(pid)
        yield line  # whoever is to stop it does so now
        waiting += children_of(pid)
    return has_missed


def end_all(find: Callable[[], Iterable[ProcessLine]], deadline: float) -> int:
    """Kill what ``find`` finds until it finds nothing more; returns how many were killed.

    All are stopped first and killed when no new one turns up: the child of a dead parent
    can't be distinguished from anybody else's. Returns soon after ``deadline``, of the monotonic
    clock.

    Raises:
        OSError: this process is out of descriptors.

    """
    ended: set[tuple[int, int]] = set()
    for _ in range(ROUNDS_MAX):
        held = _stop_all(find, deadline)
        ended |= held.keys()
        for pidfd in held.values():
            _send(pidfd, signal.SIGKILL)
        for pidfd in held.values():
            _wait(pidfd, deadline)
            os.close(pidfd)
        if not held or time.monotonic() >= deadline:
            break
    return len(ended)


def _stop_all(
    find: Callable[[], Iterable[ProcessLine]], deadline: float
) -> dict[tuple[int, int], int]:
    """Stop what ``find`` finds, and what that has forked meanwhile; returns their pidfds.

    It looks until nothing new turns up: the far end of a chain that goes on forking can't be found
    any more when a parent in it is dead.
    """
    held: dict[tuple[int, int], int] = {}
    known = {os.getpid()}  # of what was tried; a pid that is used again is left to the next round
    while len(held) < HELD_MAX:
        before, are_known = len(held), len(known)
        try:
            _stop_new(find(), known, held)
        except OSError:  # no descriptor left to look with: what is stopped by now is killed first
            if held:
                break
            raise
        _await_still([pid for pid, _ in list(held)[before:]], deadline)
        if len(known) == are_known or time.monotonic() >= deadline:
            break
    return held


def _stop_new(
    lines: Iterable[ProcessLine], known: set[int], held: dict[tuple[int, int], int]
) -> None:
    """Stop those that are not known; what has ended is known then, too: it left its children."""
    for line in lines:
        if line.pid in known:
            continue
        known.add(line.pid)
        pidfd = None if line.has_ended else _hold(line)
        if pidfd is not None:
            held[line.name] = pidfd
        if len(held) >= HELD_MAX:
            return


def _hold(line: ProcessLine) -> int | None:
    """Stop one process and return its pidfd; None if it is no more, or not ours to signal."""
    try:
        pidfd = os.pidfd_open(line.pid)
    except OSError:  # it has ended, or we have no descriptor left: a later round takes it
        return None
    again = look_up(line.pid)
    if again is not None and again.name == line.name and _send(pidfd, signal.SIGSTOP):
        return pidfd
    os.close(pidfd)
    return None


def _await_still(pids: Iterable[int], deadline: float) -> None:
    """Return when the processes stand still, or have ended: until then they may fork once more.

    A signal stops a thread when the thread sees it: not before it has a processor, and not in the
    midst of a fork.
    """
    deadline = min(deadline, time.monotonic() + STILL_S_MAX)
    for pid in pids:
        while not _is_still(pid) and time.monotonic() < deadline:
            time.sleep(_STILL_LOOK_S)


def _is_still(pid: int) -> bool:
    """Say whether every thread of a process is stopped or over."""
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        threads = [_stat(path) for path in Path(f"/proc/{pid}/task").glob("*/stat")]
        return all(thread.state in _STILL_STATES for thread in threads)
    return True


def _send(pidfd: int, number: signal.Signals) -> bool:
    try:
        signal.pidfd_send_signal(pidfd, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _wait(pidfd: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll(max(0.0, deadline - time.monotonic()) * 1e3)
