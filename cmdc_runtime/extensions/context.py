"""What a tool is told about where it runs.

A tool sees its session through these values only, so it can be called in a unit test with a
``Context`` built by hand.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from cmdc_runtime.ids import CallId, Incarnation, SessionId

_FIRST: Final = Incarnation(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool may use to describe itself to the model."""

    working_dir: str = "."


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One tool call and the session that it belongs to."""

    session_id: SessionId
    call_id: CallId
    working_dir: str = "."
    """Relative paths in arguments start here."""
    model: str = ""
    turn: int = 0
    """Which request to the model asked for the call, counted over the session's life."""
    user_data: dict[str, Any] = field(default_factory=dict)  # Any: the application's own
    group_id: str | None = None
    incarnation: Incarnation = _FIRST

    @property
    def idempotency_key(self) -> str:
        """Return a key that stays the same when a crash makes this call run again.

        Give it to services that take one, so that they count the two attempts as one.
        """
        return f"{self.session_id}:{self.call_id}"
