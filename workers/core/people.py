"""What people decide: approvals, rejections, and answers to questions.

A decision resumes the session: it opens a cycle that tells the model, at once or, as a prompt does,
after the running one.
"""

from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from cmdc_runtime.commands import Approve, Reject, UserRespond
from cmdc_runtime.errors import ApprovalNotFound, AskNotFound, QueueFull, UsageError
from cmdc_runtime.events import UserResponded
from workers.core import consent, cycle
from workers.core.approvals import settle
from workers.core.changes import Decision
from workers.core.conversation import APPROVAL, TRIGGER, find_approval, find_ask
from workers.core.effects import AnswerTool
from workers.core.inputs import Order
from workers.core.opening import called_again
from workers.core.records import PromptQueued, UserAnswered
from workers.core.state import Approval, QueuedPrompt, State
from workers.core.step import Step

ARGUMENTS_CHARS_MAX: Final = 2_000
"""Of a call's arguments as the model is reminded of them; it has made the call itself."""
_APPROVED: Final = (
    "The call of `{tool}` with {args} was approved. Unless you have made it since, make the very"
    " same call now."
)
_REJECTED: Final = (
    "The call of `{tool}` with {args} was rejected. Do not make it again; go on without it."
)


def approve(step: Step, order: Order, command: Approve) -> None:
    """Allow the call that waits and, unless told not to, have the model make it."""
    found = _find(step, order, command.approval_id)
    if found is None:
        return
    if command.kind not in found.options:
        offered = ", ".join(found.options)
        error = UsageError(f"approval {found.id!r} offers {offered}, not {command.kind!r}")
        step.complete(order.id, error)
    elif found.ref is not None:
        settle(step, found, command.kind)
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
    if found.ref is not None:
        step.complete(order.id, None)
        consent.refuse(step, found, order.at_ms)
    else:
        decision = _Decision(found, "reject", "tool_rejected")
        _decide(step, order, decision, resumes=command.auto_resume)


def respond(step: Step, order: Order, command: UserRespond) -> None:
    """Give the answer of the user to the call that waits for it."""
    ref, response = command.ref, command.response
    if find_ask(step.memory, ref) is None:
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
    word: Decision
    trigger: Literal["tool_approved", "tool_rejected"]

    @property
    def text(self) -> str:
        """What the model is told."""
        told = _APPROVED if self.trigger == "tool_approved" else _REJECTED
        return told.format(tool=self.approval.tool, args=_shown(self.approval))


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
    settle(step, found, decision.word)
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
    if found is not None and (found.due_ms is None or order.at_ms < found.due_ms):
        return found
    waiting = ", ".join(one.id for one in step.memory.approvals) or "none"
    error = ApprovalNotFound(f"no approval {approval_id!r} waits; waiting: {waiting}")
    step.complete(order.id, error)
    return None


def _shown(approval: Approval) -> str:
    text = msgspec.json.encode(approval.args).decode()
    return text if len(text) <= ARGUMENTS_CHARS_MAX else f"{text[:ARGUMENTS_CHARS_MAX]}…"
