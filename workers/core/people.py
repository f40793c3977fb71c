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
from workers.core.changes import Decision, answer, find_approval, find_ask
from workers.core.conversation import APPROVAL, TRIGGER, enqueue
from workers.core.effects import AnswerTool, Keep, Publish, Settle, Step
from workers.core.inputs import Order
from workers.core.opening import called_again
from workers.core.records import PromptQueued, UserAnswered
from workers.core.state import Approval, Memory, QueuedPrompt, State

ARGUMENTS_CHARS_MAX: Final = 2_000
"""Of a call's arguments as the model is reminded of them; it has made the call itself."""
_APPROVED: Final = (
    "The call of `{tool}` with {args} was approved. Unless you have made it since, make the very"
    " same call now."
)
_REJECTED: Final = (
    "The call of `{tool}` with {args} was rejected. Do not make it again; go on without it."
)


def approve(state: State, memory: Memory, order: Order, command: Approve) -> Step:
    """Allow the call that waits and, unless told not to, have the model make it."""
    found = find_approval(memory, command.approval_id)
    if found is None or _is_late(found, order):
        return _unknown(state, memory, order, command.approval_id)
    if command.kind not in found.options:
        offered = ", ".join(found.options)
        error = UsageError(f"approval {found.id!r} offers {offered}, not {command.kind!r}")
        return Step(state, memory, (Settle(order.id, error),))
    if found.ref is not None:
        memory, effects = settle(memory, found, command.kind)
        return Step(
            state, memory, (*effects, Settle(order.id, None), AnswerTool(found.ref, value=True))
        )
    decision = _Decision(found, command.kind, "tool_approved")
    return _decide(state, memory, order, decision, resumes=command.auto_resume)


def reject(state: State, memory: Memory, order: Order, command: Reject) -> Step:
    """Refuse the call that waits; if asked to, have the model go on without it.

    In any case its result says so from here on.
    """
    found = find_approval(memory, command.approval_id)
    if found is None or _is_late(found, order):
        return _unknown(state, memory, order, command.approval_id)
    if found.ref is not None:
        refused = consent.refuse(state, memory, found, order.at_ms)
        return cycle.then(refused, (Settle(order.id, None),))
    decision = _Decision(found, "reject", "tool_rejected")
    return _decide(state, memory, order, decision, resumes=command.auto_resume)


def respond(state: State, memory: Memory, order: Order, command: UserRespond) -> Step:
    """Give the answer of the user to the call that waits for it."""
    if find_ask(memory, command.ref) is None:
        unknown = AskNotFound(f"no question {command.ref!r} waits for an answer")
        return Step(state, memory, (Settle(order.id, unknown),))
    told = UserResponded(
        session_id=memory.policy.session_id, ref=command.ref, response=command.response
    )
    effects = (
        Keep(UserAnswered(ref=command.ref, response=command.response)),
        Publish(told),
        Settle(order.id, None),
        AnswerTool(command.ref, command.response),
    )
    return Step(state, answer(memory, command.ref, command.response), effects)


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


def _decide(
    state: State, memory: Memory, order: Order, decision: _Decision, *, resumes: bool
) -> Step:
    found = decision.approval
    metadata: dict[str, object] = {APPROVAL: found.id, TRIGGER: decision.trigger}
    call = called_again(memory, found) if decision.trigger == "tool_approved" else None
    prompt = QueuedPrompt(order.id, decision.text, metadata, call)
    decided, effects = settle(memory, found, decision.word)
    if not resumes:
        return Step(state, decided, (*effects, Settle(order.id, None)))
    if state is State.IDLE:
        begun = cycle.start(decided, prompt, order.at_ms)
        return cycle.then(begun, (*effects, Settle(order.id, order.id)))
    bound = memory.policy.max_queued_prompts
    if len(memory.queue) >= bound:
        full = QueueFull(f"{bound} prompts wait already; decide again when a cycle has ended")
        return Step(state, memory, (Settle(order.id, full),))
    kept = Keep(
        PromptQueued(command_id=order.id, text=prompt.text, metadata=metadata, call=prompt.call)
    )
    return Step(state, enqueue(decided, prompt), (*effects, kept, Settle(order.id, order.id)))


def _is_late(found: Approval, order: Order) -> bool:
    """Say whether the time to decide is over, though nobody has noted it yet."""
    return found.due_ms is not None and order.at_ms >= found.due_ms


def _unknown(state: State, memory: Memory, order: Order, approval_id: str) -> Step:
    waiting = ", ".join(one.id for one in memory.approvals) or "none"
    error = ApprovalNotFound(f"no approval {approval_id!r} waits; waiting: {waiting}")
    return Step(state, memory, (Settle(order.id, error),))


def _shown(approval: Approval) -> str:
    text = msgspec.json.encode(approval.args).decode()
    return text if len(text) <= ARGUMENTS_CHARS_MAX else f"{text[:ARGUMENTS_CHARS_MAX]}…"
