"""Why a process or a session ended: the ``DownReason`` union and the ``Down`` notice.

Every reason prints as one readable line. To add a reason, add one class and its name in
``PlainReason``; a test says when one is missing there.
"""

import re
from typing import TypeAlias

import msgspec

from cmdc_runtime.ids import Incarnation, MonitorRef, SessionId


def snake(name: str) -> str:
    """Turn ``ToolExecutionEnd`` into ``tool_execution_end``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class DownReason(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=snake):
    """Base of all reasons."""


class Normal(DownReason, frozen=True, kw_only=True):
    """The process ended by itself with status 0, or ``stop`` was called without a reason."""

    def __str__(self) -> str:
        """Return the reason as one line."""
        return "normal"


class Shutdown(DownReason, frozen=True, kw_only=True):
    """The process was asked to end and did."""

    detail: str = ""

    def __str__(self) -> str:
        """Return the reason as one line."""
        return _one_line(f"shutdown: {self.detail}") if self.detail else "shutdown"


class Exception(DownReason, frozen=True, kw_only=True):  # noqa: A001 - the contract's name
    """Python code of the process raised and nobody caught it."""

    type: str
    message: str
    traceback: str = ""

    def __str__(self) -> str:
        """Return the reason as one line."""
        return _one_line(f"exception: {self.type}: {self.message}")


class Signal(DownReason, frozen=True, kw_only=True):
    """The kernel ended the process by a signal."""

    number: int
    name: str
    core_dumped: bool = False

    def __str__(self) -> str:
        """Return the reason as one line."""
        core = ", core dumped" if self.core_dumped else ""
        return _one_line(f"killed by signal {self.number} ({self.name}{core})")


class OutOfMemory(DownReason, frozen=True, kw_only=True):
    """The process went over its memory limit; 0 means that the figure is not known."""

    rss_bytes: int = 0
    limit_bytes: int = 0

    def __str__(self) -> str:
        """Return the reason as one line."""
        return f"out of memory: {self.rss_bytes} bytes resident, limit {self.limit_bytes} bytes"


class Unresponsive(DownReason, frozen=True, kw_only=True):
    """The process gave no sign of life and was killed for it."""

    silent_ms: int

    def __str__(self) -> str:
        """Return the reason as one line."""
        return f"unresponsive: silent for {self.silent_ms} ms"


class ExitCode(DownReason, frozen=True, kw_only=True):
    """The process ended by itself with a status other than 0, or with 0 and without a goodbye."""

    code: int

    def __str__(self) -> str:
        """Return the reason as one line."""
        return f"exit status {self.code}"


class StartFailed(DownReason, frozen=True, kw_only=True):
    """The process never became ready; ``stage`` is spawn, handshake, load or rebuild."""

    stage: str
    message: str

    def __str__(self) -> str:
        """Return the reason as one line."""
        return _one_line(f"start failed at {self.stage}: {self.message}")


class MaxTurnsExceeded(DownReason, frozen=True, kw_only=True):
    """The cycle used all of its turns, and the options say that this ends the process."""

    max_turns: int

    def __str__(self) -> str:
        """Return the reason as one line."""
        return f"more than {self.max_turns} turns in one cycle"


class ProviderTimeout(DownReason, frozen=True, kw_only=True):
    """The provider stayed silent, and the options say that this ends the process."""

    model: str
    seconds: float

    def __str__(self) -> str:
        """Return the reason as one line."""
        return _one_line(f"provider of {self.model} silent for {self.seconds:g} s")


class PluginAborted(DownReason, frozen=True, kw_only=True):
    """A plugin aborted the cycle, and the options say that this ends the process."""

    plugin: str
    why: str

    def __str__(self) -> str:
        """Return the reason as one line."""
        return _one_line(f"plugin {self.plugin} aborted: {self.why}")


class NoProcess(DownReason, frozen=True, kw_only=True):
    """There was never such a session."""

    def __str__(self) -> str:
        """Return the reason as one line."""
        return "no such session"


class NurseryLost(DownReason, frozen=True, kw_only=True):
    """The nursery died while it was about to fork the process."""

    def __str__(self) -> str:
        """Return the reason as one line."""
        return "the nursery died before the process was forked"


class Other(DownReason, frozen=True, kw_only=True):
    """None of the above; ``detail`` says what is known."""

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

    restarts: int
    seconds: float
    last: PlainReason

    def __str__(self) -> str:
        """Return the reason as one line."""
        return f"{self.restarts} restarts in {self.seconds:g} s were not enough; last: {self.last}"


AnyReason: TypeAlias = PlainReason | RestartIntensityExceeded
"""Why a session ended: the closed union that decoders take."""


class Down(msgspec.Struct, frozen=True, kw_only=True):
    """Notice to one monitor that a process of its session ended.

    ``incarnation`` is the one that ended; ``restarting`` says whether another one follows.
    """

    ref: MonitorRef
    session_id: SessionId
    reason: AnyReason
    incarnation: Incarnation
    restarting: bool


def _one_line(text: str) -> str:
    return " ".join(text.split())
