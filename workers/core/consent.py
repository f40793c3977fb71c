"""A call that needs a person's leave: it is asked for, kept waiting, given up.

A call in block mode ends with a result that says that it waits, and its cycle rests. A call that is
held waits as it is: ``ref`` is what it is answered by.
"""

from collections.abc import Mapping
from typing import Final

from cmdc_runtime.events import ApprovalRequired
from workers.core import cycle
from workers.core.approvals import Why, settle
from workers.core.batch import CallEnd, close_call
from workers.core.changes import WAITS
from workers.core.conversation import find_approval, find_running, result_place
from workers.core.effects import AnswerTool, CancelCalls
from workers.core.inputs import ApprovalExpired, ApprovalNeeded
from workers.core.loops import fingerprint
from workers.core.records import ApprovalAsked
from workers.core.state import Approval, Memory, OpenCall
from workers.core.step import Step

_REFUSED: Final = "Error: the call was not made: {why} ({approval_id}). Go on without it."
_WHY: Final[Mapping[Why, str]] = {
    None: "a person rejected it",
    "timeout": "nobody approved it in time",
}


def require_approval(step: Step, needed: ApprovalNeeded) -> None:
    """Ask a person in place of running the call."""
    open_ = find_running(step.memory, needed.call_id)
    if open_ is None:
        return
    wanted = _approval(step.memory, open_, needed)
    if wanted.ref is not None:
        _hold(step, wanted, needed)
        return
    step.record(_asked(wanted))
    text, told = WAITS.format(approval_id=wanted.id), _told(step.memory, wanted, needed)
    close_call(step, open_, CallEnd(text, "approval_required", told=(told,)))
    cycle.after_call(step, needed.at_ms)


def expire(step: Step, expired: ApprovalExpired) -> None:
    """Reject what nobody decided in time."""
    found = find_approval(step.memory, expired.approval_id)
    if found is not None and found.due_ms is not None and found.due_ms <= expired.at_ms:
        refuse(step, found, expired.at_ms, "timeout")


def refuse(step: Step, found: Approval, at_ms: int, reason: Why = None) -> None:
    """Note that there is no leave; a call that was held for it ends with that."""
    settle(step, found, "reject", reason)
    open_ = None if found.ref is None else find_running(step.memory, found.call_id)
    if open_ is None:
        return
    step.perform(CancelCalls((found.call_id,)))
    text = _REFUSED.format(why=_WHY[reason], approval_id=found.id)
    close_call(step, open_, CallEnd(text, reason or "rejected"))
    cycle.after_call(step, at_ms)


def _hold(step: Step, wanted: Approval, needed: ApprovalNeeded) -> None:
    """Have the call wait, unless its leave is there: it came while a process was being replaced.

    A call that is held again after a crash waits on under the approval that it has.
    """
    memory = step.memory
    leave = fingerprint(wanted.tool, wanted.args, None)
    kinds = {(wanted.tool, ""), (wanted.tool, wanted.family)}
    if leave in memory.allowances or not kinds.isdisjoint(memory.always_approved):
        step.perform(AnswerTool(str(wanted.ref), value=True))
    elif find_approval(memory, wanted.id) is None:
        step.record(_asked(wanted))
        step.publish(_told(memory, wanted, needed))


def _approval(memory: Memory, open_: OpenCall, needed: ApprovalNeeded) -> Approval:
    call, asked = open_.call, needed.asked
    return Approval(
        id=f"approval-{result_place(memory, call.call_id)}",
        call_id=call.call_id,
        tool=call.name,
        args=call.arguments,
        requested_at_ms=needed.at_ms,
        family=asked.family,
        ref=needed.ref,
        due_ms=None if asked.timeout_s is None else needed.at_ms + round(asked.timeout_s * 1000),
        options=asked.options,
    )


def _asked(wanted: Approval) -> ApprovalAsked:
    return ApprovalAsked(
        approval_id=wanted.id,
        call_id=wanted.call_id,
        tool=wanted.tool,
        args=wanted.args,
        at_ms=wanted.requested_at_ms,
        family=wanted.family,
        ref=wanted.ref,
        due_ms=wanted.due_ms,
        options=wanted.options,
    )


def _told(memory: Memory, wanted: Approval, needed: ApprovalNeeded) -> ApprovalRequired:
    return ApprovalRequired(
        id=wanted.id,
        tool=wanted.tool,
        # A person must see what would run. The leave is for what the model asks for.
        args=wanted.args if needed.args is None else needed.args,
        hint=needed.asked.hint,
        requested_at_ms=wanted.requested_at_ms,
        session_id=memory.policy.session_id,
        call_id=wanted.call_id,
        family=wanted.family,
        options=wanted.options,
        hold=wanted.ref is not None,
        due_at_ms=wanted.due_ms,
    )
