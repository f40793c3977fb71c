"""How a cycle begins, asks the model, and ends: the verbs that the tables are built from.

Each returns a whole step. A cycle ends in one of three ways (finished, aborted, failed), and each
of them brings the agent back to idle or straight into the next cycle: of steerings that came too
late for this one, else of the next queued prompt.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from cmdc_runtime.events import (
    AgentEnd,
    AgentError,
    AgentResumed,
    AgentStart,
    LoopDetected,
    MessageDelta,
    MessageStart,
    PromptReceived,
    RequestStart,
    ResponseComplete,
    SteeringApplied,
)
from cmdc_runtime.extensions.hooks import (
    AfterResponse,
    AfterToolBatch,
    BeforeCompact,
    BeforeFinish,
    BeforePrompt,
    BeforeRequest,
)
from cmdc_runtime.messages import OPENING, Message
from cmdc_runtime.plain import short
from cmdc_runtime.reasons import MaxTurnsExceeded, PlainReason, PluginAborted, ProviderTimeout
from workers.core import answer_format, compaction, loops, opening
from workers.core.batch import CallEnd, call_tools, give_results, latest_results
from workers.core.consult import consult
from workers.core.conversation import (
    APPROVAL,
    NOTES,
    REPAIR,
    STEERING,
    TRIGGER,
    count_turn,
    find_loop,
    newest,
    next_id,
    open_cycle,
    say,
    since,
    waiting,
)
from workers.core.effects import CallModel, Effect, ExitProcess, Keep, Publish, Step, Summarize
from workers.core.endings import aborted, close
from workers.core.expense import over_budget, request_tokens
from workers.core.kernel_emits import patched
from workers.core.records import CycleStarted, Said
from workers.core.repair import repair
from workers.core.state import Answering, Compacting, Memory, Point, QueuedPrompt, State
from workers.core.verdict import Aborted

MAX_TURNS_EXCEEDED: Final = "max_turns_exceeded"
PROVIDER_TIMEOUT: Final = "provider_timeout"
PLUGIN_ABORTED: Final = "plugin_aborted"
LOOP_DETECTED: Final = "loop_detected"
CONTEXT_OVERFLOW: Final = "context_overflow"
_LOOPED: Final = CallEnd(
    "Error: the call was not made, and the run was ended: the same calls were made over and over."
    " Do not make them again: try another way, or say what keeps you from going on.",
    LOOP_DETECTED,
)

_EXITS: Final[Mapping[str, Callable[[Memory], PlainReason]]] = {
    MAX_TURNS_EXCEEDED: lambda memory: MaxTurnsExceeded(max_turns=memory.policy.max_turns),
    PROVIDER_TIMEOUT: lambda memory: ProviderTimeout(
        model=memory.model, seconds=memory.policy.stall_timeout_s
    ),
}
"""Conditions that end the process where the options' ``exit_on`` names them."""


def then(step: Step, effects: Iterable[Effect]) -> Step:
    """Return ``step`` with ``effects`` before its own."""
    return Step(step.state, step.memory, (*effects, *step.effects))


# --- begin --------------------------------------------------------------------------------------


def start(memory: Memory, prompt: QueuedPrompt, at_ms: int) -> Step:
    """Begin the cycle of ``prompt`` with its first request, or with the call that it makes."""
    return _go_on(_start(memory, prompt, at_ms), at_ms)


def _start(memory: Memory, prompt: QueuedPrompt, at_ms: int) -> Step:
    prompt = opening.with_call(memory, prompt)
    begun = CycleStarted(
        command_id=prompt.command_id,
        text=prompt.text,
        at_ms=at_ms,
        metadata=prompt.metadata,
        call=prompt.call,
    )
    started = Publish(AgentStart(command_id=prompt.command_id))
    effects = (Keep(begun), *_resumed(prompt), started)
    return then(_opened(open_cycle(memory, prompt, at_ms), prompt, at_ms), effects)


def _resumed(prompt: QueuedPrompt) -> tuple[Effect, ...]:
    """Tell that it is a person's decision that opens the cycle, if it is."""
    if APPROVAL not in prompt.metadata:
        return ()
    is_refused = prompt.metadata.get(TRIGGER) == "tool_rejected"
    trigger: Literal["tool_approved", "tool_rejected"]
    trigger = "tool_rejected" if is_refused else "tool_approved"
    told = AgentResumed(trigger=trigger, approval_id=str(prompt.metadata[APPROVAL]))
    return (Publish(told),)


def open_again(memory: Memory, at_ms: int) -> Step:
    """Go on after a crash with a cycle that has only its prompt: plugins hear of it first."""
    prompt = memory.messages[-1].content
    assert memory.cycle is not None  # noqa: S101 - a cycle is what there is to go on with
    opened = QueuedPrompt(memory.cycle.command_id, prompt)
    return _go_on(_opened(memory, opened, at_ms), at_ms)


def _opened(memory: Memory, prompt: QueuedPrompt, at_ms: int) -> Step:
    return consult(memory, Point.PROMPT, BeforePrompt(prompt.text)) or _begin(memory, at_ms)


def begin(memory: Memory, at_ms: int) -> Step:
    """Take the first step of the cycle, now that plugins have heard of its prompt."""
    return _go_on(_begin(memory, at_ms), at_ms)


def _begin(memory: Memory, at_ms: int) -> Step:
    """Make the call that the cycle opens with, else ask the model."""
    assert memory.cycle is not None  # noqa: S101 - only a cycle begins
    call = memory.cycle.opening
    if call is None:
        return _ask(memory, at_ms)
    text = memory.messages[-1].content
    memory, told = _drain(memory)
    said = opening.said_call(memory, call, text)
    called = call_tools(say(memory, said), said.tool_calls)
    return then(called, (*told, Keep(Said(message=said))))


def receive(prompt: QueuedPrompt, *, queued: bool) -> Publish:
    """Tell observers that a prompt was accepted."""
    seen = PromptReceived(text=prompt.text, queued=queued, command_id=prompt.command_id)
    return Publish(seen)


def next_prompt(memory: Memory, at_ms: int) -> Step:
    """Begin the cycle of what waits, steerings before prompts, or rest.

    Without a budget each of them ends as soon as it begins. There may be more than Python's stack
    would take, so this is a loop.
    """
    state, effects = State.IDLE, list[Effect]()
    while state is State.IDLE and waiting(memory):
        state, memory, begun = _start_next(memory, at_ms)
        effects += begun
    return Step(state, memory, tuple(effects))


def _start_next(memory: Memory, at_ms: int) -> Step:
    if not memory.steering:
        return _start(memory, memory.queue[0], at_ms)
    guidance = _guidance(memory)
    prompt = QueuedPrompt(memory.steering[0].ref, guidance.content, guidance.metadata)
    applied = Publish(SteeringApplied(count=len(memory.steering)))
    return then(_start(memory, prompt, at_ms), (applied,))


def _go_on(step: Step, at_ms: int) -> Step:
    """Have the next cycle follow where one ended, unless the process ends with it."""
    exits = bool(step.effects) and isinstance(step.effects[-1], ExitProcess)
    if step.state is not State.IDLE or exits:
        return step
    return then(next_prompt(step.memory, at_ms), step.effects)


# --- ask the model ------------------------------------------------------------------------------


def ask(memory: Memory, at_ms: int) -> Step:
    """Begin a turn: tell the steerings, then ask with the whole conversation, or end at a limit.

    A conversation that has grown too large is compacted first. At a limit the steerings are not
    told, since nobody would answer them: they open the next cycle.
    """
    return _go_on(_ask(memory, at_ms), at_ms)


def _ask(memory: Memory, at_ms: int) -> Step:
    assert memory.cycle is not None  # noqa: S101 - only a cycle has turns
    turns = memory.cycle.turns
    memory = replace(memory, answering=Answering(), compacting=None)
    if turns >= memory.policy.max_turns:
        return _end_at_limit(memory, MAX_TURNS_EXCEEDED, at_ms)
    if reason := over_budget(memory):
        return _end_at_limit(memory, reason, at_ms)
    memory, told = _drain(count_turn(memory))
    tokens = request_tokens(memory)
    if compaction.needs_compaction(tokens, memory.policy.window_of(memory.model)):
        return then(compact(memory, "size") or ask_again(memory), told)
    return then(ask_again(memory), told)


def ask_again(memory: Memory) -> Step:
    """Send the request of the running turn, the first time or once more."""
    messages = repair(patched(memory))
    asked = consult(memory, Point.REQUEST, BeforeRequest(messages))
    return asked or send(memory, messages)


def send(memory: Memory, messages: tuple[Message, ...]) -> Step:
    """Send a request with these messages."""
    memory = replace(memory, work=memory.work + 1)
    begun = Publish(RequestStart(model=memory.model, messages=len(messages)))
    return Step(State.RUNNING, memory, (begun, CallModel(memory.work, memory.model, messages)))


def compact(memory: Memory, trigger: Literal["size", "overflow"]) -> Step | None:
    """Have the oldest messages summed up before the request, or return None if none can go."""
    evicted = compaction.cut(memory.messages, memory.policy.window_of(memory.model))
    if not evicted:
        return None
    wanted = Compacting(evicted, trigger)
    hook = BeforeCompact(memory.messages[:evicted])
    return consult(memory, Point.COMPACT, hook, wanted) or summarize(memory, wanted)


def do_without_summary(memory: Memory, wanted: Compacting, at_ms: int) -> Step:
    """Ask with the whole conversation, unless it is known not to fit."""
    if wanted.trigger == "overflow":
        return end_at_limit(memory, CONTEXT_OVERFLOW, at_ms)
    answering = replace(memory.answering, is_compacted=True)
    return ask_again(replace(memory, compacting=None, answering=answering))


def summarize(memory: Memory, wanted: Compacting) -> Step:
    """Have the model sum up what is to go before the request is sent."""
    memory = replace(memory, work=memory.work + 1, compacting=wanted)
    evicted = memory.messages[: wanted.evicted]
    return Step(State.RUNNING, memory, (Summarize(memory.work, memory.model, evicted),))


# --- tools --------------------------------------------------------------------------------------


def after_call(memory: Memory, effects: Iterable[Effect], at_ms: int) -> Step:
    """Wait for the other calls of the batch, or go on after the last one; ``effects`` first."""
    if memory.calls:
        return Step(State.EXECUTING_TOOLS, memory, tuple(effects))
    return then(after_batch(memory, at_ms), effects)


def after_batch(memory: Memory, at_ms: int) -> Step:
    """Go on after the last result: plugins first, then as ``go_on_after_batch`` says."""
    asked = consult(memory, Point.BATCH, AfterToolBatch(latest_results(memory)))
    return asked or go_on_after_batch(memory, at_ms)


def go_on_after_batch(memory: Memory, at_ms: int) -> Step:
    """Ask the model, or rest where a call waits for a person.

    After the call that the cycle opened with nobody is asked: its result is the answer. Guidance
    that ended it, or that it waited with, is for the model still.
    """
    assert memory.cycle is not None  # noqa: S101 - only a cycle has batches
    if memory.cycle.is_blocked and not memory.steering and not memory.notes:
        return finish(memory, at_ms)
    result = opening.find_result(memory)
    if result is None or memory.cycle.is_blocked or (result.is_error and memory.steering):
        return ask(memory, at_ms)
    if result.is_error:
        return fail(memory, result.content, at_ms, retryable=False)
    said = opening.answer(memory, result)
    told = (
        Keep(Said(message=said)),
        Publish(MessageStart()),
        Publish(MessageDelta(delta=said.content)),
        Publish(ResponseComplete(message=said)),
    )
    return then(after_answer(say(memory, said), at_ms), told)


# --- end ----------------------------------------------------------------------------------------


def after_answer(memory: Memory, at_ms: int) -> Step:
    """Go on after an answer, the last message or the one with the open calls: plugins first.

    They are not asked about a call that no model wants.
    """
    if memory.calls and OPENING in memory.messages[-1].metadata:
        return go_on_after_answer(memory, at_ms)
    asked = consult(memory, Point.RESPONSE, AfterResponse(memory.messages[-1]))
    return asked or go_on_after_answer(memory, at_ms)


def go_on_after_answer(memory: Memory, at_ms: int) -> Step:
    """Run the calls of the answer, or end the cycle with it."""
    if memory.calls:
        return _call_unless_looping(memory, at_ms)
    return conclude(memory, at_ms)


def _call_unless_looping(memory: Memory, at_ms: int) -> Step:
    """Run the open batch, unless the model goes round in circles."""
    calls = tuple(open_.call for open_ in memory.calls)
    loop, policy = find_loop(memory), memory.policy
    if loop is None:
        return call_tools(memory, calls)
    told = Publish(LoopDetected(type=loop.kind, name=loop.name, count=loop.count))
    match loops.verdict(loop.count, policy.loop_threshold, policy.loop_abort):
        case "abort":
            memory, kept = give_results(memory, lambda _open: _LOOPED)
            return then(end_at_limit(memory, LOOP_DETECTED, at_ms), (told, *kept))
        case "notice":
            return then(call_tools(memory, calls), (told,))
        case "go_on":  # pragma: no branch - the last of the words
            return call_tools(memory, calls)


def conclude(memory: Memory, at_ms: int) -> Step:
    """Go on after an answer without calls: it ends the cycle, unless there is more to say.

    Guidance that came meanwhile is told first; an answer in the wrong form is asked for once more.
    """
    assert memory.cycle is not None  # noqa: S101 - only a cycle is answered
    if memory.steering or memory.notes:
        return ask(memory, at_ms)
    schema = memory.policy.response_format
    problem = answer_format.problem(schema, memory.messages[-1].content) if schema else None
    if problem is None:
        return consult(memory, Point.FINISH, BeforeFinish()) or finish(memory, at_ms)
    if memory.cycle.repairs:
        answer = short(memory.messages[-1].content)
        reason = f"response_format: {problem}; the answer was {answer}"
        return fail(memory, reason, at_ms, retryable=False)
    wish = Message(
        id=next_id(memory),
        role="user",
        content=answer_format.repair_request(problem),
        metadata={REPAIR: True},
    )
    return then(ask(say(memory, wish), at_ms), (Keep(Said(message=wish)),))


def finish(memory: Memory, at_ms: int) -> Step:
    """End the cycle because the model is done."""
    assert memory.cycle is not None  # noqa: S101 - only a cycle ends
    ended = AgentEnd(
        messages=newest(since(memory, memory.cycle.first)),
        usage=memory.usage - memory.cycle.usage_before,
        command_id=memory.cycle.command_id,
    )
    memory, effects = close(memory, "finished", None, (ended, at_ms))
    return then(next_prompt(memory, at_ms), effects)


# Any: plain data of the caller.
def abort(memory: Memory, reason: Any, at_ms: int) -> Step:
    """End the cycle because a caller says so."""
    memory, effects = close(memory, "aborted", reason, (aborted(memory, reason), at_ms))
    return then(next_prompt(memory, at_ms), effects)


def end_at_limit(memory: Memory, reason: str, at_ms: int) -> Step:
    """End the cycle because of a limit, and the process too where the options say so."""
    return _go_on(_end_at_limit(memory, reason, at_ms), at_ms)


def end_by_plugin(memory: Memory, abort_: Aborted, at_ms: int) -> Step:
    """End the cycle because a plugin says so, and the process too where the options say so."""
    told = (aborted(memory, abort_.reason), at_ms)
    memory, effects = close(memory, "aborted", abort_.reason, told)
    if PLUGIN_ABORTED in memory.policy.exit_on:
        why = PluginAborted(plugin=abort_.plugin, why=abort_.reason)
        return Step(State.IDLE, memory, (*effects, ExitProcess(why)))
    return then(next_prompt(memory, at_ms), effects)


def _end_at_limit(memory: Memory, reason: str, at_ms: int) -> Step:
    told = (aborted(memory, reason), at_ms)
    memory, effects = close(memory, "aborted", reason, told)
    if reason in memory.policy.exit_on and reason in _EXITS:
        effects = (*effects, ExitProcess(_EXITS[reason](memory)))
    return Step(State.IDLE, memory, effects)


def fail(memory: Memory, reason: str, at_ms: int, *, retryable: bool) -> Step:
    """End the cycle because the provider failed for good."""
    assert memory.cycle is not None  # noqa: S101 - only a cycle ends
    event = AgentError(reason=reason, retryable=retryable, command_id=memory.cycle.command_id)
    memory, effects = close(memory, "failed", reason, (event, at_ms))
    return then(next_prompt(memory, at_ms), effects)


def _drain(memory: Memory) -> tuple[Memory, tuple[Effect, ...]]:
    """Tell the model what plugins have to say, then all guidance that waits as one message."""
    memory, effects = tell_notes(memory)
    if not memory.steering:
        return memory, effects
    count, guidance = len(memory.steering), _guidance(memory)
    applied = Publish(SteeringApplied(count=count))
    return say(memory, guidance), (*effects, Keep(Said(message=guidance)), applied)


def tell_notes(memory: Memory) -> tuple[Memory, tuple[Effect, ...]]:
    """Tell the model what plugins have to say, as one message."""
    if not memory.notes:
        return memory, ()
    text = "\n\n".join(memory.notes)
    told = Message(id=next_id(memory), role="user", content=text, metadata={NOTES: True})
    return say(memory, told), (Keep(Said(message=told)),)


def _guidance(memory: Memory) -> Message:
    return Message(
        id=next_id(memory),
        role="user",
        content="\n\n".join(one.text for one in memory.steering),
        metadata={STEERING: [str(one.ref) for one in memory.steering]},
    )
