"""A call that needs an approval: requested, granted or denied; and other waits of calls.

A call in block mode ends with a result that says that it waits, and its cycle rests. A call that is
held waits as it is: ``ref`` is what it is answered by. A decision on the former resumes the
session: it opens a cycle that informs the model, at once or, as a prompt does, after the running
one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from cmdc_runtime.commands import AnswerToolCall, Approve, Reject, TakeToolCall, UserRespond
from cmdc_runtime.errors import ApprovalNotFound, AskNotFound, QueueFull, UsageError
from cmdc_runtime.events import ApprovalRequired, UserResponded
from workers.core import cycle
from workers.core.conversation import (
    APPROVAL,
    TRIGGER,
    WAITS,
    Decision,
    find_approval,
    find_ask,
    find_running,
    result_place,
)
from workers.core.inputs import ApprovalExpired, ApprovalRequest, Order, taken_ref
from workers.core.loops import fingerprint
from workers.core.opening_call import called_again
from workers.core.records import Approval, PromptQueued, UserAnswered, approval_requested
from workers.core.state import Memory, OpenCall, QueuedPrompt, State
from workers.core.step import AnswerTool, CancelCalls, Step
from workers.core.tool_calls import CallEnd, Why, close_call, decide_approval

ARGUMENTS_CHARS_MAX: Final = 2_000
"""Of a call's arguments as the model is reminded of them; it has made the call itself."""
_APPROVED: Final = (
    "The call of `{tool}` with {args} was approved. Unless you have made it since, make the very"
    " same call now."
)
_REJECTED: Final = (
    "The call of `{tool}` with {args} was rejected. Do not make it again; go on without it."
)
_DENIED: Final = "Error: the call was not made: {why} ({approval_id}). Go on without it."
_WHY: Final[Mapping[Why, str]] = {
    None: "a person rejected it",
    "timeout": "nobody approved it in time",
}


# --- a call asks ---


def request_approval(step: Step, request: ApprovalRequest) -> None:
    """Ask a person in place of running the call."""
    open_ = find_running(step.memory, request.call_id)
    if open_ is None:
        return
    approval = _approval(step.memory, open_, request)
    if approval.is_held:
        _hold(step, approval, request)
        return
    step.record(approval_requested(approval))
    event = _required(step.memory, approval, request)
    text = WAITS.format(approval_id=approval.id)
    close_call(step, open_, CallEnd(text, "approval_required", outgoing=(event,)))
    cycle.after_call(step, request.at_ms)


def expire(step: Step, expired: ApprovalExpired) -> None:
    """Deny what nobody decided in time."""
    found = find_approval(step.memory, expired.approval_id)
    if found is not None and found.due_at_ms is not None and found.due_at_ms <= expired.at_ms:
        _deny(step, found, expired.at_ms, "timeout")


def _deny(step: Step, found: Approval, at_ms: int, reason: Why = None) -> None:
    """Deny an approval; a call that was held for it ends with that."""
    decide_approval(step, found, "reject", reason)
    open_ = find_running(step.memory, found.call_id) if found.is_held else None
    if open_ is None:
        return
    step.perform(CancelCalls((found.call_id,)))
    text = _DENIED.format(why=_WHY[reason], approval_id=found.id)
    close_call(step, open_, CallEnd(text, reason or "rejected"))
    cycle.after_call(step, at_ms)


def _hold(step: Step, approval: Approval, request: ApprovalRequest) -> None:
    """Have the call wait, unless it is granted: that came while a process was being replaced.

    A call that is held again after a crash waits on under the approval that it has.
    """
    memory = step.memory
    call_hash = fingerprint(approval.tool, approval.args, None)
    kinds = {(approval.tool, ""), (approval.tool, approval.family)}
    if call_hash in memory.granted or not kinds.isdisjoint(memory.always_approved):
        step.perform(AnswerTool(str(approval.ref), value=True))
    elif find_approval(memory, approval.id) is None:
        step.record(approval_requested(approval))
        step.publish(_required(memory, approval, request))


def _approval(memory: Memory, open_: OpenCall, request: ApprovalRequest) -> Approval:
    call, asked, at_ms = open_.call, request.asked, request.at_ms
    return Approval(
        id=f"approval-{result_place(memory, call.call_id)}",
        call_id=call.call_id,
        tool=call.name,
        args=call.arguments,
        requested_at_ms=at_ms,
        family=asked.family,
        ref=request.ref,
        due_at_ms=None if asked.timeout_s is None else at_ms + round(asked.timeout_s * 1000),
        options=asked.options,
    )


def _required(memory: Memory, approval: Approval, request: ApprovalRequest) -> ApprovalRequired:
    """Return the event of an approval: all of it, and what only people see of its request."""
    return ApprovalRequired(
        id=approval.id,
        tool=approval.tool,
        # A person must see what would run. The approval is of what the model asks for.
        args=approval.args if request.args is None else request.args,
        hint=request.asked.hint,
        requested_at_ms=approval.requested_at_ms,
        session_id=memory.policy.session_id,
        call_id=approval.call_id,
        family=approval.family,
        options=approval.options,
        hold=approval.is_held,
        due_at_ms=approval.due_at_ms,
    )


# --- a person decides ---


def approve(step: Step, order: Order, command: Approve) -> None:
    """Allow the call that waits and, unless the command forbids it, have the model make it."""
    found = _find(step, order, command.approval_id)
    if found is None:
        return
    if command.kind not in found.options:
        offered = ", ".join(found.options)
        error = UsageError(f"approval {found.id!r} offers {offered}, not {command.kind!r}")
        step.complete(order.id, error)
    elif found.ref is not None:
        decide_approval(step, found, command.kind)
        step.complete(order.id, None)
        step.perform(AnswerTool(found.ref, value=True))
    else:
        decision = _Decision(found, command.kind, "tool_approved")
        _decide(step, order, decision, resumes=command.auto_resume)


def reject(step: Step, order: Order, command: Reject) -> None:
    """Refuse the call that waits; if asked to, have the model go on without it.

    In any case its result says so from here on.
    """
    found = _find(step, order, command.approval_id)
    if found is None:
        return
    if found.is_held:
        step.complete(order.id, None)
        _deny(step, found, order.at_ms)
    else:
        decision = _Decision(found, "reject", "tool_rejected")
        _decide(step, order, decision, resumes=command.auto_resume)


def respond(step: Step, order: Order, command: UserRespond) -> None:
    """Give the answer of the user to the call that waits for it."""
    ref, response = command.ref, command.response
    asked = find_ask(step.memory, ref)
    if asked is None or asked.owner:
        step.complete(order.id, AskNotFound(f"no question {ref!r} waits for an answer"))
        return
    step.record(UserAnswered(ref=ref, response=response))
    session_id = step.memory.policy.session_id
    step.publish(UserResponded(session_id=session_id, ref=ref, response=response))
    step.complete(order.id, None)
    step.perform(AnswerTool(ref, response))


@dataclass(frozen=True, slots=True)
class _Decision:
    approval: Approval
    kind: Decision
    trigger: Literal["tool_approved", "tool_rejected"]

    @property
    def text(self) -> str:
        """What the model reads."""
        text = _APPROVED if self.trigger == "tool_approved" else _REJECTED
        return text.format(tool=self.approval.tool, args=_shown(self.approval))


def _decide(step: Step, order: Order, decision: _Decision, *, resumes: bool) -> None:
    found, is_idle = decision.approval, step.state is State.IDLE
    metadata: dict[str, object] = {APPROVAL: found.id, TRIGGER: decision.trigger}
    call = called_again(step.memory, found) if decision.trigger == "tool_approved" else None
    prompt = QueuedPrompt(order.id, decision.text, metadata, call)
    bound = step.memory.policy.max_queued_prompts
    if resumes and not is_idle and len(step.memory.queue) >= bound:
        full = QueueFull(f"{bound} prompts wait already; decide again when a cycle has ended")
        step.complete(order.id, full)
        return
    decide_approval(step, found, decision.kind)
    if resumes and not is_idle:
        step.record(
            PromptQueued(command_id=order.id, text=prompt.text, metadata=metadata, call=call)
        )
    step.complete(order.id, order.id if resumes else None)
    if resumes and is_idle:
        cycle.start(step, prompt, order.at_ms)


def _find(step: Step, order: Order, approval_id: str) -> Approval | None:
    """Return the approval that waits and whose time is not over, or refuse the command."""
    found = find_approval(step.memory, approval_id)
    if found is not None and (found.due_at_ms is None or order.at_ms < found.due_at_ms):
        return found
    waiting = ", ".join(one.id for one in step.memory.approvals) or "none"
    error = ApprovalNotFound(f"no approval {approval_id!r} waits; waiting: {waiting}")
    step.complete(order.id, error)
    return None


def _shown(approval: Approval) -> str:
    text = msgspec.json.encode(approval.args).decode()
    return text if len(text) <= ARGUMENTS_CHARS_MAX else f"{text[:ARGUMENTS_CHARS_MAX]}…"


# --- calls that the program of their tool makes ---


def take_call(step: Step, order: Order, command: TakeToolCall) -> None:
    """Let the program of a tool make the call that waits for it."""
    if _client_call(step, order, command.ref):
        step.perform(AnswerTool(taken_ref(command.ref), value=True))
        step.complete(order.id, None)


def answer_call(step: Step, order: Order, command: AnswerToolCall) -> None:
    """Give the call that waits what came of it in the program of its tool."""
    ref = command.ref
    if _client_call(step, order, ref):
        plain_outcome = msgspec.to_builtins(command.outcome)
        step.record(UserAnswered(ref=ref, response=plain_outcome))
        step.complete(order.id, None)
        step.perform(AnswerTool(ref, plain_outcome))


def _client_call(step: Step, order: Order, ref: str) -> bool:
    asked = find_ask(step.memory, ref)
    if asked is not None and asked.owner:
        return True
    step.complete(order.id, AskNotFound(f"no call {ref!r} waits for the program of its tool"))
    return False
