"""What our own work reports back: the state x result table. A pair without a row changes nothing.

To add a result: its class in ``workers/core/inputs.py``, its handler and its rows here.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from cmdc_runtime.events import (
    ContextOverflow,
    CostUnknown,
    Event,
    MessageDelta,
    MessageStart,
    ResponseComplete,
    Retry,
    StatusUpdate,
    StreamError,
    StreamReset,
    StreamStalled,
    ThinkingDelta,
    ThinkingStart,
    TitleGenerated,
)
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.messages import Message
from workers.core import (
    consent,
    cycle,
    delegation,
    endings,
    heeding,
    interrupt,
    pluginset,
    shrink,
    toolset,
    toolwork,
)
from workers.core.conversation import count_answer, next_id, say
from workers.core.effects import AnswerTool, Effect, Keep, Publish, Sleep, Step
from workers.core.expense import guess, has_lost_count
from workers.core.inputs import (
    ANY_WORK,
    ApprovalExpired,
    ApprovalNeeded,
    BranchDropped,
    BranchWanted,
    CompactWanted,
    Consulted,
    CycleExpired,
    DelegationDropped,
    FirstChunk,
    PluginAskedModel,
    PluginDelegated,
    PluginLoaded,
    PluginsAborted,
    PluginsSpoke,
    QuestionAsked,
    Result,
    RetryDue,
    SteeringJudged,
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
    ToolTold,
    WaitExpired,
)
from workers.core.records import Said, TurnSpent
from workers.core.retry import delay_s, may_pass, should_retry
from workers.core.state import Answering, Memory, State
from workers.core.tags import Found, Tag, feed, flush

Handler = Callable[[State, Memory, Any], Step]  # Any: a handler takes the result of its own row


_TAG_EVENTS: Final[Mapping[Tag, Callable[[str], Event]]] = {
    Tag.STATUS: lambda text: StatusUpdate(text=text),
    Tag.TITLE: lambda text: TitleGenerated(title=text),
}


def stream(_state: State, memory: Memory, _chunk: FirstChunk) -> Step:
    """Note that the provider answers."""
    return Step(State.STREAMING, memory)


def think(state: State, memory: Memory, thought: ThoughtArrived) -> Step:
    """Show a piece of thinking."""
    effects: tuple[Effect, ...] = (Publish(ThinkingDelta(delta=thought.text)),)
    if not memory.answering.is_thinking_started:
        memory = replace(memory, answering=replace(memory.answering, is_thinking_started=True))
        effects = (Publish(ThinkingStart()), *effects)
    return Step(state, memory, effects)


def speak(state: State, memory: Memory, piece: TextArrived) -> Step:
    """Show a piece of text, without the tags in it."""
    if piece.found is not None:
        return Step(state, *_show(memory, piece.text, piece.found))
    tags, clean, found = feed(memory.answering.tags, piece.text, memory.policy.tags)
    answering = replace(memory.answering, tags=tags)
    return Step(state, *_show(replace(memory, answering=answering), clean, found))


def _show(
    memory: Memory, clean: str, found: tuple[Found, ...]
) -> tuple[Memory, tuple[Effect, ...]]:
    told = [seen for seen in found if seen.text]  # a filter may have left nothing of one
    effects: list[Effect] = [Publish(_TAG_EVENTS[seen.tag](seen.text)) for seen in told]
    if clean:
        answering = memory.answering
        if not answering.is_text_started:
            effects.append(Publish(MessageStart()))
        effects.append(Publish(MessageDelta(delta=clean)))
        answering = replace(answering, is_text_started=True, text=answering.text + clean)
        memory = replace(memory, answering=answering)
    return memory, tuple(effects)


def stall(state: State, memory: Memory, silent: StreamSilent) -> Step:
    """Tell that nothing comes."""
    return Step(state, memory, (Publish(StreamStalled(elapsed_s=silent.elapsed_s)),))


def complete(_state: State, memory: Memory, ended: StreamEnded) -> Step:
    """Add the answer; run the tools that it asks for, or end the cycle."""
    tags, clean, found = flush(memory.answering.tags, memory.policy.tags)
    memory = replace(memory, answering=replace(memory.answering, tags=tags))
    memory, shown = _show(memory, clean, found)
    message = Message(
        id=next_id(memory),
        role="assistant",
        content=memory.answering.text,
        tool_calls=ended.reply.tool_calls,
        thinking=ended.reply.thinking or None,
        metadata={"finish_reason": ended.reply.finish_reason or ""},
    )
    usage = ended.reply.usage or guess(memory, message)
    before, memory = memory, count_answer(say(memory, message), usage)
    memory = replace(memory, answering=Answering())
    effects = (
        *shown,
        Keep(Said(message=message)),
        Keep(TurnSpent(usage=usage)),
        Publish(ResponseComplete(message=message, usage=usage)),
        *([Publish(CostUnknown(model=memory.model))] if has_lost_count(before, memory) else []),
    )
    return cycle.then(cycle.after_answer(memory, ended.at_ms), effects)


def recover(_state: State, memory: Memory, failed: StreamFailed) -> Step:
    """Ask again after a delay if that may help, else end the cycle."""
    attempt = memory.answering.retries + 1
    said: tuple[Effect, ...] = (Publish(StreamError(reason=failed.reason)),)
    if failed.kind is FailureKind.OVERFLOW:
        overflow = Publish(ContextOverflow(reason=failed.reason))
        return cycle.then(_make_fit(memory, failed.at_ms), (*said, overflow))
    if not should_retry(
        failed.kind, attempt, memory.policy.max_retries, has_answered=memory.has_answered
    ):
        return cycle.then(_give_up(memory, failed), said)
    delay = delay_s(memory.policy.backoff, attempt, failed.retry_after_s, failed.chance)
    memory, reset = _take_back(memory, attempt)
    again = Retry(attempt=attempt, delay_ms=round(delay * 1000), reason=failed.reason)
    memory = replace(memory, work=memory.work + 1)
    return Step(State.RUNNING, memory, (*said, *reset, Publish(again), Sleep(memory.work, delay)))


def _take_back(memory: Memory, retries: int) -> tuple[Memory, tuple[Effect, ...]]:
    """Forget the answer so far, and tell observers to, before the request is sent again."""
    shown = memory.answering
    is_shown = shown.is_text_started or shown.is_thinking_started
    fresh = Answering(retries=retries, is_compacted=shown.is_compacted)
    return replace(memory, answering=fresh), (Publish(StreamReset()),) if is_shown else ()


def _make_fit(memory: Memory, at_ms: int) -> Step:
    """Compact once and ask again; a second overflow of the same turn ends the cycle."""
    fresh, reset = _take_back(memory, memory.answering.retries)
    shorter = None if memory.answering.is_compacted else cycle.compact(fresh, "overflow")
    if shorter is None:
        return cycle.end_at_limit(memory, cycle.CONTEXT_OVERFLOW, at_ms)
    return cycle.then(shorter, reset)


def _give_up(memory: Memory, failed: StreamFailed) -> Step:
    if failed.kind is FailureKind.TIMEOUT:
        return cycle.end_at_limit(memory, cycle.PROVIDER_TIMEOUT, failed.at_ms)
    retryable = may_pass(failed.kind, has_answered=memory.has_answered)
    return cycle.fail(memory, failed.reason, failed.at_ms, retryable=retryable)


def retry(_state: State, memory: Memory, _due: RetryDue) -> Step:
    """Send the request once more."""
    return cycle.ask_again(memory)


# fmt: off
_I, _R, _S, _T = State.IDLE, State.RUNNING, State.STREAMING, State.EXECUTING_TOOLS
TRANSITIONS: Final[Mapping[tuple[State, type], Handler]] = {
    (_R, FirstChunk):     stream,
    (_R, StreamSilent):   stall,
    (_R, StreamFailed):   recover,
    (_R, RetryDue):       retry,
    (_R, Summarized):     shrink.go_on,
    (_R, SummaryFailed):  shrink.do_without,
    (_S, TextArrived):    speak,
    (_S, ThoughtArrived): think,
    (_S, StreamSilent):   stall,
    (_S, StreamEnded):    complete,
    (_S, StreamFailed):   recover,
    (_T, ToolBegun):      toolwork.begin,
    (_T, ApprovalNeeded): consent.require_approval,
    (_T, ToolReturned):   toolwork.collect,
    (_T, ToolEmitted):    toolwork.emit,
    (_T, ToolTold):       toolwork.tell,
    (_T, QuestionAsked):  toolwork.ask_user,
    (_T, SubagentWanted): delegation.delegate,
    (_T, BranchWanted):   delegation.branch,
    (_T, BranchDropped):  delegation.drop_branch,
    (_T, CompactWanted):  shrink.compact_for_tool,
    (_T, Summarized):     shrink.report,
    (_T, SummaryFailed):  shrink.report_failure,
    (_R, Consulted):      heeding.go_on,
    (_T, Consulted):      heeding.go_on,
    (_R, PluginsAborted): heeding.stop,
    (_S, PluginsAborted): heeding.stop,
    (_T, PluginsAborted): heeding.stop,
    (_T, ToolRefused):    heeding.refuse,
    (_I, PluginsSpoke):   heeding.listen,
    (_R, PluginsSpoke):   heeding.listen,
    (_S, PluginsSpoke):   heeding.listen,
    (_T, PluginsSpoke):   heeding.listen,
    (_I, SteeringJudged): heeding.judge,
    (_R, SteeringJudged): heeding.judge,
    (_S, SteeringJudged): heeding.judge,
    (_T, SteeringJudged): heeding.judge,
    (_I, PluginAskedModel): heeding.charge,
    (_R, PluginAskedModel): heeding.charge,
    (_S, PluginAskedModel): heeding.charge,
    (_T, PluginAskedModel): heeding.charge,
    (_I, PluginDelegated): delegation.delegate_for_plugin,
    (_R, PluginDelegated): delegation.delegate_for_plugin,
    (_S, PluginDelegated): delegation.delegate_for_plugin,
    (_T, PluginDelegated): delegation.delegate_for_plugin,
    (_I, DelegationDropped): delegation.drop,
    (_R, DelegationDropped): delegation.drop,
    (_S, DelegationDropped): delegation.drop,
    (_T, DelegationDropped): delegation.drop,
    (_I, SubagentDone):   delegation.settle_subagent,
    (_R, SubagentDone):   delegation.settle_subagent,
    (_S, SubagentDone):   delegation.settle_subagent,
    (_T, SubagentDone):   delegation.settle_subagent,
    (_I, ApprovalExpired): consent.expire,
    (_R, ApprovalExpired): consent.expire,
    (_S, ApprovalExpired): consent.expire,
    (_T, ApprovalExpired): consent.expire,
    (_R, CycleExpired):   interrupt.expire_request,
    (_S, CycleExpired):   interrupt.expire_request,
    (_T, CycleExpired):   interrupt.expire_tools,
    (_I, WaitExpired):    endings.give_up_waits,
    (_R, WaitExpired):    endings.give_up_waits,
    (_S, WaitExpired):    endings.give_up_waits,
    (_T, WaitExpired):    endings.give_up_waits,
    (_T, Stopped):        interrupt.stop_tools,
    (_I, PluginLoaded): pluginset.use_loaded,
    (_R, PluginLoaded): pluginset.use_loaded,
    (_S, PluginLoaded): pluginset.use_loaded,
    (_T, PluginLoaded): pluginset.use_loaded,
    (_I, ToolsLoaded):    toolset.use_loaded,
    (_R, ToolsLoaded):    toolset.use_loaded,
    (_S, ToolsLoaded):    toolset.use_loaded,
    (_T, ToolsLoaded):    toolset.use_loaded,
}
# fmt: on


def apply(state: State, memory: Memory, result: Result) -> Step:
    """Apply one result; a late one, of work that is over, changes nothing that is remembered."""
    handler = TRANSITIONS.get((state, type(result)))
    if handler is None or result.work not in {memory.work, ANY_WORK}:
        return Step(state, memory, _turned_away(result))
    return handler(state, memory, result)


def _turned_away(result: Result) -> tuple[Effect, ...]:
    """Answer a call that an abort left running and that would wait in vain for what it asks."""
    if isinstance(result, QuestionAsked | CompactWanted | SubagentWanted | BranchWanted):
        return (AnswerTool(result.ref, error="the cycle that made this call is over"),)
    return (AnswerTool(result.ended),) if isinstance(result, BranchDropped) else ()
