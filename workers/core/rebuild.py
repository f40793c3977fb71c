"""An agent's memory from its journal, and what a new process does with what it finds.

``replay`` folds the records; ``resume`` says how to go on. A started call without an end runs again
only if its tool may; otherwise its outcome is unknown, and the model is told so.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from cmdc_runtime.events import AgentRecovered, StreamReset, ToolExecutionEnd
from cmdc_runtime.ids import Incarnation
from cmdc_runtime.process import DAEMON_RESTARTED, RESUMED
from cmdc_runtime.reasons import AnyReason, Other
from workers.core import changes, cycle, kernel_emits
from workers.core.batch import call_tools, give_results
from workers.core.budget import Grant
from workers.core.conversation import (
    begin_call,
    close_cycle,
    count_turn,
    discard,
    end_call,
    enqueue,
    measure,
    open_cycle,
    place,
    result_of,
    say,
    spend,
)
from workers.core.effects import CountSubagents, Effect, Keep, Publish, Step
from workers.core.interrupt import CYCLE_TIMEOUT
from workers.core.records import (
    ApprovalAsked,
    ApprovalDecided,
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
    Steered,
    SubagentSpawned,
    SubagentSpent,
    TodosChanged,
    ToolEnded,
    ToolsChanged,
    ToolStarted,
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
    Steering,
)

_NOBODYS_FAULT: Final = (DAEMON_RESTARTED, RESUMED)
_UNCERTAIN: Final = (
    "Error: the process died while this call ran. It may or may not have taken effect; it was not "
    "run again. Check before you repeat it."
)


def _cycle_started(memory: Memory, record: CycleStarted) -> Memory:
    prompt = QueuedPrompt(record.command_id, record.text, record.metadata)
    return open_cycle(memory, prompt, record.at_ms)


def _turn_spent(memory: Memory, record: TurnSpent) -> Memory:
    return count_turn(measure(spend(memory, record.usage), record.usage))


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
    return changes.spawn(memory, Child(record.child_id, record.call_id, record.ref, grant))


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
        memory, QueuedPrompt(record.command_id, record.text, record.metadata)
    ),
    CycleStarted: _cycle_started,
    Said: lambda memory, record: say(memory, record.message),
    TurnSpent: _turn_spent,
    ToolStarted: lambda memory, record: begin_call(
        memory, record.call_id, record.at_ms, record.allowance
    ),
    ToolEnded: lambda memory, record: end_call(memory, record.message),
    CycleEnded: lambda memory, record: close_cycle(memory, record.outcome, record.reason),
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
    Compacted: lambda memory, record: changes.compact(
        memory, record.evicted, record.summary, record.usage
    ),
    SubagentSpawned: _subagent_spawned,
    SubagentSpent: lambda memory, record: changes.settle_child(
        memory, record.child_id, record.usage
    ),
    Noted: lambda memory, record: changes.note(memory, record.notes),
    PluginsChanged: lambda memory, record: changes.change_plugins(memory, record.states),
    PluginSetChanged: lambda memory, record: changes.change_plugin_set(
        memory, record.attached, record.detached
    ),
    PluginOrdered: kernel_emits.reapply,
    PluginSpent: lambda memory, record: spend(memory, record.usage),
    Resumed: _resumed,
    Continued: changes.go_on_with,
}


def replay(memory: Memory, records: Iterable[Record]) -> Memory:
    """Return ``memory`` after ``records``, oldest first."""
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


def _resume(memory: Memory, incarnation: Incarnation, reason: AnyReason, at_ms: int) -> Step:
    if memory.cycle is None:
        told = _told(incarnation, reason, "idle")
        return cycle.then(cycle.next_prompt(memory, at_ms), (told,))
    is_blamed = not (isinstance(reason, Other) and reason.detail in _NOBODYS_FAULT)
    resumed = Resumed(incarnation=incarnation, is_blamed=is_blamed)
    note, memory = Keep(resumed), _resumed(memory, resumed)
    if why := _why_given_up(memory, reason, at_ms):
        memory, kept = give_results(memory, lambda _open: _UNCERTAIN)
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
        if _is_uncertain(memory, open_):
            result = result_of(memory, open_.call.call_id, _UNCERTAIN, is_error=True)
            memory = end_call(memory, result)
            ended = ToolExecutionEnd(
                name=open_.call.name, call_id=open_.call.call_id, ok=False, text=_UNCERTAIN
            )
            effects += (Keep(ToolEnded(message=result)), Publish(ended))
    left = tuple(open_.call for open_ in memory.calls if open_.result is None)
    step = call_tools(memory, left) if left else cycle.after_batch(memory, at_ms)
    return cycle.then(step, effects)


def _is_uncertain(memory: Memory, open_: OpenCall) -> bool:
    is_hidden = open_.started_at_ms is not None and open_.result is None
    tool = memory.tool(open_.call.name)
    return is_hidden and not (tool is not None and tool.is_repeatable)


def _told(
    incarnation: Incarnation, reason: AnyReason, resumed: Literal["idle", "stream", "tools"]
) -> Publish:
    return Publish(AgentRecovered(incarnation=incarnation, reason=reason, resumed=resumed))
