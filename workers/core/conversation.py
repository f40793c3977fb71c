"""How a memory changes when something is said, called or ended.

The tables use these functions when things happen, and ``rebuild`` uses the same ones when it
reads them back from the journal, so the two cannot disagree. What people and settings change is in
``changes.py``.
"""

from dataclasses import replace
from typing import Any, Final

from cmdc_runtime.commands import PROMPT_CHARS_MAX, CycleResult
from cmdc_runtime.ids import CallId, CommandId, MessageId
from cmdc_runtime.messages import Message, TokenUsage
from workers.core import runs
from workers.core.loops import (
    Loop,
    detect,
    fingerprint,
    notice,
    remember,
    tokens,
    verdict,
)
from workers.core.records import OutcomeKind, RunEnd, RunStep
from workers.core.state import OUTCOMES_MAX, Cycle, Memory, OpenCall, Outcome, QueuedPrompt

TOLD_CHARS_MAX: Final = 2_000_000
"""Of a cycle's messages that its end tells: 8 MiB at the worst, half of what a frame may have."""
STEERING: Final = "steering"
"""Key of a user message's metadata: the references of the steerings that it holds."""
NOTES: Final = "plugins"
"""Key of a user message's metadata: it holds what plugins have to say."""
APPROVAL: Final = "approval_id"
"""Key of a user message's metadata: the approval whose decision opened the cycle."""
TRIGGER: Final = "trigger"
"""Key beside it: what the decision was."""
UNCERTAIN: Final = "uncertain"
"""Key of a result's metadata: nobody knows whether its call took effect."""
UNCERTAIN_MAX: Final = 100
"""Of such calls, the newest ones, that are told."""
REPAIR: Final = "repair"
"""Key of a user message's metadata: it asks for the answer again, in the right form."""


def place(memory: Memory) -> int:
    """Return how many messages the whole conversation has, those of compactions included."""
    return memory.base + len(memory.messages)


def next_id(memory: Memory) -> MessageId:
    """Return the id of the message to be said next: its place in the conversation."""
    return MessageId(f"m-{place(memory) + 1}")


def result_place(memory: Memory, call_id: CallId) -> int:
    """Return the place that the result of one open call will have."""
    ids = [open_.call.call_id for open_ in memory.calls]
    return place(memory) + 1 + (ids.index(call_id) if call_id in ids else 0)


def result_of(memory: Memory, call_id: CallId, text: str, *, is_error: bool) -> Message:
    """Return the result message of one open call; its id is the place it will have."""
    open_ = find_call(memory, call_id)
    notice = open_.notice if open_ is not None else ""
    return Message(
        id=MessageId(f"m-{result_place(memory, call_id)}"),
        role="tool_result",
        content=f"{text}\n\n{notice}" if notice else text,
        call_id=call_id,
        is_error=is_error,
    )


def enqueue(memory: Memory, prompt: QueuedPrompt) -> Memory:
    """Keep a prompt for later."""
    return replace(memory, queue=(*memory.queue, prompt), latest_prompt=prompt.command_id)


def open_cycle(memory: Memory, prompt: QueuedPrompt, at_ms: int) -> Memory:
    """Begin the cycle of ``prompt`` with its message: no record can come between the two."""
    rest = tuple(queued for queued in memory.queue if queued.command_id != prompt.command_id)
    opened = replace(
        memory,
        queue=rest,
        cycle=Cycle(
            prompt.command_id,
            first=place(memory),
            usage_before=memory.usage,
            started_at_ms=at_ms,
            opening=prompt.call,
        ),
        call_hashes=(),
        # Guidance may open a cycle ahead of prompts: the latest of those stays the latest.
        latest_prompt=memory.latest_prompt if memory.queue else prompt.command_id,
    )
    asked = Message(
        id=next_id(memory), role="user", content=prompt.text, metadata=dict(prompt.metadata)
    )
    return say(opened, asked)


def say(memory: Memory, message: Message) -> Memory:
    """Add a message; the tool calls of an assistant's message become the open batch.

    A batch that goes round in circles gets a notice here, so that a rebuilt memory has it too.
    """
    calls = tuple(OpenCall(call) for call in message.tool_calls)
    # Equal calls of one batch count once: the model has not seen the result of any.
    hashes = dict.fromkeys(
        fingerprint(call.name, call.arguments, call.malformed)
        for call in message.tool_calls
        if call.name not in memory.policy.loop_exempt
    )
    memory = _warn(
        replace(
            memory,
            messages=(*memory.messages, message),
            calls=calls,
            call_hashes=remember(memory.call_hashes, hashes),
        )
    )
    if STEERING in message.metadata:
        told = message.metadata[STEERING]
        left = tuple(one for one in memory.steering if one.ref not in _strings(told))
        memory = replace(memory, steering=left)
    if NOTES in message.metadata:
        memory = replace(memory, notes=())
    if REPAIR in message.metadata and memory.cycle is not None:
        memory = replace(memory, cycle=replace(memory.cycle, repairs=memory.cycle.repairs + 1))
    return memory


def find_loop(memory: Memory) -> Loop | None:
    """Return the loop that the open batch goes round in, as long or short as it is."""
    watched = _watched(memory)
    found = detect(memory.call_hashes) if watched else None
    return None if found is None else Loop(found[0], watched[-1].call.name, found[1])


def spend(memory: Memory, usage: TokenUsage) -> Memory:
    """Count what one request used."""
    return replace(memory, usage=memory.usage + usage)


def count_answer(memory: Memory, usage: TokenUsage) -> Memory:
    """Note that the model has answered, which took a turn and used this much.

    How large the conversation was is remembered where the provider tells.
    """
    cycle = memory.cycle
    if cycle is not None:
        cycle = replace(cycle, turns=cycle.turns + 1, is_blocked=False)
    is_costed = usage.cost_usd is not None
    memory = replace(
        spend(memory, usage),
        turns=memory.turns + 1,
        has_answered=True,
        is_costed=is_costed,
        cycle=cycle,
    )
    if not usage.total_tokens:
        return memory
    return replace(memory, context=(usage.total_tokens, len(memory.messages)))


def begin_call(memory: Memory, call_id: CallId, at_ms: int, allowance: str | None = None) -> Memory:
    """Note that one call of the batch runs, and that it uses up a leave."""
    if allowance in memory.allowances:
        left = list(memory.allowances)
        left.remove(str(allowance))
        memory = replace(memory, allowances=tuple(left))
    return _update(memory, call_id, started_at_ms=at_ms)


def count_told(memory: Memory, call_id: CallId, step: RunStep | None = None) -> Memory:
    """Note that a running call has told one step more, and what that says of its run."""
    calls = tuple(
        replace(open_, told=open_.told + 1, run=runs.after(open_.run, step))
        if open_.call.call_id == call_id
        else open_
        for open_ in memory.calls
    )
    return replace(memory, calls=calls)


def end_call(memory: Memory, result: Message, run_end: RunEnd | None = None) -> Memory:
    """Note the result of one call; the last one moves all of them into the conversation.

    The results stand in the order of the calls, whatever order they came in.
    """
    assert result.call_id is not None  # noqa: S101 - a tool_result has one
    memory = runs.end(memory, result.call_id, run_end)
    memory = _update(memory, result.call_id, result=result)
    memory = replace(
        memory,
        asks=tuple(ask for ask in memory.asks if ask.call_id != result.call_id),
        approvals=tuple(
            one for one in memory.approvals if one.ref is None or one.call_id != result.call_id
        ),
        answers=tuple(seen for seen in memory.answers if seen[0].call_id != result.call_id),
        children=tuple(
            replace(child, ref=None, branch="") if child.call_id == result.call_id else child
            for child in memory.children
        ),
        branches=tuple(one for one in memory.branches if one.call_id != result.call_id),
        waiting_branches=tuple(one for one in memory.waiting_branches if one[0] != result.call_id),
    )
    results = tuple(open_.result for open_ in memory.calls if open_.result is not None)
    if len(results) < len(memory.calls):
        return memory
    return replace(memory, messages=(*memory.messages, *results), calls=())


def find_call(memory: Memory, call_id: CallId) -> OpenCall | None:
    """Return the open call of this id."""
    return next((open_ for open_ in memory.calls if open_.call.call_id == call_id), None)


def find_running(memory: Memory, call_id: CallId) -> OpenCall | None:
    """Return the open call of this id that has no result; what another one reports is late."""
    open_ = find_call(memory, call_id)
    return open_ if open_ is not None and open_.result is None else None


def is_running(memory: Memory, call_id: CallId) -> bool:
    """Say whether this call is open and has no result."""
    return find_running(memory, call_id) is not None


# Any: plain data of whoever aborted it.
def close_cycle(memory: Memory, outcome: OutcomeKind, reason: Any) -> Memory:
    """End the running cycle and remember how."""
    cycle = memory.cycle
    assert cycle is not None  # noqa: S101 - only a running cycle ends
    ended = Outcome(
        command_id=cycle.command_id,
        outcome=outcome,
        reason=reason,
        usage=memory.usage - cycle.usage_before,
        first=cycle.first,
        end=place(memory),
    )
    return replace(
        _remember(memory, ended),
        cycle=None,
        calls=(),
        # A plugin's wait for a subagent ends with the cycle; a call's has ended with its result.
        children=tuple(replace(child, ref=None, branch="") for child in memory.children),
        branches=(),
        asks=(),
        answers=(),
        notes=(),
    )


def discard(memory: Memory, command_id: CommandId) -> Memory:
    """Drop a queued prompt or a steering and remember that it was dropped."""
    end = place(memory)
    dropped = Outcome(command_id, "dropped", None, TokenUsage(), first=end, end=end)
    return replace(
        _remember(memory, dropped),
        queue=tuple(queued for queued in memory.queue if queued.command_id != command_id),
        steering=tuple(one for one in memory.steering if one.ref != command_id),
    )


def since(memory: Memory, first: int, end: int | None = None) -> tuple[Message, ...]:
    """Return the messages between two places, as far as no compaction took them away."""
    stop = len(memory.messages) if end is None else max(0, end - memory.base)
    return memory.messages[max(0, first - memory.base) : stop]


def waiting(memory: Memory) -> tuple[tuple[CommandId, str], ...]:
    """Return what waits for a cycle or a gap: steerings, then prompts, each with its text."""
    guidance = tuple((one.ref, one.text) for one in memory.steering)
    return (*guidance, *((queued.command_id, queued.text) for queued in memory.queue))


def newest(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return as many of ``messages`` as may travel in one frame, the newest ones."""
    chars = 0
    for place in range(len(messages) - 1, -1, -1):
        chars += _chars(messages[place])
        if chars > TOLD_CHARS_MAX and place + 1 < len(messages):
            return messages[place + 1 :]
    return messages


def _chars(message: Message) -> int:
    # Not by str(): a journal of an older program may hold arguments that are too deep for it.
    calls = [(call.arguments, call.malformed) for call in message.tool_calls]
    called = sum(len(token) for token in tokens(calls))
    return len(message.content) + len(message.thinking or "") + called


def uncertain_calls(memory: Memory) -> tuple[Message, ...]:
    """Return the results of calls of which nobody knows whether they took effect, oldest first.

    They are the newest ``UNCERTAIN_MAX`` that the conversation has: a compaction takes its away.
    """
    results = [message for message in memory.messages if message.role == "tool_result"]
    results += [open_.result for open_ in memory.calls if open_.result is not None]
    return tuple(one for one in results if UNCERTAIN in one.metadata)[-UNCERTAIN_MAX:]


def tool_names(memory: Memory) -> dict[CallId, str]:
    """Return the name of each call in the conversation."""
    said = (call for message in memory.messages for call in message.tool_calls)
    return {call.call_id: call.name for call in said}


def find_outcome(memory: Memory, command_id: CommandId) -> Outcome | None:
    """Return how the cycle of this prompt ended, while it is remembered."""
    return next((seen for seen in memory.outcomes if seen.command_id == command_id), None)


def cycle_result(memory: Memory, ended: Outcome) -> CycleResult:
    """Return an outcome with its messages, as callers get it."""
    messages = since(memory, ended.first, ended.end)
    said = (message for message in reversed(messages) if message.role == "assistant")
    last = next(said, None)
    return CycleResult(
        outcome=ended.outcome,
        text=last.content if last is not None else "",
        messages=newest(messages),
        usage=ended.usage,
        reason=ended.reason,
    )


def _warn(memory: Memory) -> Memory:
    """Have the last call of a loop tell the model so with its result."""
    loop, policy = find_loop(memory), memory.policy
    if loop is None or verdict(loop.count, policy.loop_threshold, policy.loop_abort) != "notice":
        return memory
    last = _watched(memory)[-1]
    warned = replace(last, notice=notice(loop))
    calls = tuple(warned if open_ is last else open_ for open_ in memory.calls)
    return replace(memory, calls=calls)


def _watched(memory: Memory) -> list[OpenCall]:
    exempt = memory.policy.loop_exempt
    return [open_ for open_ in memory.calls if open_.call.name not in exempt]


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


def _strings(told: object) -> tuple[str, ...]:
    return tuple(map(str, told)) if isinstance(told, list | tuple) else ()


def text_problem(text: str) -> str | None:
    """Say what is wrong with a text for the model, or None."""
    if not text.strip():
        return "a prompt needs text; got only white space"
    if len(text) > PROMPT_CHARS_MAX:
        return f"a prompt has at most {PROMPT_CHARS_MAX} characters, got {len(text)}"
    return None
