"""Handoffs, decided: which call asks for one, when it is made, and what the next agent has.

A call of ``transfer_to_<name>`` ends like any other. Behind the last call of its batch the handoff
is made, before plugins are asked about the batch: as one record, and one event. Where a function
decides what the next agent sees, the cycle waits for it; what it returns is in the record, so that
it is not asked again. It is asked again if the process dies before that.
"""

from typing import Any, Final

import msgspec

from cmdc_runtime.events import HandedOff as HandedOffEvent
from cmdc_runtime.events import HandoffFailed as HandoffFailedEvent
from cmdc_runtime.ids import MessageId
from cmdc_runtime.messages import Message, ToolCall
from cmdc_runtime.provider_options import model_parts
from cmdc_runtime.subagent import transfer_name
from workers.core.conversation import attached_tool, place, repair, since
from workers.core.evolve import patched
from workers.core.inputs import HistoryFiltered
from workers.core.records import HandedOff, HandoffFailed
from workers.core.state import AgentFacts, HandingOver, Memory, OwnParts, ToolFacts
from workers.core.step import ExchangeTools, FilterHistory, Step

HANDOFFS_PER_PROMPT: Final = 8
"""In one cycle. Agents that hand a prompt to each other more often do not get on with it."""
_TOO_MANY: Final = (
    "the handoff was not made: this prompt was handed over {} times, which is the most. Answer it"
    " yourself, with what you have."
)
_TWICE: Final = "the handoff was not made: the conversation is being handed to {} already"
_ALREADY: Final = "the handoff was not made: {} is who acts already"
_GONE: Final = "there is no agent {!r} in this session any more"
_EMPTY: Final = "the function that decides on the history left no message"
_UNASKED: Final = "the function that decides on the history left an answer as the last message"


def asked_for(memory: Memory, call: ToolCall) -> AgentFacts | None:
    """Return the agent that a call hands the session to; None: it is another call."""
    tool = memory.tool(call.name)
    if tool is None or not tool.is_transfer:
        return None
    named = (one for one in memory.policy.agents if transfer_name(one.name) == call.name)
    return next(named, None)


def problem(memory: Memory, wanted: AgentFacts) -> str | None:
    """Say why the session is not handed to this agent now, for the model; or None."""
    if memory.handoff is not None:
        return _TWICE.format(memory.handoff.to)
    if memory.acting == wanted:
        return _ALREADY.format(wanted.name)
    if memory.cycle is not None and memory.cycle.handoffs >= HANDOFFS_PER_PROMPT:
        return _TOO_MANY.format(memory.cycle.handoffs)
    return None


def begin(step: Step) -> bool:
    """Make the handoff that a call of the batch has asked for, if one has.

    Return whether the cycle waits for the function that decides on the history.
    """
    memory = step.memory
    if memory.handoff is None:
        return False
    wanted = memory.agent_of(memory.handoff.to)
    if wanted is None:
        _fail(step, _GONE.format(memory.handoff.to))
        return False
    if not wanted.has_filter:
        _hand_over(step, wanted, None if wanted.sees_all else _said_by_user(memory))
        return False
    step.become(HandingOver(wanted.name))
    step.begin_work()
    step.perform(FilterHistory(step.memory.work, wanted.name, repair(patched(memory))))
    return True


def take(step: Step, filtered: HistoryFiltered) -> None:
    """Make the handoff with the history that the function has left, or say why there is none."""
    wanted = step.memory.agent_of(filtered.to)
    messages = None if filtered.messages is None else _named(step.memory, filtered.messages)
    why = filtered.problem or _misfit(messages or ())
    if wanted is None or why:
        _fail(step, why or _GONE.format(filtered.to))
    else:
        _hand_over(step, wanted, messages)


def _misfit(messages: tuple[Message, ...]) -> str:
    if not messages:
        return _EMPTY
    return _UNASKED if messages[-1].role == "assistant" else ""


def _named(memory: Memory, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return what a function has left, whole, and each message with an id of its own."""
    free = {message.id for message in memory.messages}
    named = []
    for at, message in enumerate(messages, 1):
        fresh = MessageId(f"m-{place(memory)}-handoff-{at}")
        is_known = message.id in free
        free.discard(message.id)
        named.append(message if is_known else msgspec.structs.replace(message, id=fresh))
    return repair(named)


def _said_by_user(memory: Memory) -> tuple[Message, ...] | None:
    """Return what the user has said in the cycle; None where a compaction took it away."""
    cycle = memory.cycle
    said = () if cycle is None else since(memory, cycle.first)
    return tuple(message for message in said if message.role == "user") or None


def _hand_over(step: Step, wanted: AgentFacts, messages: tuple[Message, ...] | None) -> None:
    before = step.memory
    own = before.own_parts or OwnParts(before.tools, before.model, before.provider_opts)
    acting, asked = before.acting, before.handoff
    assert acting is not None and asked is not None  # noqa: S101, PT018 - a call has asked for it
    tools = own.tools if wanted.is_own else _tools_of(wanted, own)
    model = wanted.model or own.model
    record = HandedOff(
        to=wanted.name,
        is_return=wanted.is_own,
        tools=tuple(map(attached_tool, tools)),
        model=model,
        provider_opts=_opts_of(wanted, own),
        messages=messages,
    )
    step.record(record)
    put_by = () if wanted.is_own else own.tools
    step.perform(ExchangeTools(step.memory.tools, put_by, takes_servers=wanted.tools is None))
    step.publish(
        HandedOffEvent(
            from_=acting.name,
            to=wanted.name,
            call_id=asked.call_id,
            model=model,
            tools=tuple(tool.name for tool in tools),
            messages=len(step.memory.messages),
        )
    )


def _tools_of(wanted: AgentFacts, own: OwnParts) -> tuple[ToolFacts, ...]:
    """Return the tools of an agent: its own or the session's, and those that hand over."""
    given = own.tools if wanted.tools is None else wanted.tools
    return (*(tool for tool in given if not tool.is_transfer), *wanted.transfers)


def _opts_of(wanted: AgentFacts, own: OwnParts) -> dict[str, Any]:  # Any: litellm's own arguments
    if wanted.provider_opts is not None:
        return wanted.provider_opts
    if wanted.model is None or model_parts(wanted.model)[0] == model_parts(own.model)[0]:
        return own.provider_opts
    return {}  # one provider's key must not be sent to another


def _fail(step: Step, why: str) -> None:
    asked = step.memory.handoff
    assert asked is not None  # noqa: S101 - a call has asked for it
    step.record(HandoffFailed(why=why))
    step.publish(HandoffFailedEvent(to=asked.to, call_id=asked.call_id, reason=why))
