"""How an approval is decided, whoever decides it: a person, a plugin, or the clock."""

from typing import Literal, TypeAlias

from cmdc_runtime.events import ToolApproved, ToolRejected
from workers.core.changes import Decision, decide
from workers.core.effects import Effect, Keep, Publish
from workers.core.records import ApprovalDecided
from workers.core.state import Approval, Memory

Why: TypeAlias = Literal["timeout"] | None
"""Why there is no leave: nobody decided in time, or (None) a person said so."""


def settle(
    memory: Memory, found: Approval, decision: Decision, reason: Why = None
) -> tuple[Memory, tuple[Effect, ...]]:
    """Note a decision, write it down and tell it."""
    told = (
        ToolRejected(approval_id=found.id, reason=reason)
        if decision == "reject"
        else ToolApproved(approval_id=found.id)
    )
    kept = Keep(ApprovalDecided(approval_id=found.id, decision=decision))
    return decide(memory, found.id, decision), (kept, Publish(told))
