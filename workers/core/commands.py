"""What a client may ask, and what it means in each state: the state x command table.

To add a command: its class in ``cmdc_runtime/commands.py``, its handlers and its row here.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from cmdc_runtime.answer_schema import form_problem
from cmdc_runtime.commands import (
    Abort,
    AddMemory,
    AddSkillsDirs,
    AnswerToolCall,
    Approve,
    AttachMcpServer,
    AttachPlugin,
    AttachTools,
    AwaitCycle,
    Command,
    DeleteOwnCheckpoint,
    DetachMcpServer,
    DetachPlugin,
    DetachTools,
    ForgetWait,
    GetMessages,
    GetStatus,
    ListOwnCheckpoints,
    LoadOwnCheckpoint,
    NextPage,
    OfBackend,
    Prompt,
    PromptReceipt,
    Reject,
    ReplaceTools,
    SaveCheckpoint,
    Steer,
    SwitchModel,
    TakeToolCall,
    UserRespond,
)
from cmdc_runtime.errors import (
    CmdcError,
    CollectTimeout,
    Overloaded,
    QueueFull,
    UsageError,
)
from cmdc_runtime.ids import CommandId
from workers.core import cycle, knowledge, plugins
from workers.core.approvals import answer_call, approve, reject, respond, take_call
from workers.core.conversation import cycle_result, find_outcome
from workers.core.inputs import Order
from workers.core.interrupt import (
    abort_idle,
    abort_request,
    abort_tools,
    interrupt_tools,
    queue_steering,
    start_steering,
)
from workers.core.message_content import refused_content
from workers.core.opening_call import call_problem
from workers.core.records import PromptQueued
from workers.core.state import WAITERS_MAX, Memory, QueuedPrompt, State, Waiter
from workers.core.step import (
    Answer,
    AnswerMessages,
    AnswerPage,
    AnswerStatus,
    AskBackend,
    MakeCheckpoint,
    Refuse,
    Step,
)
from workers.core.toolset import attach_server, detach, detach_server, load, switch

# Any: a handler takes the command of its own row, which only the table knows.
CommandHandler = Callable[[Step, Order, Any], None]


def start(step: Step, order: Order, prompt: Prompt) -> None:
    """Open a cycle."""
    if refused := _refused(step.memory, prompt):
        step.complete(order.id, refused)
        return
    queued = _queued(order, prompt)
    step.complete(order.id, PromptReceipt(queued=False, command_id=order.id))
    cycle.receive(step, queued, queued=False)
    cycle.start(step, queued, order.at_ms)


def queue(step: Step, order: Order, prompt: Prompt) -> None:
    """Keep the prompt for the next cycle, if there is room."""
    bound, waiting = step.memory.policy.max_queued_prompts, len(step.memory.queue)
    refused = _refused(step.memory, prompt)
    if refused is None and waiting >= bound:
        refused = QueueFull(f"{bound} prompts wait already; try again when a cycle has ended")
    if refused is not None:
        step.complete(order.id, refused)
        return
    queued = _queued(order, prompt)
    step.record(
        PromptQueued(
            command_id=order.id,
            text=prompt.text,
            call=prompt.call,
            response_format=prompt.response_format,
            parts=prompt.parts,
        )
    )
    step.complete(order.id, PromptReceipt(queued=True, command_id=order.id))
    cycle.receive(step, queued, queued=True)


def _queued(order: Order, prompt: Prompt) -> QueuedPrompt:
    return QueuedPrompt(
        order.id,
        prompt.text,
        call=prompt.call,
        response_format=prompt.response_format,
        parts=prompt.parts,
    )


def _refused(memory: Memory, prompt: Prompt) -> CmdcError | None:
    if (refused := refused_content(memory, prompt.text, prompt.parts)) is not None:
        return refused
    problem = call_problem(prompt.call)
    form = prompt.response_format
    if problem is None and form is not None and (found := form_problem(form)) is not None:
        problem = f"response_format: {found}"
    return None if problem is None else UsageError(f"prompt: {problem}")


def await_cycle(step: Step, order: Order, command: AwaitCycle) -> None:
    """Answer at once if that cycle has ended, else when it does."""
    memory = step.memory
    prompt_id = command.prompt_id or memory.latest_prompt
    outcome = None if prompt_id is None else find_outcome(memory, prompt_id)
    if outcome is not None:
        step.perform(Answer(order.id, cycle_result(memory, outcome)))
        return
    if problem := _wait_problem(memory, prompt_id):
        step.perform(Refuse(order.id, problem))
        return
    within_s = command.within_s
    due_ms = None if within_s is None else order.at_ms + round(within_s * 1000)
    others = (seen for seen in memory.waiters if seen.id != order.id)
    step.keep_waiting((*others, Waiter(order.id, prompt_id, due_ms)))


def _wait_problem(memory: Memory, prompt_id: CommandId | None) -> CmdcError | None:
    """Say why nobody can wait for the cycle of a prompt, which is not known to have ended."""
    if prompt_id is None:
        return UsageError("no prompt was given yet: there is no cycle to wait for")
    if not _is_open(memory, prompt_id):
        return UsageError(f"prompt {prompt_id!r} is unknown, or its end is forgotten")
    if len(memory.waiters) >= WAITERS_MAX:
        return Overloaded(f"{WAITERS_MAX} callers wait for this session already")
    return None


def forget_wait(step: Step, order: Order, command: ForgetWait) -> None:
    """Let go of a caller that has given up."""
    left = tuple(one for one in step.memory.waiters if one.id != command.wait_id)
    if len(left) < len(step.memory.waiters):
        error = CollectTimeout("the wait was given up; the cycle goes on")
        step.perform(Refuse(command.wait_id, error))
        step.keep_waiting(left)
    step.perform(Answer(order.id, None))


def answer_status(step: Step, order: Order, _command: GetStatus) -> None:
    """Answer how the session stands."""
    step.perform(AnswerStatus(order.id))


def answer_messages(step: Step, order: Order, _command: GetMessages) -> None:
    """Answer the conversation."""
    step.perform(AnswerMessages(order.id))


def answer_page(step: Step, order: Order, command: NextPage) -> None:
    """Answer the next page of an answer that is being read."""
    step.perform(AnswerPage(order.id, command.page_id, command.offset))


def save_checkpoint(step: Step, order: Order, command: SaveCheckpoint) -> None:
    """Have the memory of now saved, also in the middle of a cycle."""
    step.perform(MakeCheckpoint(order.id, command.label, command.metadata))


def ask_backend(step: Step, order: Order, command: OfBackend) -> None:
    """Have the session's own checkpoint backend asked."""
    step.perform(AskBackend(order.id, command))


def _is_open(memory: Memory, prompt_id: str) -> bool:
    running = memory.cycle is not None and memory.cycle.command_id == prompt_id
    # A steering is no prompt: it mostly joins the running cycle and has no end of its own.
    return running or any(queued.command_id == prompt_id for queued in memory.queue)


# fmt: off
_TABLE: Final[Mapping[type[Command], tuple[CommandHandler, ...]]] = {
    #             idle                running        streaming      executing_tools
    Prompt:       (start,              queue,         queue,         queue),
    Steer:        (start_steering,     queue_steering, queue_steering, interrupt_tools),
    Abort:        (abort_idle,         abort_request, abort_request, abort_tools),
    Approve:      (approve,            approve,       approve,       approve),
    Reject:       (reject,             reject,        reject,        reject),
    UserRespond:  (respond,            respond,       respond,       respond),
    TakeToolCall: (take_call,          take_call,     take_call,     take_call),
    AnswerToolCall: (answer_call,      answer_call,   answer_call,   answer_call),
    AttachTools:  (load,               load,          load,          load),
    DetachTools:  (detach,             detach,        detach,        detach),
    ReplaceTools: (load,               load,          load,          load),
    AttachMcpServer: (attach_server,   attach_server, attach_server, attach_server),
    DetachMcpServer: (detach_server,   detach_server, detach_server, detach_server),
    AttachPlugin: (plugins.load,     plugins.load, plugins.load, plugins.load),
    AddSkillsDirs: (knowledge.add_skills_dirs,) * len(State),
    AddMemory:    (knowledge.add_memory,) * len(State),
    DetachPlugin: (plugins.detach,   plugins.detach, plugins.detach, plugins.detach),
    SwitchModel:  (switch,             switch,        switch,        switch),
    SaveCheckpoint: (save_checkpoint,  save_checkpoint, save_checkpoint, save_checkpoint),
    ListOwnCheckpoints: (ask_backend,) * len(State),
    LoadOwnCheckpoint: (ask_backend,) * len(State),
    DeleteOwnCheckpoint: (ask_backend,) * len(State),
    AwaitCycle:   (await_cycle,        await_cycle,   await_cycle,   await_cycle),
    ForgetWait:   (forget_wait,        forget_wait,   forget_wait,   forget_wait),
    GetStatus:    (answer_status,        answer_status,   answer_status,   answer_status),
    GetMessages:  (answer_messages,      answer_messages, answer_messages, answer_messages),
    NextPage:     (answer_page,          answer_page,     answer_page,     answer_page),
}
# fmt: on
HANDLERS: Final[Mapping[tuple[State, type[Command]], CommandHandler]] = {
    (state, command): handler
    for command, row in _TABLE.items()
    for state, handler in zip(State, row, strict=True)
}
"""A total function: a test fails when a state or a command has no cell."""


# fmt: off
IS_ACTIVITY: Final[Mapping[type[Command], bool]] = {
    Prompt:         True,
    Steer:          True,
    Abort:          True,
    Approve:        True,
    Reject:         True,
    UserRespond:    True,
    TakeToolCall:   False,
    AnswerToolCall: True,
    AttachTools:    True,
    DetachTools:    True,
    ReplaceTools:   True,
    AttachMcpServer: True,
    DetachMcpServer: True,
    AttachPlugin:   True,
    DetachPlugin:   True,
    AddSkillsDirs:  True,
    AddMemory:      True,
    SwitchModel:    True,
    SaveCheckpoint: True,
    ListOwnCheckpoints: False,
    LoadOwnCheckpoint: False,
    DeleteOwnCheckpoint: True,
    AwaitCycle:     False,
    ForgetWait:     False,
    GetStatus:      False,
    GetMessages:    False,
    NextPage:       False,
}
# fmt: on
"""What keeps a session awake that may hibernate; total: a test fails when a command has no row.

What changes something does, and so does every result of the session's own work; a question does
not, however often it is asked. Who waits for the end of a cycle does so by waiting, not by asking.
"""


def is_activity(given: object) -> bool:
    """Say whether an idle session begins to count its rest anew after ``given``."""
    return not isinstance(given, Order) or IS_ACTIVITY[type(given.command)]


def apply(memory: Memory, order: Order) -> Step:
    """Return what a command does in the state of ``memory``."""
    step = Step(memory)
    HANDLERS[memory.state, type(order.command)](step, order, order.command)
    return step
