"""Steer and abort: how a running cycle is interrupted, softly or for good.

An abort is announced before anything is done about it, behind the ends of its calls. What may be
ended by either is decided by two functions of a call: ``_steering_ends`` and ``_abort_ends``. A
cycle that has run for as long as it may is aborted as a caller would, but for what waits: that has
its turn.
"""

from dataclasses import replace
from typing import Any, Final

from cmdc_runtime.commands import Abort, Steer, SteerReceipt
from cmdc_runtime.errors import InvalidText, QueueFull, UsageError
from cmdc_runtime.events import AgentAbort, PromptDropped, SteeringReceived, ToolKilled
from cmdc_runtime.extensions.hooks import BeforeSteering
from cmdc_runtime.ids import CallId
from cmdc_runtime.messages import Message
from cmdc_runtime.plain import problem_of, shown
from cmdc_runtime.reasons import LINE_CHARS_MAX
from workers.core import cycle
from workers.core.batch import CallEnd, give_results
from workers.core.changes import children_of, steer
from workers.core.conversation import (
    cycle_result,
    discard,
    next_id,
    say,
    text_problem,
    waiting,
)
from workers.core.effects import (
    AnswerTool,
    CancelCalls,
    CancelModel,
    Effect,
    EndSubagents,
    JudgeSteering,
    Keep,
    Publish,
    Settle,
    Step,
)
from workers.core.endings import answer_waiters
from workers.core.inputs import CycleExpired, Order, Stopped
from workers.core.records import PromptDiscarded, Said, Steered
from workers.core.state import Memory, OpenCall, QueuedPrompt, State, Steering
from workers.core.tags import flush

CYCLE_TIMEOUT: Final = "cycle_timeout"
_EXPIRY: Final = Abort(reason=CYCLE_TIMEOUT, clear_queue=False)
_ABORTED: Final = CallEnd(
    "Error: the call was ended because the cycle was aborted.", "aborted", is_cut=True
)
_LEFT: Final = CallEnd(
    "Error: the cycle was aborted; the call may still have run to its end.",
    "aborted",
    is_cut=True,
    leaves=True,
)
_STOPPED: Final = CallEnd(
    "Error: the call was ended because the session was stopped.",
    "stopped",
    is_cut=True,
    leaves=True,
)
_NOT_BEGUN: Final = CallEnd("Error: the call was not made: the session was stopped.", "stopped")
_STEERED: Final = CallEnd(
    "Error: the call was ended because the user has new guidance, which follows.",
    "steered",
    is_cut=True,
)


def start_steering(state: State, memory: Memory, order: Order, command: Steer) -> Step:
    """Nothing runs that could be steered: open a cycle with the text."""
    if problem := text_problem(command.text):
        return Step(state, memory, (Settle(order.id, InvalidText(problem)),))
    prompt = QueuedPrompt(order.id, command.text)
    receipt = SteerReceipt(ref=order.id, opened=True)
    begun = cycle.start(memory, prompt, order.at_ms)
    return cycle.then(begun, (Settle(order.id, receipt), cycle.receive(prompt, queued=False)))


def keep_steering(state: State, memory: Memory, order: Order, command: Steer) -> Step:
    """Keep the guidance for the next gap; plugins that listen are asked first."""
    return _judged(state, memory, order, command) or keep_heard(state, memory, order, command)


def interrupt_tools(state: State, memory: Memory, order: Order, command: Steer) -> Step:
    """Keep the guidance and end calls for it; plugins that listen are asked first."""
    asked = _judged(state, memory, order, command)
    return asked or end_calls_and_keep(state, memory, order, command)


def _judged(state: State, memory: Memory, order: Order, command: Steer) -> Step | None:
    is_refused = text_problem(command.text) or _is_full(memory)
    if is_refused or not memory.hears(BeforeSteering):
        return None
    return Step(state, memory, (JudgeSteering(order, command),))


def _is_full(memory: Memory) -> bool:
    return len(memory.steering) >= memory.policy.max_steering_queue


def keep_heard(state: State, memory: Memory, order: Order, command: Steer) -> Step:
    """Keep the guidance for the next gap, if there is room."""
    problem = text_problem(command.text)
    bound = memory.policy.max_steering_queue
    if problem is not None:
        return Step(state, memory, (Settle(order.id, InvalidText(problem)),))
    if _is_full(memory):
        full = QueueFull(f"{bound} steerings wait already; try again after the next gap")
        told = SteeringReceived(ref=order.id, status="rejected_full", text=command.text)
        return Step(state, memory, (Settle(order.id, full), Publish(told)))
    effects = (
        Keep(Steered(ref=order.id, text=command.text)),
        Settle(order.id, SteerReceipt(ref=order.id, opened=False)),
        Publish(SteeringReceived(ref=order.id, status="queued", text=command.text)),
    )
    return Step(state, steer(memory, Steering(order.id, command.text)), effects)


def end_calls_and_keep(state: State, memory: Memory, order: Order, command: Steer) -> Step:
    """Keep the guidance and end the calls that may be ended, so that the gap comes soon."""
    kept = keep_heard(state, memory, order, command)
    if len(kept.memory.steering) == len(memory.steering):
        return kept
    doomed = [
        open_
        for open_ in memory.calls
        if open_.result is None and _steering_ends(memory, open_, command)
    ]
    ids = tuple(open_.call.call_id for open_ in doomed)
    ended = cancel(memory, ids)
    memory, given = give_results(
        kept.memory,
        lambda open_: (
            killed(memory, open_, _STEERED, "steered") if open_.call.call_id in ids else None
        ),
    )
    return cycle.after_call(memory, (*kept.effects, *ended, *given), order.at_ms)


def note_abort(state: State, memory: Memory, order: Order, command: Abort) -> Step:
    """Nothing runs; say so, for observers that missed the end."""
    if (refused := _refused(state, memory, order, command)) is not None:
        return refused
    said = Publish(AgentAbort(reason=command.reason))
    return Step(state, memory, (said, Settle(order.id, None)))


def _refused(state: State, memory: Memory, order: Order, command: Abort) -> Step | None:
    """Refuse an abort whose reason can't be written down; None where it can be."""
    problem = problem_of(command.reason)
    if problem is None:
        return None
    return Step(state, memory, (Settle(order.id, UsageError(f"abort: reason: {problem}")),))


def abort_request(state: State, memory: Memory, order: Order, command: Abort) -> Step:
    """Tell observers, end the request, keep what was said so far and mark it."""
    if (refused := _refused(state, memory, order, command)) is not None:
        return refused
    return _settled(_end_request(memory, command, order.at_ms), order)


def abort_tools(state: State, memory: Memory, order: Order, command: Abort) -> Step:
    """Tell observers and end the calls that may be ended; none of them counts any more."""
    if (refused := _refused(state, memory, order, command)) is not None:
        return refused
    return _settled(_end_tools(memory, command, order.at_ms), order)


def expire_request(state: State, memory: Memory, expired: CycleExpired) -> Step:
    """Abort a cycle that asks a model or plugins, if its time is over."""
    if not _is_over(memory, expired):
        return Step(state, memory)
    return _end_request(memory, _EXPIRY, expired.at_ms)


def expire_tools(state: State, memory: Memory, expired: CycleExpired) -> Step:
    """Abort a cycle that runs calls, if its time is over."""
    if not _is_over(memory, expired):
        return Step(state, memory)
    return _end_tools(memory, _EXPIRY, expired.at_ms)


def stop_tools(state: State, memory: Memory, _stopped: Stopped) -> Step:
    """End the calls, since nobody else will.

    One that waits for a person's leave has not begun: what is saved of the session still asks.
    """
    before = memory
    waiting_ids = {one.call_id for one in memory.approvals}

    def end_of(open_: OpenCall) -> CallEnd | None:
        if open_.started_at_ms is not None:
            return killed(before, open_, _STOPPED, "stopped")
        return None if open_.call.call_id in waiting_ids else _NOT_BEGUN

    memory, kept = give_results(memory, end_of)
    return Step(state, replace(memory, work=memory.work + 1), kept)


def _is_over(memory: Memory, expired: CycleExpired) -> bool:
    running, due_ms = memory.cycle, memory.cycle_due_ms
    is_meant = running is not None and running.command_id == expired.command_id
    return is_meant and due_ms is not None and expired.at_ms >= due_ms


def _settled(step: Step, order: Order) -> Step:
    return Step(step.state, step.memory, (*step.effects, Settle(order.id, None)))


def _end_request(memory: Memory, wanted: Abort, at_ms: int) -> Step:
    memory, said = keep_partial(memory)
    effects = (CancelModel(), *said)
    # An answer whose calls plugins were still being asked about: none of them runs.
    memory, kept = give_results(memory, lambda _open: _ABORTED)
    return _abort(memory, wanted, at_ms, (*effects, *kept))


def keep_partial(memory: Memory) -> tuple[Memory, tuple[Effect, ...]]:
    """Keep what there is of an answer, marked as interrupted."""
    _, held, _ = flush(memory.answering.tags, memory.policy.tags)
    said = memory.answering.text + held
    if not said:
        return memory, ()
    partial = Message(
        id=next_id(memory), role="assistant", content=said, metadata={"interrupted": True}
    )
    return say(memory, partial), (Keep(Said(message=partial)),)


def _end_tools(memory: Memory, wanted: Abort, at_ms: int) -> Step:
    doomed = [
        open_
        for open_ in memory.calls
        if open_.result is None and _abort_ends(memory, open_, wanted)
    ]
    ids = tuple(open_.call.call_id for open_ in doomed)
    # A call whose subagent goes on without it has nothing left to wait for, and gives its room up.
    alone = tuple(
        open_.call.call_id
        for open_ in memory.calls
        if open_ not in doomed and children_of(memory, (open_.call.call_id,))
    )
    given_up = (CancelCalls(alone),) if alone else ()
    effects = (CancelModel(), *_end_compaction(memory), *cancel(memory, ids), *given_up)
    before = memory
    memory, kept = give_results(
        memory,
        lambda open_: (
            killed(before, open_, _ABORTED, wanted.reason) if open_.call.call_id in ids else _LEFT
        ),
    )
    return _abort(memory, wanted, at_ms, (*effects, *kept))


def _end_compaction(memory: Memory) -> tuple[Effect, ...]:
    """Tell the call that waits for a summary that there will be none, since that is ended too."""
    wanted = memory.compacting
    if wanted is None or wanted.ref is None:
        return ()
    return (AnswerTool(wanted.ref, error="no summary: the cycle was aborted"),)


def _steering_ends(memory: Memory, open_: OpenCall, command: Steer) -> bool:
    if children_of(memory, (open_.call.call_id,)):
        return command.scope == "tree"
    return open_.call.name not in memory.policy.immune


def _abort_ends(memory: Memory, open_: OpenCall, command: Abort) -> bool:
    call_id, name = open_.call.call_id, open_.call.name
    if children_of(memory, (call_id,)):
        return command.children
    if any(ask.call_id == call_id for ask in memory.asks):
        return True  # nobody will answer to a cycle that is over
    if open_.started_at_ms is None:
        return True  # it would begin in a cycle that is over
    is_killable = name not in memory.policy.immune
    return command.kill_tools == "all" or (command.kill_tools == "killable" and is_killable)


def cancel(memory: Memory, ids: tuple[CallId, ...]) -> tuple[Effect, ...]:
    """End these calls, and the subagents that they wait for."""
    children = children_of(memory, ids)
    ended = (EndSubagents(children),) if children else ()
    return (*((CancelCalls(ids),) if ids else ()), *ended)


# Any: plain data of whoever ended it.
def killed(memory: Memory, open_: OpenCall, end: CallEnd, reason: Any) -> CallEnd:
    """Return ``end`` with the word that the call was ended from outside.

    A thread can't be ended: what it returns is thrown away.
    """
    tool = memory.tool(open_.call.name)
    is_left = tool is not None and tool.isolation == "thread" and open_.started_at_ms
    why = shown(reason, LINE_CHARS_MAX) or "aborted"
    told = ToolKilled(
        name=open_.call.name,
        call_id=open_.call.call_id,
        reason="abandoned" if is_left else why,
    )
    return replace(end, told=(Publish(told),), why=why)


def _abort(memory: Memory, wanted: Abort, at_ms: int, effects: tuple[Effect, ...]) -> Step:
    dropped: list[Effect] = []
    results = []
    for command_id, text in waiting(memory) if wanted.clear_queue else ():
        memory = discard(memory, command_id)
        results.append((command_id, cycle_result(memory, memory.outcomes[-1])))
        gone = PromptDropped(text=text, command_id=command_id)
        dropped += (Publish(gone), Keep(PromptDiscarded(command_id=command_id)))
    answered = answer_waiters(memory, *results)
    ended = cycle.abort(answered.memory, wanted.reason, at_ms)
    # The abort is announced before anything is done about it, within 100 ms in every state. Its
    # calls have their ends before it, in the same batch: they are of the cycle that it ends.
    ends = [one for one in effects if isinstance(one, Keep | Publish)]
    done = [one for one in effects if not isinstance(one, Keep | Publish)]
    first, *rest = ended.effects
    after = (*done, *dropped, *answered.effects, *rest)
    return Step(ended.state, ended.memory, (*ends, first, *after))
