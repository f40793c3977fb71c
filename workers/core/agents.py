"""The agents of a session: who acts, and how records of handoffs change that.

A call hands the session over, and that is kept until the calls beside it have ended; then one
record swaps prompt, tools and model. What the session's own agent had is put by meanwhile, so that
it comes back as it was left, with tools that were attached and a model that was switched.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from cmdc_runtime.messages import Message
from cmdc_runtime.packed_code import digest_of
from workers.core.conversation import change_tools, place, switch_model
from workers.core.records import AttachedTool, HandedOff, HandoffFailed
from workers.core.state import Memory, OwnParts, PendingHandoff, ToolFacts

HANDOFF: Final = "handoff"
"""Key of a result's metadata: the agent that its call has handed the session to."""
_NOT_MADE: Final = "Error: the handoff was not made: {}"
_CYCLE_OVER: Final = "the cycle ended before"


def note_asked(memory: Memory, result: Message) -> Memory:
    """Keep that the call of this result has handed the session over, if it has."""
    to = result.metadata.get(HANDOFF)
    if not isinstance(to, str) or result.call_id is None:
        return memory
    return replace(memory, handoff=PendingHandoff(result.call_id, to))


def hand_over(memory: Memory, record: HandedOff) -> Memory:
    """Return the memory of the agent that acts from here on."""
    own = memory.own_parts or OwnParts(memory.tools, memory.model, memory.provider_opts)
    memory = _with_tools(memory, record.tools)
    if (record.model, record.provider_opts) != (memory.model, memory.provider_opts):
        memory = switch_model(memory, record.model, record.provider_opts)
    if record.messages is not None:
        memory = _with_messages(memory, record.messages)
    cycle = memory.cycle
    return replace(
        memory,
        agent="" if record.is_return else record.to,
        own_parts=None if record.is_return else own,
        handoff=None,
        cycle=None if cycle is None else replace(cycle, handoffs=cycle.handoffs + 1),
    )


def fail_handoff(memory: Memory, record: HandoffFailed) -> Memory:
    """Return the memory without the handoff, whose call says to the model that it failed."""
    return _refuted(memory, record.why)


def drop_handoff(memory: Memory) -> Memory:
    """Return the memory behind the end of a cycle, which makes no handoff any more."""
    return memory if memory.handoff is None else _refuted(memory, _CYCLE_OVER)


def _refuted(memory: Memory, why: str) -> Memory:
    """Return the memory without the handoff that was asked for; its call's result says why."""
    asked = memory.handoff
    if asked is None:
        return memory

    def amended(message: Message) -> Message:
        if message.call_id != asked.call_id or HANDOFF not in message.metadata:
            return message
        text = _NOT_MADE.format(why)
        return msgspec.structs.replace(message, content=text, is_error=True)

    messages = tuple(map(amended, memory.messages))
    return replace(memory, messages=messages, handoff=None)


def _with_tools(memory: Memory, given: tuple[AttachedTool, ...]) -> Memory:
    """Return the memory with these tools in the place of all; what was allowed of others goes."""
    before = {_known_as(tool) for tool in memory.tools}
    names = tuple(tool.name for tool in memory.tools)
    after = change_tools(memory, given, names)
    same = {tool.name for tool in after.tools if _known_as(tool) in before}
    allowed = frozenset(one for one in memory.always_approved if one[0] in same)
    return replace(after, always_approved=allowed)


def _known_as(tool: ToolFacts) -> tuple[str, str]:
    return tool.name, "" if tool.packed is None else digest_of(tool.packed)


def _with_messages(memory: Memory, messages: tuple[Message, ...]) -> Memory:
    """Return the memory with another conversation, whose next message has a place of its own."""
    base = max(0, place(memory) - len(messages))
    return replace(memory, messages=messages, base=base, context=None)
