"""What the dead leave: a dead agent its processes, a dead daemon its agents.

An agent calls ``setsid`` at boot, so everything that it started is in the session that bears its
pid, unless it called ``setsid`` too. Who did that and lost its parent comes to the daemon, which is
a subreaper, and is known by its environment: commands of a tool are started with the session's id
and incarnation there. What hides both is found when the daemon stops: it is a child that nobody
knows. Rules: those of ``process_table``; what the caller knows is never touched, nor are its
descendants.

The agents that a dead daemon left running are in the agent registry; a pidfd holds each. A pid
counts only together with the time at which its process started and the machine's boot, so a
stranger is never taken for an agent. An agent that cannot be adopted, because it speaks another
version of the wire or nobody knows its session, is ended before a process of its session is
started, and what it has started with it. So is what one has left behind that died meanwhile.
"""

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import structlog

from cmdc_runtime.process_table import (
    Census,
    ProcessLine,
    Table,
    end_all,
    look_up,
    process_table,
    with_descendants,
)
from cmdc_runtime.reasons import Unkillable
from cmdc_runtime.runtime_dir import Registration, boot_id, registrations, unregister
from cmdc_runtime.wire.frames import WIRE_VERSION
from supervisor.adapters.pidfd import is_over, stuck_at
from supervisor.core.tree.messages import UNKILLABLE_AFTER_S

# --- what a dead agent leaves ---------------------------------------------------------------------

SWEEP_WAIT_S: Final = 2.0
"""For all rounds together, to see the killed processes end."""
PIECE_BYTES: Final = 2**14
ENVIRON_PIECES_MAX: Final = 256
"""Of an environment that is looked through: more than the kernel lets a program have by default."""
REAPED_MAX: Final = 500
"""Orphans reaped at once; one takes some 5 us, and the loop has other work."""

SESSION_VARIABLE: Final = b"CMDC_SESSION_ID="
INCARNATION_VARIABLE: Final = b"CMDC_INCARNATION="
CALL_VARIABLE: Final = b"CMDC_CALL_ID="

Mark = tuple[str, int]
"""A session's id and incarnation, as they stand in the environment of what its tools start."""


def sweep(sids: Collection[int], marks: Collection[Mark] = (), known: Collection[int] = ()) -> int:
    """Kill all that is left of dead agents; returns how many were killed.

    Blocks for up to ``SWEEP_WAIT_S``. Meant are the POSIX sessions ``sids``, orphans that came to
    this process with one of ``marks``, and what descends from either. ``known`` are the pids of
    this process's own children: the zygote's and the reaper's.

    A session whose leader, the process of pid ``sid``, is alive is left alone: either the agent did
    not die, or its pid was given to another process, whose session this is now. Many sessions cost
    no more than one: the process table is read once where nothing is left, and thrice at least
    where something is.
    """

    def find() -> list[ProcessLine]:
        table = process_table()
        roots = [*_led_by_nobody(table, sids), *_adopted(table, marks, known)]
        return with_descendants(roots, table, known)

    return end_all(find, time.monotonic() + SWEEP_WAIT_S)


def of_sessions(
    table: Table, leaders: Mapping[int, int], marks: Collection[Mark], known: Collection[int]
) -> list[ProcessLine]:
    """Return the POSIX sessions of ``leaders``, dead or alive, and all that is theirs.

    ``leaders`` says when each pid started: a session whose number is another process's by now is
    not meant. The rest is as for ``sweep``.
    """
    census = Census.of(table)
    roots: list[ProcessLine] = []
    for pid, start_ticks in leaders.items():
        leader = census.get(pid)
        if leader is None or leader.start_ticks == start_ticks:
            roots += census.by_sid.get(pid, ())
            roots += () if leader is None else (leader,)
    return with_descendants([*roots, *_adopted(census, marks, known)], census, known)


def end_sessions(
    leaders: Mapping[int, int], marks: Collection[Mark], known: Collection[int], deadline: float
) -> int:
    """Kill what ``of_sessions`` finds, leaders included; returns how many were killed.

    Returns soon after ``deadline``, of the monotonic clock.
    """
    return end_all(lambda: of_sessions(process_table(), leaders, marks, known), deadline)


def end_calls(name: str, mark: Mark, known: Collection[int]) -> int:
    """Kill the orphans that came to this process from the calls of a tool host that is dead.

    Those that are still of its program have its ``name`` in their command line, or the title in
    its place; others bear the session's ``mark`` and a call's. Who hides both, without a cgroup, is
    found when this process stops. Blocks for up to ``SWEEP_WAIT_S``; returns how many were killed.
    """

    def find() -> list[ProcessLine]:
        table = process_table()
        roots = [
            line
            for line in _children(table, known)
            if os.fsencode(name) in _command_line(line.pid) or _is_of_call(line.pid, mark)
        ]
        return with_descendants(roots, table, known)

    return end_all(find, time.monotonic() + SWEEP_WAIT_S)


def _command_line(pid: int) -> Sequence[bytes]:
    with suppress(OSError), Path(f"/proc/{pid}/cmdline").open("rb") as file:
        return file.read(PIECE_BYTES).replace(b" ", b"\0").split(b"\0")  # a title is one text
    return ()


def _is_of_call(pid: int, mark: Mark) -> bool:
    variables = _environment(pid).split(b"\0")
    return _mark_in(variables) == mark and any(one.startswith(CALL_VARIABLE) for one in variables)


def end_marked(marks: Mapping[int, Mark], deadline: float) -> int:
    """Kill the members of POSIX sessions that bear the mark which belongs to that session.

    For agents that nobody saw end, whose pids may be other processes' by now. Returns how many were
    killed, soon after ``deadline``, of the monotonic clock.
    """

    def find() -> list[ProcessLine]:
        table = process_table()
        members = (line for line in table.values() if line.sid in marks)
        return with_descendants(
            (line for line in members if mark_of(line.pid) == marks[line.sid]), table
        )

    return end_all(find, deadline)


def end_strangers(known: Collection[int]) -> int:
    """Kill every child of this process that is not ``known``, with all that descends from it.

    For the daemon's stop: what came to it and bears no mark of a session. Reaps those children too;
    returns how many were killed. Blocks for up to ``SWEEP_WAIT_S``.
    """

    def find() -> list[ProcessLine]:
        table = process_table()
        return with_descendants(_children(table, known), table, known)

    killed = end_all(find, time.monotonic() + SWEEP_WAIT_S)
    reap_adopted(known)
    return killed


def reap_adopted(known: Collection[int]) -> list[int]:
    """Reap ended children of this process that nobody else waits for; returns their pids.

    ``known`` are the pids whose status somebody wants: the zygote's own and the reaper's. At most
    ``REAPED_MAX`` are reaped at once: where there were so many there may be more. The kernel says
    who has ended; the process table is read only while one that is known is to be waited for,
    since that hides the others.

    Raises:
        OSError: this process is out of descriptors.
    """
    reaped: list[int] = []
    while len(reaped) < REAPED_MAX:
        try:
            first = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return reaped
        if first is None:
            return reaped
        if first.si_pid in known:
            return reaped + _reap_seen(known)
        if _reap(first.si_pid):
            reaped.append(first.si_pid)
    return reaped


def _reap_seen(known: Collection[int]) -> list[int]:
    ended = [line.pid for line in _children(process_table(), known) if line.state == "Z"]
    return [pid for pid in ended if _reap(pid)]


def mark_of(pid: int) -> Mark | None:
    """Return the mark that a process was started with; None where there is none to be read."""
    return _mark_in(_environment(pid).split(b"\0"))


def _mark_in(variables: Iterable[bytes]) -> Mark | None:
    found = {SESSION_VARIABLE: b"", INCARNATION_VARIABLE: b""}
    for variable in variables:
        for name in found:
            if variable.startswith(name):
                found[name] = variable.removeprefix(name)
    session_id, incarnation = found.values()
    if not session_id or not incarnation.isdigit():
        return None
    return session_id.decode(errors="surrogateescape"), int(incarnation)


def own_mark() -> Mark | None:
    """Return the mark of this process, which can't read its own environment in /proc."""
    return _mark_in(name + b"=" + value for name, value in os.environb.items())


def _environment(pid: int) -> bytes:
    """Return what a process was started with; nothing where it has ended, or changed its user."""
    process = Path(f"/proc/{pid}")
    # A main thread that has ended alone has none, the others still do.
    return _bytes_of(process) or next(filter(None, map(_bytes_of, process.glob("task/*"))), b"")


def _bytes_of(task: Path) -> bytes:
    with suppress(OSError), Path(task, "environ").open("rb") as file:
        # Piece by piece: a read is allocated whole before it is known how little there is.
        return b"".join(islice(iter(partial(file.read, PIECE_BYTES), b""), ENVIRON_PIECES_MAX))
    return b""


def _led_by_nobody(table: Table, sids: Collection[int]) -> Iterator[ProcessLine]:
    """Yield the members of those sessions whose leader is dead."""
    led = {sid for sid in sids if sid in table and not table[sid].has_ended}
    return (line for line in table.values() if line.sid in sids and line.sid not in led)


def _adopted(
    table: Table, marks: Collection[Mark], known: Collection[int]
) -> Iterator[ProcessLine]:
    """Yield the children that came to this process, bear one of ``marks`` and are not known."""
    wanted = frozenset(marks) - {own_mark()}  # our children may have this one from us
    if not wanted:
        return iter(())
    return (line for line in _children(table, known) if mark_of(line.pid) in wanted)


def _children(table: Table, known: Collection[int]) -> Iterator[ProcessLine]:
    mine = Census.of(table).by_parent.get(os.getpid(), ())
    return (line for line in mine if line.pid not in known)


def _reap(pid: int) -> bool:
    try:
        # A zombie's pid cannot be reused before this very call.
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None
    except ChildProcessError:
        return False


# --- whom a dead daemon leaves --------------------------------------------------------------------

log = structlog.get_logger()

END_S: Final = UNKILLABLE_AFTER_S
"""For a killed agent and all that it has started to be gone; it takes milliseconds."""
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True, eq=False)
class Survivor:
    """One agent that lives; it is watched as a forked child is, but no zygote knows of it."""

    entry: Registration
    pidfd: int
    started_at: float
    """Monotonic seconds."""

    @property
    def pid(self) -> int:
        """Its pid."""
        return self.entry.pid

    @property
    def speaks(self) -> bool:
        """Whether it speaks this daemon's version of the wire."""
        return self.entry.wire == WIRE_VERSION

    def status(self) -> int | None:
        """Return None: there is no zygote that could report it."""
        return None

    def listen(self, listener: Callable[[], None]) -> None:
        """Call it at once: nobody but the kernel reports the status."""
        listener()

    def send_signal(self, number: int) -> bool:
        """Send a signal; False if the process has ended."""
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            return False
        return True

    def end(self) -> Unkillable | None:
        """Kill it and what it has started; None: it is gone, else what is known of one that is not.

        Blocks for milliseconds, and ``END_S`` at most.

        Raises:
            OSError: this process is out of descriptors.
        """
        deadline = time.monotonic() + END_S
        self.send_signal(signal.SIGKILL)
        try:
            end_sessions({self.pid: self.entry.start_ticks}, [_mark(self.entry)], (), deadline)
            if is_over(self.pidfd, max(0.0, deadline - time.monotonic())):
                return None
            stuck = stuck_at(self.pid, self.pidfd)
        finally:
            self.close()
        log.error("agent.not_ended", pid=self.pid, session_id=self.entry.session_id)
        state, wchan = ("", "") if stuck is None else (stuck.state, stuck.wchan)
        return Unkillable(seconds=END_S, state=state, wchan=wchan)

    def close(self) -> None:
        """Give back the descriptor; the process itself goes on. Idempotent."""
        pidfd, self.pidfd = self.pidfd, -1
        if pidfd >= 0:
            os.close(pidfd)


def find_survivors(directory: Path) -> list[Survivor]:
    """Return the agents in the registry of a runtime directory that live; the dead are removed.

    Of a dead one is ended what is in its POSIX session and bears its mark; the rest is in its
    cgroup, or can't be distinguished from a stranger.
    """
    found, dead = [], []
    for entry in registrations(directory):
        survivor = _living(entry)
        if survivor is None:
            unregister(directory, entry.worker_id)
            dead.append(entry)
        else:
            found.append(survivor)
    of_now = {one.pid: _mark(one) for one in dead if one.boot_id == boot_id()}
    if of_now and (killed := end_marked(of_now, time.monotonic() + END_S)):
        log.info("orphan.killed", killed=killed)
    return found


def _mark(entry: Registration) -> Mark:
    return str(entry.session_id), int(entry.incarnation)


def _living(entry: Registration) -> Survivor | None:
    if entry.boot_id != boot_id():
        return None
    with suppress(OSError):
        pidfd = os.pidfd_open(entry.pid)
        line = look_up(entry.pid)  # behind the pidfd: from now on the pid is nobody else's
        if line is not None and not line.has_ended and line.start_ticks == entry.start_ticks:
            lived_s = time.clock_gettime(time.CLOCK_BOOTTIME) - entry.start_ticks / _TICKS_PER_S
            return Survivor(entry, pidfd, time.monotonic() - lived_s)
        os.close(pidfd)
    return None
