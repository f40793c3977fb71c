"""What our own work reports back: the state x result table. A pair without a row changes nothing.

To add a result: its class in ``workers/core/inputs.py``, its handler and its rows here. The
handlers of what running calls report (they begin, ask, want something, and return) stand here too.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from cmdc_runtime.commands import ClientAnswer
from cmdc_runtime.events import (
    AskUser,
    ClientToolCalled,
    ContextOverflow,
    CostUnknown,
    Event,
    MessageDelta,
    MessageStart,
    PluginEvent,
    ResponseComplete,
    Retry,
    StatusUpdate,
    StreamError,
    StreamReset,
    StreamStalled,
    ThinkingDelta,
    ThinkingStart,
    TitleGenerated,
    TodoChange,
    ToolCallUnknown,
    ToolExecutionMetrics,
    ToolExecutionStart,
)
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.messages import Message
from workers.core import (
    approvals,
    cycle,
    guardrails,
    handoffs,
    inputs,
    interrupt,
    plugin_decisions,
    plugins,
    records,
    runs,
    shrink,
    subagents,
    toolset,
)
from workers.core.conversation import (
    answer_of,
    children_of,
    find_ask,
    find_running,
    is_running,
    next_id,
)
from workers.core.expense import guess, has_lost_count
from workers.core.inputs import (
    ANY_WORK,
    ApprovalExpired,
    ApprovalRequest,
    BranchDropped,
    BranchWanted,
    ClientCallDropped,
    ClientCallWanted,
    CompactWanted,
    CycleExpired,
    DelegationDropped,
    FirstChunk,
    GuardrailsAnswered,
    HistoryFiltered,
    McpServerReported,
    McpToolsListed,
    PluginAskedModel,
    PluginDelegated,
    PluginLoaded,
    PluginsAborted,
    PluginsAnswered,
    PluginsReported,
    QuestionAsked,
    Result,
    RetryDue,
    SteeringAnswered,
    Stopped,
    StreamEnded,
    StreamFailed,
    StreamSilent,
    SubagentDone,
    SubagentWanted,
    Summarized,
    SummaryFailed,
    TextArrived,
    ThoughtArrived,
    ToolBegun,
    ToolEmitted,
    ToolRefused,
    ToolReturned,
    ToolsLoaded,
    ToolStepReported,
    WaitExpired,
)
from workers.core.loops import fingerprint
from workers.core.records import (
    MessageAdded,
    Record,
    TodosChanged,
    ToolStarted,
    TurnSpent,
    UserAnswered,
    UserAsked,
)
from workers.core.retry import delay_s, may_pass, should_retry
from workers.core.state import Answering, Asking, HandingOver, Memory, Resting, State, Streaming
from workers.core.step import AnswerTool, EndSubagents, Sleep, Step
from workers.core.tags import FoundTag, Tag, feed, flush
from workers.core.tool_calls import CallEnd, close_call

# --- reports of running calls ---------------------------------------------------------------------

_UNKNOWN_TOOL: Final = "unknown_tool"
_BAD_ARGUMENTS: Final = "invalid_arguments"
"""Why a call that returns at once was not made, as ``ToolBlocked`` has it."""


def begin(step: Step, begun: ToolBegun) -> None:
    """Record that a call runs, before it does; an approval that it needs is used up.

    A call that runs again after a crash has started already: observers get its new time only.
    """
    open_ = find_running(step.memory, begun.call_id)
    if open_ is None:
        return
    call = open_.call
    call_hash = fingerprint(call.name, call.arguments, None)
    is_first = open_.started_at_ms is None  # made again after a crash it has its approval
    granted = call_hash if is_first and call_hash in step.memory.granted else None
    step.record(ToolStarted(call_id=call.call_id, at_ms=begun.at_ms, granted=granted))
    if is_first:
        started = ToolExecutionStart(
            name=call.name,
            call_id=call.call_id,
            args=call.arguments if begun.args is None else begun.args,
            summary=begun.summary,
        )
        step.publish(started)
    meta = {"started_at_ms": begun.at_ms}
    step.publish(ToolExecutionMetrics(name=call.name, call_id=call.call_id, meta=meta))


def collect(step: Step, returned: ToolReturned) -> None:
    """Record one result; after the last one of the batch the cycle goes on."""
    open_ = find_running(step.memory, returned.call_id)
    if open_ is None:
        return
    name, call_id = open_.call.name, returned.call_id
    wanted = handoffs.asked_for(step.memory, open_.call) if returned.ok else None
    if wanted is not None and (problem := handoffs.problem(step.memory, wanted)) is not None:
        returned, wanted = dataclasses.replace(returned, ok=False, text=f"Error: {problem}"), None
    outgoing: list[Record | Event] = []
    if returned.is_unknown:
        outgoing.append(ToolCallUnknown(name=name, call_id=call_id))
    if returned.effect is not None:
        outgoing += _apply_effect(step.memory, *returned.effect)
    if open_.started_at_ms is not None:
        meta = {
            "started_at_ms": open_.started_at_ms,
            "ended_at_ms": returned.at_ms,
            "duration_ms": max(0, returned.at_ms - open_.started_at_ms),
        }
        outgoing.append(ToolExecutionMetrics(name=name, call_id=call_id, meta=meta))
    why_not = _UNKNOWN_TOOL if returned.is_unknown else _BAD_ARGUMENTS
    left = children_of(step.memory, (call_id,))  # the call has waited long enough
    end = CallEnd(
        returned.text,
        why_not,
        returned.ok,
        tuple(outgoing),
        returned.is_cut,
        handed_to="" if wanted is None else wanted.name,
    )
    close_call(step, open_, end)
    if left:
        step.perform(EndSubagents(left))
    cycle.after_call(step, returned.at_ms)


def emit(step: Step, emitted: ToolEmitted) -> None:
    """Publish an event of a running call."""
    if is_running(step.memory, emitted.call_id):
        step.publish(PluginEvent(name=emitted.name, payload=emitted.payload))


def report_step(step: Step, outgoing: inputs.ToolStepReported) -> None:
    """Publish a step of a running call, and count it: a later run passes over it."""
    if is_running(step.memory, outgoing.call_id):
        run_step = runs.step_of(outgoing.event)
        step.record(records.ToolStepRecorded(call_id=outgoing.call_id, step=run_step))
        step.publish(outgoing.event)


def keep(step: Step, kept: inputs.ToolKept) -> None:
    """Keep what a running call goes on with in a later run."""
    if is_running(step.memory, kept.call_id):
        step.record(records.CallKept(call_id=kept.call_id, content=kept.content, asked=kept.asked))


def ask_user(step: Step, asked: QuestionAsked) -> None:
    """Put a question to the user, or answer it at once where that was done before a crash."""
    if not is_running(step.memory, asked.call_id):
        return
    if any(known.ref == asked.ref for known, _ in step.memory.answers):
        step.perform(AnswerTool(asked.ref, answer_of(step.memory, asked.ref)))
        return
    step.record(UserAsked(ref=asked.ref, call_id=asked.call_id))
    step.publish(
        AskUser(
            session_id=step.memory.policy.session_id,
            question=asked.question,
            options=asked.options,
            ref=asked.ref,
        )
    )


def call_client(step: Step, wanted: ClientCallWanted) -> None:
    """Have a call made by the program of its tool; its answer of before a crash is its answer."""
    memory = step.memory
    if not is_running(memory, wanted.call_id):
        return
    if (known := answer_of(memory, wanted.ref)) is not None:
        step.perform(AnswerTool(wanted.ref, known))
        return
    step.record(UserAsked(ref=wanted.ref, call_id=wanted.call_id, owner=wanted.owner))
    name = next(one.call.name for one in memory.calls if one.call.call_id == wanted.call_id)
    step.publish(
        ClientToolCalled(
            session_id=memory.policy.session_id,
            name=name,
            call_id=wanted.call_id,
            ref=wanted.ref,
            owner=wanted.owner,
            args=wanted.arguments,
        )
    )


def drop_client_call(step: Step, dropped: ClientCallDropped) -> None:
    """Withdraw a call that nobody has taken; one that has its answer keeps it."""
    if find_ask(step.memory, dropped.ref) is not None:
        absent = msgspec.to_builtins(ClientAnswer(ok=False))
        step.record(UserAnswered(ref=dropped.ref, response=absent))
        step.perform(AnswerTool(dropped.ref, absent))


# --- effects that tools return ------------------------------------------------------------------


class _Todos(msgspec.Struct, frozen=True):
    todos: tuple[dict[str, str], ...]


def _update_todos(memory: Memory, payload: Any) -> tuple[Record | Event, ...]:
    todos = msgspec.convert(payload, _Todos).todos
    outgoing = TodoChange(session_id=memory.policy.session_id, todos=todos)
    return TodosChanged(todos=todos), outgoing


# Any: the payload of the effect of its own row.
_EFFECTS: Final[Mapping[str, Callable[[Memory, Any], tuple[Record | Event, ...]]]] = {
    "update_todos": _update_todos,
}
"""What a tool can make the kernel do; any other effect is published under its name."""


def _apply_effect(memory: Memory, name: str, payload: Any) -> tuple[Record | Event, ...]:
    outgoing = PluginEvent(name=name, payload=payload)
    if name not in _EFFECTS:
        return (outgoing,)
    try:
        return (outgoing, *_EFFECTS[name](memory, payload))
    except msgspec.ValidationError:
        return (outgoing,)  # not in the kernel's form: somebody else's effect of the same name


# --- the table ------------------------------------------------------------------------------------

ResultHandler = Callable[[Step, Any], None]  # Any: a handler takes the result of its own row


_TAG_EVENTS: Final[Mapping[Tag, Callable[[str], Event]]] = {
    Tag.STATUS: lambda text: StatusUpdate(text=text),
    Tag.TITLE: lambda text: TitleGenerated(title=text),
}


def stream(step: Step, _chunk: FirstChunk) -> None:
    """Begin to stream: the provider answers."""
    step.become(Streaming(step.memory.answering))


def show_thinking(step: Step, thought: ThoughtArrived) -> None:
    """Show a piece of thinking."""
    answering = step.memory.answering
    if not answering.is_thinking_started:
        step.publish(ThinkingStart())
    chars = answering.thinking_chars + len(thought.text)
    step.become(Streaming(replace(answering, is_thinking_started=True, thinking_chars=chars)))
    step.publish(ThinkingDelta(delta=thought.text))


def show_text(step: Step, piece: TextArrived) -> None:
    """Show a piece of text, without the tags in it."""
    if piece.found is not None:
        _show(step, piece.text, piece.found)
        return
    answering, known = step.memory.answering, step.memory.tags
    tags, clean, found = feed(answering.tags, piece.text, known)
    step.become(Streaming(replace(answering, tags=tags)))
    _show(step, clean, found)


def _show(step: Step, clean: str, found: tuple[FoundTag, ...]) -> None:
    # A filter may have left nothing of one.
    step.publish(*(_TAG_EVENTS[seen.tag](seen.text) for seen in found if seen.text))
    if not clean:
        return
    answering = step.memory.answering
    if not answering.is_text_started:
        step.publish(MessageStart())
    step.publish(MessageDelta(delta=clean))
    said = answering.text + clean
    step.become(Streaming(replace(answering, is_text_started=True, text=said)))


def stall(step: Step, silent: StreamSilent) -> None:
    """Publish that nothing comes."""
    step.publish(StreamStalled(elapsed_s=silent.elapsed_s))


def complete(step: Step, ended: StreamEnded) -> None:
    """Add the answer; run the tools that it asks for, or end the cycle."""
    _, clean, found = flush(step.memory.answering.tags, step.memory.tags)
    _show(step, clean, found)
    before, reply = step.memory, ended.reply
    message = Message(
        id=next_id(before),
        role="assistant",
        content=before.answering.text,
        tool_calls=reply.tool_calls,
        thinking=reply.thinking or None,
        metadata={"finish_reason": reply.finish_reason or ""},
    )
    usage = reply.usage or guess(before, message)
    step.record(MessageAdded(message=message))
    step.record(TurnSpent(usage=usage))
    step.become(Resting())  # until what follows says what is done next
    step.publish(ResponseComplete(message=message, usage=usage))
    if has_lost_count(before, step.memory):
        step.publish(CostUnknown(model=before.model))
    cycle.after_answer(step, ended.at_ms)


def recover(step: Step, failed: StreamFailed) -> None:
    """Ask again after a delay if that may help, else end the cycle."""
    policy, has_answered = step.memory.policy, step.memory.has_answered
    attempt = step.memory.answering.retries + 1
    step.publish(StreamError(reason=failed.reason))
    if failed.kind is FailureKind.OVERFLOW:
        step.publish(ContextOverflow(reason=failed.reason))
        _make_fit(step, failed.at_ms)
        return
    if not should_retry(failed.kind, attempt, policy.max_retries, has_answered=has_answered):
        _give_up(step, failed)
        return
    delay = delay_s(policy.backoff, attempt, failed.retry_after_s, failed.chance)
    _reset_answer(step, attempt)
    step.publish(Retry(attempt=attempt, delay_ms=round(delay * 1000), reason=failed.reason))
    step.begin_work()
    step.perform(Sleep(step.memory.work, delay))


def _reset_answer(step: Step, retries: int) -> None:
    """Drop the answer so far, and publish that; until it is sent again no request is under way."""
    shown = step.memory.answering
    if shown.is_text_started or shown.is_thinking_started:
        step.publish(StreamReset())
    fresh = Answering(retries=retries, is_compacted=shown.is_compacted, is_delayed=True)
    step.become(Asking(fresh))


def _make_fit(step: Step, at_ms: int) -> None:
    """Compact once and ask again; a second overflow of the same turn ends the cycle."""
    answering = step.memory.answering
    if answering.is_compacted or not cycle.evictable(step.memory):
        cycle.end_at_limit(step, cycle.CONTEXT_OVERFLOW, at_ms)
        return
    _reset_answer(step, answering.retries)
    cycle.compact(step, "overflow")


def _give_up(step: Step, failed: StreamFailed) -> None:
    if failed.kind is FailureKind.TIMEOUT:
        cycle.end_at_limit(step, cycle.PROVIDER_TIMEOUT, failed.at_ms)
        return
    retryable = may_pass(failed.kind, has_answered=step.memory.has_answered)
    cycle.fail(step, failed.reason, failed.at_ms, retryable=retryable)


def retry(step: Step, _due: RetryDue) -> None:
    """Send the request once more."""
    cycle.ask_again(step)


def hand_over(step: Step, filtered: HistoryFiltered) -> None:
    """Make the handoff that waited for a function, and go on as the next agent."""
    if not isinstance(step.memory.activity, HandingOver):
        return
    handoffs.take(step, filtered)
    cycle.after_batch(step, filtered.at_ms)


# fmt: off
_I, _R, _S, _T = State.IDLE, State.RUNNING, State.STREAMING, State.EXECUTING_TOOLS
TRANSITIONS: Final[Mapping[tuple[State, type], ResultHandler]] = {
    (_R, FirstChunk):     stream,
    (_R, StreamSilent):   stall,
    (_R, StreamFailed):   recover,
    (_R, RetryDue):       retry,
    (_R, Summarized):     shrink.go_on,
    (_R, SummaryFailed):  shrink.do_without,
    (_R, HistoryFiltered): hand_over,
    (_R, GuardrailsAnswered): guardrails.take,
    (_S, GuardrailsAnswered): guardrails.take,
    (_S, TextArrived):    show_text,
    (_S, ThoughtArrived): show_thinking,
    (_S, StreamSilent):   stall,
    (_S, StreamEnded):    complete,
    (_S, StreamFailed):   recover,
    (_T, ToolBegun):      begin,
    (_T, ApprovalRequest): approvals.request_approval,
    (_T, ToolReturned):   collect,
    (_T, ToolEmitted):    emit,
    (_T, ToolStepReported):       report_step,
    (_T, inputs.ToolKept): keep,
    (_T, QuestionAsked):  ask_user,
    (_T, ClientCallWanted):  call_client,
    (_T, ClientCallDropped): drop_client_call,
    (_T, SubagentWanted): subagents.delegate,
    (_T, BranchWanted):   subagents.branch,
    (_T, BranchDropped):  subagents.drop_branch,
    (_T, CompactWanted):  shrink.compact_for_tool,
    (_T, Summarized):     shrink.report,
    (_T, SummaryFailed):  shrink.report_failure,
    (_R, PluginsAnswered):      plugin_decisions.go_on,
    (_T, PluginsAnswered):      plugin_decisions.go_on,
    (_R, PluginsAborted): plugin_decisions.stop,
    (_S, PluginsAborted): plugin_decisions.stop,
    (_T, PluginsAborted): plugin_decisions.stop,
    (_T, ToolRefused):    plugin_decisions.refuse,
    (_I, PluginsReported):   plugin_decisions.report,
    (_R, PluginsReported):   plugin_decisions.report,
    (_S, PluginsReported):   plugin_decisions.report,
    (_T, PluginsReported):   plugin_decisions.report,
    (_I, SteeringAnswered): plugin_decisions.apply_steering_verdict,
    (_R, SteeringAnswered): plugin_decisions.apply_steering_verdict,
    (_S, SteeringAnswered): plugin_decisions.apply_steering_verdict,
    (_T, SteeringAnswered): plugin_decisions.apply_steering_verdict,
    (_I, PluginAskedModel): plugin_decisions.count_model_call,
    (_R, PluginAskedModel): plugin_decisions.count_model_call,
    (_S, PluginAskedModel): plugin_decisions.count_model_call,
    (_T, PluginAskedModel): plugin_decisions.count_model_call,
    (_I, PluginDelegated): subagents.delegate_for_plugin,
    (_R, PluginDelegated): subagents.delegate_for_plugin,
    (_S, PluginDelegated): subagents.delegate_for_plugin,
    (_T, PluginDelegated): subagents.delegate_for_plugin,
    (_I, DelegationDropped): subagents.drop,
    (_R, DelegationDropped): subagents.drop,
    (_S, DelegationDropped): subagents.drop,
    (_T, DelegationDropped): subagents.drop,
    (_I, SubagentDone):   subagents.subagent_done,
    (_R, SubagentDone):   subagents.subagent_done,
    (_S, SubagentDone):   subagents.subagent_done,
    (_T, SubagentDone):   subagents.subagent_done,
    (_I, ApprovalExpired): approvals.expire,
    (_R, ApprovalExpired): approvals.expire,
    (_S, ApprovalExpired): approvals.expire,
    (_T, ApprovalExpired): approvals.expire,
    (_R, CycleExpired):   interrupt.expire_request,
    (_S, CycleExpired):   interrupt.expire_request,
    (_T, CycleExpired):   interrupt.expire_tools,
    (_I, WaitExpired):    cycle.expire_waits,
    (_R, WaitExpired):    cycle.expire_waits,
    (_S, WaitExpired):    cycle.expire_waits,
    (_T, WaitExpired):    cycle.expire_waits,
    (_R, Stopped):        interrupt.stop_request,
    (_S, Stopped):        interrupt.stop_request,
    (_T, Stopped):        interrupt.stop_tools,
    (_I, PluginLoaded): plugins.use_loaded,
    (_R, PluginLoaded): plugins.use_loaded,
    (_S, PluginLoaded): plugins.use_loaded,
    (_T, PluginLoaded): plugins.use_loaded,
    (_I, ToolsLoaded):    toolset.use_loaded,
    (_R, ToolsLoaded):    toolset.use_loaded,
    (_S, ToolsLoaded):    toolset.use_loaded,
    (_T, ToolsLoaded):    toolset.use_loaded,
    (_I, McpServerReported): toolset.report_server,
    (_R, McpServerReported): toolset.report_server,
    (_S, McpServerReported): toolset.report_server,
    (_T, McpServerReported): toolset.report_server,
    (_I, McpToolsListed): toolset.note_tools,
    (_R, McpToolsListed): toolset.note_tools,
    (_S, McpToolsListed): toolset.note_tools,
    (_T, McpToolsListed): toolset.note_tools,
}
# fmt: on


def apply(memory: Memory, result: Result) -> Step:
    """Apply one result; a late one, of work that is over, changes nothing that is remembered."""
    step = Step(memory)
    handler = TRANSITIONS.get((memory.state, type(result)))
    if handler is None or result.work not in {memory.work, ANY_WORK}:
        _answer_late(step, result)
    else:
        handler(step, result)
    return step


def _answer_late(step: Step, result: Result) -> None:
    """Answer a call that an abort left running and that would wait in vain for what it asks."""
    if isinstance(
        result, QuestionAsked | ClientCallWanted | CompactWanted | SubagentWanted | BranchWanted
    ):
        step.perform(AnswerTool(result.ref, error="the cycle that made this call is over"))
    elif isinstance(result, BranchDropped):
        step.perform(AnswerTool(result.ended))
