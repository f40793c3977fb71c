"""How a memory changes when something is said, called or ended.

The tables use these functions when things happen, and ``rebuild`` uses the same ones when it
reads them back from the journal, so the two cannot disagree.
"""

from dataclasses import replace
from typing import Final

from cmdc_runtime.commands import CycleResult
from cmdc_runtime.ids import CallId, CommandId, MessageId
from cmdc_runtime.messages import Message, TokenUsage
from workers.core.records import OutcomeKind
from workers.core.state import OUTCOMES_MAX, Cycle, Memory, OpenCall, Outcome, QueuedPrompt

TOLD_CHARS_MAX: Final = 2_000_000
"""Of a cycle's messages that its end tells: 8 MiB at the worst, half of what a frame may have."""


def next_id(memory: Memory) -> MessageId:
    """Return the id of the message to be said next: its place in the conversation."""
    return MessageId(f"m-{len(memory.messages) + 1}")


def result_of(memory: Memory, call_id: CallId, text: str, *, is_error: bool) -> Message:
    """Return the result message of one open call; its id is the place it will have."""
    ids = [open_.call.call_id for open_ in memory.calls]
    place = len(memory.messages) + 1 + (ids.index(call_id) if call_id in ids else 0)
    return Message(
        id=MessageId(f"m-{place}"),
        role="tool_result",
        content=text,
        call_id=call_id,
        is_error=is_error,
    )


def enqueue(memory: Memory, prompt: QueuedPrompt) -> Memory:
    """Keep a prompt for later."""
    return replace(memory, queue=(*memory.queue, prompt), latest_prompt=prompt.command_id)


def open_cycle(memory: Memory, prompt: QueuedPrompt) -> Memory:
    """Begin the cycle of ``prompt`` with its message: no record can come between the two."""
    rest = tuple(queued for queued in memory.queue if queued.command_id != prompt.command_id)
    was_queued = len(rest) != len(memory.queue)
    opened = replace(
        memory,
        queue=rest,
        cycle=Cycle(prompt.command_id, first=len(memory.messages), usage_before=memory.usage),
        latest_prompt=memory.latest_prompt if was_queued else prompt.command_id,
    )
    return say(opened, Message(id=next_id(memory), role="user", content=prompt.text))


def say(memory: Memory, message: Message) -> Memory:
    """Add a message; the tool calls of an assistant's message become the open batch."""
    calls = tuple(OpenCall(call) for call in message.tool_calls)
    return replace(memory, messages=(*memory.messages, message), calls=calls)


def spend(memory: Memory, usage: TokenUsage) -> Memory:
    """Count what one request used."""
    return replace(memory, usage=memory.usage + usage)


def count_turn(memory: Memory) -> Memory:
    """Count a turn of the session and of the cycle."""
    cycle = memory.cycle
    return replace(
        memory,
        turns=memory.turns + 1,
        cycle=None if cycle is None else replace(cycle, turns=cycle.turns + 1),
    )


def begin_call(memory: Memory, call_id: CallId, at_ms: int) -> Memory:
    """Note that one call of the batch runs."""
    return _update(memory, call_id, started_at_ms=at_ms)


def end_call(memory: Memory, result: Message) -> Memory:
    """Note the result of one call; the last one moves all of them into the conversation.

    The results stand in the order of the calls, whatever order they came in.
    """
    assert result.call_id is not None  # noqa: S101 - a tool_result has one
    memory = _update(memory, result.call_id, result=result)
    results = tuple(open_.result for open_ in memory.calls if open_.result is not None)
    if len(results) < len(memory.calls):
        return memory
    return replace(memory, messages=(*memory.messages, *results), calls=())


def find_call(memory: Memory, call_id: CallId) -> OpenCall | None:
    """Return the open call of this id."""
    return next((open_ for open_ in memory.calls if open_.call.call_id == call_id), None)


def close_cycle(memory: Memory, outcome: OutcomeKind, reason: str | None) -> Memory:
    """End the running cycle and remember how."""
    cycle = memory.cycle
    assert cycle is not None  # noqa: S101 - only a running cycle ends
    ended = Outcome(
        command_id=cycle.command_id,
        outcome=outcome,
        reason=reason,
        usage=memory.usage - cycle.usage_before,
        first=cycle.first,
        end=len(memory.messages),
    )
    return replace(_remember(memory, ended), cycle=None, calls=())


def discard(memory: Memory, command_id: CommandId) -> Memory:
    """Drop a queued prompt and remember that it was dropped."""
    end = len(memory.messages)
    dropped = Outcome(command_id, "dropped", None, TokenUsage(), first=end, end=end)
    rest = tuple(queued for queued in memory.queue if queued.command_id != command_id)
    return replace(_remember(memory, dropped), queue=rest)


def newest(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return as many of ``messages`` as may travel in one frame, the newest ones."""
    chars = 0
    for place in range(len(messages) - 1, -1, -1):
        chars += _chars(messages[place])
        if chars > TOLD_CHARS_MAX and place + 1 < len(messages):
            return messages[place + 1 :]
    return messages


def _chars(message: Message) -> int:
    called = sum(len(str(call.arguments)) for call in message.tool_calls)
    return len(message.content) + len(message.thinking or "") + called


def find_outcome(memory: Memory, command_id: CommandId) -> Outcome | None:
    """Return how the cycle of this prompt ended, while it is remembered."""
    return next((seen for seen in memory.outcomes if seen.command_id == command_id), None)


def cycle_result(memory: Memory, ended: Outcome) -> CycleResult:
    """Return an outcome with its messages, as callers get it."""
    messages = memory.messages[ended.first : ended.end]
    said = (message for message in reversed(messages) if message.role == "assistant")
    last = next(said, None)
    return CycleResult(
        outcome=ended.outcome,
        text=last.content if last is not None else "",
        messages=newest(messages),
        usage=ended.usage,
        reason=ended.reason,
    )


def _remember(memory: Memory, ended: Outcome) -> Memory:
    return replace(memory, outcomes=(*memory.outcomes, ended)[-OUTCOMES_MAX:])


def _update(
    memory: Memory,
    call_id: CallId,
    *,
    started_at_ms: int | None = None,
    result: Message | None = None,
) -> Memory:
    return replace(
        memory,
        calls=tuple(
            replace(
                open_,
                started_at_ms=open_.started_at_ms if started_at_ms is None else started_at_ms,
                result=open_.result or result,
            )
            if open_.call.call_id == call_id
            else open_
            for open_ in memory.calls
        ),
    )
