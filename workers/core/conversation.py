"""What is read of a memory: the conversation, its calls, what waits, and what is under way."""

from typing import Final

from cmdc_runtime.commands import PROMPT_CHARS_MAX, CycleResult
from cmdc_runtime.ids import CallId, CommandId, MessageId, SessionId
from cmdc_runtime.messages import Message
from workers.core.loops import (
    Loop,
    detect,
    tokens,
)
from workers.core.state import Approval, Ask, Branch, Child, Memory, OpenCall, Outcome

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
_PLUGIN_CALL: Final = "plugin:"
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


def find_loop(memory: Memory) -> Loop | None:
    """Return the loop that the open batch goes round in, as long or short as it is."""
    watched = watched_calls(memory)
    found = detect(memory.call_hashes) if watched else None
    return None if found is None else Loop(found[0], watched[-1].call.name, found[1])


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


def watched_calls(memory: Memory) -> list[OpenCall]:
    """Return the calls of the open batch that a loop may be made of."""
    exempt = memory.policy.loop_exempt
    return [open_ for open_ in memory.calls if open_.call.name not in exempt]


def find_approval(memory: Memory, approval_id: str) -> Approval | None:
    """Return the approval of this id that waits."""
    return next((one for one in memory.approvals if one.id == approval_id), None)


def find_ask(memory: Memory, ref: str) -> Ask | None:
    """Return the question of this reference that waits."""
    return next((one for one in memory.asks if one.ref == ref), None)


def plugin_call(plugin: str) -> CallId:
    """Return what stands for the call where a plugin waits for a subagent."""
    return CallId(f"{_PLUGIN_CALL}{plugin}")


def children_of_plugins(memory: Memory) -> tuple[SessionId, ...]:
    """Return the subagents that plugins wait for."""
    calls = {child.call_id for child in memory.children if child.call_id.startswith(_PLUGIN_CALL)}
    return children_of(memory, tuple(calls))


def find_child(memory: Memory, child_id: SessionId) -> Child | None:
    """Return the subagent of this id that is under way."""
    return next((child for child in memory.children if child.session_id == child_id), None)


def find_branch(memory: Memory, ref: str) -> Branch | Child | None:
    """Return the branch of this reference: what came of it, or what is under way."""
    answered = (one for one in memory.branches if one.ref == ref)
    under_way = (child for child in memory.children if child.branch == ref)
    return next(answered, None) or next(under_way, None)


def children_of(memory: Memory, call_ids: tuple[CallId, ...]) -> tuple[SessionId, ...]:
    """Return the subagents that these calls wait for."""
    return tuple(
        child.session_id
        for child in memory.children
        if child.ref is not None and child.call_id in call_ids
    )


def text_problem(text: str) -> str | None:
    """Say what is wrong with a text for the model, or None."""
    if not text.strip():
        return "a prompt needs text; got only white space"
    if len(text) > PROMPT_CHARS_MAX:
        return f"a prompt has at most {PROMPT_CHARS_MAX} characters, got {len(text)}"
    return None
