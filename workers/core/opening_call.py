"""The call that a cycle opens with, in place of asking the model, and its result as the answer.

A prompt may carry one, and the session's definition has one for prompts that carry none. It is said
as an assistant's message, so that the conversation stays one that every provider takes.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from cmdc_runtime.commands import CALL_BYTES_MAX
from cmdc_runtime.ids import TOOL_NAME_RULE, CallId, is_tool_name
from cmdc_runtime.messages import OPENING, Message, OpeningCall, ToolCall
from cmdc_runtime.plain import problem_of, short, text_problem
from workers.core.conversation import APPROVAL, guarded_prompt, next_id
from workers.core.records import Approval, MessageAdded
from workers.core.state import Guarding, Memory, QueuedPrompt
from workers.core.step import CheckPrompt, Step
from workers.core.tool_calls import call_tools

ARGUMENT_CHARS_MAX: Final = 64
"""Of the name of the argument that gets the prompt's text."""


def call_problem(call: OpeningCall | None) -> str | None:
    """Say what is wrong with a call that a prompt carries, or None."""
    if call is None:
        return None
    if not is_tool_name(call.name):
        return f"call: name: expected {TOOL_NAME_RULE}, got {short(call.name)}"
    if (problem := problem_of(call.arguments)) is not None:
        return f"call: arguments: {problem}"
    size = len(msgspec.msgpack.encode(call.arguments))
    if size > CALL_BYTES_MAX:
        return f"call: arguments: at most {CALL_BYTES_MAX:,} bytes, got {size:,}"
    if call.text_as is None:
        return None
    problem = text_problem(call.text_as, chars_max=ARGUMENT_CHARS_MAX, one_line=True)
    return None if problem is None else f"call: text_as: {problem}"


def with_call(memory: Memory, prompt: QueuedPrompt) -> QueuedPrompt:
    """Return a prompt with the call of the definition, unless it has its own.

    A decision on an approval is no prompt of a user: it has the call that was decided on, or none.
    """
    if prompt.call is not None or APPROVAL in prompt.metadata:
        return prompt
    return replace(prompt, call=memory.policy.opening_call)


def called_again(memory: Memory, approval: Approval) -> OpeningCall | None:
    """Return the call that a person has allowed, if a cycle opened with it: no model repeats it."""
    said = (message for message in memory.messages if OPENING in message.metadata)
    if not any(call.call_id == approval.call_id for one in said for call in one.tool_calls):
        return None
    return OpeningCall(name=approval.tool, arguments=approval.args)


def said_call(memory: Memory, call: OpeningCall, text: str) -> Message:
    """Return the message that makes the call; ``text`` is the prompt's."""
    message_id = next_id(memory)
    given = {} if call.text_as is None else {call.text_as: text}
    made = ToolCall(
        call_id=CallId(f"call-{message_id}"), name=call.name, arguments={**call.arguments, **given}
    )
    return Message(id=message_id, role="assistant", tool_calls=(made,), metadata={OPENING: True})


def guard(step: Step) -> bool:
    """Have the input guardrails look at the prompt before its call; return whether any do.

    No model is asked beside whom they could look. A call that a person has allowed was looked at.
    """
    text = guarded_prompt(step.memory)
    if text is None or APPROVAL in step.memory.messages[-1].metadata:
        return False
    step.become(Guarding(is_input=True))
    step.begin_work()
    step.perform(CheckPrompt(step.memory.work, text))
    return True


def make(step: Step, text: str) -> None:
    """Make the call of the running cycle; ``text`` is its prompt's."""
    call = step.cycle.opening
    assert call is not None  # noqa: S101 - only a cycle with one comes here
    said = said_call(step.memory, call, text)
    step.record(MessageAdded(message=said))
    call_tools(step, said.tool_calls)


def find_result(memory: Memory) -> Message | None:
    """Return the result of the call that the cycle opened with, where nothing was said since."""
    match memory.messages[-2:]:
        case (said, Message(role="tool_result") as result) if OPENING in said.metadata:
            return result
        case _:
            return None


def answer(memory: Memory, result: Message) -> Message:
    """Return the result as the answer of the cycle."""
    return Message(
        id=next_id(memory),
        role="assistant",
        content=result.content,
        metadata={OPENING: True},
    )
