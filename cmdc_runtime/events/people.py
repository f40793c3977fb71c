"""People in the loop: approvals, questions, steering."""

from typing import Any, Literal

from cmdc_runtime.events.base import Event
from cmdc_runtime.ids import CallId, SessionId


class ApprovalRequired(Event, frozen=True, kw_only=True):
    """A call waits for ``approve`` or ``reject`` with this ``id``; it has not run."""

    id: str
    tool: str
    args: dict[str, object]
    hint: str
    requested_at_ms: int
    session_id: SessionId
    call_id: CallId
    family: str = ""
    """What "approve_always" would allow of the tool; empty is all of it."""
    options: tuple[str, ...] = ("approve_once", "approve_always", "reject_once")
    """What may be decided."""
    hold: bool = False
    """The call waits, and runs by itself when it is approved."""
    due_at_ms: int | None = None
    """When it counts as rejected; None is never."""


class ToolApproved(Event, frozen=True, kw_only=True):
    """A person allowed the call of this approval."""

    approval_id: str


class ToolRejected(Event, frozen=True, kw_only=True):
    """A person refused the call of this approval, or (``reason``) nobody decided in time."""

    approval_id: str
    reason: Literal["timeout"] | None = None


class AskUser(Event, frozen=True, kw_only=True):
    """A tool asks the user; ``user_respond`` with ``ref`` answers. No options means free text."""

    session_id: SessionId
    question: str
    options: tuple[str, ...]
    ref: str


class UserResponded(Event, frozen=True, kw_only=True):
    """The user answered the question of ``ref``."""

    session_id: SessionId
    ref: str
    response: Any  # Any: whatever the application sent


class SteeringReceived(Event, frozen=True, kw_only=True):
    """A steering came: it waits for the next gap, or was refused."""

    ref: str
    status: Literal["queued", "rejected_full", "rejected"]
    text: str


class SteeringApplied(Event, frozen=True, kw_only=True):
    """``count`` steerings were told to the model, as one message."""

    count: int
