"""What a client may ask, and what it means in each state: the state x command table.

To add a command: its class in ``cmdc_runtime/commands.py``, its handlers and its row here.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from cmdc_runtime.commands import (
    PROMPT_CHARS_MAX,
    Abort,
    AwaitCycle,
    Command,
    GetMessages,
    GetStatus,
    Prompt,
    PromptReceipt,
)
from cmdc_runtime.errors import InvalidText, Overloaded, QueueFull, UsageError
from cmdc_runtime.events import AgentAbort, PromptDropped, ToolKilled
from cmdc_runtime.ids import MessageId
from cmdc_runtime.messages import Message
from workers.core import cycle
from workers.core.conversation import (
    cycle_result,
    discard,
    enqueue,
    find_outcome,
    next_id,
    say,
)
from workers.core.records import PromptDiscarded, PromptQueued, Said
from workers.core.state import (
    WAITERS_MAX,
    Answer,
    CancelWork,
    Effect,
    Keep,
    Memory,
    Order,
    Publish,
    QueuedPrompt,
    Refuse,
    Settle,
    State,
    Step,
    TellStatus,
)
from workers.core.tags import flush

# Any: a handler takes the command of its own row, which only the table knows.
Handler = Callable[[State, Memory, Order, Any], Step]

SYSTEM_MESSAGE: Final = MessageId("m-0")
_ABORTED: Final = "Error: the call was ended because the cycle was aborted."
_LEFT: Final = "Error: the cycle was aborted; the call may still have run to its end."


def start(_state: State, memory: Memory, order: Order, prompt: Prompt) -> Step:
    """Open a cycle."""
    if problem := _text_problem(prompt.text):
        return Step(_state, memory, (Settle(order.id, InvalidText(problem)),))
    queued = QueuedPrompt(order.id, prompt.text)
    receipt = PromptReceipt(queued=False, command_id=order.id)
    begun = cycle.start(memory, queued, order.at_ms)
    return cycle.then(begun, (Settle(order.id, receipt), cycle.receive(queued, queued=False)))


def queue(state: State, memory: Memory, order: Order, prompt: Prompt) -> Step:
    """Keep the prompt for the next cycle, if there is room."""
    if problem := _text_problem(prompt.text):
        return Step(state, memory, (Settle(order.id, InvalidText(problem)),))
    bound = memory.policy.max_queued_prompts
    if len(memory.queue) >= bound:
        full = QueueFull(f"{bound} prompts wait already; try again when a cycle has ended")
        return Step(state, memory, (Settle(order.id, full),))
    queued = QueuedPrompt(order.id, prompt.text)
    effects = (
        Keep(PromptQueued(command_id=order.id, text=prompt.text)),
        Settle(order.id, PromptReceipt(queued=True, command_id=order.id)),
        cycle.receive(queued, queued=True),
    )
    return Step(state, enqueue(memory, queued), effects)


def note_abort(state: State, memory: Memory, order: Order, command: Abort) -> Step:
    """Nothing runs; say so, for observers that missed the end."""
    said = Publish(AgentAbort(reason=command.reason))
    return Step(state, memory, (said, Settle(order.id, None)))


def abort_request(_state: State, memory: Memory, order: Order, command: Abort) -> Step:
    """Tell observers, end the request, keep what was said so far and mark it."""
    effects: tuple[Effect, ...] = (CancelWork(command.kill_tools),)
    _, held, _ = flush(memory.answering.tags)
    if said := memory.answering.text + held:
        partial = Message(
            id=next_id(memory),
            role="assistant",
            content=said,
            metadata={"interrupted": True},
        )
        memory = say(memory, partial)
        effects = (*effects, Keep(Said(message=partial)))
    return _abort(memory, order, command, effects)


def abort_tools(_state: State, memory: Memory, order: Order, command: Abort) -> Step:
    """Tell observers and end the calls that may be ended; none of them counts any more."""
    is_killing = command.kill_tools != "none"
    open_ids = [open_.call for open_ in memory.calls if open_.result is None]
    killed = tuple(
        Publish(
            ToolKilled(name=call.name, call_id=call.call_id, reason=command.reason or "aborted")
        )
        for call in open_ids
        if is_killing
    )
    memory, kept = cycle.give_results(memory, _ABORTED if is_killing else _LEFT)
    return _abort(memory, order, command, (CancelWork(command.kill_tools), *killed, *kept))


def _abort(memory: Memory, order: Order, command: Abort, effects: tuple[Effect, ...]) -> Step:
    dropped: list[Effect] = []
    results = []
    for queued in memory.queue if command.clear_queue else ():
        memory = discard(memory, queued.command_id)
        results.append((queued.command_id, cycle_result(memory, memory.outcomes[-1])))
        gone = PromptDropped(text=queued.text, command_id=queued.command_id)
        dropped += (Publish(gone), Keep(PromptDiscarded(command_id=queued.command_id)))
    answered = cycle.answer_waiters(memory, *results)
    ended = cycle.abort(answered.memory, command.reason, order.at_ms)
    # The abort is announced before anything else is done about it: within 100 ms, in every state.
    first, *rest = ended.effects
    after = (*effects, *dropped, *answered.effects, Settle(order.id, None), *rest)
    return Step(ended.state, ended.memory, (first, *after))


def await_cycle(state: State, memory: Memory, order: Order, command: AwaitCycle) -> Step:
    """Answer at once if that cycle has ended, else when it does."""
    prompt_id = command.prompt_id or memory.latest_prompt
    if prompt_id is not None:
        outcome = find_outcome(memory, prompt_id)
        if outcome is not None:
            return Step(state, memory, (Answer(order.id, cycle_result(memory, outcome)),))
        if not _is_open(memory, prompt_id):
            error = UsageError(f"prompt {prompt_id!r} is unknown, or its end is forgotten")
            return Step(state, memory, (Refuse(order.id, error),))
    if len(memory.waiters) >= WAITERS_MAX:
        full = Overloaded(f"{WAITERS_MAX} callers wait for this session already")
        return Step(state, memory, (Refuse(order.id, full),))
    waiters = (*(seen for seen in memory.waiters if seen[0] != order.id), (order.id, prompt_id))
    return Step(state, replace(memory, waiters=waiters))


def tell_status(state: State, memory: Memory, order: Order, _command: GetStatus) -> Step:
    """Answer how the session stands."""
    return Step(state, memory, (TellStatus(order.id),))


def tell_messages(state: State, memory: Memory, order: Order, _command: GetMessages) -> Step:
    """Answer the conversation."""
    system = memory.policy.system_prompt
    said = (Message(id=SYSTEM_MESSAGE, role="system", content=system),) if system else ()
    messages = (*said, *memory.messages)
    return Step(state, memory, (Answer(order.id, messages),))


def _is_open(memory: Memory, prompt_id: str) -> bool:
    running = memory.cycle is not None and memory.cycle.command_id == prompt_id
    return running or any(queued.command_id == prompt_id for queued in memory.queue)


def _text_problem(text: str) -> str | None:
    if not text.strip():
        return "a prompt needs text; got only white space"
    if len(text) > PROMPT_CHARS_MAX:
        return f"a prompt has at most {PROMPT_CHARS_MAX} characters, got {len(text)}"
    return None


# fmt: off
_TABLE: Final[Mapping[type[Command], tuple[Handler, ...]]] = {
    #             idle           running        streaming      executing_tools
    Prompt:      (start,         queue,         queue,         queue),
    Abort:       (note_abort,    abort_request, abort_request, abort_tools),
    AwaitCycle:  (await_cycle,   await_cycle,   await_cycle,   await_cycle),
    GetStatus:   (tell_status,   tell_status,   tell_status,   tell_status),
    GetMessages: (tell_messages, tell_messages, tell_messages, tell_messages),
}
# fmt: on
HANDLERS: Final[Mapping[tuple[State, type[Command]], Handler]] = {
    (state, command): handler
    for command, row in _TABLE.items()
    for state, handler in zip(State, row, strict=True)
}
"""A total function: a test fails when a state or a command has no cell."""


def apply(state: State, memory: Memory, order: Order) -> Step:
    """Return what a command does in ``state``."""
    return HANDLERS[state, type(order.command)](state, memory, order, order.command)
