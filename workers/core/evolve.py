"""The one statement of each durable change: what a memory is after a record.

Decisions record, and the memory follows by ``evolve``; a new process has it from the journal by the
same function. So a live memory and a rebuilt one cannot differ. A record that cannot be after those
before it is a ``ContradictionError``: the journal is damaged, and not the program wrong.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from cmdc_runtime import plain
from cmdc_runtime.extensions.hooks import SessionStart, kind_of
from cmdc_runtime.extensions.kernel_emits import KERNEL_EMITS
from workers.core import changes, kernel_emits
from workers.core.budget import Grant
from workers.core.conversation import (
    begin_call,
    close_cycle,
    count_answer,
    count_told,
    discard,
    end_call,
    enqueue,
    open_cycle,
    say,
    spend,
)
from workers.core.records import (
    ApprovalAsked,
    ApprovalDecided,
    CodeTaken,
    Compacted,
    Continued,
    CycleEnded,
    CycleStarted,
    ModelChanged,
    Noted,
    PluginOrdered,
    PluginsChanged,
    PluginSetChanged,
    PluginSpent,
    PromptDiscarded,
    PromptQueued,
    Record,
    Resumed,
    Said,
    SetAside,
    Steered,
    SubagentSpawned,
    SubagentSpent,
    TodosChanged,
    ToolEnded,
    ToolsChanged,
    ToolStarted,
    ToolTold,
    TurnSpent,
    UserAnswered,
    UserAsked,
)
from workers.core.state import Approval, Ask, Child, Memory, QueuedPrompt, Steering


class ContradictionError(Exception):
    """A record says what cannot be after the records before it: the journal is damaged."""


TOOL: Final = "tool"
"""What a ``SetAside`` calls a tool."""
GREETING: Final = kind_of(SessionStart)
"""What a ``SetAside`` calls that a plugin hears of the session's start."""
CODE: Final = (TOOL, GREETING)
"""What of foreign code is left out: the memory knows it. Other things are no part of the memory."""


def _cycle_started(memory: Memory, record: CycleStarted) -> Memory:
    prompt = QueuedPrompt(record.command_id, record.text, record.metadata, record.call)
    return open_cycle(memory, prompt, record.at_ms)


def _tool_ended(memory: Memory, record: ToolEnded) -> Memory:
    if record.message.call_id is None:
        raise ContradictionError("a call ended, and it does not say which")
    return end_call(memory, record.message, record.run_end)


def _cycle_ended(memory: Memory, record: CycleEnded) -> Memory:
    if memory.cycle is None:
        raise ContradictionError("a cycle ended, and none had begun")
    return close_cycle(memory, record.outcome, record.reason)


def _compacted(memory: Memory, record: Compacted) -> Memory:
    said = len(memory.messages)
    if record.evicted > said:
        raise ContradictionError(f"{record.evicted} messages were compacted, and there were {said}")
    return changes.compact(memory, record.evicted, record.summary, record.usage)


def _plugin_ordered(memory: Memory, record: PluginOrdered) -> Memory:
    try:
        order = msgspec.convert(record.payload, KERNEL_EMITS[record.name])
    except KeyError as error:
        raise ContradictionError(f"there is no order {plain.short(record.name)}") from error
    except msgspec.ValidationError as error:
        raise ContradictionError(f"there is no such order {record.name}: {error}") from error
    return kernel_emits.apply(memory, order)


def _approval_asked(memory: Memory, record: ApprovalAsked) -> Memory:
    asked = Approval(
        record.approval_id,
        record.call_id,
        record.tool,
        record.args,
        record.at_ms,
        family=record.family,
        ref=record.ref,
        due_ms=record.due_ms,
        options=record.options,
    )
    return changes.require(memory, asked)


def _subagent_spawned(memory: Memory, record: SubagentSpawned) -> Memory:
    grant = Grant(record.tokens, record.cost_usd)
    branch = record.ref if record.digest else ""
    child = Child(record.child_id, record.call_id, record.ref, grant, branch, record.digest)
    return changes.spawn(memory, child)


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
    PromptQueued: lambda memory, record: enqueue(
        memory, QueuedPrompt(record.command_id, record.text, record.metadata, record.call)
    ),
    CycleStarted: _cycle_started,
    Said: lambda memory, record: say(memory, record.message),
    TurnSpent: lambda memory, record: count_answer(memory, record.usage),
    ToolStarted: lambda memory, record: begin_call(
        memory, record.call_id, record.at_ms, record.allowance
    ),
    ToolTold: lambda memory, record: count_told(memory, record.call_id, record.step),
    ToolEnded: _tool_ended,
    CycleEnded: _cycle_ended,
    PromptDiscarded: lambda memory, record: discard(memory, record.command_id),
    Steered: lambda memory, record: changes.steer(memory, Steering(record.ref, record.text)),
    ApprovalAsked: _approval_asked,
    ApprovalDecided: lambda memory, record: changes.decide(
        memory, record.approval_id, record.decision
    ),
    UserAsked: lambda memory, record: changes.ask(memory, Ask(record.ref, record.call_id)),
    UserAnswered: lambda memory, record: changes.answer(memory, record.ref, record.response),
    TodosChanged: lambda memory, record: replace(memory, todos=record.todos),
    ToolsChanged: lambda memory, record: changes.change_tools(
        memory, record.attached, record.detached
    ),
    ModelChanged: lambda memory, record: changes.switch_model(
        memory, record.model, record.provider_opts
    ),
    Compacted: _compacted,
    SubagentSpawned: _subagent_spawned,
    SubagentSpent: changes.settle_child,
    Noted: lambda memory, record: changes.note(memory, record.notes),
    PluginsChanged: lambda memory, record: changes.change_plugins(memory, record.states),
    PluginSetChanged: lambda memory, record: changes.change_plugin_set(
        memory, record.attached, record.detached
    ),
    PluginOrdered: _plugin_ordered,
    PluginSpent: lambda memory, record: spend(memory, record.usage),
    Resumed: _resumed,
    Continued: changes.go_on_with,
    SetAside: lambda memory, record: (
        changes.leave_out(memory, record.digest) if record.what in CODE else memory
    ),
    CodeTaken: lambda memory, record: replace(memory, code=memory.code | record.code),
}


def evolve(memory: Memory, record: Record) -> Memory:
    """Return ``memory`` after ``record``.

    Raises:
        ContradictionError: it cannot be after those before it.
    """
    return EVOLVE[type(record)](memory, record)


def replay(memory: Memory, records: Iterable[Record]) -> Memory:
    """Return ``memory`` after ``records``, oldest first.

    Raises:
        ContradictionError: one cannot be after those before it.
    """
    for record in records:
        memory = evolve(memory, record)
    return memory
