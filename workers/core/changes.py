"""How a memory changes when people decide, tools are swapped, or history gives way to a summary.

As with ``conversation.py`` the tables and ``rebuild`` share these functions.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

import msgspec

from cmdc_runtime.commands import ApprovalKind
from cmdc_runtime.extensions.context import BranchAnswer
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.parcels import digest_of
from workers.core import runs
from workers.core.conversation import find_approval, find_ask, find_child
from workers.core.loops import fingerprint
from workers.core.records import AttachedPlugin, AttachedTool, Continued, SubagentSpent
from workers.core.state import (
    Approval,
    Ask,
    Branch,
    Child,
    Memory,
    PluginFacts,
    Steering,
    ToolFacts,
)

FORMER_OPTS_MAX: Final = 16
"""Of the options of models that a session had before; the oldest are forgotten."""

Decision = Literal["approve_once", "approve_always", "reject"]

WAITS: Final = (
    "Error: the call was not made: it waits for a person's approval ({approval_id}). Do not make it"
    " again before it is approved."
)
_APPROVED: Final = (
    "Error: the call was not made: it waited for a person's approval ({approval_id}), which was"
    " given since. Unless you have made it since, make the very same call now."
)
_DECIDED: Final[Mapping[Decision, str]] = {
    "approve_once": _APPROVED,
    "approve_always": _APPROVED,
    "reject": (
        "Error: the call was not made: its approval was rejected, or not given in time"
        " ({approval_id}). Do not make it again; go on without it."
    ),
}
"""What the result of a call says that waited, by the decision."""


def spend(memory: Memory, usage: TokenUsage) -> Memory:
    """Count what one request used."""
    return replace(memory, usage=memory.usage + usage)


def steer(memory: Memory, steering: Steering) -> Memory:
    """Keep guidance for the next gap."""
    return replace(memory, steering=(*memory.steering, steering))


def require(memory: Memory, approval: Approval) -> Memory:
    """Note that a call waits for a person: unless it is held, the cycle ends with its batch."""
    others = (one for one in memory.approvals if one.id != approval.id)
    memory = replace(memory, approvals=(*others, approval))
    if memory.cycle is None or approval.ref is not None:
        return memory
    return replace(memory, cycle=replace(memory.cycle, is_blocked=True))


def decide(memory: Memory, approval_id: str, decision: ApprovalKind | Literal["reject"]) -> Memory:
    """Note what was decided, by a person or by the time that is over.

    The result of a call that was ended for it says so from here on: the next request has it,
    whatever opens that.
    """
    found = find_approval(memory, approval_id)
    if found is None:
        return memory
    memory = replace(
        memory, approvals=tuple(one for one in memory.approvals if one.id != approval_id)
    )
    if found.ref is None:
        memory = _tell_result(memory, found, decision)
    if decision == "approve_once":
        leave = fingerprint(found.tool, found.args, None)
        return replace(memory, allowances=(*memory.allowances, leave))
    if decision == "approve_always":
        always = memory.always_approved | {(found.tool, found.family)}
        return replace(memory, always_approved=always)
    return memory


def _tell_result(memory: Memory, found: Approval, decision: Decision) -> Memory:
    waits = WAITS.format(approval_id=found.id)
    decided = _DECIDED[decision].format(approval_id=found.id)

    def told(message: Message) -> Message:
        if message.call_id != found.call_id or message.role != "tool_result":
            return message
        return msgspec.structs.replace(message, content=message.content.replace(waits, decided))

    calls = tuple(
        open_ if open_.result is None else replace(open_, result=told(open_.result))
        for open_ in memory.calls
    )
    return replace(memory, messages=tuple(map(told, memory.messages)), calls=calls)


def ask(memory: Memory, question: Ask) -> Memory:
    """Note that a call waits for the user; asked anew by a call that runs again, it is the same."""
    if find_ask(memory, question.ref) is not None:
        return memory
    return replace(memory, asks=(*memory.asks, question))


def answer(memory: Memory, ref: str, response: Any) -> Memory:  # Any: what the user sent
    """Note what the user answered, for as long as the call runs."""
    found = find_ask(memory, ref)
    if found is None:
        return memory
    return replace(
        memory,
        asks=tuple(one for one in memory.asks if one.ref != ref),
        answers=(*memory.answers, (found, response)),
    )


def attached_tool(tool: ToolFacts) -> AttachedTool:
    """Return what is written down of a tool."""
    assert tool.packed is not None  # noqa: S101 - only tests make tools without
    return AttachedTool(
        name=tool.name,
        is_repeatable=tool.is_repeatable,
        isolation=tool.isolation,
        packed=tool.packed,
        chars=tool.chars,
    )


def attached_plugin(plugin: PluginFacts) -> AttachedPlugin:
    """Return what is written down of a plugin."""
    assert plugin.packed is not None  # noqa: S101 - only tests make plugins without
    return AttachedPlugin(name=plugin.name, hooks=plugin.hooks, packed=plugin.packed)


def change_tools(
    memory: Memory, attached: tuple[AttachedTool, ...], detached: tuple[str, ...]
) -> Memory:
    """Remove tools, then add others; what was allowed of a tool goes with it."""
    kept = tuple(tool for tool in memory.tools if tool.name not in detached)
    added = tuple(
        ToolFacts(tool.name, tool.is_repeatable, tool.isolation, tool.packed, tool.chars)
        for tool in attached
    )
    allowed = frozenset(one for one in memory.always_approved if one[0] not in detached)
    return replace(memory, tools=(*kept, *added), always_approved=allowed)


def leave_out(memory: Memory, digest: str) -> Memory:
    """Remember the parcel of this digest: its tools are gone, a plugin of it is not greeted."""
    gone = tuple(
        tool.name
        for tool in memory.tools
        if tool.packed is not None and digest_of(tool.packed) == digest
    )
    memory = change_tools(memory, (), gone)
    return replace(memory, left_out=memory.left_out | {digest})


def switch_model(memory: Memory, model: str, provider_opts: dict[str, Any]) -> Memory:
    """Ask another model from now on (Any: litellm's own arguments)."""
    former = memory.former_opts
    if memory.provider_opts != provider_opts:
        past = [one for one in former if one not in (memory.provider_opts, provider_opts)]
        former = tuple(one for one in (*past, memory.provider_opts) if one)[-FORMER_OPTS_MAX:]
    memory = replace(memory, model=model, provider_opts=provider_opts, former_opts=former)
    return replace(memory, has_answered=False, is_costed=True)


def compact(memory: Memory, evicted: int, summary: Message, usage: TokenUsage) -> Memory:
    """Let the oldest messages give way to a summary of them."""
    return replace(
        spend(memory, usage),
        messages=(summary, *memory.messages[evicted:]),
        base=memory.base + evicted - 1,
        context=None,
    )


def spawn(memory: Memory, child: Child) -> Memory:
    """Note a subagent and what it may spend."""
    return replace(
        memory,
        children=(*memory.children, child),
        spawns=memory.spawns + 1,
        branched=memory.branched + bool(child.branch),
    )


def settle_child(memory: Memory, record: SubagentSpent) -> Memory:
    """Note what a subagent used in place of what it was granted; counted once.

    What came of a branch is kept for as long as its call is open.
    """
    child = find_child(memory, record.child_id)
    if child is None:
        return memory
    left = tuple(one for one in memory.children if one is not child)
    memory = spend(replace(memory, children=left), record.usage)
    memory = runs.settle(memory, record.child_id)
    if record.ok is None or not child.branch:
        return memory
    answer = BranchAnswer(ok=record.ok, text=record.text, usage=record.usage)
    kept = Branch(child.branch, child.call_id, child.digest, answer)
    return replace(memory, branches=(*memory.branches, kept))


def note(memory: Memory, notes: tuple[str, ...]) -> Memory:
    """Keep what plugins have to say for the next gap."""
    return replace(memory, notes=(*memory.notes, *notes))


def change_plugin_set(
    memory: Memory, attached: tuple[AttachedPlugin, ...], detached: tuple[str, ...]
) -> Memory:
    """Remove plugins with what they knew, then add others, each in the place of its name.

    What is added has another try where it was left out before.
    """
    plugins = {one.name: one for one in memory.plugins if one.name not in detached}
    plugins |= {one.name: PluginFacts(one.name, one.hooks, one.packed) for one in attached}
    states = tuple(pair for pair in memory.plugin_states if pair[0] not in detached)
    left_out = memory.left_out.difference(digest_of(one.packed) for one in attached)
    return replace(memory, plugins=tuple(plugins.values()), plugin_states=states, left_out=left_out)


def change_plugins(memory: Memory, states: Mapping[str, bytes]) -> Memory:
    """Keep the states of plugins, by their names."""
    return replace(memory, plugin_states=tuple({**dict(memory.plugin_states), **states}.items()))


def go_on_with(memory: Memory, record: Continued) -> Memory:
    """Take the options that a session is resumed with; what went with the old ones goes."""
    memory = replace(memory, resumption=record.resumption)
    if record.model is not None or record.provider_opts is not None:
        model = memory.model if record.model is None else record.model
        opts = memory.provider_opts if record.provider_opts is None else record.provider_opts
        memory = switch_model(memory, model, opts)
    if record.tools is not None:
        memory = change_tools(memory, record.tools, tuple(tool.name for tool in memory.tools))
    if record.plugins is not None:
        names = {one.name for one in record.plugins}
        gone = tuple(one.name for one in memory.plugins if one.name not in names)
        memory = change_plugin_set(memory, record.plugins, gone)
    return memory
