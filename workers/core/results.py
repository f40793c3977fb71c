"""What our own work reports back: the state x result table. A pair without a row changes nothing.

To add a result: its class in ``workers/core/state.py``, its handler and its rows here.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from cmdc_runtime.events import (
    ContextOverflow,
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
    ToolCallUnknown,
    ToolExecutionEnd,
    ToolExecutionMetrics,
    ToolExecutionStart,
)
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.messages import Message, TokenUsage
from workers.core import cycle
from workers.core.conversation import (
    begin_call,
    end_call,
    find_call,
    next_id,
    result_of,
    say,
    spend,
)
from workers.core.records import Said, ToolEnded, ToolStarted, TurnSpent
from workers.core.retry import delay_s, should_retry
from workers.core.state import (
    Answering,
    Effect,
    FirstChunk,
    Keep,
    Memory,
    Publish,
    Result,
    RetryDue,
    Sleep,
    State,
    Step,
    StreamEnded,
    StreamFailed,
    StreamSilent,
    TextArrived,
    ThoughtArrived,
    ToolBegun,
    ToolReturned,
)
from workers.core.tags import Found, Tag, feed, flush

Handler = Callable[[State, Memory, Any], Step]  # Any: a handler takes the result of its own row

CONTEXT_OVERFLOW: Final = "context_overflow"
PROVIDER_TIMEOUT: Final = "provider_timeout"

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
    tags, clean, found = feed(memory.answering.tags, piece.text)
    answering = replace(memory.answering, tags=tags)
    return Step(state, *_show(replace(memory, answering=answering), clean, found))


def _show(
    memory: Memory, clean: str, found: tuple[Found, ...]
) -> tuple[Memory, tuple[Effect, ...]]:
    effects: list[Effect] = [Publish(_TAG_EVENTS[seen.tag](seen.text)) for seen in found]
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
    tags, clean, found = flush(memory.answering.tags)
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
    usage = ended.reply.usage or TokenUsage()
    memory = replace(spend(say(memory, message), usage), answering=Answering())
    effects = (
        *shown,
        Keep(Said(message=message)),
        Keep(TurnSpent(usage=usage)),
        Publish(ResponseComplete(message=message)),
    )
    if message.tool_calls:
        return cycle.then(cycle.call_tools(memory, message.tool_calls), effects)
    return cycle.then(cycle.finish(memory, ended.at_ms), effects)


def recover(_state: State, memory: Memory, failed: StreamFailed) -> Step:
    """Ask again after a delay if that may help, else end the cycle."""
    attempt = memory.answering.retries + 1
    said: tuple[Effect, ...] = (Publish(StreamError(reason=failed.reason)),)
    if failed.kind is FailureKind.OVERFLOW:
        overflow = Publish(ContextOverflow(reason=failed.reason))
        return cycle.then(cycle.abort(memory, CONTEXT_OVERFLOW, failed.at_ms), (*said, overflow))
    if not should_retry(failed.kind, attempt, memory.policy.max_retries):
        return cycle.then(_give_up(memory, failed), said)
    delay = delay_s(memory.policy.backoff, attempt, failed.retry_after_s, failed.chance)
    if memory.answering.is_text_started or memory.answering.is_thinking_started:
        said = (*said, Publish(StreamReset()))
    again = Retry(attempt=attempt, delay_ms=round(delay * 1000), reason=failed.reason)
    memory = replace(memory, work=memory.work + 1, answering=Answering(retries=attempt))
    return Step(State.RUNNING, memory, (*said, Publish(again), Sleep(memory.work, delay)))


def _give_up(memory: Memory, failed: StreamFailed) -> Step:
    if failed.kind is FailureKind.TIMEOUT:
        return cycle.abort(memory, PROVIDER_TIMEOUT, failed.at_ms)
    retryable = failed.kind is FailureKind.TRANSIENT
    return cycle.fail(memory, failed.reason, failed.at_ms, retryable=retryable)


def retry(_state: State, memory: Memory, _due: RetryDue) -> Step:
    """Send the request once more."""
    return cycle.ask_again(memory)


def begin_tool(state: State, memory: Memory, begun: ToolBegun) -> Step:
    """Write down that a call runs, before it does."""
    open_ = find_call(memory, begun.call_id)
    if open_ is None:
        return Step(state, memory)
    name, meta = open_.call.name, {"started_at_ms": begun.at_ms}
    effects = (
        Keep(ToolStarted(call_id=begun.call_id, at_ms=begun.at_ms)),
        Publish(ToolExecutionStart(name=name, call_id=begun.call_id, args=open_.call.arguments)),
        Publish(ToolExecutionMetrics(name=name, call_id=begun.call_id, meta=meta)),
    )
    return Step(state, begin_call(memory, begun.call_id, begun.at_ms), effects)


def collect(state: State, memory: Memory, returned: ToolReturned) -> Step:
    """Keep one result; after the last one of the batch ask the model again."""
    open_ = find_call(memory, returned.call_id)
    if open_ is None or open_.result is not None:
        return Step(state, memory)
    name, call_id = open_.call.name, returned.call_id
    result = result_of(memory, call_id, returned.text, is_error=not returned.ok)
    effects: list[Effect] = [Keep(ToolEnded(message=result))]
    if returned.is_unknown:
        effects.append(Publish(ToolCallUnknown(name=name, call_id=call_id)))
    if open_.started_at_ms is not None:
        meta = {
            "started_at_ms": open_.started_at_ms,
            "ended_at_ms": returned.at_ms,
            "duration_ms": max(0, returned.at_ms - open_.started_at_ms),
        }
        effects.append(Publish(ToolExecutionMetrics(name=name, call_id=call_id, meta=meta)))
    ended = ToolExecutionEnd(name=name, call_id=call_id, ok=returned.ok, text=returned.text)
    effects.append(Publish(ended))
    memory = end_call(memory, result)
    if memory.calls:
        return Step(state, memory, tuple(effects))
    return cycle.then(cycle.ask(memory, returned.at_ms), effects)


# fmt: off
_R, _S, _T = State.RUNNING, State.STREAMING, State.EXECUTING_TOOLS
TRANSITIONS: Final[Mapping[tuple[State, type], Handler]] = {
    (_R, FirstChunk):     stream,
    (_R, StreamSilent):   stall,
    (_R, StreamFailed):   recover,
    (_R, RetryDue):       retry,
    (_S, TextArrived):    speak,
    (_S, ThoughtArrived): think,
    (_S, StreamSilent):   stall,
    (_S, StreamEnded):    complete,
    (_S, StreamFailed):   recover,
    (_T, ToolBegun):      begin_tool,
    (_T, ToolReturned):   collect,
}
# fmt: on


def apply(state: State, memory: Memory, result: Result) -> Step:
    """Apply one result; a late one, of work that is over, changes nothing."""
    handler = TRANSITIONS.get((state, type(result)))
    if handler is None or result.work != memory.work:
        return Step(state, memory)
    return handler(state, memory, result)
