"""How a cycle begins, asks the model, and ends: the verbs that the tables are built from.

A cycle ends in one of three ways (finished, aborted, failed), and each of them brings the agent
back to idle or straight into the next cycle: of steerings that came too late for this one, else of
the next queued prompt.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from msgspec.structs import replace

from cmdc_runtime.answer_schema import answer_problem, refusal, repair_request
from cmdc_runtime.commands import CycleResult
from cmdc_runtime.errors import CollectTimeout
from cmdc_runtime.events import (
    AgentAbort,
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
    HOOKS,
    AfterResponse,
    AfterToolBatch,
    AfterTurn,
    BeforeCompact,
    BeforeFinish,
    BeforePrompt,
    BeforeRequest,
    Hook,
)
from cmdc_runtime.messages import OPENING, Message
from cmdc_runtime.reasons import MaxTurnsExceeded, PlainReason, PluginAborted, ProviderTimeout
from workers.core import compaction, handoffs, loops, opening_call
from workers.core.conversation import (
    APPROVAL,
    NOTES,
    REPAIR,
    STEERING,
    TRIGGER,
    children_of_plugins,
    cycle_result,
    find_loop,
    form_of,
    guarded_prompt,
    newest,
    next_id,
    repair,
    since,
    waiting,
)
from workers.core.evolve import patched
from workers.core.expense import over_budget, request_tokens
from workers.core.inputs import ANY_WORK, WaitExpired
from workers.core.message_content import joined
from workers.core.plugins import ask_plugins
from workers.core.records import CycleEnded, CycleStarted, MessageAdded, OutcomeKind
from workers.core.state import (
    Asking,
    Compacting,
    Cycle,
    Guarding,
    Memory,
    QueuedPrompt,
    Resting,
    State,
    Summarizing,
)
from workers.core.step import (
    Answer,
    AskPlugins,
    CallModel,
    CheckAnswer,
    EndSubagents,
    ExitProcess,
    Refuse,
    Step,
    Summarize,
)
from workers.core.tool_calls import CallEnd, call_tools, end_calls, latest_results
from workers.core.verdict import Aborted, Verdict

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


# --- begin --------------------------------------------------------------------------------------


def start(step: Step, prompt: QueuedPrompt, at_ms: int) -> None:
    """Begin the cycle of ``prompt`` with its first request, or with the call that it makes."""
    _start(step, prompt, at_ms)
    next_prompt(step, at_ms)


def _start(step: Step, prompt: QueuedPrompt, at_ms: int) -> None:
    prompt = opening_call.with_call(step.memory, prompt)
    step.record(
        CycleStarted(
            command_id=prompt.command_id,
            text=prompt.text,
            at_ms=at_ms,
            metadata=prompt.metadata,
            call=prompt.call,
            response_format=prompt.response_format,
            parts=prompt.parts,
        )
    )
    _publish_decision(step, prompt)
    step.publish(AgentStart(command_id=prompt.command_id))
    _open(step, prompt.text, at_ms)


def _publish_decision(step: Step, prompt: QueuedPrompt) -> None:
    """Publish that a person's decision opens the cycle, if one does."""
    if APPROVAL not in prompt.metadata:
        return
    is_refused = prompt.metadata.get(TRIGGER) == "tool_rejected"
    trigger: Literal["tool_approved", "tool_rejected"]
    trigger = "tool_rejected" if is_refused else "tool_approved"
    step.publish(AgentResumed(trigger=trigger, approval_id=str(prompt.metadata[APPROVAL])))


def open_again(step: Step, at_ms: int) -> None:
    """Go on after a crash with a cycle that has only its prompt: plugins are asked first."""
    _open(step, step.memory.messages[-1].content, at_ms)
    next_prompt(step, at_ms)


def _open(step: Step, text: str, at_ms: int) -> None:
    if not ask_plugins(step, BeforePrompt(text)):
        _begin(step, at_ms)


def begin(step: Step, at_ms: int) -> None:
    """Take the first step of the cycle, now that plugins have been asked about its prompt."""
    _begin(step, at_ms)
    next_prompt(step, at_ms)


def _begin(step: Step, at_ms: int) -> None:
    """Make the call that the cycle opens with, when its prompt may pass, else ask the model."""
    if step.cycle.opening is None:
        _ask(step, at_ms)
    elif not opening_call.guard(step):
        make_opening_call(step)


def make_opening_call(step: Step) -> None:
    """Make the call that the cycle opens with, behind the steering that waits."""
    text = step.memory.messages[-1].content
    _drain(step)
    opening_call.make(step, text)


def receive(step: Step, prompt: QueuedPrompt, *, queued: bool) -> None:
    """Publish that a prompt was accepted."""
    step.publish(
        PromptReceived(
            text=prompt.text, queued=queued, command_id=prompt.command_id, parts=prompt.parts
        )
    )


def next_prompt(step: Step, at_ms: int) -> None:
    """Where no cycle runs, begin that of what waits, steerings before prompts, or rest.

    Nothing follows a cycle that the process ends with. Without a budget each of them ends as soon
    as it begins. There may be more than Python's stack would take, so this is a loop.
    """
    while step.state is State.IDLE and not step.exits and waiting(step.memory):
        _start_next(step, at_ms)


def _start_next(step: Step, at_ms: int) -> None:
    memory = step.memory
    if not memory.steering:
        _start(step, memory.queue[0], at_ms)
        return
    steering = _steering(memory)
    step.publish(SteeringApplied(count=len(memory.steering)))
    prompt = QueuedPrompt(
        memory.steering[0].ref, steering.content, steering.metadata, parts=steering.parts
    )
    _start(step, prompt, at_ms)


# --- ask the model ------------------------------------------------------------------------------


def ask(step: Step, at_ms: int) -> None:
    """Begin a turn: add the steerings, then ask with the whole conversation, or end at a limit.

    A conversation that has grown too large is compacted first. At a limit the steerings are not
    added, since nobody would answer them: they open the next cycle.
    """
    _ask(step, at_ms)
    next_prompt(step, at_ms)


def _ask(step: Step, at_ms: int) -> None:
    if step.cycle.turns >= step.memory.policy.max_turns:
        _end_at_limit(step, MAX_TURNS_EXCEEDED, at_ms)
        return
    if reason := over_budget(step.memory):
        _end_at_limit(step, reason, at_ms)
        return
    step.become(Asking())
    _drain(step)
    window = step.memory.policy.window_of(step.memory.model)
    is_large = compaction.needs_compaction(request_tokens(step.memory), window)
    if not (is_large and compact(step, "size")):
        ask_again(step)


def ask_again(step: Step) -> None:
    """Send the request of the running turn, the first time or once more."""
    messages = repair(patched(step.memory))
    if not ask_plugins(step, BeforeRequest(messages)):
        send(step, messages)


def send(step: Step, messages: tuple[Message, ...]) -> None:
    """Send a request with these messages."""
    step.become(Asking(replace(step.memory.answering, is_delayed=False)))
    step.begin_work()
    model = step.memory.model
    step.publish(RequestStart(model=model, messages=len(messages)))
    step.perform(CallModel(step.memory.work, model, messages, guarded_prompt(step.memory)))


def evictable(memory: Memory) -> int:
    """Return how many of the oldest messages a compaction would take, 0 where none can go."""
    return compaction.cut(memory.messages, memory.policy.window_of(memory.model))


def compact(step: Step, trigger: Literal["size", "overflow"]) -> bool:
    """Have the oldest messages summed up before the request; return whether any can go."""
    evicted = evictable(step.memory)
    if not evicted:
        return False
    wanted = Compacting(evicted, trigger)
    if not ask_plugins(step, BeforeCompact(step.memory.messages[:evicted]), wanted):
        summarize(step, wanted)
    return True


def do_without_summary(step: Step, wanted: Compacting, at_ms: int) -> None:
    """Ask with the whole conversation, unless it is known not to fit."""
    if wanted.trigger == "overflow":
        end_at_limit(step, CONTEXT_OVERFLOW, at_ms)
        return
    step.become(Asking(replace(step.memory.answering, is_compacted=True)))
    ask_again(step)


def summarize(step: Step, wanted: Compacting) -> None:
    """Have the model sum up what is to go before the request is sent."""
    step.become(Summarizing(wanted, step.memory.answering))
    step.begin_work()
    memory = step.memory
    step.perform(Summarize(memory.work, memory.model, memory.messages[: wanted.evicted]))


# --- tools --------------------------------------------------------------------------------------


def after_call(step: Step, at_ms: int) -> None:
    """Wait for the other calls of the batch, or go on after the last one."""
    if not step.memory.calls:
        after_batch(step, at_ms)


def after_batch(step: Step, at_ms: int) -> None:
    """Go on after the last result: a handoff, plugins, then as ``go_on_after_batch`` says."""
    if handoffs.begin(step):
        return
    if not ask_plugins(step, AfterToolBatch(latest_results(step.memory))):
        go_on_after_batch(step, at_ms)


def go_on_after_batch(step: Step, at_ms: int) -> None:
    """Ask the model, or rest where a call waits for a person.

    After the call that the cycle opened with nobody is asked: its result is the answer. Steering
    that ended it, or that it waited with, is for the model still.
    """
    memory, is_blocked = step.memory, step.cycle.is_blocked
    if is_blocked and not memory.steering and not memory.notes:
        finish(step, at_ms)
        return
    result = opening_call.find_result(memory)
    if result is None or is_blocked or (result.is_error and memory.steering):
        ask(step, at_ms)
        return
    if result.is_error:
        fail(step, result.content, at_ms, retryable=False)
        return
    said = opening_call.answer(memory, result)
    step.record(MessageAdded(message=said))
    step.publish(MessageStart(), MessageDelta(delta=said.content), ResponseComplete(message=said))
    after_answer(step, at_ms)


# --- end ----------------------------------------------------------------------------------------


def after_answer(step: Step, at_ms: int) -> None:
    """Go on after an answer, the last message or the one with the open calls: plugins first.

    They are not asked about a call that no model wants.
    """
    said = step.memory.messages[-1]
    is_opening = step.memory.calls and OPENING in said.metadata
    if is_opening or not ask_plugins(step, AfterResponse(said)):
        go_on_after_answer(step, at_ms)


def go_on_after_answer(step: Step, at_ms: int) -> None:
    """Run the calls of the answer, or end the cycle with it."""
    if step.memory.calls:
        _call_unless_looping(step, at_ms)
    else:
        conclude(step, at_ms)


def _call_unless_looping(step: Step, at_ms: int) -> None:
    """Run the open batch, unless the model goes round in circles."""
    calls = tuple(open_.call for open_ in step.memory.calls)
    loop, policy = find_loop(step.memory), step.memory.policy
    if loop is None:
        call_tools(step, calls)
        return
    event = LoopDetected(type=loop.kind, name=loop.name, count=loop.count)
    match loops.verdict(loop.count, policy.loop_threshold, policy.loop_abort):
        case "abort":
            step.publish(event)
            end_calls(step, lambda _open: _LOOPED)
            end_at_limit(step, LOOP_DETECTED, at_ms)
        case "notice":
            step.publish(event)
            call_tools(step, calls)
        case "go_on":  # pragma: no branch - the last of the cases
            call_tools(step, calls)


def conclude(step: Step, at_ms: int) -> None:
    """Go on after an answer without calls: it ends the cycle, unless there is more to say.

    Steering that came meanwhile is added first; an answer in the wrong form is asked for once more.
    """
    memory = step.memory
    if memory.steering or memory.notes:
        ask(step, at_ms)
        return
    schema, answer = form_of(memory), memory.messages[-1].content
    problem = answer_problem(schema, answer) if schema else None
    if problem is None and memory.policy.guards_output:
        step.become(Guarding())
        step.begin_work()
        step.perform(CheckAnswer(step.memory.work, answer))
        return
    if problem is None:
        before_finish(step, at_ms)
        return
    if step.cycle.repairs:
        fail(step, refusal(problem, answer), at_ms, retryable=False)
        return
    asked = repair_request(problem)
    wish = Message(id=next_id(memory), role="user", content=asked, metadata={REPAIR: True})
    step.record(MessageAdded(message=wish))
    ask(step, at_ms)


def before_finish(step: Step, at_ms: int) -> None:
    """End the cycle because the model is done: plugins first."""
    if not ask_plugins(step, BeforeFinish()):
        finish(step, at_ms)


def finish(step: Step, at_ms: int) -> None:
    """End the cycle because the model is done."""
    memory, cycle = step.memory, step.cycle
    step.publish(
        AgentEnd(
            messages=newest(since(memory, cycle.first)),
            usage=memory.usage - cycle.usage_before,
            command_id=cycle.command_id,
        )
    )
    close(step, "finished", None, at_ms)
    next_prompt(step, at_ms)


# Any: plain data of the caller.
def abort(step: Step, reason: Any, at_ms: int) -> None:
    """End the cycle, which was announced, because a caller says so."""
    close(step, "aborted", reason, at_ms)
    next_prompt(step, at_ms)


def end_at_limit(step: Step, reason: str, at_ms: int) -> None:
    """End the cycle because of a limit, and the process too where the options say so."""
    _end_at_limit(step, reason, at_ms)
    next_prompt(step, at_ms)


def end_by_plugin(step: Step, abort_: Aborted, at_ms: int) -> None:
    """End the cycle because a plugin says so, and the process too where the options say so."""
    announce_abort(step, abort_.reason)
    close(step, "aborted", abort_.reason, at_ms)
    if PLUGIN_ABORTED in step.memory.policy.exit_on:
        step.perform(ExitProcess(PluginAborted(plugin=abort_.plugin, why=abort_.reason)))
    next_prompt(step, at_ms)


def _end_at_limit(step: Step, reason: str, at_ms: int) -> None:
    announce_abort(step, reason)
    close(step, "aborted", reason, at_ms)
    if reason in step.memory.policy.exit_on and reason in _EXITS:
        step.perform(ExitProcess(_EXITS[reason](step.memory)))


def fail(step: Step, reason: str, at_ms: int, *, retryable: bool) -> None:
    """End the cycle because the provider failed for good."""
    step.publish(AgentError(reason=reason, retryable=retryable, command_id=step.cycle.command_id))
    close(step, "failed", reason, at_ms)
    next_prompt(step, at_ms)


# Any, here and below: plain data of whoever aborted it.
def close(step: Step, outcome: OutcomeKind, reason: Any, at_ms: int) -> None:
    """End the running cycle, whose end is published, with this ``outcome``."""
    ended, children = step.cycle, children_of_plugins(step.memory)
    step.record(CycleEnded(command_id=ended.command_id, outcome=outcome, reason=reason))
    # A result that is still to come belongs to work that is over, and so does half an answer: the
    # next cycle may be aborted before it asks a model, and must not say it again.
    step.become(Resting())
    step.begin_work()
    if children:
        step.perform(EndSubagents(children))
    result = cycle_result(step.memory, step.memory.outcomes[-1])
    answer_waiters(step, (ended.command_id, result))
    _after_turn(step, ended, at_ms)


def announce_abort(step: Step, reason: Any) -> None:
    """Publish that the cycle ends by an abort, before anything else of its end."""
    step.publish(AgentAbort(reason=reason, command_id=step.cycle.command_id))


def answer_waiters(step: Step, *results: tuple[str, CycleResult]) -> None:
    """Answer the callers that wait for one of the prompts in ``results``."""
    by_prompt = dict(results)
    latest = results[-1][1] if results else None
    waiting = []
    for waiter in step.memory.waiters:
        value = latest if waiter.prompt_id is None else by_prompt.get(waiter.prompt_id)
        if value is None:
            waiting.append(waiter)
        else:
            step.perform(Answer(waiter.id, value))
    step.keep_waiting(waiting)


def expire_waits(step: Step, expired: WaitExpired) -> None:
    """Refuse the callers whose time to wait is over."""
    error = CollectTimeout("the time to wait for the cycle is over; it goes on")
    waiting = []
    for waiter in step.memory.waiters:
        if waiter.due_ms is None or waiter.due_ms > expired.at_ms:
            waiting.append(waiter)
        else:
            step.perform(Refuse(waiter.id, error))
    step.keep_waiting(waiting)


def _after_turn(step: Step, ended: Cycle, at_ms: int) -> None:
    """Run ``after_turn`` of plugins; nothing waits for them."""
    memory = step.memory
    if not memory.has_hook(AfterTurn):
        return
    outcome = memory.outcomes[-1]
    hook = AfterTurn(
        outcome="finished" if outcome.outcome == "finished" else "aborted",
        abort_reason=outcome.reason,
        messages_diff=newest(since(memory, outcome.first, outcome.end)),
        token_usage_diff=outcome.usage,
        started_at_ms=ended.started_at_ms,
        ended_at_ms=at_ms,
        duration_ms=max(0, at_ms - ended.started_at_ms),
    )
    step.perform(AskPlugins(ANY_WORK, hook))


# --- on from where plugins were asked -----------------------------------------------------------


def go_on(step: Step, point: str, wanted: Compacting | None, verdict: Verdict, at_ms: int) -> None:
    """Go on from the hook of this kind: plugins have been asked, and let the cycle go on."""
    _CONTINUATIONS[HOOKS[point]](step, wanted, verdict, at_ms)


def _send(step: Step, _wanted: Compacting | None, verdict: Verdict, _at_ms: int) -> None:
    known = len(step.memory.messages)
    add_notes(step)
    messages = patched(step.memory)
    if verdict.messages is not None:
        messages = (*verdict.messages, *step.memory.messages[known:])
    send(step, repair(messages))


def _finish(step: Step, _wanted: Compacting | None, _verdict: Verdict, at_ms: int) -> None:
    if step.memory.notes or step.memory.steering:
        ask(step, at_ms)
    else:
        finish(step, at_ms)


def _compact(step: Step, wanted: Compacting | None, verdict: Verdict, at_ms: int) -> None:
    assert wanted is not None  # noqa: S101 - it is what the plugins were asked about
    if verdict.skipped is None:
        summarize(step, wanted)
    else:
        do_without_summary(step, wanted, at_ms)


Continuation = Callable[[Step, Compacting | None, Verdict, int], None]
# fmt: off
_CONTINUATIONS: Final[Mapping[type[Hook], Continuation]] = {
    BeforePrompt:   lambda step, _wanted, _verdict, at_ms: begin(step, at_ms),
    BeforeRequest:  _send,
    AfterResponse:  lambda step, _wanted, _verdict, at_ms: go_on_after_answer(step, at_ms),
    AfterToolBatch: lambda step, _wanted, _verdict, at_ms: go_on_after_batch(step, at_ms),
    BeforeFinish:   _finish,
    BeforeCompact:  _compact,
}
# fmt: on
"""How a cycle goes on from each hook that it waits at; a test fails when one has no row."""


# --- what the model gets between turns ---


def _drain(step: Step) -> None:
    """Add the notes of plugins, then all steering that waits as one message."""
    add_notes(step)
    count = len(step.memory.steering)
    if count:
        step.record(MessageAdded(message=_steering(step.memory)))
        step.publish(SteeringApplied(count=count))


def add_notes(step: Step) -> None:
    """Add the notes of plugins, as one message for the model."""
    memory = step.memory
    if not memory.notes:
        return
    text = "\n\n".join(memory.notes)
    message = Message(id=next_id(memory), role="user", content=text, metadata={NOTES: True})
    step.record(MessageAdded(message=message))


def _steering(memory: Memory) -> Message:
    content, parts = joined((one.text, one.parts) for one in memory.steering)
    return Message(
        id=next_id(memory),
        role="user",
        content=content,
        parts=parts,
        metadata={STEERING: [str(one.ref) for one in memory.steering]},
    )
