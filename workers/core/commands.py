"""What a client may ask, and what it means in each state: the state x command table.

To add a command: its class in ``cmdc_runtime/commands.py``, its handlers and its row here.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from cmdc_runtime.commands import (
    Abort,
    Approve,
    AttachPlugin,
    AttachTools,
    AwaitCycle,
    Command,
    DetachPlugin,
    DetachTools,
    ForgetWait,
    GetMessages,
    GetStatus,
    NextPage,
    Prompt,
    PromptReceipt,
    Reject,
    ReplaceTools,
    SaveCheckpoint,
    Steer,
    SwitchModel,
    UserRespond,
)
from cmdc_runtime.errors import (
    CmdcError,
    CollectTimeout,
    InvalidText,
    Overloaded,
    QueueFull,
    UsageError,
)
from workers.core import cycle, pluginset
from workers.core.conversation import (
    cycle_result,
    enqueue,
    find_outcome,
    text_problem,
)
from workers.core.effects import (
    Answer,
    Keep,
    MakeCheckpoint,
    Refuse,
    Settle,
    Step,
    TellMessages,
    TellPage,
    TellStatus,
)
from workers.core.inputs import Order
from workers.core.interrupt import (
    abort_request,
    abort_tools,
    interrupt_tools,
    keep_steering,
    note_abort,
    start_steering,
)
from workers.core.opening import call_problem
from workers.core.people import (
    approve,
    reject,
    respond,
)
from workers.core.records import PromptQueued
from workers.core.state import (
    WAITERS_MAX,
    Memory,
    QueuedPrompt,
    State,
    Waiter,
)
from workers.core.toolset import detach, load, switch

# Any: a handler takes the command of its own row, which only the table knows.
Handler = Callable[[State, Memory, Order, Any], Step]


def start(_state: State, memory: Memory, order: Order, prompt: Prompt) -> Step:
    """Open a cycle."""
    if refused := _refused(prompt):
        return Step(_state, memory, (Settle(order.id, refused),))
    queued = QueuedPrompt(order.id, prompt.text, call=prompt.call)
    receipt = PromptReceipt(queued=False, command_id=order.id)
    begun = cycle.start(memory, queued, order.at_ms)
    return cycle.then(begun, (Settle(order.id, receipt), cycle.receive(queued, queued=False)))


def queue(state: State, memory: Memory, order: Order, prompt: Prompt) -> Step:
    """Keep the prompt for the next cycle, if there is room."""
    if refused := _refused(prompt):
        return Step(state, memory, (Settle(order.id, refused),))
    bound = memory.policy.max_queued_prompts
    if len(memory.queue) >= bound:
        full = QueueFull(f"{bound} prompts wait already; try again when a cycle has ended")
        return Step(state, memory, (Settle(order.id, full),))
    queued = QueuedPrompt(order.id, prompt.text, call=prompt.call)
    effects = (
        Keep(PromptQueued(command_id=order.id, text=prompt.text, call=prompt.call)),
        Settle(order.id, PromptReceipt(queued=True, command_id=order.id)),
        cycle.receive(queued, queued=True),
    )
    return Step(state, enqueue(memory, queued), effects)


def _refused(prompt: Prompt) -> CmdcError | None:
    if problem := text_problem(prompt.text):
        return InvalidText(problem)
    problem = call_problem(prompt.call)
    return None if problem is None else UsageError(f"prompt: {problem}")


def await_cycle(state: State, memory: Memory, order: Order, command: AwaitCycle) -> Step:
    """Answer at once if that cycle has ended, else when it does."""
    prompt_id = command.prompt_id or memory.latest_prompt
    if prompt_id is None:
        none = UsageError("no prompt was given yet: there is no cycle to wait for")
        return Step(state, memory, (Refuse(order.id, none),))
    outcome = find_outcome(memory, prompt_id)
    if outcome is not None:
        return Step(state, memory, (Answer(order.id, cycle_result(memory, outcome)),))
    if not _is_open(memory, prompt_id):
        error = UsageError(f"prompt {prompt_id!r} is unknown, or its end is forgotten")
        return Step(state, memory, (Refuse(order.id, error),))
    if len(memory.waiters) >= WAITERS_MAX:
        full = Overloaded(f"{WAITERS_MAX} callers wait for this session already")
        return Step(state, memory, (Refuse(order.id, full),))
    within_s = command.within_s
    due_ms = None if within_s is None else order.at_ms + round(within_s * 1000)
    others = (seen for seen in memory.waiters if seen.id != order.id)
    waiters = (*others, Waiter(order.id, prompt_id, due_ms))
    return Step(state, replace(memory, waiters=waiters))


def forget_wait(state: State, memory: Memory, order: Order, command: ForgetWait) -> Step:
    """Let go of a caller that has given up."""
    done = Answer(order.id, None)
    left = tuple(one for one in memory.waiters if one.id != command.wait_id)
    if len(left) == len(memory.waiters):
        return Step(state, memory, (done,))
    gone = Refuse(command.wait_id, CollectTimeout("the wait was given up; the cycle goes on"))
    return Step(state, replace(memory, waiters=left), (gone, done))


def tell_status(state: State, memory: Memory, order: Order, _command: GetStatus) -> Step:
    """Answer how the session stands."""
    return Step(state, memory, (TellStatus(order.id),))


def tell_messages(state: State, memory: Memory, order: Order, _command: GetMessages) -> Step:
    """Answer the conversation."""
    return Step(state, memory, (TellMessages(order.id),))


def tell_page(state: State, memory: Memory, order: Order, command: NextPage) -> Step:
    """Answer the next page of an answer that is being read."""
    return Step(state, memory, (TellPage(order.id, command.page_id, command.offset),))


def save_checkpoint(state: State, memory: Memory, order: Order, command: SaveCheckpoint) -> Step:
    """Have the memory of now saved, also in the middle of a cycle."""
    return Step(state, memory, (MakeCheckpoint(order.id, command.label, command.metadata),))


def _is_open(memory: Memory, prompt_id: str) -> bool:
    running = memory.cycle is not None and memory.cycle.command_id == prompt_id
    # Guidance that waits is no prompt: it mostly joins the running cycle and has no end of its own.
    return running or any(queued.command_id == prompt_id for queued in memory.queue)


# fmt: off
_TABLE: Final[Mapping[type[Command], tuple[Handler, ...]]] = {
    #             idle                running        streaming      executing_tools
    Prompt:       (start,              queue,         queue,         queue),
    Steer:        (start_steering,     keep_steering, keep_steering, interrupt_tools),
    Abort:        (note_abort,         abort_request, abort_request, abort_tools),
    Approve:      (approve,            approve,       approve,       approve),
    Reject:       (reject,             reject,        reject,        reject),
    UserRespond:  (respond,            respond,       respond,       respond),
    AttachTools:  (load,               load,          load,          load),
    DetachTools:  (detach,             detach,        detach,        detach),
    ReplaceTools: (load,               load,          load,          load),
    AttachPlugin: (pluginset.load,     pluginset.load, pluginset.load, pluginset.load),
    DetachPlugin: (pluginset.detach,   pluginset.detach, pluginset.detach, pluginset.detach),
    SwitchModel:  (switch,             switch,        switch,        switch),
    SaveCheckpoint: (save_checkpoint,  save_checkpoint, save_checkpoint, save_checkpoint),
    AwaitCycle:   (await_cycle,        await_cycle,   await_cycle,   await_cycle),
    ForgetWait:   (forget_wait,        forget_wait,   forget_wait,   forget_wait),
    GetStatus:    (tell_status,        tell_status,   tell_status,   tell_status),
    GetMessages:  (tell_messages,      tell_messages, tell_messages, tell_messages),
    NextPage:     (tell_page,          tell_page,     tell_page,     tell_page),
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
