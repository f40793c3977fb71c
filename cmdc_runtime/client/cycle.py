"""The cycle of one prompt as its events show it, for who reads nothing but that.

Events go in, in their order. ``Cycle`` says which of them are its own and how it ended, ``Pieces``
what there is to be shown of the answers' text; ``CycleReader`` joins the two, and its ``Clock``
says how much time is left. To show something else of a cycle, write one more ``CycleView``.
"""

import time
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from cmdc_runtime.answer_schema import refused_problems
from cmdc_runtime.client.arguments import checked_timeout
from cmdc_runtime.client.subscription import Subscription
from cmdc_runtime.commands import CycleResult
from cmdc_runtime.errors import (
    AgentAborted,
    AgentFailed,
    CmdcError,
    CollectTimeout,
    ResultInvalid,
    aborted,
)
from cmdc_runtime.events import (
    AgentAbort,
    AgentEnd,
    AgentError,
    AgentStart,
    AnyEvent,
    Envelope,
    Event,
    EventsLost,
    MessageDelta,
    MessageStart,
    PromptDropped,
    ResponseComplete,
    StreamReset,
)
from cmdc_runtime.ids import CommandId, SessionId

Shown = TypeVar("Shown")
Shown_co = TypeVar("Shown_co", covariant=True)
Kinds = tuple[type[Event], ...]

_FRAME: Final[Kinds] = (AgentStart, AgentEnd, AgentAbort, AgentError, PromptDropped)
"""What distinguishes one cycle from another."""


def ending(result: CycleResult) -> CmdcError | None:
    """Return what a caller of a cycle gets for its end, None where it finished."""
    if result.outcome == "finished":
        return None
    if result.outcome == "failed":
        problems = refused_problems(result.reason)
        if problems is not None:
            return ResultInvalid(result.text, problems)
        return AgentFailed(result.reason or "no reason given")
    return aborted("dropped" if result.outcome == "dropped" else result.reason)


@dataclass(slots=True)
class OpenedCycle:
    """A prompt that was sent, and the subscription of what comes of it."""

    session_id: SessionId
    command_id: CommandId
    subscription: Subscription
    result: CycleResult | None = None
    """How its cycle ended, where the session had to be asked; the subscription is finished then."""


class Cycle:
    """What belongs to the cycle of the prompt ``command_id``."""

    def __init__(self, command_id: CommandId) -> None:
        """Wait for its start."""
        self.is_over = False
        self.error: CmdcError | None = None
        """What it ended with, where it did not finish."""
        self._command_id = command_id
        self._runs = False

    def take(self, event: AnyEvent) -> AnyEvent | None:
        """Return the event if it is one of this cycle's."""
        is_its_frame = getattr(event, "command_id", None) == self._command_id
        if is_its_frame and not self.is_over:
            self._take_own(event)
            return event if self._runs or self.is_over else None
        # What is lost may be the start.
        return event if self._runs or isinstance(event, EventsLost) else None

    def close(self, error: CmdcError | None) -> None:
        """Record an end that no event shows."""
        self.is_over, self.error, self._runs = True, error, False

    def _take_own(self, event: AnyEvent) -> None:
        match event:
            case AgentStart():
                self._runs = True
            case AgentEnd():
                self.close(None)
            case AgentAbort(reason=reason):
                self.close(aborted(reason))
            case AgentError(reason=reason):
                self.close(AgentFailed(reason))
            case PromptDropped():
                self.close(AgentAborted("dropped"))
            case _:
                pass


class CycleView(Protocol[Shown_co]):
    """What a reader sees of a cycle."""

    kinds: ClassVar[Kinds | None]
    """The events that it is made of; None: of all."""
    raises: ClassVar[bool]
    """Whether an abort or a failure is raised, since nothing that is shown says so."""

    def show(self, event: AnyEvent) -> Shown_co | None:
        """Return what is to be shown now that the cycle had this event."""


class CycleEvents:
    """Shows each event."""

    kinds: ClassVar[Kinds | None] = None
    raises: ClassVar[bool] = False

    def show(self, event: AnyEvent) -> AnyEvent:
        """Return the event."""
        return event


class Pieces:
    """Shows the text of the answers, piece by piece.

    A piece can't be taken back. Where a request is sent again, or pieces are lost, nothing is shown
    until the answer has come further than what was shown of it; where it differs from that, it is
    shown from its beginning.
    """

    kinds: ClassVar[Kinds | None] = (
        *_FRAME,
        MessageStart,
        MessageDelta,
        StreamReset,
        ResponseComplete,
    )
    raises: ClassVar[bool] = True

    def __init__(self) -> None:
        """Begin before the first answer."""
        self._shown = ""
        """Of the running answer."""
        self._held: str | None = None
        """What came of it anew; None while it simply goes on."""
        self._has_hole = False

    def show(self, event: AnyEvent) -> str | None:
        """Return the next piece."""
        match event:
            case MessageDelta(delta=delta):
                return self._add(delta)
            case StreamReset():
                self._held, self._has_hole = "", False
            case EventsLost():
                self._held, self._has_hole = "", True
            case MessageStart() if self._has_hole:  # from here on it comes whole
                self._held, self._has_hole = "" if self._shown else None, False
            case ResponseComplete(message=message):
                piece = self._beyond(message.content)
                self._shown, self._held, self._has_hole = "", None, False
                return piece or None
            case _:
                pass
        return None

    def _add(self, delta: str) -> str | None:
        if self._held is None:
            self._shown += delta
            return delta or None
        self._held += delta
        if self._has_hole or self._shown.startswith(self._held):
            return None
        piece, self._shown, self._held = self._beyond(self._held), self._held, None
        return piece

    def _beyond(self, text: str) -> str:
        """Return what of ``text`` was not shown."""
        if self._shown.startswith(text):
            return ""
        return text.removeprefix(self._shown)


class Clock:
    """How much time is left of ``timeout_s``, from when it is made; None: as long as it takes."""

    def __init__(self, timeout_s: float | None) -> None:
        """Begin to count."""
        self.timeout_s = checked_timeout(timeout_s)
        self._due_s = None if timeout_s is None else time.monotonic() + timeout_s

    @property
    def left_s(self) -> float | None:
        """Seconds, 0 or more."""
        return None if self._due_s is None else max(0.0, self._due_s - time.monotonic())

    def too_late(self, opened: OpenedCycle) -> CollectTimeout:
        """Return the error that says that the time is up."""
        return CollectTimeout(
            f"the cycle of session {opened.session_id} did not end within {self.timeout_s:g} s;"
            " it goes on"
        )


class CycleReader(Generic[Shown]):
    """What of a cycle's events is shown, and how it ends."""

    def __init__(self, opened: OpenedCycle, view: CycleView[Shown], clock: Clock) -> None:
        """Begin before the first event."""
        self.opened = opened
        self.clock = clock
        self.cycle = Cycle(opened.command_id)
        self._view = view
        self._is_shown = True
        """Whether an event showed the end."""

    def take(self, envelope: Envelope) -> Shown | None:
        """Return what an event shows, if anything."""
        event = self.cycle.take(envelope.event)
        return None if event is None else self._view.show(event)

    def fail(self, error: Exception) -> Exception | None:
        """Take an error in place of an event, and return what the consumer gets for it."""
        if self.opened.result is not None:  # its events were lost, and the session was asked
            self.cycle.close(ending(self.opened.result))
            self._is_shown = False
            return None
        self.cycle.close(None)
        if isinstance(error, CmdcError):
            return error
        return self.clock.too_late(self.opened)

    def end(self) -> CmdcError | None:
        """Return what is raised for the end; at the first time only."""
        error, self.cycle.error = self.cycle.error, None
        return error if self._view.raises or not self._is_shown else None
