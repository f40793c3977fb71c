"""One event as a subscriber gets it, and the union of all that there are.

``AnyEvent`` lets type checkers say which events a ``match`` has left out: those of each theme. A
test says when one is missing.
"""

from typing import TypeAlias

import msgspec

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.events import cycle, people, reasoning, session, tools
from cmdc_runtime.ids import EventIndex, SessionId

AnyEvent: TypeAlias = (
    cycle.CycleEvent
    | people.PersonEvent
    | reasoning.ReasoningEvent
    | session.SessionEvent
    | tools.ToolEvent
)
"""Any event; one of a newer daemon is an ``UnknownEvent``."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """One event as a subscriber gets it; ``at_ms`` is wall time, milliseconds since 1970."""

    session_id: SessionId
    index: EventIndex
    at_ms: int
    event: AnyEvent
