"""What goes into a supervision tree and what comes out of it.

In: the tree's methods, with a ``Ref`` for whose process it is about. Out: effects, to be done in
their order by whoever holds the tree. A ``Ref`` names one process of one child: what is said of an
earlier one is noticed and changes nothing.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from cmdc_runtime.ids import Incarnation
from cmdc_runtime.reasons import AnyReason, PlainReason
from supervisor.core.tree.specs import ChildSpec

Path: TypeAlias = tuple[str, ...]
"""Where a supervisor is: the ids from the root down, ``()`` for the root itself."""

TERM_SHARE: Final = 0.5
"""After this share of the grace SIGTERM follows the polite request."""
UNKILLABLE_AFTER_S: Final = 10.0
"""A process that SIGKILL has not ended by then hangs in the kernel: its place is given up."""
SUBTREE_SHARE: Final = 0.8
"""Of the time that is left: what a subtree may take while siblings are still to be stopped."""


class Ref(NamedTuple):
    """One process of the child ``child`` of the supervisor at ``path``."""

    path: Path
    child: str
    generation: Incarnation


class Ending(StrEnum):
    """What the restart types have to know of an exit."""

    NORMAL = "normal"  # Normal or Shutdown
    CRASH = "crash"
    FELL = "fell"  # a crash at a step that the next process is to leave out: it is not charged
    FINAL = "final"  # no restart can help, or it was chosen as the end: the supervisor ends too


class State(StrEnum):
    """Where one child stands."""

    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"  # asked to end
    RESTARTING = "restarting"  # its process is gone, another follows
    DOWN = "down"  # the specification is kept, there is no process
    UNKILLABLE = "unkillable"  # SIGKILL did not end it: no other process takes its place


class Kind(StrEnum):
    """What a timer is for."""

    START = "start"  # the child was not up in time
    DELAY = "delay"  # the back-off of one child, or of a group, is over
    TERM = "term"
    KILL = "kill"
    UNKILLABLE = "unkillable"


class Timer(NamedTuple):
    """One timer; setting it again takes the place of the one before."""

    path: Path
    child: str
    kind: Kind


class Outcome(StrEnum):
    """How a call ended; the words are OTP's."""

    OK = "ok"
    ALREADY_STARTED = "already_started"
    ALREADY_PRESENT = "already_present"
    ERROR = "error"  # with a reason
    RUNNING = "running"
    RESTARTING = "restarting"
    NOT_FOUND = "not_found"
    MAX_CHILDREN = "max_children"
    NO_PROCESS = "noproc"  # the supervisor is gone or about to be


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a call; ``handle`` and ``extra`` are what the shell said of the start."""

    outcome: Outcome
    reason: AnyReason | None = None
    handle: object = None
    extra: object = None


class Label(StrEnum):
    """What a report is about; the first five are OTP's."""

    PROGRESS = "progress"
    START_ERROR = "start_error"
    CHILD_TERMINATED = "child_terminated"
    SHUTDOWN_ERROR = "shutdown_error"
    SHUTDOWN = "shutdown"
    UNKILLABLE = "unkillable"
    UNEXPECTED = "unexpected"


@dataclass(frozen=True, slots=True)
class Stop:
    """How a child is to end: ``why`` is what it is told.

    ``deadline_s`` is until when (monotonic), in place of the child's own grace; None: that grace.
    """

    why: str = "shutdown"
    deadline_s: float | None = None


# --- effects ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a worker's process; say ``up``, ``ignored`` or ``exited`` of it."""

    ref: Ref
    start: object


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask a process politely to end."""

    ref: Ref
    reason: str


@dataclass(frozen=True, slots=True)
class Terminate:
    """Send SIGTERM."""

    ref: Ref


@dataclass(frozen=True, slots=True)
class Kill:
    """Send SIGKILL to all of it; ``blamed`` is why, where that is the reason to report."""

    ref: Ref
    blamed: PlainReason | None = None


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Call ``due`` with the timer in ``delay_s`` seconds."""

    timer: Timer
    delay_s: float


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Forget a timer."""

    timer: Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class Departed:
    """A worker's process has ended: tell who watches it; ``asked`` is by whom it was wanted.

    ``reason`` is that of the whole if the process was one restart too many. ``delay_s`` is how long
    the next one is put off.
    """

    ref: Ref
    reason: AnyReason
    restarting: bool
    asked: bool
    restarts: int
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SupervisorUp:
    """All children of a supervisor were started."""

    path: Path


@dataclass(frozen=True, slots=True)
class SupervisorEnded:
    """A supervisor is gone with all that was below it.

    ``cause`` is the last word of the child that it ended for, the supervisor's own where there was
    none.
    """

    path: Path
    reason: AnyReason
    cause: AnyReason


@dataclass(frozen=True, slots=True)
class Replied:
    """A call has its answer; ``call`` is what the caller gave."""

    call: object
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What OTP logs under its own domain: every fact about one child at one moment."""

    label: Label
    path: Path
    context: str
    child: ChildSpec | None
    reason: AnyReason | None = None
    handle: object = None
    generation: Incarnation = Incarnation(0)
    restarts: int = 0
    in_window: int = 0
    max_restarts: int = 0
    next_attempt_s: float | None = None


Effect: TypeAlias = (
    Launch
    | Ask
    | Terminate
    | Kill
    | SetTimer
    | CancelTimer
    | Departed
    | SupervisorUp
    | SupervisorEnded
    | Replied
    | Report
)


# --- views ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChildView:
    """One row of ``which_children``."""

    id: str
    state: State
    type: str
    restart: str
    handle: object
    generation: Incarnation
    restarts: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What ``count_children`` answers."""

    specs: int
    active: int
    supervisors: int
    workers: int
