"""How an approval is decided, whoever decides it: a person, a plugin, or the clock."""

from typing import Literal, TypeAlias

from cmdc_runtime.events import ToolApproved, ToolRejected
from workers.core.changes import Decision
from workers.core.records import ApprovalDecided
from workers.core.state import Approval
from workers.core.step import Step

Why: TypeAlias = Literal["timeout"] | None
"""Why there is no leave: nobody decided in time, or (None) a person said so."""


def settle(step: Step, found: Approval, decision: Decision, reason: Why = None) -> None:
    """Write a decision down and tell it."""
    step.record(ApprovalDecided(approval_id=found.id, decision=decision))
    step.publish(
        ToolRejected(approval_id=found.id, reason=reason)
        if decision == "reject"
        else ToolApproved(approval_id=found.id)
    )
