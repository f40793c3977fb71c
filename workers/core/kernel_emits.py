"""How each order of a plugin changes the memory: those of ``extensions.actions``.

``RequireApproval`` is about one call, so the runner of calls has it; at another hook it is refused
by ``verdict``.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from cmdc_runtime.extensions.actions import (
    SYSTEM_MESSAGE_ID,
    KernelEmit,
    MemoryContents,
    SyntheticToolResults,
    UpdateMessageMetadata,
    UpdateSystemContext,
)
from cmdc_runtime.ids import MessageId
from cmdc_runtime.messages import Message
from workers.core.state import Memory

SECTIONS_MAX: Final = 64
"""Sections of the system prompt; the one that was set longest ago gives way."""
PATCHES_MAX: Final = 1_000
"""Calls that a plugin gave a result; the oldest are forgotten, and repaired as any other call."""

# Any: the order of its own row.
Change = Callable[[Memory, Any], Memory]


def apply(memory: Memory, order: KernelEmit) -> Memory:
    """Return the memory that an order makes; one that is no change of it leaves it as it is."""
    change = _CHANGES.get(type(order))
    return memory if change is None else change(memory, order)


def patched(memory: Memory) -> tuple[Message, ...]:
    """Return the conversation with the results that plugins gave to calls without one."""
    if not memory.patches:
        return memory.messages
    given = {one.call_id: one for one in memory.patches}
    answered = {message.call_id for message in memory.messages}
    running = {open_.call.call_id for open_ in memory.calls}
    messages = []
    for message in memory.messages:
        messages.append(message)
        messages += [
            given[call.call_id]
            for call in message.tool_calls
            if call.call_id in given and call.call_id not in answered | running
        ]
    return tuple(messages)


def _memory_contents(memory: Memory, order: MemoryContents) -> Memory:
    return replace(memory, memory_contents=tuple(order.contents.items()))


def _update_system_context(memory: Memory, order: UpdateSystemContext) -> Memory:
    if (order.key, order.text) in memory.sections:
        return memory
    sections = dict(memory.sections)
    if order.text:
        sections[order.key] = order.text
    else:
        sections.pop(order.key, None)
    return replace(memory, sections=tuple(sections.items())[-SECTIONS_MAX:])


def _synthetic_tool_results(memory: Memory, order: SyntheticToolResults) -> Memory:
    patches = {patch.call_id: patch for patch in memory.patches}
    for result in order.results:
        patches[result.call_id] = Message(
            id=MessageId(f"patch-{result.call_id}"),
            role="tool_result",
            content=result.content,
            call_id=result.call_id,
            is_error=result.is_error,
        )
    return replace(memory, patches=tuple(patches.values())[-PATCHES_MAX:])


def _update_message_metadata(memory: Memory, order: UpdateMessageMetadata) -> Memory:
    updates = {update.id: update.metadata for update in order.updates}
    messages = tuple(
        msgspec.structs.replace(message, metadata=_merged(message.metadata, updates[message.id]))
        if message.id in updates
        else message
        for message in memory.messages
    )
    system = _merged(memory.system_metadata, updates.get(SYSTEM_MESSAGE_ID, {}))
    return replace(memory, messages=messages, system_metadata=system)


# Any: whatever MessagePack takes.
def _merged(metadata: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**metadata, **update}
    return {key: value for key, value in merged.items() if value is not None}


_CHANGES: Final[Mapping[type[KernelEmit], Change]] = {
    MemoryContents: _memory_contents,
    UpdateSystemContext: _update_system_context,
    SyntheticToolResults: _synthetic_tool_results,
    UpdateMessageMetadata: _update_message_metadata,
}
"""How each order changes the memory; the others change approvals."""
