"""Why a process or a session ended: the ``DownReason`` union and the ``Down`` notice.

Every reason prints as one readable line of at most ``LINE_CHARS_MAX``, with units that a person
reads. To add a reason, add one class and its name in ``PlainReason``; a test says when one is
missing there.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.ids import EventIndex, Incarnation, MonitorRef, SessionId
from cmdc_runtime.lines import duration, one_line
from cmdc_runtime.plain import shown

LINE_CHARS_MAX: Final = 300
"""Of a reason as text: a message that is a whole page stays readable in a log and a terminal."""

KilledBy = Literal["", "daemon", "kernel", "outside"]
"""Whose signal ended a process; the kernel's is that of its OOM killer."""
_BY: Final[Mapping[KilledBy, str]] = {
    "": "",
    "daemon": ", by the daemon",
    "kernel": ", by the kernel",
    "outside": ", from outside",
}

_KIB: Final = 1024
_WHOLE: Final = 10
"""From here on nobody misses the tenths."""


def snake(name: str) -> str:
    """Turn ``ToolExecutionEnd`` into ``tool_execution_end``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def size_text(size_bytes: int) -> str:
    """Return a size as people read it: ``80 bytes``, ``512 MiB``, ``1.5 GiB``."""
    size, unit = float(size_bytes), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < _KIB:
            break
        size, unit = size / _KIB, larger
    return f"{round(size, 0 if size >= _WHOLE else 1):g} {unit}"


class DownReason(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=snake, metaclass=Checked
):
    """Base of all reasons; ``decided_by`` says on whose word a reason rests."""

    decided_by: ClassVar[str] = ""


class Normal(DownReason, frozen=True, kw_only=True):
    """The process ended by itself with status 0, or ``stop`` was called without a reason."""

    decided_by: ClassVar[str] = "the process's goodbye, and status 0"

    def __str__(self) -> str:
        """Return the reason as one line."""
        return "normal"


class Shutdown(DownReason, frozen=True, kw_only=True):
    """The process was asked to end and did."""

    decided_by: ClassVar[str] = "the process's goodbye, and status 0"

    detail: str = ""

    def __str__(self) -> str:
        """Return the reason as one line."""
        return _one_line(f"shutdown: {self.detail}") if self.detail else "shutdown"


class Exception(DownReason, frozen=True, kw_only=True):  # noqa: A001 - the contract's name
    """Python code of the process raised and nobody caught it."""

    decided_by: ClassVar[str] = "the process's own exit notice, whatever ended it then"

    type: str
    message: str
    traceback: str = ""

    def __str__(self) -> str:
        """Return the reason as one line."""
        return _one_line(f"exception: {self.type}: {self.message}")


class Signal(DownReason, frozen=True, kw_only=True):
    """The kernel ended the process by a signal."""

    decided_by: ClassVar[str] = "the wait status"

    number: int
    name: str
    core_dumped: bool = False

    def __str__(self) -> str:
        """Return the reason as one line."""
        core = ", core dumped" if self.core_dumped else ""
        return _one_line(f"killed by signal {self.number} ({self.name}{core})")


class OutOfMemory(DownReason, frozen=True, kw_only=True):
    """The process went over its memory limit; 0 means that the figure is not known."""

    decided_by: ClassVar[str] = "SIGKILL and the kernel's count of OOM kills, or the daemon's watch"

    rss_bytes: int = 0
    limit_bytes: int = 0

    def __str__(self) -> str:
        """Return the reason as one line."""
        known = [f"{size_text(self.rss_bytes)} resident"] if self.rss_bytes else []
        known += [f"limit {size_text(self.limit_bytes)}"] if self.limit_bytes else []
        return ": ".join(["out of memory", ", ".join(known)] if known else ["out of memory"])


class Unresponsive(DownReason, frozen=True, kw_only=True):
    """The process gave no sign of life and was killed for it."""

    decided_by: ClassVar[str] = "the daemon, which sees no heartbeat"

    silent_ms: int

    def __str__(self) -> str:
        """Return the reason as one line."""
        return f"unresponsive: silent for {self.silent_ms / 1000:g} s"


class Unkillable(DownReason, frozen=True, kw_only=True):
    """The process was still there long after SIGKILL; nothing takes its place while it is.

    It was ``seconds`` after SIGKILL. ``state`` is the letter that ps shows, ``wchan`` the kernel's
    function that it waits in; "" where that is not known.
    """

    decided_by: ClassVar[str] = "the daemon, which sent SIGKILL and sees no end"

    seconds: float
    state: str = ""
    wchan: str = ""

    def __str__(self) -> str:
        """Return the reason as one line."""
        state = f", in state {self.state}" if self.state else ""
        where = f" at {self.wchan}" if self.wchan else ""
        return _one_line(f"unkillable: still there {self.seconds:g} s after SIGKILL{state}{where}")


class ExitCode(DownReason, frozen=True, kw_only=True):
    """The process ended by itself with a status other than 0, or with 0 and without a goodbye."""

    decided_by: ClassVar[str] = "the wait status"

    code: int

    def __str__(self) -> str:
        """Return the reason as one line."""
        return f"exit status {self.code}"


class StartFailed(DownReason, frozen=True, kw_only=True):
    """The process never became ready; ``stage`` is where that showed.

    It is spawn, handshake, load, code, sandbox, frame or rebuild.

    At the stage code the session is parked: its code is not the one that it took. So it is at the
    stage frame: what the daemon sends cannot be read.
    """

    decided_by: ClassVar[str] = "the process, or the daemon when its time is up"

    stage: str
    message: str

    def __str__(self) -> str:
        """Return the reason as one line."""
        return _one_line(f"start failed at {self.stage}: {self.message}")


class MaxTurnsExceeded(DownReason, frozen=True, kw_only=True):
    """The cycle used all of its turns, and the options say that this ends the process."""

    decided_by: ClassVar[str] = "the process, and status 0"

    max_turns: int

    def __str__(self) -> str:
        """Return the reason as one line."""
        return f"more than {self.max_turns} turns in one cycle"


class ProviderTimeout(DownReason, frozen=True, kw_only=True):
    """The provider stayed silent, and the options say that this ends the process."""

    decided_by: ClassVar[str] = "the process, and status 0"

    model: str
    seconds: float

    def __str__(self) -> str:
        """Return the reason as one line."""
        return _one_line(f"provider of {self.model} silent for {self.seconds:g} s")


class PluginAborted(DownReason, frozen=True, kw_only=True):
    """A plugin aborted the cycle, and the options say that this ends the process."""

    decided_by: ClassVar[str] = "the process, and status 0"

    plugin: str
    why: Any  # Any: plain data of the plugin

    def __str__(self) -> str:
        """Return the reason as one line."""
        return _one_line(f"plugin {self.plugin} aborted: {shown(self.why, LINE_CHARS_MAX)}")


class NoProcess(DownReason, frozen=True, kw_only=True):
    """There was never such a session."""

    decided_by: ClassVar[str] = "the daemon, which knows of no such session"

    def __str__(self) -> str:
        """Return the reason as one line."""
        return "no such session"


class NurseryLost(DownReason, frozen=True, kw_only=True):
    """The zygote died while it was about to fork the process."""

    decided_by: ClassVar[str] = "the daemon"

    def __str__(self) -> str:
        """Return the reason as one line."""
        return "the zygote died before the process was forked"


class Other(DownReason, frozen=True, kw_only=True):
    """None of the above; ``detail`` says what is known."""

    decided_by: ClassVar[str] = "the daemon"

    detail: str

    def __str__(self) -> str:
        """Return the reason as one line."""
        return _one_line(self.detail)


PlainReason: TypeAlias = (
    Normal
    | Shutdown
    | Exception
    | Signal
    | OutOfMemory
    | Unresponsive
    | Unkillable
    | ExitCode
    | StartFailed
    | MaxTurnsExceeded
    | ProviderTimeout
    | PluginAborted
    | NoProcess
    | NurseryLost
    | Other
)
"""Why one process ended."""


class RestartIntensityExceeded(DownReason, frozen=True, kw_only=True):
    """The process died more often than its restart budget allows; ``last`` is the last reason."""

    decided_by: ClassVar[str] = "the session's supervisor"

    restarts: int
    seconds: float
    last: PlainReason

    def __str__(self) -> str:
        """Return the reason as one line."""
        return _one_line(
            f"{self.restarts} restarts in {self.seconds:g} s were not enough; last: {self.last}"
        )


AnyReason: TypeAlias = PlainReason | RestartIntensityExceeded
"""Why a session ended: the closed union that decoders take."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of the end of one process; what has its default is not known.

    ``status`` is the exit code, or minus the number of the signal; ``killed_by`` says who sent
    that, "" where the process raised it itself. What the process did and used is as of its last
    heartbeat, which a process that is killed leaves behind. ``oom_kills`` and
    ``memory_peak_bytes`` are the kernel's word on its cgroup. ``output`` are the last lines that it
    wrote to standard error; ``stack`` is what faulthandler wrote there, or a traceback that is not
    in the reason.
    """

    pid: int | None = None
    status: int | None = None
    core_dumped: bool = False
    killed_by: KilledBy = ""
    lived_ms: int | None = None
    state: str = ""
    tools: tuple[str, ...] = ()
    last_index: EventIndex | None = None
    max_rss_bytes: int | None = None
    user_ms: int | None = None
    system_ms: int | None = None
    oom_kills: int = 0
    memory_peak_bytes: int | None = None
    output: str = ""
    stack: str = ""


class Down(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """Notice to one monitor that a process of its session ended.

    ``incarnation`` is the one that ended; ``restarting`` says whether another one follows, in
    ``next_attempt_ms`` at the soonest. ``restarts`` counts those of the session's life, this one
    included.
    """

    ref: MonitorRef
    session_id: SessionId
    reason: AnyReason
    incarnation: Incarnation
    restarting: bool
    restarts: int = 0
    next_attempt_ms: int | None = None
    at_ms: int = 0
    evidence: Evidence = Evidence()

    def __str__(self) -> str:
        """Return the notice as one line: which process, why, and what follows."""
        pid = "" if self.evidence.pid is None else f" (pid {self.evidence.pid})"
        who = f"process {self.incarnation} of {one_line(self.session_id)}{pid}"
        reason = self.reason
        last = reason.last if isinstance(reason, RestartIntensityExceeded) else reason
        by = _BY[self.evidence.killed_by] if isinstance(last, Signal) else ""
        why = one_line(str(reason), LINE_CHARS_MAX)
        return f"{who} is down: {why}{by}; {self._sequel()}"

    def _sequel(self) -> str:
        if not self.restarting:
            return "the session has ended"
        wait_ms = self.next_attempt_ms
        when = "" if wait_ms is None else f" in {duration(wait_ms)}" if wait_ms else " at once"
        count = f" (restart {self.restarts})" if self.restarts else ""
        return f"restarting{when} as process {self.incarnation + 1}{count}"


def _one_line(text: str) -> str:
    return one_line(text, LINE_CHARS_MAX)
