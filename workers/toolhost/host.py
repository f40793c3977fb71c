"""The tool host: takes orders from its agent, forks a process for each call, and reaps it.

One thread and one ``select``, so a fork copies no lock that somebody holds. A spare is forked
ahead, so that a call finds its process waiting; it serves one call, as any other. Rules: nothing
waits but for the selector, and a moment for what is killed; what a call says is passed on unread;
a call that is killed ends with all that it has started; the host ends with its agent, and every
call before it.

A process leads a group of its own from the start. It is killed with all of the group and all that
descends from it, and before it is reaped, so that nobody else's number is hit.
"""

import gc
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from cmdc_runtime.extensions.tool import Tool
from cmdc_runtime.process import EXIT_CRASHED, EXIT_OK
from cmdc_runtime.process_table import are_gone, end_trees
from cmdc_runtime.reasons import ExitCode, Other, PlainReason, Signal
from workers.loader import LoadError, load_tools
from workers.output import UnendedLines
from workers.toolhost.call import CallPlace, Strays, become_call, look_ahead
from workers.toolhost.wire import (
    REPORT_BYTES_MAX,
    Begin,
    Close,
    Ended,
    Frames,
    FrameTooLargeError,
    FromHost,
    Kill,
    Open,
    Refused,
    ReportFrame,
    RunCall,
    encoded,
    framed,
    to_host,
)

# --- a process of a call --------------------------------------------------------------------------

WELL: Final = ExitCode(code=EXIT_OK)
"""How a call ends that has said its result, be that an error."""
KILL_S: Final = 1.0
"""For all that a call has started to be gone; it takes milliseconds, and the host waits."""


@dataclass(slots=True, eq=False)
class Forked:
    """One forked process; a spare has the number 0 and takes its order from ``orders``."""

    number: int
    pid: int
    pidfd: int
    pipe: int
    unended: UnendedLines
    orders: int | None = None
    called: tuple[str, str] = ("", "")
    """The call's id and its tool, from its order on."""
    frames: Frames = field(default_factory=lambda: Frames(REPORT_BYTES_MAX))
    failure: PlainReason | None = None

    def kill(self) -> None:
        """Kill the process and its group."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def end_of_all(self) -> PlainReason:
        """Kill what is left of the group of a process that has ended; return how that ended."""
        ended = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOWAIT)
        assert ended is not None  # noqa: S101 - only WNOHANG returns without a result
        self.kill()
        return self.failure or reason_of(ended)

    @property
    def has_ended_well(self) -> bool:
        """It has ended by itself, and was not reaped yet."""
        found = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        return found is not None and reason_of(found) == WELL

    def reap(self) -> None:
        """Reap a process that has ended; its number may be given to another from now on."""
        os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED)
        self.close()

    def close(self) -> None:
        """Give back the descriptors."""
        close_all(self.pidfd, self.pipe, self.orders)
        self.unended.close()


def kill_all(processes: Iterable[Forked]) -> bool:
    """Kill processes with their groups and all that descends from them, within ``KILL_S``.

    False, if something of that is left, which may go on forking.
    """
    given = list(processes)
    pids = [one.pid for one in given]
    is_done = False
    with suppress(OSError):  # no descriptor is left: what is known by its group ends all the same
        end_trees(lambda: pids, time.monotonic() + KILL_S)
        is_done = are_gone(pids)
    for one in given:
        one.kill()
    return is_done


def reason_of(ended: os.waitid_result) -> PlainReason:
    """Return why a process ended."""
    number = ended.si_status
    if ended.si_code == os.CLD_EXITED:
        return ExitCode(code=number)
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"SIG{number}"
    return Signal(number=number, name=name, core_dumped=ended.si_code == os.CLD_DUMPED)


def watch(pid: int) -> int:
    """Return the pidfd of a process that was just forked, and make sure that it leads a group.

    Raises:
        OSError: no descriptor is left; the process is gone, since nobody could watch it.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.setpgid(pid, pid)  # the child does it too: whoever comes first
    try:
        return os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def close_all(*fds: int | None) -> None:
    """Close descriptors; None is none."""
    for fd in fds:
        if fd is not None:
            os.close(fd)


# --- the host -------------------------------------------------------------------------------------

CALLS_MAX: Final = 512
"""Calls at a time, those that were killed and are not gone yet among them."""
OUT_BYTES_MAX: Final = 4 * 2**20
"""For an agent that does not read; beyond it the calls have to wait with what they say."""
OPEN_S: Final = 60
"""For a tool to be opened, which runs its module: the host that hangs over one is ended."""
SPARE_ORDER_BYTES_MAX: Final = 32 * 1024
"""An order that surely fits into a pipe; for a larger one a process is forked that knows it."""
SPARE_IDLE_S: Final = 60.0
"""A host without calls gives up its spare, which costs some 3 MB."""
DRAIN_BYTES_MAX: Final = 2**20
"""Of what is left in the pipe of a call that has ended; a pipe holds 64 KiB."""
CHUNK_BYTES: Final = 256 * 1024


class Host:
    """One tool host over its connection to the agent."""

    def __init__(self, agent: socket.socket) -> None:
        """Take over the connection."""
        self._agent = agent
        self._strays = Strays()
        self._selector = selectors.DefaultSelector()
        self._frames = Frames()
        self._out = bytearray()
        self._is_muted = False
        self._begin: Begin | None = None
        self._tools: dict[int, Tool | str] = {}
        self._processes: set[Forked] = set()
        self._calls: dict[int, Forked] = {}
        self._spare: Forked | None = None
        self._to_kill: set[Forked] = set()
        """Calls that are to be killed, all at once, when everything that has arrived is read."""
        self._exit: int | None = None
        agent.settimeout(0)
        self._selector.register(agent, selectors.EVENT_READ, self._on_agent)
        self._selector.register(self._strays.wake, selectors.EVENT_READ, self._on_child)

    def serve(self) -> int:
        """Work until the agent is gone; return the exit code."""
        while self._exit is None:
            ready = self._selector.select(SPARE_IDLE_S if self._spare else None)
            if not ready:
                self._drop_spare()
            for key, events in ready:
                key.data(events)
        return self._exit

    def end(self) -> None:
        """Kill every process with all that it has started."""
        kill_all(self._processes)

    # --- the agent --------------------------------------------------------------------------------

    def _on_agent(self, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._flush()
            if events & selectors.EVENT_READ:
                self._receive(self._agent.recv(CHUNK_BYTES))
        except BlockingIOError:
            return
        except ConnectionError:
            self._exit = EXIT_OK

    def _receive(self, chunk: bytes) -> None:
        if not chunk:
            self._exit = EXIT_OK
        for body in self._frames.feed(chunk):
            self._take(to_host.decode(body))
        self._kill_listed()

    def _take(self, order: Begin | Open | Close | RunCall | Kill) -> None:
        match order:
            case Begin():
                self._begin = order
                os.chdir(order.working_dir)
                look_ahead(order)
            case Open():
                self._open(order)
            case Close(tool=tool):
                self._tools.pop(tool, None)
                self._drop_spare()
            case RunCall():
                self._run(order)
            case Kill(number=number) if number in self._calls:
                self._to_kill.add(self._calls[number])
            case Kill():
                return  # it has ended meanwhile

    def _kill_listed(self) -> None:
        ending, self._to_kill = self._to_kill, set()
        if ending and not kill_all(ending):  # else they are reaped later
            self._fail()

    def _fail(self) -> None:
        """End with every call: what can't be ended here, the daemon ends with what is left of us.

        It has the place in a cgroup that this process and all its calls are in.
        """
        sys.stderr.write("tool host: what a call has started did not end, so all calls have to\n")
        self._exit = EXIT_CRASHED

    def _on_child(self, _events: int) -> None:
        self._strays.reap(self._own())

    def _own(self) -> set[int]:
        return {process.pid for process in self._processes}

    def _send(self, message: FromHost) -> None:
        self._out += framed(message)
        try:
            self._flush()
        except BlockingIOError:
            return
        except ConnectionError:
            self._exit = EXIT_OK

    def _flush(self) -> None:
        """Send what the agent takes now, and let the calls report only while it reads."""
        try:
            while self._out:
                del self._out[: self._agent.send(self._out)]
        finally:
            events = selectors.EVENT_READ
            if self._out:
                events |= selectors.EVENT_WRITE
            if self._selector.get_key(self._agent).events != events:
                self._selector.modify(self._agent, events, self._on_agent)
            self._mute(is_muted=len(self._out) > OUT_BYTES_MAX)

    def _mute(self, *, is_muted: bool) -> None:
        if is_muted == self._is_muted:
            return
        self._is_muted = is_muted
        for call in self._calls.values():
            if is_muted:
                self._forget(call.pipe)
            else:
                self._watch_pipe(call)

    # --- tools and calls --------------------------------------------------------------------------

    def _open(self, order: Open) -> None:
        """Open packed code; whoever calls a tool that can't be opened gets the reason."""
        self._drop_spare()  # it would not have the tool
        # By the kernel: a module that hangs in C reacts to nothing else.
        signal.setitimer(signal.ITIMER_REAL, OPEN_S)
        try:
            (self._tools[order.tool],) = load_tools([order.packed])
        except LoadError as error:
            self._tools[order.tool] = str(error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self._strays.leave_alone(self._own())  # what the tool's module has started is of no call
        gc.collect()
        gc.freeze()  # what stays is not to be touched, and so not copied, in a call
        threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - only the number counts
        if threads > 1:
            sys.stderr.write(
                f"tool host: {order.packed.label} started {threads - 1} threads when it was"
                " loaded; its calls are forked without them\n"
            )

    def _run(self, order: RunCall) -> None:
        tool = self._tools.get(order.tool, "the tool is not open")
        if isinstance(tool, str):
            self._refuse(order, tool)
        elif len(self._calls) >= CALLS_MAX:
            self._refuse(order, f"{CALLS_MAX} calls have not ended yet")
        else:
            try:
                if not self._assign_spare(order):
                    self._fork(order)
            except OSError as error:  # no process, descriptor or memory is left
                self._refuse(order, f"no process could be started: {error.strerror}")

    def _refuse(self, order: RunCall, why: str) -> None:
        self._send(ReportFrame(number=order.number, report=encoded(Refused(text=f"Error: {why}"))))
        self._send(Ended(number=order.number, reason=WELL))

    def _fork(self, order: RunCall | None) -> None:
        """Fork a process for ``order``, or the spare."""
        assert self._begin is not None  # noqa: S101 - the agent sends it first
        unended = UnendedLines()
        reports, report = os.pipe()
        ordered, orders = os.pipe() if order is None else (None, None)
        ours, theirs = (reports, orders), (report, ordered)
        host_pid = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            close_all(*ours, *theirs)
            raise
        if pid == 0:
            try:
                self._close_inherited(*ours)
                place = CallPlace(self._begin, self._tools, report, host_pid, unended)
                given = order or ordered
                assert given is not None  # noqa: S101 - the one, or else the other
                become_call(given, place)
            finally:
                os._exit(EXIT_CRASHED)  # never back into the host's loop
        close_all(*theirs)
        try:
            pidfd = watch(pid)
        except OSError:
            close_all(*ours)
            raise
        os.set_blocking(reports, False)
        process = Forked(0, pid, pidfd, reports, unended, orders)
        self._processes.add(process)
        self._selector.register(pidfd, selectors.EVENT_READ, lambda _: self._conclude(process))
        if order is None:
            self._spare = process
        else:
            self._begin_call(process, order)

    def _assign_spare(self, order: RunCall) -> bool:
        """Let the spare make the call; False where there is none, or the order is too large."""
        spare, request = self._spare, framed(order)
        if spare is None or spare.orders is None or len(request) > SPARE_ORDER_BYTES_MAX:
            return False
        try:
            os.write(spare.orders, request)
        except BrokenPipeError:  # it was killed by somebody, and is about to be reaped
            return False
        self._spare = None
        self._begin_call(spare, order)
        return True

    def _begin_call(self, call: Forked, order: RunCall) -> None:
        tool = self._tools[order.tool]
        assert isinstance(tool, Tool)  # noqa: S101 - for any other there is no call
        call.number, call.called = order.number, (order.call_id, tool.name)
        self._calls[call.number] = call
        if not self._is_muted:
            self._watch_pipe(call)

    def _drop_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.kill()  # it is reaped later

    def _close_inherited(self, *fds: int | None) -> None:
        """Close in a call what belongs to the host: nobody else may hold or read it."""
        self._selector.close()
        self._agent.close()
        self._strays.close()
        close_all(*fds)
        for process in self._processes:
            process.close()

    def _watch_pipe(self, call: Forked) -> None:
        self._selector.register(call.pipe, selectors.EVENT_READ, lambda _: self._pass_on(call))

    def _pass_on(self, call: Forked) -> None:
        """Pass on what a call reports, as far as it is there."""
        if call.number not in self._calls:
            return  # it was reaped in this very round
        with suppress(BlockingIOError):
            chunk = os.read(call.pipe, CHUNK_BYTES)
            self._send_for(call, chunk)
            if not chunk:
                self._forget(call.pipe)

    def _send_for(self, call: Forked, chunk: bytes) -> None:
        try:
            for report in call.frames.feed(chunk):
                self._send(ReportFrame(number=call.number, report=report))
        except FrameTooLargeError as error:
            call.failure = Other(detail=f"something else was written to its pipe: {error}")
            kill_all([call])

    def _conclude(self, process: Forked) -> None:
        """Reap a process that has ended, after its group; report its last output and its end."""
        reason = process.end_of_all()
        if process.number:
            self._drain(process)
            process.unended.write(*process.called)
        self._forget(process.pidfd)
        self._forget(process.pipe)
        self._end_strays(process, reason)
        process.reap()
        self._processes.discard(process)
        if self._spare is process:
            self._spare = None
        if not process.number:
            return
        del self._calls[process.number]
        self._send(Ended(number=process.number, reason=process.failure or reason))
        if self._spare is None:
            with suppress(OSError):  # then the next call forks for itself, and reports it
                self._fork(None)

    def _end_strays(self, ended: Forked, reason: PlainReason) -> None:
        """Leave alone what a call that ended well has started, else end it; a spare starts none."""
        if not ended.number:
            return
        if reason == WELL:
            self._strays.leave_alone(self._own())
            return
        others = [call for call in self._calls.values() if call is not ended]
        if not self._strays.end(self._own(), lambda: any(call.has_ended_well for call in others)):
            self._fail()

    def _drain(self, call: Forked) -> None:
        """Pass on what is left in the pipe of a process that has ended."""
        read = 0
        with suppress(BlockingIOError):
            while read < DRAIN_BYTES_MAX and (chunk := os.read(call.pipe, CHUNK_BYTES)):
                read += len(chunk)
                self._send_for(call, chunk)

    def _forget(self, fd: int) -> None:
        with suppress(KeyError):  # muted, or at its end
            self._selector.unregister(fd)
