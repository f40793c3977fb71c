"""One call in the process that was forked for it, and what the host does with what it leaves.

The call prepares its process, runs the tool and says how it ended, in a copy of the host which no
other call sees. Rules: the process leaves only by ``os._exit``; nothing is said after the ending;
arguments are checked anew, since what a check returns need not be anything that travels.

What has lost its parent comes to the host, which is a subreaper: see ``Strays``.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, Final, NoReturn

import msgspec

from cmdc_runtime import foreign
from cmdc_runtime.confinement.apply import shield
from cmdc_runtime.errors import SandboxUnavailable
from cmdc_runtime.events.base import Event
from cmdc_runtime.events.envelope import Envelope
from cmdc_runtime.extensions.context import BranchAnswer, Context, seen
from cmdc_runtime.extensions.sandbox import Sandbox, SandboxPlace
from cmdc_runtime.extensions.tool import Tool
from cmdc_runtime.extensions.tool_error import ToolError
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.prctl import set_child_subreaper, set_parent_death_signal, set_title
from cmdc_runtime.process import EXIT_CRASHED, EXIT_OK, EXIT_ORPHANED, TITLE_PREFIX
from cmdc_runtime.process_table import are_gone, children_of, end_trees
from cmdc_runtime.user_values import unpacked
from workers.loader import LoadError, open_sandbox
from workers.output import UnendedLines, end_lines, mark_lines
from workers.toolhost.wire import (
    EMITTED_MAX,
    REPORT_BYTES_MAX,
    Begin,
    CallEnding,
    CallReport,
    Emitted,
    Frames,
    RunCall,
    checked_event,
    failed,
    framed,
    is_awaitable,
    returned,
    to_host,
)

# --- strays, in the host --------------------------------------------------------------------------

KILL_S: Final = 1.0
"""For what a call has left behind to be gone; it takes milliseconds, and the host waits."""
WAKES_BYTES: Final = 4096
"""Read at once of the wake-ups; each ended child is one byte."""


class Strays:
    """The children of this process that it did not fork itself.

    A call is a subreaper itself, so that whatever it starts stays below it while it lives; a stray
    is always of a call that has ended. What a call leaves behind that has ended well stays until
    the session ends: somebody has taken pains to set it free. What another one leaves is killed.
    Nothing shows whose a stray is but the time at which it came, so what came when one had ended
    well stays, also where another one ended beside it.
    """

    def __init__(self) -> None:
        """Have ``wake`` be readable when a child ends."""
        self.wake, self._woken = socket.socketpair()
        for end in (self.wake, self._woken):
            end.settimeout(0)
        signal.signal(signal.SIGCHLD, _nothing)
        signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        self._left_alone: set[int] = set()

    def leave_alone(self, own: Collection[int]) -> None:
        """Let what is there beside ``own`` go on."""
        self._left_alone |= self._all(own)

    def end(self, own: Collection[int], has_ended_well: Callable[[], bool]) -> bool:
        """Kill what is there beside ``own`` and was not kept, with all that descends from it.

        What comes when a call ``has_ended_well``, and waits to be kept, may be of that one: it is
        left. False, if something of what is to go is left.
        """
        ending: set[int] = set()

        def roots() -> set[int]:
            there = (
                self._all(own) - self._left_alone
            )  # before it is asked: what comes later is not in it
            if not has_ended_well():
                ending.update(there)
            return ending & there

        is_done = False
        with suppress(OSError):  # no descriptor is left
            end_trees(roots, time.monotonic() + KILL_S)
            is_done = are_gone(roots())
        self.reap(own)
        return is_done

    def reap(self, own: Collection[int]) -> None:
        """Reap those that have ended: nobody else waits for them."""
        with suppress(BlockingIOError):
            self.wake.recv(WAKES_BYTES)
        for pid in self._all(own):
            with suppress(ChildProcessError):
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None:
                    self._left_alone.discard(pid)

    def close(self) -> None:
        """Give back the descriptors, in a fork, which has no use for wake-ups of its children."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.wake.close()
        self._woken.close()

    def _all(self, own: Collection[int]) -> set[int]:
        return set(children_of(os.getpid())) - set(own)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Have the signal arrive; without a handler there is no wake-up."""


# --- the call, in its own process -----------------------------------------------------------------

ORDER_BYTES_MAX: Final = 64 * 1024
"""What is read at once of an order; a spare gets none that is larger."""


@dataclass(frozen=True, slots=True)
class CallPlace:
    """Where a call runs; ``pipe`` takes its reports."""

    begin: Begin
    tools: Mapping[int, Tool | str]
    pipe: int
    host_pid: int
    unended: UnendedLines


def become_call(given: RunCall | int, place: CallPlace) -> NoReturn:
    """Run one call in this process, which was forked for it; never returns.

    ``given`` is the order, or the pipe that a spare gets it from.
    """
    code = EXIT_CRASHED
    try:
        sandbox = _prepare_process(place)
        order = _awaited_order(given) if isinstance(given, int) else given
        tool = place.tools[order.tool]
        assert isinstance(tool, Tool)  # noqa: S101 - for any other the host makes no call
        os.environ["CMDC_CALL_ID"] = order.call_id
        # Behind it the host's name, by which its calls are found when it is dead.
        set_title("cmdc-call", f"{TITLE_PREFIX}call {tool.name} {sys.argv[-1]}")
        mark_lines(order.call_id, tool.name, place.unended)
        port = PipePort(place.pipe)
        ending = _run(tool, order, sandbox, _context(order, place.begin, port))
        end_lines()
        port.end(ending)
        code = EXIT_OK
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # a tool may have closed or replaced them
                stream.flush()
        os._exit(code)


def _prepare_process(place: CallPlace) -> Sandbox | Exception:
    """Be a group that can be killed as a whole, die with the host, and know who is served.

    It is a subreaper: what it starts descends from it for as long as it lives, setsid and double
    forks included, and can be killed with it. Returns the session's sandbox, which confines this
    process, or why it can't.
    """
    os.setpgid(0, 0)
    set_parent_death_signal()
    set_child_subreaper()
    os.environ.update(  # before it is confined: where its home and its proxy are a sandbox says
        place.begin.environment,
        CMDC_SESSION_ID=place.begin.session_id,
        CMDC_INCARNATION=str(place.begin.incarnation),
    )
    sandbox = _confined(place.begin)
    set_parent_death_signal()  # a change of rights forgets it
    if os.getppid() != place.host_pid:  # it died before it was watched
        os._exit(EXIT_ORPHANED)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return sandbox


def look_ahead(begin: Begin) -> None:
    """Import in the host what a built-in sandbox is, and ask the machine, so that no fork has to.

    What is wrong is reported where a call is made.
    """
    if begin.sandbox is None or begin.sandbox.is_built_in:
        with suppress(LoadError, SandboxUnavailable, OSError):
            open_sandbox(begin.sandbox, _place_of(begin))


def _confined(begin: Begin) -> Sandbox | Exception:
    """Return the session's sandbox, opened in this process, round which it is from now on.

    One that confines nothing keeps it from looking into other processes at least.
    """
    try:
        sandbox = open_sandbox(begin.sandbox, _place_of(begin))
        foreign.call(sandbox.confine)
        if not sandbox.confines:
            shield()
    except ForeignError as failure:
        error = failure.error
        return error if isinstance(error, Exception) else ToolError(str(error))
    except (LoadError, SandboxUnavailable, OSError) as error:
        return error
    return sandbox


def _place_of(begin: Begin) -> SandboxPlace:
    return SandboxPlace(
        session_id=begin.session_id, working_dir=begin.working_dir, real_dir=begin.real_dir
    )


def _awaited_order(pipe: int) -> RunCall:
    """Return the order, which comes as one frame; end where none comes any more."""
    frames = Frames()
    while chunk := os.read(pipe, ORDER_BYTES_MAX):
        for body in frames.feed(chunk):
            os.close(pipe)
            order = to_host.decode(body)
            assert isinstance(order, RunCall)  # noqa: S101 - the host sends nothing else
            return order
    os._exit(EXIT_ORPHANED)


def _run(tool: Tool, order: RunCall, sandbox: Sandbox | Exception, context: Context) -> CallEnding:
    def work() -> CallEnding:
        if isinstance(sandbox, Exception):
            raise sandbox
        given = replace(context, sandbox=sandbox)
        value: Any = tool.execute(tool.check(order.arguments), given)  # Any: the tool's own
        return returned(_awaited(value) if is_awaitable(value) else value)

    try:
        return foreign.call(work)
    except ForeignError as failure:  # a tool ends here; the agent logs it
        return failed(failure)


def _context(order: RunCall, begin: Begin, port: "PipePort") -> Context:
    """Return what the call gets, but for its sandbox."""
    return Context(
        session_id=begin.session_id,
        call_id=order.call_id,
        working_dir=begin.working_dir,
        model=order.model,
        turn=order.turn,
        user_data=unpacked(begin.user_data),
        group_id=begin.group_id,
        incarnation=begin.incarnation,
        config_facts=begin.config_facts,
        session=port,
        **{**seen(order.facts), "todos": order.todos},
    )


def _awaited(value: Awaitable[object]) -> object:
    import asyncio  # noqa: PLC0415 - most calls do not need it, and it is large

    async def wait() -> Any:  # Any: whatever the tool returns
        return await value

    return asyncio.run(foreign.wait(wait))


class PipePort:
    """What a call in a process may ask of its session: it can publish events, nothing else."""

    def __init__(self, pipe: int) -> None:
        """Speak over ``pipe``."""
        self._pipe = pipe
        self._emitted = 0
        self._turn = threading.Lock()  # the tool may have threads of its own

    def emit(self, name: str | msgspec.Struct, payload: object = None) -> None:
        """Publish to observers; waits while the agent does not read."""
        event_name, payload = checked_event(name, payload)
        with self._turn:
            self._emitted += 1
            if self._emitted > EMITTED_MAX:
                raise ToolError(f"a call may emit {EMITTED_MAX} events, and this is one more")
            self._write(Emitted(name=event_name, payload=payload))

    async def ask_user(
        self,
        question: str,  # noqa: ARG002 - the contract's
        options: Sequence[str] = (),  # noqa: ARG002 - the contract's
    ) -> object:
        """Refuse: see ``SessionPort``."""
        raise _not_here("ask_user")

    async def call_client(
        self,
        owner: str,  # noqa: ARG002 - the contract's
        arguments: dict[str, Any],  # noqa: ARG002 - the contract's
        absent_s: float,  # noqa: ARG002 - the contract's
    ) -> object:
        """Refuse: see ``SessionPort``."""
        raise _not_here("call_client")

    async def compact(self, reason: str) -> str:  # noqa: ARG002 - the contract's
        """Refuse: see ``SessionPort``."""
        raise _not_here("compact")

    async def delegate(
        self,
        description: str,  # noqa: ARG002 - the contract's
        subagent_type: str,  # noqa: ARG002 - the contract's
    ) -> str:
        """Refuse: see ``SessionPort``."""
        raise _not_here("delegate")

    @property
    def kept(self) -> bytes:
        """None: nothing can be kept here."""
        return b""

    async def keep(self, content: bytes) -> None:  # noqa: ARG002 - the contract's
        """Refuse: see ``SessionPort``."""
        raise _not_here("keep")

    @property
    def published(self) -> int:
        """None: nothing can be published here."""
        return 0

    async def publish(self, event: Event) -> None:  # noqa: ARG002 - the contract's
        """Refuse: see ``SessionPort``."""
        raise _not_here("publish")

    async def branch(self, branch_id: str, prompt: str, **more: object) -> BranchAnswer:  # noqa: ARG002 - the contract's
        """Refuse: see ``SessionPort``."""
        raise _not_here("branch")

    async def end_branch(self, branch_id: str) -> BranchAnswer:  # noqa: ARG002 - the contract's
        """Refuse: see ``SessionPort``."""
        raise _not_here("end_branch")

    async def recall(self, run_id: str) -> tuple[Envelope, ...]:  # noqa: ARG002 - the contract's
        """Refuse: see ``SessionPort``."""
        raise _not_here("recall")

    def end(self, ending: CallEnding) -> None:
        """Say how the call ended; whoever wants to say more has to wait for ever."""
        self._turn.acquire()
        self._write(ending)

    def _write(self, report: CallReport) -> None:
        rest = memoryview(framed(report, REPORT_BYTES_MAX))
        while rest:
            rest = rest[os.write(self._pipe, rest) :]


def _not_here(what: str) -> ToolError:
    return ToolError(
        f'{what} needs the agent\'s own process: make the tool "async def" with isolation "task"'
    )
