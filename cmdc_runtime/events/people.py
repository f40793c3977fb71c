"""What a user decides and says: approvals, questions, steering."""

from typing import Any, Literal, TypeAlias

from cmdc_runtime.events.base import Event
from cmdc_runtime.ids import CallId, SessionId
from cmdc_runtime.lines import call_line, one_line
from cmdc_runtime.message_parts import MessagePart


class ApprovalRequired(Event, frozen=True, kw_only=True):
    """A call waits for ``approve`` or ``reject`` with this ``id``; it has not run."""

    content_fields = ("args", "hint")
    notice = "warning"

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

    def _line(self) -> str:
        return f"{call_line(self.tool, self.args)} waits for approval {one_line(self.id)}" + (
            f": {one_line(self.hint)}" if self.hint else ""
        )


class ToolApproved(Event, frozen=True, kw_only=True):
    """A person allowed the call of this approval."""

    approval_id: str

    def _line(self) -> str:
        return f"allowed: {one_line(self.approval_id)}"


class ToolRejected(Event, frozen=True, kw_only=True):
    """A person refused the call of this approval, or (``reason``) nobody decided in time."""

    notice = "quiet"

    approval_id: str
    reason: Literal["timeout"] | None = None

    def _line(self) -> str:
        return f"refused: {one_line(self.approval_id)}"


class AskUser(Event, frozen=True, kw_only=True):
    """A tool asks the user; ``user_respond`` with ``ref`` answers. No options means free text."""

    content_fields = ("question", "options")
    notice = "warning"

    session_id: SessionId
    question: str
    options: tuple[str, ...]
    ref: str

    def _line(self) -> str:
        return (
            f"asks: {one_line(self.question)}"
            + (f" [{one_line(' | '.join(self.options))}]" if self.options else "")
            + f" ({one_line(self.ref)})"
        )


class UserResponded(Event, frozen=True, kw_only=True):
    """The user answered the question of ``ref``."""

    content_fields = ("response",)

    session_id: SessionId
    ref: str
    response: Any  # Any: whatever the application sent

    def _line(self) -> str:
        return f"{one_line(self.ref)}: {one_line(str(self.response))}"


class SteeringReceived(Event, frozen=True, kw_only=True):
    """A steering came: it waits until the turn is over, or was refused."""

    content_fields = ("text",)
    notice = "quiet"

    ref: str
    status: Literal["queued", "rejected_full", "rejected"]
    text: str
    parts: tuple[MessagePart, ...] = ()

    def _line(self) -> str:
        return "; ".join((f"steering {self.status}: {one_line(self.text)}", *map(str, self.parts)))


class SteeringApplied(Event, frozen=True, kw_only=True):
    """``count`` steerings were given to the model, as one message."""

    count: int

    def _line(self) -> str:
        return f"{self.count} given to the model"


PersonEvent: TypeAlias = (
    ApprovalRequired
    | AskUser
    | SteeringApplied
    | SteeringReceived
    | ToolApproved
    | ToolRejected
    | UserResponded
)
"""Each of these."""
