"""An agent's memory from its journal, and what a new process does with what it finds.

``replay`` folds the records; ``resume`` says how to go on. A record that cannot be after those
before it is a ``ContradictionError``: the journal is damaged, and not the program wrong. A started
call without an end runs again only if its tool may; otherwise its outcome is unknown, and the model
is told so.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

import msgspec

from cmdc_runtime import plain
from cmdc_runtime.events import AgentRecovered, RecordSetAside, StreamReset
from cmdc_runtime.extensions.hooks import SessionStart, kind_of
from cmdc_runtime.ids import Incarnation
from cmdc_runtime.process import DAEMON_RESTARTED, RESUMED
from cmdc_runtime.reasons import AnyReason, Other
from workers.core import changes, cycle, kernel_emits
from workers.core.batch import CallEnd, call_tools, close_call, give_results, may_have_acted
from workers.core.budget import Grant
from workers.core.conversation import (
    begin_call,
    close_cycle,
    count_answer,
    count_told,
    count_turn,
    discard,
    end_call,
    enqueue,
    open_cycle,
    place,
    say,
    spend,
)
from workers.core.effects import CountSubagents, Effect, Keep, Publish, Step
from workers.core.interrupt import CYCLE_TIMEOUT
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
from workers.core.state import (
    Approval,
    Ask,
    Child,
    Memory,
    OpenCall,
    QueuedPrompt,
    State,
    Steering,
)


class ContradictionError(Exception):
    """A record says what cannot be after the records before it: the journal is damaged."""


_NOBODYS_FAULT: Final = (DAEMON_RESTARTED, RESUMED)
TOOL: Final = "tool"
"""What a ``SetAside`` calls a tool."""
GREETING: Final = kind_of(SessionStart)
"""What a ``SetAside`` calls that a plugin hears of the session's start."""
CODE: Final = (TOOL, GREETING)
"""What of foreign code is left out: the memory knows it. Other things are no part of the memory."""
_CUT: Final = CallEnd("Error: the process died while this call ran.", "crashed", is_cut=True)
_NOT_MADE: Final = CallEnd("Error: the call was not made: the cycle was given up.", "crashed")


def _cycle_started(memory: Memory, record: CycleStarted) -> Memory:
    prompt = QueuedPrompt(record.command_id, record.text, record.metadata, record.call)
    return open_cycle(memory, prompt, record.at_ms)


def _turn_spent(memory: Memory, record: TurnSpent) -> Memory:
    return count_answer(count_turn(memory), record.usage)


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
        order = kernel_emits.order_of(record)
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
FOLD: Final[Mapping[type[Record], Callable[[Memory, Any], Memory]]] = {
    PromptQueued: lambda memory, record: enqueue(
        memory, QueuedPrompt(record.command_id, record.text, record.metadata, record.call)
    ),
    CycleStarted: _cycle_started,
    Said: lambda memory, record: say(memory, record.message),
    TurnSpent: _turn_spent,
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


def replay(memory: Memory, records: Iterable[Record]) -> Memory:
    """Return ``memory`` after ``records``, oldest first.

    Raises:
        ContradictionError: one cannot be after those before it.
    """
    for record in records:
        memory = FOLD[type(record)](memory, record)
    return memory


def resume(memory: Memory, incarnation: Incarnation, reason: AnyReason, at_ms: int) -> Step:
    """Say how a new process goes on; ``reason`` is why the one before it ended.

    Subagents ended with it: what they used is counted.
    """
    children = tuple(child.session_id for child in memory.children)
    counted = (CountSubagents(children),) if children else ()
    step = _resume(memory, incarnation, reason, at_ms)
    return Step(step.state, step.memory, (*step.effects, *counted))


def drop_cycle(memory: Memory, why: str, at_ms: int) -> Step:
    """Give the running cycle up, since processes have died of going on with it; then the next."""
    told = Publish(RecordSetAside(what="cycle", why=why))
    if memory.cycle is None:
        return Step(State.IDLE, memory, (told,))
    memory, kept = give_results(memory, _unfinished)
    ended = cycle.abort(memory, f"crashed({why})", at_ms)
    return cycle.then(ended, (told, Publish(StreamReset()), *kept))


def _unfinished(open_: OpenCall) -> CallEnd:
    return _NOT_MADE if open_.started_at_ms is None else _CUT


def _resume(memory: Memory, incarnation: Incarnation, reason: AnyReason, at_ms: int) -> Step:
    if memory.cycle is None:
        told = _told(incarnation, reason, "idle")
        return cycle.then(cycle.next_prompt(memory, at_ms), (told,))
    is_blamed = not (isinstance(reason, Other) and reason.detail in _NOBODYS_FAULT)
    resumed = Resumed(incarnation=incarnation, is_blamed=is_blamed)
    note, memory = Keep(resumed), _resumed(memory, resumed)
    if why := _why_given_up(memory, reason, at_ms):
        memory, kept = give_results(memory, _unfinished)
        told = _told(incarnation, reason, "idle")
        ended = cycle.abort(memory, why, at_ms)
        return cycle.then(ended, (note, told, Publish(StreamReset()), *kept))
    if memory.calls:
        told = _told(incarnation, reason, "tools")
        is_new = all(open_.started_at_ms is None and not open_.result for open_ in memory.calls)
        # Plugins, and the watch for loops, come before the first call of a batch.
        again = cycle.after_answer if is_new else _resume_tools
        return cycle.then(again(memory, at_ms), (note, told))
    told = _told(incarnation, reason, "stream")
    return cycle.then(_resume_turn(memory, at_ms), (note, told, Publish(StreamReset())))


def _why_given_up(memory: Memory, reason: AnyReason, at_ms: int) -> str | None:
    """Say why the running cycle is not gone on with: what killed it, or that its time is over."""
    assert memory.cycle is not None  # noqa: S101 - a cycle is what there is to go on with
    if memory.cycle.crashes >= memory.policy.max_cycle_crashes:
        return f"crashed({reason})"
    due_ms = memory.cycle_due_ms
    return CYCLE_TIMEOUT if due_ms is not None and at_ms >= due_ms else None


def _resume_turn(memory: Memory, at_ms: int) -> Step:
    """Take the step that the last message of the cycle was to be followed by."""
    last = memory.messages[-1]
    if last.role == "assistant":
        return cycle.after_answer(memory, at_ms)
    if last.role == "tool_result":
        return cycle.after_batch(memory, at_ms)
    if memory.cycle is not None and place(memory) == memory.cycle.first + 1:
        return cycle.open_again(memory, at_ms)
    return cycle.ask(memory, at_ms)


def _resume_tools(memory: Memory, at_ms: int) -> Step:
    effects: list[Effect] = []
    for open_ in memory.calls:
        if open_.result is None and may_have_acted(memory, open_):
            memory, ended = close_call(memory, open_, _CUT)
            effects += ended
    left = tuple(open_.call for open_ in memory.calls if open_.result is None)
    step = call_tools(memory, left) if left else cycle.after_batch(memory, at_ms)
    return cycle.then(step, effects)


def _told(
    incarnation: Incarnation, reason: AnyReason, resumed: Literal["idle", "stream", "tools"]
) -> Publish:
    return Publish(AgentRecovered(incarnation=incarnation, reason=reason, resumed=resumed))
