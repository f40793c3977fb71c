"""A conversation that every provider accepts: each tool call answered once, right after it.

Aborts, crashes and edits of a history leave calls without results and results without calls, which
providers refuse. Repairing what is whole changes nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from cmdc_runtime.ids import CallId, MessageId
from cmdc_runtime.messages import Message, ToolCall

NOT_RUN_TEXT: Final = "Error: this call has no result; it was interrupted or never ran."

_Answers = dict[tuple[int, CallId], Message]
"""The result of each call, by the position of the message that made it."""


def repair(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with exactly one result right after each tool call.

    A result belongs to the latest earlier call of its id, since some providers use ids again. Of
    several results, or several calls of one id in one message, the first counts; a result without
    a call is dropped; a call without a result gets an error as its result.
    """
    answers = _answers(messages)
    return tuple(_repaired(messages, answers))


def _answers(messages: Sequence[Message]) -> _Answers:
    asked_at: dict[CallId, int] = {}
    answers: _Answers = {}
    for position, message in enumerate(messages):
        asked_at.update((call.call_id, position) for call in message.tool_calls)
        if message.role == "tool_result" and message.call_id in asked_at:
            answers.setdefault((asked_at[message.call_id], message.call_id), message)
    return answers


def _repaired(messages: Sequence[Message], answers: _Answers) -> Iterator[Message]:
    for position, message in enumerate(messages):
        if message.role == "tool_result":
            continue
        calls = tuple({call.call_id: call for call in reversed(message.tool_calls)}.values())[::-1]
        is_whole = len(calls) == len(message.tool_calls)
        yield message if is_whole else msgspec.structs.replace(message, tool_calls=calls)
        for call in calls:
            yield answers.get((position, call.call_id)) or _not_run(message, call)


def _not_run(message: Message, call: ToolCall) -> Message:
    # The id follows from the call, so that the same history is repaired to the same messages.
    return Message(
        id=MessageId(f"{message.id}-{call.call_id}"),
        role="tool_result",
        content=NOT_RUN_TEXT,
        call_id=call.call_id,
        name=call.name,
        is_error=True,
    )
