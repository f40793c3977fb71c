"""The cycle of one prompt as its events tell it, for who reads nothing but that.

Pure: events go in, in their order. ``Cycle`` says which of them are its own and how it ended,
``Pieces`` what there is to be shown of the answers' text. To show something else of a cycle, write
one more ``View``.
"""

from typing import ClassVar, Final, Protocol, TypeVar

from cmdc_runtime.commands import CycleResult
from cmdc_runtime.errors import AgentAborted, AgentFailed, CmdcError
from cmdc_runtime.events import (
    AgentAbort,
    AgentEnd,
    AgentError,
    AgentStart,
    Event,
    EventsLost,
    MessageDelta,
    MessageStart,
    PromptDropped,
    ResponseComplete,
    StreamReset,
)
from cmdc_runtime.ids import CommandId

Shown_co = TypeVar("Shown_co", covariant=True)
Kinds = tuple[type[Event], ...]

_FRAME: Final[Kinds] = (AgentStart, AgentEnd, AgentAbort, AgentError, PromptDropped)
"""What a cycle is told from by others."""


def ending(result: CycleResult) -> CmdcError | None:
    """Return what a caller of a cycle gets for its end, None where it finished."""
    if result.outcome == "finished":
        return None
    if result.outcome == "failed":
        return AgentFailed(result.reason or "no reason given")
    return AgentAborted("dropped" if result.outcome == "dropped" else result.reason)


class Cycle:
    """What belongs to the cycle of the prompt ``command_id``."""

    def __init__(self, command_id: CommandId) -> None:
        """Wait for its start."""
        self.is_over = False
        self.error: CmdcError | None = None
        """What it ended with, where it did not finish."""
        self._command_id = command_id
        self._runs = False

    def take(self, event: Event) -> Event | None:
        """Return the event if it is one of this cycle's."""
        is_its_frame = getattr(event, "command_id", None) == self._command_id
        if is_its_frame and not self.is_over:
            self._take_own(event)
            return event if self._runs or self.is_over else None
        # What is lost may be the start.
        return event if self._runs or isinstance(event, EventsLost) else None

    def close(self, error: CmdcError | None) -> None:
        """Take note of an end that the events do not tell."""
        self.is_over, self.error, self._runs = True, error, False

    def _take_own(self, event: Event) -> None:
        match event:
            case AgentStart():
                self._runs = True
            case AgentEnd():
                self.close(None)
            case AgentAbort(reason=reason):
                self.close(AgentAborted(reason))
            case AgentError(reason=reason):
                self.close(AgentFailed(reason))
            case PromptDropped():
                self.close(AgentAborted("dropped"))
            case _:
                pass


class View(Protocol[Shown_co]):
    """What a reader sees of a cycle."""

    kinds: ClassVar[Kinds | None]
    """The events that it is made of; None: of all."""
    raises: ClassVar[bool]
    """Whether an abort or a failure is raised, since nothing that is shown tells of it."""

    def show(self, event: Event) -> Shown_co | None:
        """Return what is to be shown now that the cycle had this event."""


class Whole:
    """Shows each event."""

    kinds: ClassVar[Kinds | None] = None
    raises: ClassVar[bool] = False

    def show(self, event: Event) -> Event:
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

    def show(self, event: Event) -> str | None:
        """Return the next piece."""
        match event:
            case MessageDelta(delta=delta):
                return self._add(delta)
            case StreamReset():
                self._held, self._has_hole = "", False
            case EventsLost():
                self._held, self._has_hole = "", True
            case MessageStart() if self._has_hole:  # from here on it is heard whole
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
