"""Steer and abort: how a running cycle is interrupted, softly or for good.

An abort is published behind the ends of its calls; whatever is done about it comes after all that
its step sends, so within 100 ms in every state. What may be ended by either is decided by two
functions of a call: ``_steering_ends`` and ``_abort_ends``. A cycle that has run for as long as it
may is aborted as a caller would, but for what waits: that has its turn.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from cmdc_runtime.commands import Abort, Steer, SteerReceipt
from cmdc_runtime.errors import QueueFull, UsageError
from cmdc_runtime.events import (
    AgentAbort,
    PromptDropped,
    RequestCut,
    SteeringReceived,
    ToolKilled,
)
from cmdc_runtime.extensions.hooks import BeforeSteering
from cmdc_runtime.ids import CallId
from cmdc_runtime.messages import Message
from cmdc_runtime.plain import problem_of, shown
from cmdc_runtime.reasons import LINE_CHARS_MAX
from workers.core import cycle
from workers.core.conversation import children_of, cycle_result, next_id, waiting
from workers.core.cycle import announce_abort, answer_waiters
from workers.core.expense import guess_usage
from workers.core.inputs import CycleExpired, Order, Stopped
from workers.core.message_content import refused_content
from workers.core.records import CutSpent, MessageAdded, PromptDiscarded, Steered
from workers.core.state import Asking, Memory, OpenCall, QueuedPrompt, Streaming
from workers.core.step import (
    AnswerTool,
    AskAboutSteering,
    CancelCalls,
    CancelModel,
    EndSubagents,
    Step,
)
from workers.core.tags import flush
from workers.core.tool_calls import CallEnd, end_calls

CYCLE_TIMEOUT: Final = "cycle_timeout"
_EXPIRY: Final = Abort(reason=CYCLE_TIMEOUT, clear_queue=False)
_ABORTED: Final = CallEnd(
    "Error: the call was ended because the cycle was aborted.", "aborted", is_cut=True
)
_LEFT: Final = CallEnd(
    "Error: the cycle was aborted; the call may still have run to its end.",
    "aborted",
    is_cut=True,
    leaves=True,
)
_STOPPED: Final = CallEnd(
    "Error: the call was ended because the session was stopped.",
    "stopped",
    is_cut=True,
    leaves=True,
)
_NOT_BEGUN: Final = CallEnd("Error: the call was not made: the session was stopped.", "stopped")
_STEERED: Final = CallEnd(
    "Error: the call was ended because the user has something to say, which follows.",
    "steered",
    is_cut=True,
)


def start_steering(step: Step, order: Order, command: Steer) -> None:
    """Nothing runs that could be steered: open a cycle with the text."""
    if refused := refused_content(step.memory, command.text, command.parts):
        step.complete(order.id, refused)
        return
    prompt = QueuedPrompt(order.id, command.text, parts=command.parts)
    step.complete(order.id, SteerReceipt(ref=order.id, opened=True))
    cycle.receive(step, prompt, queued=False)
    cycle.start(step, prompt, order.at_ms)


def queue_steering(step: Step, order: Order, command: Steer) -> None:
    """Queue the steering until the turn is over; plugins with the hook are asked first."""
    if not _ask_plugins_first(step, order, command):
        accept_steering(step, order, command)


def interrupt_tools(step: Step, order: Order, command: Steer) -> None:
    """Queue the steering and end calls for it; plugins with the hook are asked first."""
    if not _ask_plugins_first(step, order, command):
        end_calls_for_steering(step, order, command)


def _ask_plugins_first(step: Step, order: Order, command: Steer) -> bool:
    """Have plugins asked, if it may be queued at all; return whether one has the hook."""
    is_refused = refused_content(step.memory, command.text, command.parts) or _is_full(step.memory)
    if is_refused or not step.memory.has_hook(BeforeSteering):
        return False
    step.perform(AskAboutSteering(order, command))
    return True


def _is_full(memory: Memory) -> bool:
    return len(memory.steering) >= memory.policy.max_steering_queue


def accept_steering(step: Step, order: Order, command: Steer) -> bool:
    """Queue the steering until the turn is over, if there is room; return whether it is queued."""
    refused = refused_content(step.memory, command.text, command.parts)
    if refused is not None:
        step.complete(order.id, refused)
        return False
    if _is_full(step.memory):
        bound = step.memory.policy.max_steering_queue
        full = QueueFull(f"{bound} steerings wait already; try again when the turn is over")
        step.complete(order.id, full)
        step.publish(SteeringReceived(ref=order.id, status="rejected_full", text=command.text))
        return False
    step.record(Steered(ref=order.id, text=command.text, parts=command.parts))
    step.complete(order.id, SteerReceipt(ref=order.id, opened=False))
    step.publish(
        SteeringReceived(ref=order.id, status="queued", text=command.text, parts=command.parts)
    )
    return True


def end_calls_for_steering(step: Step, order: Order, command: Steer) -> None:
    """Queue the steering and end the calls that may be ended, so that the turn is over soon."""
    if not accept_steering(step, order, command):
        return
    memory = step.memory
    ending = _ids(
        open_
        for open_ in memory.calls
        if open_.result is None and _steering_ends(memory, open_, command)
    )
    cancel(step, ending)
    end_calls(
        step,
        lambda open_: (
            killed(memory, open_, _STEERED, "steered") if open_.call.call_id in ending else None
        ),
    )
    cycle.after_call(step, order.at_ms)


def abort_idle(step: Step, order: Order, command: Abort) -> None:
    """Nothing runs; publish that, for observers that missed the end."""
    if _is_refused(step, order, command):
        return
    step.publish(AgentAbort(reason=command.reason))
    step.complete(order.id, None)


def _is_refused(step: Step, order: Order, command: Abort) -> bool:
    """Refuse an abort whose reason can't be recorded; return whether it was refused."""
    problem = problem_of(command.reason)
    if problem is not None:
        step.complete(order.id, UsageError(f"abort: reason: {problem}"))
    return problem is not None


def abort_request(step: Step, order: Order, command: Abort) -> None:
    """Publish the abort, end the request, add what came of the answer and mark it."""
    if not _is_refused(step, order, command):
        _end_request(step, command, order.at_ms)
        step.complete(order.id, None)


def abort_tools(step: Step, order: Order, command: Abort) -> None:
    """Publish the abort and end the calls that may be ended; none of them counts any more."""
    if not _is_refused(step, order, command):
        _end_tools(step, command, order.at_ms)
        step.complete(order.id, None)


def expire_request(step: Step, expired: CycleExpired) -> None:
    """Abort a cycle that asks a model or plugins, if its time is over."""
    if _is_over(step.memory, expired):
        _end_request(step, _EXPIRY, expired.at_ms)


def expire_tools(step: Step, expired: CycleExpired) -> None:
    """Abort a cycle that runs calls, if its time is over."""
    if _is_over(step.memory, expired):
        _end_tools(step, _EXPIRY, expired.at_ms)


def stop_tools(step: Step, _stopped: Stopped) -> None:
    """End the calls, since nobody else will.

    One that waits for an approval has not begun: what is saved of the session still asks.
    """
    before = step.memory
    waiting_ids = {one.call_id for one in before.approvals}

    def end_of(open_: OpenCall) -> CallEnd | None:
        if open_.started_at_ms is not None:
            return killed(before, open_, _STOPPED, "stopped")
        return None if open_.call.call_id in waiting_ids else _NOT_BEGUN

    end_calls(step, end_of)
    step.begin_work()


def _is_over(memory: Memory, expired: CycleExpired) -> bool:
    running, due_ms = memory.cycle, memory.cycle_due_ms
    is_meant = running is not None and running.command_id == expired.command_id
    return is_meant and due_ms is not None and expired.at_ms >= due_ms


def _end_request(step: Step, wanted: Abort, at_ms: int) -> None:
    step.perform(CancelModel())
    add_partial_answer(step)
    # An answer whose calls plugins were still being asked about: none of them runs.
    end_calls(step, lambda _open: _ABORTED)
    _abort(step, wanted, at_ms)


def add_partial_answer(step: Step) -> None:
    """Add what there is of an answer, marked as interrupted, and count its request about."""
    before = step.memory
    if said := _said(before):
        partial = Message(
            id=next_id(before), role="assistant", content=said, metadata={"interrupted": True}
        )
        step.record(MessageAdded(message=partial))
    _charge_cut(step, before)


def stop_request(step: Step, _stopped: Stopped) -> None:
    """Count about what a request took; a process that goes on sends it again."""
    _charge_cut(step, step.memory)


def _said(memory: Memory) -> str:
    _, held, _ = flush(memory.answering.tags, memory.tags)
    return memory.answering.text + held


def _charge_cut(step: Step, before: Memory) -> None:
    """Count a request that is under way: its prompt, and what came of text and thinking."""
    is_sent = isinstance(before.activity, Asking | Streaming) and not before.answering.is_delayed
    if not is_sent:
        return
    usage = guess_usage(before, len(_said(before)) + before.answering.thinking_chars)
    step.record(CutSpent(usage=usage))
    step.publish(RequestCut(usage=usage))


def _end_tools(step: Step, wanted: Abort, at_ms: int) -> None:
    memory = step.memory
    ending = _ids(
        open_
        for open_ in memory.calls
        if open_.result is None and _abort_ends(memory, open_, wanted)
    )
    # A call whose subagent goes on without it has nothing left to wait for, and gives its room up.
    alone = tuple(
        call_id
        for call_id in _ids(memory.calls)
        if call_id not in ending and children_of(memory, (call_id,))
    )
    step.perform(CancelModel())
    if memory.compacting is not None and memory.compacting.ref is not None:
        no_summary = "no summary: the cycle was aborted"
        step.perform(AnswerTool(memory.compacting.ref, error=no_summary))
    cancel(step, ending)
    if alone:
        step.perform(CancelCalls(alone))
    end_calls(
        step,
        lambda open_: (
            killed(memory, open_, _ABORTED, wanted.reason)
            if open_.call.call_id in ending
            else _LEFT
        ),
    )
    _abort(step, wanted, at_ms)


def _ids(calls: Iterable[OpenCall]) -> tuple[CallId, ...]:
    return tuple(open_.call.call_id for open_ in calls)


def _steering_ends(memory: Memory, open_: OpenCall, command: Steer) -> bool:
    if children_of(memory, (open_.call.call_id,)):
        return command.scope == "tree"
    return open_.call.name not in memory.policy.immune


def _abort_ends(memory: Memory, open_: OpenCall, command: Abort) -> bool:
    call_id, name = open_.call.call_id, open_.call.name
    if children_of(memory, (call_id,)):
        return command.children
    if any(ask.call_id == call_id for ask in memory.asks):
        return True  # nobody will answer to a cycle that is over
    if open_.started_at_ms is None:
        return True  # it would begin in a cycle that is over
    is_killable = name not in memory.policy.immune
    return command.kill_tools == "all" or (command.kill_tools == "killable" and is_killable)


def cancel(step: Step, ids: tuple[CallId, ...]) -> None:
    """End these calls, and the subagents that they wait for."""
    children = children_of(step.memory, ids)
    if ids:
        step.perform(CancelCalls(ids))
    if children:
        step.perform(EndSubagents(children))


# Any: plain data of whoever ended it.
def killed(memory: Memory, open_: OpenCall, end: CallEnd, reason: Any) -> CallEnd:
    """Return ``end`` as of a call that was ended from outside.

    A thread can't be ended: what it returns is thrown away.
    """
    tool = memory.tool(open_.call.name)
    is_left = tool is not None and tool.isolation == "thread" and open_.started_at_ms
    why = shown(reason, LINE_CHARS_MAX) or "aborted"
    event = ToolKilled(
        name=open_.call.name,
        call_id=open_.call.call_id,
        reason="abandoned" if is_left else why,
    )
    return replace(end, outgoing=(event,), why=why)


def _abort(step: Step, wanted: Abort, at_ms: int) -> None:
    """End the cycle, whose calls have their ends: they are of the cycle that it ends."""
    announce_abort(step, wanted.reason)
    results = []
    for command_id, text in waiting(step.memory) if wanted.clear_queue else ():
        step.publish(PromptDropped(text=text, command_id=command_id))
        step.record(PromptDiscarded(command_id=command_id))
        results.append((command_id, cycle_result(step.memory, step.memory.outcomes[-1])))
    answer_waiters(step, *results)
    cycle.abort(step, wanted.reason, at_ms)
