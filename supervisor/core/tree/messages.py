"""The messages of a supervision tree: inputs, effects and views. Pure values.

``tree.handle`` takes an input and returns effects, which its holder performs in their order. A
``Ref`` names one process of one child: an input about an earlier process is reported and changes
nothing.

To add an input: its Struct here and in ``AnyInput``, and its row in ``Tree.HANDLERS``. A recording
takes it without a change.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

import msgspec

from cmdc_runtime.ids import Incarnation
from cmdc_runtime.reasons import AnyReason, PlainReason
from supervisor.core.tree.specs import ChildSpec, SupervisorSpec

SupervisorPath: TypeAlias = tuple[str, ...]
"""Where a supervisor is: the ids from the root down, ``()`` for the root itself."""

TERM_SHARE: Final = 0.5
"""After this share of the grace SIGTERM follows the polite request."""
UNKILLABLE_AFTER_S: Final = 10.0
"""A process that SIGKILL has not ended by then hangs in the kernel: its place is given up."""
SUBTREE_SHARE: Final = 0.8
"""Of the time that is left: what a subtree may take while siblings are still to be stopped."""


class Ref(NamedTuple):
    """One process of the child ``child`` of the supervisor at ``path``."""

    path: SupervisorPath
    child: str
    generation: Incarnation


class Ending(StrEnum):
    """What the restart types have to know of an exit."""

    NORMAL = "normal"  # Normal or Shutdown
    CRASH = "crash"
    FELL = "fell"  # a crash at a step that the next process is to leave out: it is not charged
    FINAL = "final"  # no restart can help, or it was chosen as the end: the supervisor ends too


@dataclass(frozen=True, slots=True)
class End:
    """How a supervisor ends; ``cause`` is the last word of the child that it ends for."""

    reason: AnyReason
    cause: AnyReason
    ending: Ending


class ChildState(StrEnum):
    """Where one child stands."""

    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"  # asked to end
    RESTARTING = "restarting"  # its process is gone, another follows
    DOWN = "down"  # the specification is kept, there is no process
    UNKILLABLE = "unkillable"  # SIGKILL did not end it: no other process takes its place


class SupervisorPhase(StrEnum):
    """Where a supervisor stands."""

    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"
    ENDED = "ended"


class TimerKind(StrEnum):
    """What a timer is for."""

    START = "start"  # the child was not up in time
    DELAY = "delay"  # the back-off of one child, or of a group, is over
    TERM = "term"
    KILL = "kill"
    UNKILLABLE = "unkillable"


class Timer(NamedTuple):
    """One timer; setting it again takes the place of the one before."""

    path: SupervisorPath
    child: str
    kind: TimerKind


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
class CallResult:
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


# --- inputs -----------------------------------------------------------------------------------


def _tag(name: str) -> str:
    """Return the name of an input in a recording: ``start_child`` for ``StartChild``."""
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in name).lstrip("_")


class Input(msgspec.Struct, frozen=True, tag_field="type", tag=_tag):
    """One input of the tree."""

    @property
    def place(self) -> SupervisorPath:
        """Return the path of the supervisor or child that it is about."""
        return ()


class ProcessInput(Input, frozen=True):
    """News of one process."""

    ref: Ref

    @property
    def place(self) -> SupervisorPath:
        """Return the path of the child."""
        return (*self.ref.path, self.ref.child)


class ChildCall(Input, frozen=True):
    """A call about one child; ``Replied`` carries ``call`` back, whatever it is."""

    path: SupervisorPath
    child: str
    call: object

    @property
    def place(self) -> SupervisorPath:
        """Return the path of the child."""
        return (*self.path, self.child)


class Begin(Input, frozen=True):
    """Start the root's children."""


class Up(ProcessInput, frozen=True):
    """A process is ready; ``extra`` goes to the caller that asked for the start."""

    handle: object = None
    extra: object = None


class Ignored(ProcessInput, frozen=True):
    """A child wants no process: OTP's ``ignore``."""


class ChildExited(ProcessInput, frozen=True):
    """A process is gone, or could not be started.

    ``ProcessEnded`` carries ``record`` back, whatever it is: what the shell knows of this end.
    """

    reason: AnyReason
    ending: Ending
    record: object = None


class Fail(ProcessInput, frozen=True):
    """Kill a process that hangs or uses too much; ``reason`` is the one to report."""

    reason: PlainReason


class Due(Input, frozen=True):
    """A timer went off."""

    timer: Timer

    @property
    def place(self) -> SupervisorPath:
        """Return the path of the child."""
        return (*self.timer.path, self.timer.child)


class Stop(Input, frozen=True):
    """End everything, until ``deadline_s`` (monotonic) at the latest; None: no hurry."""

    why: str = "shutdown"
    deadline_s: float | None = None


class KillSupervisor(Input, frozen=True):
    """End a supervisor as SIGKILL ends a process: for its parent that is a crash."""

    path: SupervisorPath

    @property
    def place(self) -> SupervisorPath:
        """Return its path."""
        return self.path


class StartChild(Input, frozen=True):
    """Add a child and start it; answered when it is up or has failed."""

    path: SupervisorPath
    spec: ChildSpec
    call: object

    @property
    def place(self) -> SupervisorPath:
        """Return the path of the child."""
        return (*self.path, self.spec.id)


class TerminateChild(ChildCall, frozen=True):
    """End a child; answered when it is gone. A second one may have an earlier deadline.

    ``why`` is what the child is asked with. ``deadline_s`` (monotonic) replaces the child's own
    grace; None: that grace.
    """

    why: str = "shutdown"
    deadline_s: float | None = None


class HibernateChild(ChildCall, frozen=True, tag="rest_child"):
    """End a child that is up and keep its specification, whatever its restart type.

    Recordings have it under the name that it had at first.
    """

    why: str = "shutdown"
    deadline_s: float | None = None


class RestartChild(ChildCall, frozen=True):
    """Start a child that is down; a start that fails leaves it down. It is not charged."""


class WakeChild(ChildCall, frozen=True):
    """Start a child that hibernates, for good: a start that fails is charged and tried again."""


class DeleteChild(ChildCall, frozen=True):
    """Forget a child that is down."""


class Reconfigure(Input, frozen=True):
    """Change a supervisor's flags and its children's specifications, all of them or nothing.

    Added children are not started; children that ``spec`` lacks stay, behind the others. A changed
    ``start`` counts from the child's next start.
    """

    path: SupervisorPath
    spec: SupervisorSpec

    @property
    def place(self) -> SupervisorPath:
        """Return the path of the supervisor."""
        return self.path


AnyInput: TypeAlias = (
    Begin
    | Up
    | Ignored
    | ChildExited
    | Fail
    | Due
    | Stop
    | KillSupervisor
    | StartChild
    | TerminateChild
    | HibernateChild
    | RestartChild
    | WakeChild
    | DeleteChild
    | Reconfigure
)


# --- effects ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a worker's process; ``Up``, ``Ignored`` or ``ChildExited`` follows."""

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
    """Send SIGKILL to all of it; ``fail_reason`` is why, where that is the reason to report."""

    ref: Ref
    fail_reason: PlainReason | None = None


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Give ``Due`` with the timer in ``delay_s`` seconds."""

    timer: Timer
    delay_s: float


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Forget a timer."""

    timer: Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnded:
    """A worker's process has ended: notify who watches it; ``asked`` is by whom it was wanted.

    ``reason`` is that of the whole if the process was one restart too many. ``delay_s`` is how long
    the next one is put off. ``record`` is that of its ``ChildExited``, None where there was none.
    """

    ref: Ref
    reason: AnyReason
    restarting: bool
    asked: bool
    restarts: int
    delay_s: float = 0.0
    record: object = None


@dataclass(frozen=True, slots=True)
class SupervisorUp:
    """All children of a supervisor were started."""

    path: SupervisorPath


@dataclass(frozen=True, slots=True)
class SupervisorEnded:
    """A supervisor is gone with all that was below it.

    ``cause`` is the last word of the child that it ended for, the supervisor's own where there was
    none.
    """

    path: SupervisorPath
    reason: AnyReason
    cause: AnyReason


@dataclass(frozen=True, slots=True)
class Replied:
    """A call has its answer; ``call`` is what the caller gave."""

    call: object
    result: CallResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What OTP logs under its own domain: every fact about one child at one moment."""

    label: Label
    path: SupervisorPath
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
    | ProcessEnded
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
    state: ChildState
    type: str
    restart: str
    handle: object
    generation: Incarnation
    restarts: int
