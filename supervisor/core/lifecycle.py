"""The words in which a session's life is told: phases, memory, inputs and effects. Pure.

What each input does in each phase stands in ``transitions.py``; ``supervisor/session.py`` feeds the
inputs and does the effects.

To add an input: its class here, and its handlers and rows there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from cmdc_runtime.ids import Incarnation
from cmdc_runtime.reasons import AnyReason, PlainReason
from cmdc_runtime.requests import SessionPhase, Supervision
from supervisor.core.restart import Ending, History

PARENT_ENDED: Final = "the parent's process ended"
"""The detail of the Shutdown that ends a child."""


class Phase(StrEnum):
    """Where a session stands, as its supervisor sees it."""

    STARTING = "starting"  # a worker is asked for, or builds the agent
    UP = "up"
    CLEARING = "clearing"  # its process is gone, its children are being ended, another follows
    RESTARTING = "restarting"  # the back-off runs
    DOZING = "dozing"  # its idle process is asked to end
    HIBERNATED = "hibernated"  # no process until the next command
    STOPPING = "stopping"
    ENDING = "ending"  # its last process is gone, its children are being ended
    ENDED = "ended"


# fmt: off
SHOWN: Final[Mapping[Phase, SessionPhase]] = {
    Phase.STARTING:   "starting",
    Phase.UP:         "up",
    Phase.CLEARING:   "restarting",
    Phase.RESTARTING: "restarting",
    Phase.DOZING:     "hibernated",
    Phase.HIBERNATED: "hibernated",
    Phase.STOPPING:   "stopping",
    Phase.ENDING:     "ended",
    Phase.ENDED:      "ended",
}
# fmt: on
"""What callers are told of each phase."""
HAVING_CHILDREN: Final = frozenset({Phase.STARTING, Phase.UP})
"""Where a session may get a child: in the others its process is gone or about to be."""


@dataclass(frozen=True, slots=True)
class Life:
    """What a session's supervisor remembers."""

    policy: Supervision
    incarnation: Incarnation = Incarnation(0)
    restarts: int = 0
    history: History = field(default_factory=History)
    was_up: bool = False
    last_reason: AnyReason | None = None
    delay_s: float = 0.0
    """How long the next process is put off once the children are gone."""
    is_wanted: bool = False
    """A command came while the process dozes off."""
    asked_reason: PlainReason | None = None
    """A stop came while the process dozes off: this is why the session ends."""


# --- inputs -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """Start the first process."""


@dataclass(frozen=True, slots=True)
class AgentUp:
    """The agent takes commands."""


@dataclass(frozen=True, slots=True)
class StartOverdue:
    """The agent was not up in time."""


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """The process is gone, or there never was one (a fork that failed)."""

    reason: PlainReason
    ending: Ending
    now_s: float


@dataclass(frozen=True, slots=True)
class DelayOver:
    """The back-off is over."""


@dataclass(frozen=True, slots=True)
class ChildrenGone:
    """No child is left."""


@dataclass(frozen=True, slots=True)
class Doze:
    """The process has been idle for long; it is kept while anything depends on it."""

    commands_pending: int
    children: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """A command came, and there is no process that takes it."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the session; ``grace_s`` None waits for ever, 0 kills at once."""

    reason: str
    grace_s: float | None


@dataclass(frozen=True, slots=True)
class TermDue:
    """The polite request had its time."""


@dataclass(frozen=True, slots=True)
class KillDue:
    """SIGTERM had its time."""


Input: TypeAlias = (
    Begin
    | AgentUp
    | StartOverdue
    | ProcessEnded
    | DelayOver
    | ChildrenGone
    | Doze
    | Wanted
    | Stop
    | TermDue
    | KillDue
)


# --- effects ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartProcess:
    """Get a worker and make it the agent; ``StartOverdue`` in ``timeout_s``."""

    incarnation: Incarnation
    timeout_s: float


@dataclass(frozen=True, slots=True)
class AskToEnd:
    """Send the polite request; ``TermDue`` and ``KillDue`` at the given seconds, None: never."""

    reason: str
    term_s: float | None
    kill_s: float | None


@dataclass(frozen=True, slots=True)
class Terminate:
    """Send SIGTERM."""


@dataclass(frozen=True, slots=True)
class Kill:
    """Send SIGKILL; ``blamed`` is the reason to report, None for the signal itself."""

    blamed: PlainReason | None = None


@dataclass(frozen=True, slots=True)
class EndChildren:
    """Stop every child, each within its own grace or within ``grace_s``, whichever is shorter."""

    grace_s: float | None = None


@dataclass(frozen=True, slots=True)
class AwaitChildren:
    """Post ``ChildrenGone`` when no child is left.

    It is the last effect of its step: where there are no children, the input comes at once.
    """


@dataclass(frozen=True, slots=True)
class WaitDelay:
    """Post ``DelayOver`` in ``delay_s`` seconds."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class TellUp:
    """The session takes commands: answer who waits for its start, deliver what is queued."""


@dataclass(frozen=True, slots=True)
class TellDown:
    """Notify the monitors."""

    reason: AnyReason
    incarnation: Incarnation
    restarting: bool


@dataclass(frozen=True, slots=True)
class TellEnded:
    """The session is over: answer everybody who waits, and forget it."""

    reason: AnyReason
    was_up: bool


Effect: TypeAlias = (
    StartProcess
    | AskToEnd
    | Terminate
    | Kill
    | EndChildren
    | AwaitChildren
    | WaitDelay
    | TellUp
    | TellDown
    | TellEnded
)


class Step(NamedTuple):
    """What one input does: the next phase, the next life, the work to do, in order."""

    phase: Phase
    life: Life
    effects: tuple[Effect, ...] = ()
