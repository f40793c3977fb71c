"""What only the client makes, and how it hands events on."""

from typing import Any

import msgspec

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.events.base import Event
from cmdc_runtime.ids import EventIndex, SessionId
from cmdc_runtime.lines import one_line


class EventsLost(Event, frozen=True, kw_only=True):
    """Events ``first`` to ``last`` were published and cannot be had any more.

    Where its own index lies below ``first``, the daemon counts no further than that.
    """

    notice = "bad"

    first: EventIndex
    last: EventIndex

    def _line(self) -> str:
        return f"events {self.first} to {self.last} cannot be had any more"


class UnknownEvent(Event, frozen=True, kw_only=True):
    """An event of a newer daemon: its name and payload as they came."""

    name: str
    data: dict[str, Any]  # Any: whatever a later version sends

    @property
    def kind(self) -> str:
        """The name that the newer daemon gave it."""
        return self.name

    def _line(self) -> str:
        return one_line(str(self.data))


class Envelope(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """One event as a subscriber gets it; ``at_ms`` is wall time, milliseconds since 1970."""

    session_id: SessionId
    index: EventIndex
    at_ms: int
    event: Event
