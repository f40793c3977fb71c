"""A memory's conversation: what is read of it, how records change it, and how it is repaired.

Read are the messages, the calls, what waits, and what is under way. It changes when people decide
or steer, plugins or tools are swapped, subagents end, or history gives way to a summary. The tables
and ``rebuild`` share all of these functions.

Every provider accepts a conversation in which each tool call is answered once, right after it.
Aborts, crashes and edits of a history leave calls without results and results without calls, which
providers refuse. Repairing what is whole changes nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from cmdc_runtime.commands import ApprovalKind, CycleResult
from cmdc_runtime.extensions.context import BranchAnswer
from cmdc_runtime.ids import CallId, CommandId, MessageId, SessionId
from cmdc_runtime.mcp_servers import McpServer
from cmdc_runtime.messages import Message, TokenUsage, ToolCall
from cmdc_runtime.packed_code import digest_of
from workers.core import runs
from workers.core.children import Branch, Child, LostBranch
from workers.core.loops import Loop, detect, fingerprint, tokens
from workers.core.records import (
    AnswerRetracted,
    Approval,
    AttachedPlugin,
    AttachedTool,
    Continued,
    SubagentSpent,
)
from workers.core.state import (
    Memory,
    OpenCall,
    Outcome,
    PendingAsk,
    PluginFacts,
    SeenTool,
    Steering,
    ToolFacts,
)

# --- the conversation -----------------------------------------------------------------------------

PUBLISHED_CHARS_MAX: Final = 2_000_000
"""Of a cycle's messages that its end publishes: 8 MiB at the worst, half of a frame's bound."""
STEERING: Final = "steering"
"""Key of a user message's metadata: the references of the steerings that it holds."""
NOTES: Final = "plugins"
"""Key of a user message's metadata: it holds what plugins have to say."""
APPROVAL: Final = "approval_id"
"""Key of a user message's metadata: the approval whose decision opened the cycle."""
TRIGGER: Final = "trigger"
"""Key beside it: what the decision was."""
UNCERTAIN: Final = "uncertain"
"""Key of a result's metadata: nobody knows whether its call took effect."""
UNCERTAIN_MAX: Final = 100
"""Of such calls, the newest ones, that are reported."""
_PLUGIN_CALL: Final = "plugin:"
REPAIR: Final = "repair"
"""Key of a user message's metadata: it asks for the answer again, in the right form."""


# --- read -----------------------------------------------------------------------------------------


def place(memory: Memory) -> int:
    """Return how many messages the whole conversation has, those of compactions included."""
    return memory.base + len(memory.messages)


def next_id(memory: Memory) -> MessageId:
    """Return the id of the message to be said next: its place in the conversation."""
    return MessageId(f"m-{place(memory) + 1}")


def result_place(memory: Memory, call_id: CallId) -> int:
    """Return the place that the result of one open call will have."""
    ids = [open_.call.call_id for open_ in memory.calls]
    return place(memory) + 1 + (ids.index(call_id) if call_id in ids else 0)


def result_of(memory: Memory, call_id: CallId, text: str, *, is_error: bool) -> Message:
    """Return the result message of one open call; its id is the place it will have."""
    open_ = find_call(memory, call_id)
    notice = open_.notice if open_ is not None else ""
    return Message(
        id=MessageId(f"m-{result_place(memory, call_id)}"),
        role="tool_result",
        content=f"{text}\n\n{notice}" if notice else text,
        call_id=call_id,
        is_error=is_error,
    )


def find_loop(memory: Memory) -> Loop | None:
    """Return the loop that the open batch goes round in, as long or short as it is."""
    watched = watched_calls(memory)
    found = detect(memory.call_hashes) if watched else None
    return None if found is None else Loop(found[0], watched[-1].call.name, found[1])


def find_call(memory: Memory, call_id: CallId) -> OpenCall | None:
    """Return the open call of this id."""
    return next((open_ for open_ in memory.calls if open_.call.call_id == call_id), None)


def find_running(memory: Memory, call_id: CallId) -> OpenCall | None:
    """Return the open call of this id that has no result; what another one reports is late."""
    open_ = find_call(memory, call_id)
    return open_ if open_ is not None and open_.result is None else None


def is_running(memory: Memory, call_id: CallId) -> bool:
    """Say whether this call is open and has no result."""
    return find_running(memory, call_id) is not None


def since(memory: Memory, first: int, end: int | None = None) -> tuple[Message, ...]:
    """Return the messages between two places, as far as no compaction took them away."""
    stop = len(memory.messages) if end is None else max(0, end - memory.base)
    return memory.messages[max(0, first - memory.base) : stop]


def waiting(memory: Memory) -> tuple[tuple[CommandId, str], ...]:
    """Return what waits for a turn's end or a cycle: steerings, then prompts, with their texts."""
    steerings = tuple((one.ref, one.text) for one in memory.steering)
    return (*steerings, *((queued.command_id, queued.text) for queued in memory.queue))


def newest(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return as many of ``messages`` as may travel in one frame, the newest ones."""
    chars = 0
    for place in range(len(messages) - 1, -1, -1):
        chars += _chars(messages[place])
        if chars > PUBLISHED_CHARS_MAX and place + 1 < len(messages):
            return messages[place + 1 :]
    return messages


def _chars(message: Message) -> int:
    # Not by str(): a journal of an older program may hold arguments that are too deep for it.
    calls = [(call.arguments, call.malformed) for call in message.tool_calls]
    called = sum(len(token) for token in tokens(calls))
    return len(message.content) + len(message.thinking or "") + called


def uncertain_calls(memory: Memory) -> tuple[Message, ...]:
    """Return the results of calls of which nobody knows whether they took effect, oldest first.

    They are the newest ``UNCERTAIN_MAX`` of the conversation; what a compaction evicts is gone.
    """
    results = [message for message in memory.messages if message.role == "tool_result"]
    results += [open_.result for open_ in memory.calls if open_.result is not None]
    return tuple(one for one in results if UNCERTAIN in one.metadata)[-UNCERTAIN_MAX:]


def form_of(memory: Memory) -> dict[str, Any] | None:  # Any: a JSON Schema
    """Return the form that the answer of the cycle is to have, None where any will do."""
    own = None if memory.cycle is None else memory.cycle.response_format
    return memory.policy.response_format if own is None else own


def guarded_prompt(memory: Memory) -> str | None:
    """Return the prompt that input guardrails look at beside the next request, None if none do."""
    cycle = memory.cycle
    if cycle is None or cycle.turns or not memory.policy.guards_input:
        return None
    asked = next(iter(since(memory, cycle.first)), None)
    return "" if asked is None else asked.content


def tool_names(memory: Memory) -> dict[CallId, str]:
    """Return the name of each call in the conversation."""
    said = (call for message in memory.messages for call in message.tool_calls)
    return {call.call_id: call.name for call in said}


def find_outcome(memory: Memory, command_id: CommandId) -> Outcome | None:
    """Return how the cycle of this prompt ended, while it is remembered."""
    return next((seen for seen in memory.outcomes if seen.command_id == command_id), None)


def cycle_result(memory: Memory, ended: Outcome) -> CycleResult:
    """Return an outcome with its messages, as callers get it."""
    messages = since(memory, ended.first, ended.end)
    said = (message for message in reversed(messages) if message.role == "assistant")
    last = next(said, None)
    return CycleResult(
        outcome=ended.outcome,
        text=last.content if last is not None else "",
        messages=newest(messages),
        usage=ended.usage,
        reason=ended.reason,
    )


def watched_calls(memory: Memory) -> list[OpenCall]:
    """Return the calls of the open batch that a loop may be made of."""
    exempt = memory.policy.loop_exempt
    return [open_ for open_ in memory.calls if open_.call.name not in exempt]


def find_approval(memory: Memory, approval_id: str) -> Approval | None:
    """Return the approval of this id that waits."""
    return next((one for one in memory.approvals if one.id == approval_id), None)


def find_ask(memory: Memory, ref: str) -> PendingAsk | None:
    """Return the question of this reference that waits."""
    return next((one for one in memory.asks if one.ref == ref), None)


def answer_of(memory: Memory, ref: str) -> Any:  # Any: what the application sent
    """Return what a call that asks again was answered before; None where it was not."""
    return next((response for known, response in memory.answers if known.ref == ref), None)


def plugin_call(plugin: str) -> CallId:
    """Return what stands for the call where a plugin waits for a subagent."""
    return CallId(f"{_PLUGIN_CALL}{plugin}")


def children_of_plugins(memory: Memory) -> tuple[SessionId, ...]:
    """Return the subagents that plugins wait for."""
    calls = {child.call_id for child in memory.children if child.call_id.startswith(_PLUGIN_CALL)}
    return children_of(memory, tuple(calls))


def find_child(memory: Memory, child_id: SessionId) -> Child | None:
    """Return the subagent of this id that is under way."""
    return next((child for child in memory.children if child.session_id == child_id), None)


def find_branch(memory: Memory, ref: str) -> Branch | Child | None:
    """Return the branch of this reference: what came of it, or what is under way."""
    answered = (one for one in memory.branches if one.ref == ref)
    under_way = (child for child in memory.children if child.branch == ref)
    return next(answered, None) or next(under_way, None)


def children_of(memory: Memory, call_ids: tuple[CallId, ...]) -> tuple[SessionId, ...]:
    """Return the subagents that these calls wait for."""
    return tuple(
        child.session_id
        for child in memory.children
        if child.ref is not None and child.call_id in call_ids
    )


# --- changed by records ---------------------------------------------------------------------------

FORMER_OPTS_MAX: Final = 16
"""Of the options of models that a session had before; the oldest are forgotten."""

Decision = Literal["approve_once", "approve_always", "reject"]

RETRACTED: Final = "retracted"
"""Key of an assistant message's metadata: the guardrail that has taken the answer back."""
WITHHELD: Final = "[This answer was withheld.]"
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


def add_steering(memory: Memory, steering: Steering) -> Memory:
    """Queue a steering until the turn is over."""
    return replace(memory, steering=(*memory.steering, steering))


def add_approval(memory: Memory, approval: Approval) -> Memory:
    """Add a call that waits for a person: unless it is held, the cycle ends with its batch."""
    others = (one for one in memory.approvals if one.id != approval.id)
    memory = replace(memory, approvals=(*others, approval))
    if memory.cycle is None or approval.is_held:
        return memory
    return replace(memory, cycle=replace(memory.cycle, is_blocked=True))


def end_approval(
    memory: Memory, approval_id: str, decision: ApprovalKind | Literal["reject"]
) -> Memory:
    """Take an approval away as decided, by a person or by the time that is over.

    The result of a call that was ended for it says so from here on: the next request has it,
    whatever opens that.
    """
    found = find_approval(memory, approval_id)
    if found is None:
        return memory
    memory = replace(
        memory, approvals=tuple(one for one in memory.approvals if one.id != approval_id)
    )
    if not found.is_held:
        memory = _mark_result(memory, found, decision)
    if decision == "approve_once":
        call_hash = fingerprint(found.tool, found.args, None)
        return replace(memory, granted=(*memory.granted, call_hash))
    if decision == "approve_always":
        always = memory.always_approved | {(found.tool, found.family)}
        return replace(memory, always_approved=always)
    return memory


def _mark_result(memory: Memory, found: Approval, decision: Decision) -> Memory:
    waits = WAITS.format(approval_id=found.id)
    decided = _DECIDED[decision].format(approval_id=found.id)

    def marked(message: Message) -> Message:
        if message.call_id != found.call_id or message.role != "tool_result":
            return message
        return msgspec.structs.replace(message, content=message.content.replace(waits, decided))

    calls = tuple(
        open_ if open_.result is None else replace(open_, result=marked(open_.result))
        for open_ in memory.calls
    )
    return replace(memory, messages=tuple(map(marked, memory.messages)), calls=calls)


def ask(memory: Memory, question: PendingAsk) -> Memory:
    """Add a question to the user; asked anew by a call that runs again, it is the same."""
    if find_ask(memory, question.ref) is not None:
        return memory
    return replace(memory, asks=(*memory.asks, question))


def answer(memory: Memory, ref: str, response: Any) -> Memory:  # Any: what the user sent
    """Add what the user answered, for as long as the call runs."""
    found = find_ask(memory, ref)
    if found is None:
        return memory
    return replace(
        memory,
        asks=tuple(one for one in memory.asks if one.ref != ref),
        answers=(*memory.answers, (found, response)),
    )


def retract(memory: Memory, record: AnswerRetracted) -> Memory:
    """Have the latest answer say that it is withheld: a conversation without one would be odd."""
    *before, last = memory.messages
    withheld = Message(
        id=last.id, role="assistant", content=WITHHELD, metadata={RETRACTED: record.guardrail}
    )
    return replace(memory, messages=(*before, withheld))


def attached_tool(tool: ToolFacts) -> AttachedTool:
    """Return what is recorded of a tool."""
    assert tool.packed is not None  # noqa: S101 - only tests make tools without
    return AttachedTool(
        name=tool.name,
        is_repeatable=tool.is_repeatable,
        isolation=tool.isolation,
        packed=tool.packed,
        chars=tool.chars,
        run_strategy=tool.run_strategy,
    )


def attached_plugin(plugin: PluginFacts) -> AttachedPlugin:
    """Return what is recorded of a plugin."""
    assert plugin.packed is not None  # noqa: S101 - only tests make plugins without
    return AttachedPlugin(name=plugin.name, hooks=plugin.hooks, packed=plugin.packed)


def change_tools(
    memory: Memory, attached: tuple[AttachedTool, ...], detached: tuple[str, ...]
) -> Memory:
    """Remove tools, then add others, each in the place of its name.

    What was allowed of a tool goes with it.
    """
    kept = {tool.name: tool for tool in memory.tools if tool.name not in detached}
    added = {
        tool.name: ToolFacts(
            tool.name,
            tool.is_repeatable,
            tool.isolation,
            tool.packed,
            tool.chars,
            tool.run_strategy,
        )
        for tool in attached
    }
    allowed = frozenset(one for one in memory.always_approved if one[0] not in detached)
    return replace(memory, tools=tuple((kept | added).values()), always_approved=allowed)


def leave_out(memory: Memory, digest: str) -> Memory:
    """Remember packed code by its digest: its tools are gone, a plugin of it is not started."""
    gone = tuple(
        tool.name
        for tool in memory.tools
        if tool.packed is not None and digest_of(tool.packed) == digest
    )
    memory = change_tools(memory, (), gone)
    if (own := memory.own_parts) is not None:
        kept = (one for one in own.tools if one.packed is None or digest_of(one.packed) != digest)
        memory = replace(memory, own_parts=replace(own, tools=tuple(kept)))
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
    """Remember a subagent and what it may spend."""
    return replace(
        memory,
        children=(*memory.children, child),
        spawns=memory.spawns + 1,
        branched=memory.branched + bool(child.branch),
    )


def count_child(memory: Memory, record: SubagentSpent) -> Memory:
    """Remember what a subagent used in place of what it was granted; counted once.

    What came of a branch is kept for as long as its call is open, and so is what one used that was
    lost: if it runs again, that is a part of what it has used.
    """
    child = find_child(memory, record.child_id)
    if child is None:
        return memory
    left = tuple(one for one in memory.children if one is not child)
    memory = spend(replace(memory, children=left), record.usage)
    memory = runs.stop_waiting_for(memory, record.child_id)
    if not child.branch:
        return memory
    if record.ok is None:
        lost = LostBranch(child.branch, child.call_id, record.usage)
        return replace(memory, lost_branches=(*memory.lost_branches, lost))
    usage = record.usage + runs.lost_usage(memory, child.branch)
    answer = BranchAnswer(ok=record.ok, text=record.text, usage=usage)
    kept = Branch(child.branch, child.call_id, child.digest, answer)
    return replace(memory, branches=(*memory.branches, kept))


def note(memory: Memory, notes: tuple[str, ...]) -> Memory:
    """Keep what plugins have to say until the turn is over."""
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
    if record.mcp_servers is not None:
        names = {one.name for one in record.mcp_servers}
        former = tuple(one.name for one in memory.mcp_servers)
        seen = tuple(one for one in memory.mcp_tools if one.server in names)
        memory = change_servers(memory, record.mcp_servers, former)
        memory = replace(memory, mcp_tools=seen)
    return memory


def change_servers(
    memory: Memory, attached: Sequence[McpServer], detached: Sequence[str]
) -> Memory:
    """Remove MCP servers, with what is known of their tools, then add others."""
    left = tuple(one for one in memory.mcp_servers if one.name not in detached)
    seen = tuple(one for one in memory.mcp_tools if one.server not in detached)
    return replace(memory, mcp_servers=(*left, *attached), mcp_tools=seen)


def see_tools(memory: Memory, server: str, tools: Mapping[str, str]) -> Memory:
    """Remember what a server's tools are now; where one is another, no approval is left of it."""
    seen = {one.name: one for one in memory.mcp_tools}
    changed = tools.keys() & seen.keys()
    for name, digest in tools.items():
        first = seen[name].first if name in seen else digest
        seen[name] = SeenTool(server, name, first, digest)
    always = frozenset(one for one in memory.always_approved if one[0] not in changed)
    return replace(memory, mcp_tools=tuple(seen.values()), always_approved=always)


# --- repair ---------------------------------------------------------------------------------------

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
