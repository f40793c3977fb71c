"""The one statement of each durable change: what a memory is after a record.

Decisions record, and the memory follows by ``evolve``; a new process has it from the journal by the
same function. So a live memory and a rebuilt one cannot differ. A record that cannot be after those
before it is a ``ContradictionError``: the journal is damaged, and not the program wrong.

Kernel emits (those of ``extensions.actions``) change it by a table of their own.
``RequireApproval`` is about one call, so the runner of calls has it; at another hook it is refused
by ``verdict``.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from cmdc_runtime import plain
from cmdc_runtime.extensions.actions import (
    KERNEL_EMITS,
    SYSTEM_MESSAGE_ID,
    KernelEmit,
    MemoryContents,
    SkillsFound,
    SyntheticToolResults,
    UpdateMessageMetadata,
    UpdateSystemContext,
)
from cmdc_runtime.extensions.hooks import SessionStart, kind_of
from cmdc_runtime.ids import CallId, CommandId, MessageId
from cmdc_runtime.messages import Message, TokenUsage
from workers.core import agents, conversation, runs
from workers.core.budget import Grant
from workers.core.children import Child
from workers.core.conversation import (
    NOTES,
    REPAIR,
    STEERING,
    find_loop,
    next_id,
    place,
    spend,
    watched_calls,
)
from workers.core.loops import fingerprint, notice, remember, verdict
from workers.core.records import (
    AnswerRetracted,
    ApprovalDecided,
    ApprovalRequested,
    CallKept,
    CodeTaken,
    Compacted,
    Continued,
    CutSpent,
    CycleEnded,
    CycleStarted,
    HandedOff,
    HandoffFailed,
    McpServersChanged,
    McpToolsSeen,
    MessageAdded,
    ModelChanged,
    Noted,
    OutcomeKind,
    PluginOrdered,
    PluginsChanged,
    PluginSetChanged,
    PluginSpent,
    PromptDiscarded,
    PromptQueued,
    Record,
    Resumed,
    RunEnd,
    SetAside,
    Steered,
    SubagentSpawned,
    SubagentSpent,
    TodosChanged,
    ToolEnded,
    ToolsChanged,
    ToolStarted,
    ToolStepRecorded,
    TurnSpent,
    UserAnswered,
    UserAsked,
    approval_of,
)
from workers.core.state import (
    OUTCOMES_MAX,
    Cycle,
    Memory,
    OpenCall,
    Outcome,
    PendingAsk,
    QueuedPrompt,
    Steering,
)

# --- kernel emits ---------------------------------------------------------------------------------

SECTIONS_MAX: Final = 64
"""Sections of the system prompt; the one that was set longest ago gives way."""
PATCHES_MAX: Final = 1_000
"""Calls that a plugin gave a result; the oldest are forgotten, and repaired as any other call."""

# Any: the emit of its own row.
Change = Callable[[Memory, Any], Memory]


def apply(memory: Memory, emit: KernelEmit) -> Memory:
    """Return the memory that an emit makes; one that is no change of it leaves it as it is."""
    change = _CHANGES.get(type(emit))
    return memory if change is None else change(memory, emit)


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


def _memory_contents(memory: Memory, emit: MemoryContents) -> Memory:
    return replace(memory, memory_contents=tuple(emit.contents.items()))


def _skills_found(memory: Memory, emit: SkillsFound) -> Memory:
    listing = memory.skill_listing if emit.listing is None else emit.listing
    return replace(memory, skills=emit.skills, skill_listing=listing)


def _update_system_context(memory: Memory, emit: UpdateSystemContext) -> Memory:
    if (emit.key, emit.text) in memory.sections:
        return memory
    sections = dict(memory.sections)
    if emit.text:
        sections[emit.key] = emit.text
    else:
        sections.pop(emit.key, None)
    return replace(memory, sections=tuple(sections.items())[-SECTIONS_MAX:])


def _synthetic_tool_results(memory: Memory, emit: SyntheticToolResults) -> Memory:
    patches = {patch.call_id: patch for patch in memory.patches}
    for result in emit.results:
        patches[result.call_id] = Message(
            id=MessageId(f"patch-{result.call_id}"),
            role="tool_result",
            content=result.content,
            call_id=result.call_id,
            is_error=result.is_error,
        )
    return replace(memory, patches=tuple(patches.values())[-PATCHES_MAX:])


def _update_message_metadata(memory: Memory, emit: UpdateMessageMetadata) -> Memory:
    updates = {update.id: update.metadata for update in emit.updates}
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
    SkillsFound: _skills_found,
    UpdateSystemContext: _update_system_context,
    SyntheticToolResults: _synthetic_tool_results,
    UpdateMessageMetadata: _update_message_metadata,
}
"""How each kernel emit changes the memory; the others change approvals."""


# --- after a record -------------------------------------------------------------------------------


class ContradictionError(Exception):
    """A record says what cannot be after the records before it: the journal is damaged."""


TOOL: Final = "tool"
"""What a ``SetAside`` calls a tool."""
GREETING: Final = kind_of(SessionStart)
"""What a ``SetAside`` calls the ``session_start`` of a plugin."""
CODE: Final = (TOOL, GREETING)
"""What of foreign code is left out: the memory knows it. Other things are no part of the memory."""


# --- what is said, called and ended ---


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
            response_format=prompt.response_format,
        ),
        call_hashes=(),
        # A steering may open a cycle ahead of prompts: the latest of those stays the latest.
        latest_prompt=memory.latest_prompt if memory.queue else prompt.command_id,
    )
    asked = Message(
        id=next_id(memory),
        role="user",
        content=prompt.text,
        metadata=dict(prompt.metadata),
        parts=prompt.parts,
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
            calls_asked=memory.calls_asked + len(calls),
            call_hashes=remember(memory.call_hashes, hashes),
        )
    )
    if STEERING in message.metadata:
        applied = message.metadata[STEERING]
        left = tuple(one for one in memory.steering if one.ref not in _strings(applied))
        memory = replace(memory, steering=left)
    if NOTES in message.metadata:
        memory = replace(memory, notes=())
    if REPAIR in message.metadata and memory.cycle is not None:
        memory = replace(memory, cycle=replace(memory.cycle, repairs=memory.cycle.repairs + 1))
    return memory


def count_answer(memory: Memory, usage: TokenUsage) -> Memory:
    """Remember that the model has answered, which took a turn and used this much.

    How large the conversation was is remembered where the provider reports it.
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


def begin_call(memory: Memory, call_id: CallId, at_ms: int, call_hash: str | None = None) -> Memory:
    """Mark one call of the batch as running; an approval that it needs is used up."""
    if call_hash in memory.granted:
        left = list(memory.granted)
        left.remove(str(call_hash))
        memory = replace(memory, granted=tuple(left))
    return _update(memory, call_id, started_at_ms=at_ms)


def end_call(memory: Memory, result: Message, run_end: RunEnd | None = None) -> Memory:
    """Remember the result of one call; the last one moves all of them into the conversation.

    The results stand in the order of the calls, whatever order they came in.
    """
    assert result.call_id is not None  # noqa: S101 - a tool_result has one
    memory = runs.end(memory, result.call_id, run_end)
    memory = _update(memory, result.call_id, result=result)
    memory = agents.note_asked(memory, result)
    memory = replace(
        memory,
        asks=tuple(ask for ask in memory.asks if ask.call_id != result.call_id),
        approvals=tuple(
            one for one in memory.approvals if not one.is_held or one.call_id != result.call_id
        ),
        answers=tuple(seen for seen in memory.answers if seen[0].call_id != result.call_id),
        children=tuple(
            replace(child, ref=None, branch="") if child.call_id == result.call_id else child
            for child in memory.children
        ),
        branches=tuple(one for one in memory.branches if one.call_id != result.call_id),
        lost_branches=tuple(one for one in memory.lost_branches if one.call_id != result.call_id),
        waiting_branches=tuple(one for one in memory.waiting_branches if one[0] != result.call_id),
    )
    results = tuple(open_.result for open_ in memory.calls if open_.result is not None)
    if len(results) < len(memory.calls):
        return memory
    return replace(memory, messages=(*memory.messages, *results), calls=())


# Any: plain data of whoever aborted it.
def close_cycle(memory: Memory, outcome: OutcomeKind, reason: Any) -> Memory:
    """End the running cycle and remember how."""
    cycle, memory = memory.cycle, agents.drop_handoff(memory)
    if cycle is None:
        raise ContradictionError("a cycle ended, and none had begun")
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
        lost_branches=(),
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


def _warn(memory: Memory) -> Memory:
    """Add to the result of the last call of a loop that it is one, for the model."""
    loop, policy = find_loop(memory), memory.policy
    if loop is None or verdict(loop.count, policy.loop_threshold, policy.loop_abort) != "notice":
        return memory
    last = watched_calls(memory)[-1]
    warned = replace(last, notice=notice(loop))
    calls = tuple(warned if open_ is last else open_ for open_ in memory.calls)
    return replace(memory, calls=calls)


def _remember(memory: Memory, ended: Outcome) -> Memory:
    return replace(memory, outcomes=(*memory.outcomes, ended)[-OUTCOMES_MAX:])


def _update(memory: Memory, call_id: CallId, **changed: Any) -> Memory:  # Any: fields of OpenCall
    """Change one call of the batch, unless it has ended."""
    calls = tuple(
        replace(one, **changed) if one.call.call_id == call_id and one.result is None else one
        for one in memory.calls
    )
    return replace(memory, calls=calls)


def _strings(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()


# --- each record ---


def _cycle_started(memory: Memory, record: CycleStarted) -> Memory:
    return open_cycle(memory, _prompt_of(record), record.at_ms)


def _prompt_of(record: CycleStarted | PromptQueued) -> QueuedPrompt:
    kept = (record.text, record.metadata, record.call, record.response_format, record.parts)
    return QueuedPrompt(record.command_id, *kept)


def _tool_ended(memory: Memory, record: ToolEnded) -> Memory:
    if record.message.call_id is None:
        raise ContradictionError("a call ended, and it does not say which")
    return end_call(memory, record.message, record.run_end)


def _cycle_ended(memory: Memory, record: CycleEnded) -> Memory:
    return close_cycle(memory, record.outcome, record.reason)


def _compacted(memory: Memory, record: Compacted) -> Memory:
    said = len(memory.messages)
    if record.evicted > said:
        raise ContradictionError(f"{record.evicted} messages were compacted, and there were {said}")
    return conversation.compact(memory, record.evicted, record.summary, record.usage)


def _plugin_ordered(memory: Memory, record: PluginOrdered) -> Memory:
    try:
        emit = msgspec.convert(record.payload, KERNEL_EMITS[record.name])
    except KeyError as error:
        raise ContradictionError(f"there is no kernel emit {plain.short(record.name)}") from error
    except msgspec.ValidationError as error:
        raise ContradictionError(f"there is no such kernel emit {record.name}: {error}") from error
    return apply(memory, emit)


def _subagent_spawned(memory: Memory, record: SubagentSpawned) -> Memory:
    grant = Grant(record.tokens, record.cost_usd)
    branch = record.ref if record.digest else ""
    child = Child(record.child_id, record.call_id, record.ref, grant, branch, record.digest)
    return conversation.spawn(memory, child)


def _resumed(memory: Memory, record: Resumed) -> Memory:
    running = memory.cycle
    if running is None:
        return memory
    # A call that runs again asks under the same reference: it gets no answer of the process before.
    left = tuple(replace(child, ref=None) for child in memory.children)
    crashes = running.crashes + (1 if record.is_blamed else 0)
    return replace(memory, children=left, cycle=replace(running, crashes=crashes))


# Any: each function takes the record of its own row.
EVOLVE: Final[Mapping[type[Record], Callable[[Memory, Any], Memory]]] = {
    PromptQueued: lambda memory, record: enqueue(memory, _prompt_of(record)),
    CycleStarted: _cycle_started,
    MessageAdded: lambda memory, record: say(memory, record.message),
    CutSpent: lambda memory, record: spend(memory, record.usage),
    TurnSpent: lambda memory, record: count_answer(memory, record.usage),
    ToolStarted: lambda memory, record: begin_call(
        memory, record.call_id, record.at_ms, record.granted
    ),
    ToolStepRecorded: lambda memory, record: runs.count_step(memory, record.call_id, record.step),
    CallKept: lambda memory, record: _update(
        memory, record.call_id, kept=record.content, asked=record.asked
    ),
    ToolEnded: _tool_ended,
    CycleEnded: _cycle_ended,
    PromptDiscarded: lambda memory, record: discard(memory, record.command_id),
    Steered: lambda memory, record: conversation.add_steering(
        memory, Steering(record.ref, record.text, record.parts)
    ),
    ApprovalRequested: lambda memory, record: conversation.add_approval(
        memory, approval_of(record)
    ),
    ApprovalDecided: lambda memory, record: conversation.end_approval(
        memory, record.approval_id, record.decision
    ),
    UserAsked: lambda memory, record: conversation.ask(
        memory, PendingAsk(record.ref, record.call_id, record.owner)
    ),
    UserAnswered: lambda memory, record: conversation.answer(memory, record.ref, record.response),
    TodosChanged: lambda memory, record: replace(memory, todos=record.todos),
    ToolsChanged: lambda memory, record: conversation.change_tools(
        memory, record.attached, record.detached
    ),
    McpServersChanged: lambda memory, record: conversation.change_servers(
        memory, record.attached, record.detached
    ),
    McpToolsSeen: lambda memory, record: conversation.see_tools(
        memory, record.server, record.tools
    ),
    ModelChanged: lambda memory, record: conversation.switch_model(
        memory, record.model, record.provider_opts
    ),
    AnswerRetracted: conversation.retract,
    HandedOff: agents.hand_over,
    HandoffFailed: agents.fail_handoff,
    Compacted: _compacted,
    SubagentSpawned: _subagent_spawned,
    SubagentSpent: conversation.count_child,
    Noted: lambda memory, record: conversation.note(memory, record.notes),
    PluginsChanged: lambda memory, record: conversation.change_plugins(memory, record.states),
    PluginSetChanged: lambda memory, record: conversation.change_plugin_set(
        memory, record.attached, record.detached
    ),
    PluginOrdered: _plugin_ordered,
    PluginSpent: lambda memory, record: spend(memory, record.usage),
    Resumed: _resumed,
    Continued: conversation.go_on_with,
    SetAside: lambda memory, record: (
        conversation.leave_out(memory, record.digest) if record.what in CODE else memory
    ),
    CodeTaken: lambda memory, record: replace(memory, code=memory.code | record.code),
}


def evolve(memory: Memory, record: Record) -> Memory:
    """Return ``memory`` after ``record``.

    Raises:
        ContradictionError: it cannot be after those before it.
    """
    return EVOLVE[type(record)](memory, record)


def rebuild(memory: Memory, records: Iterable[Record]) -> Memory:
    """Return ``memory`` after ``records``, oldest first.

    Raises:
        ContradictionError: one cannot be after those before it.
    """
    for record in records:
        memory = evolve(memory, record)
    return memory
