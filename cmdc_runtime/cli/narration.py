"""One line for each kind of event, for people.

``LOUD`` events are told while an answer is shown; the others only where somebody asks for all of
them. To add an event: its row here; a test names the rows that are missing. What a model, a tool
or a plugin wrote is quoted with ``one_line``.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from cmdc_runtime import events
from cmdc_runtime.cli.text import duration, one_line
from cmdc_runtime.events import Event
from cmdc_runtime.plain import shown
from cmdc_runtime.reasons import (
    LINE_CHARS_MAX,
    Down,
    KilledBy,
    RestartIntensityExceeded,
    Signal,
)

Telling = Callable[[Any], str]  # Any: a telling takes the event of its own row

TELLINGS: Final[Mapping[type[Event], Telling]] = {
    events.PromptReceived: lambda e: (
        f"{'queued' if e.queued else 'accepted'} prompt: {one_line(e.text)}"
    ),
    events.AgentStart: lambda e: f"cycle of {e.command_id} begins",
    events.AgentEnd: lambda e: (
        f"finished: {len(e.messages)} messages, {e.usage.total_tokens} tokens"
    ),
    events.AgentAbort: lambda e: (
        f"aborted: {one_line(shown(e.reason, LINE_CHARS_MAX) or 'no reason given')}"
    ),
    events.AgentError: lambda e: (
        f"failed: {one_line(e.reason)}" + (" (later may work)" if e.retryable else "")
    ),
    events.AgentRecovered: lambda e: (
        f"process {e.incarnation} took over after {one_line(str(e.reason))}; "
        f"goes on with: {e.resumed}"
    ),
    events.RecordSetAside: lambda e: (
        f"set aside: {one_line(f'{e.what} {e.name}'.strip())}: {one_line(e.why)}"
    ),
    events.AgentResumed: lambda e: f"{e.trigger} {one_line(e.approval_id)}",
    events.PromptDropped: lambda e: f"dropped prompt: {one_line(e.text)}",
    events.RequestStart: lambda e: f"request to {one_line(e.model)} with {e.messages} messages",
    events.MessageStart: lambda _: "",
    events.MessageDelta: lambda e: one_line(e.delta),
    events.ThinkingStart: lambda _: "",
    events.ThinkingDelta: lambda e: one_line(e.delta),
    events.ResponseComplete: lambda e: one_line(e.message.content),
    events.StatusUpdate: lambda e: one_line(e.text),
    events.TitleGenerated: lambda e: one_line(e.title),
    events.StreamError: lambda e: f"the stream failed: {one_line(e.reason)}",
    events.StreamStalled: lambda e: f"the provider is silent for {e.elapsed_s:g} s",
    events.StreamReset: lambda _: "the answer begins anew",
    events.Retry: lambda e: f"attempt {e.attempt} in {duration(e.delay_ms)}: {one_line(e.reason)}",
    events.ContextOverflow: lambda e: f"the conversation is too long: {one_line(e.reason)}",
    events.ModelSwitched: lambda e: f"from {one_line(e.from_)} to {one_line(e.to)}",
    events.ToolCalls: lambda e: f"{e.count} calls",
    events.ToolExecutionStart: lambda e: f"{one_line(e.name)}({_arguments(e.args)})",
    events.ToolExecutionMetrics: lambda e: " ".join(
        [one_line(e.name), *(f"{name}={value}" for name, value in e.meta.items())]
    ),
    events.ToolExecutionEnd: lambda e: (
        f"{one_line(e.name)} {'done' if e.ok else 'failed'}: {one_line(e.text)}"
    ),
    events.ToolBlocked: lambda e: f"{one_line(e.name)} was not run: {one_line(e.reason)}",
    events.ToolKilled: lambda e: f"{one_line(e.name)} was ended: {one_line(e.reason)}",
    events.ToolCallUnknown: lambda e: f"there is no tool {one_line(e.name)}",
    events.ToolAttached: lambda e: one_line(e.name),
    events.ToolDetached: lambda e: one_line(e.name),
    events.SupervisorReport: lambda e: (
        f"{e.report} {one_line('/'.join(filter(None, (e.supervisor, e.child))), LINE_CHARS_MAX)}: "
        f"{one_line(e.reason or e.context, LINE_CHARS_MAX)}"
        + (f" (restart {e.in_window} of {e.max_restarts})" if e.next_attempt_s is not None else "")
    ),
    events.ToolsUpdated: lambda e: f"{len(e.attached)} tools attached, {len(e.detached)} detached",
    events.LoopDetected: lambda e: f"{one_line(e.name)} repeats itself: {e.type}, {e.count} times",
    events.TodoChange: lambda e: f"{len(e.todos)} todos",
    events.ApprovalRequired: lambda e: (
        f"{one_line(e.tool)}({_arguments(e.args)}) waits for approval {one_line(e.id)}"
        + (f": {one_line(e.hint)}" if e.hint else "")
    ),
    events.ToolApproved: lambda e: f"allowed: {one_line(e.approval_id)}",
    events.ToolRejected: lambda e: f"refused: {one_line(e.approval_id)}",
    events.AskUser: lambda e: (
        f"asks: {one_line(e.question)}"
        + (f" [{one_line(' | '.join(e.options))}]" if e.options else "")
        + f" ({one_line(e.ref)})"
    ),
    events.UserResponded: lambda e: f"{one_line(e.ref)}: {one_line(str(e.response))}",
    events.SteeringReceived: lambda e: f"steering {e.status}: {one_line(e.text)}",
    events.SteeringApplied: lambda e: f"{e.count} told to the model",
    events.SubagentStart: lambda e: (
        f"subagent {one_line(e.subagent_type)} ({e.child_session_id}): {one_line(e.description)}"
    ),
    events.SubagentEnd: lambda e: (
        f"subagent {e.child_session_id} {'done' if e.ok else 'failed'}: {one_line(e.text)}"
    ),
    events.ReasoningBranch: lambda e: f"branch {e.branch_id}: {one_line(e.prompt)}",
    events.ReasoningThought: lambda e: (
        f"thought {e.thought_id}: {one_line(e.content)}"
        if e.error is None
        else f"thought {e.thought_id} failed: {one_line(e.error)}"
    ),
    events.ReasoningScore: lambda e: f"thought {e.thought_id} scores {e.score:g}",
    events.ReasoningPrune: lambda e: (
        f"given up: {', '.join(e.thought_ids)}" + (f" ({one_line(e.reason)})" if e.reason else "")
    ),
    events.ReasoningDone: lambda e: (
        f"reasoning {e.strategy} {e.status}: {one_line(str(e.answer))}"
        + (f" ({one_line(e.reason)})" if e.reason else "")
    ),
    events.ConversationCompacted: lambda e: (
        f"{e.before} messages became {e.after} ({e.trigger})"
        + (f", in full in {one_line(e.history_file)}" if e.history_file else "")
    ),
    events.AgentHibernated: lambda _: "its process is given up until somebody calls",
    events.AgentWoken: lambda e: f"process {e.incarnation} goes on",
    events.CostUnknown: lambda e: (
        f"what {one_line(e.model)} costs is not known: max_cost_usd does not count it"
    ),
    events.PluginCrashed: lambda e: f"plugin {e.plugin} failed at {e.hook}: {one_line(e.error)}",
    events.PluginAttached: lambda e: f"plugin attached: {one_line(e.name)}",
    events.PluginUpdated: lambda e: f"plugin updated: {one_line(e.name)}",
    events.PluginDetached: lambda e: f"plugin detached: {one_line(e.name)}",
    events.PluginModelCall: lambda e: f"{one_line(e.plugin)} asked {one_line(e.model)}",
    events.PluginEvent: lambda e: f"{one_line(e.name)}: {one_line(str(e.payload))}",
    events.EventsLost: lambda e: f"events {e.first} to {e.last} cannot be had any more",
    events.UnknownEvent: lambda e: one_line(str(e.data)),
}

LOUD: Final[Mapping[type[Event], str]] = {
    events.AgentRecovered: "good",
    events.RecordSetAside: "bad",
    events.StreamStalled: "warning",
    events.StreamReset: "warning",
    events.Retry: "warning",
    events.ContextOverflow: "bad",
    events.CostUnknown: "warning",
    events.ModelSwitched: "quiet",
    events.StatusUpdate: "quiet",
    events.ToolBlocked: "warning",
    events.ToolKilled: "warning",
    events.ToolCallUnknown: "warning",
    events.LoopDetected: "warning",
    events.ApprovalRequired: "warning",
    events.ToolRejected: "quiet",
    events.AskUser: "warning",
    events.SteeringReceived: "quiet",
    events.SubagentStart: "quiet",
    events.SubagentEnd: "quiet",
    events.ConversationCompacted: "quiet",
    events.EventsLost: "bad",
}
"""The style that each of them is told in."""

_BY: Final[Mapping[KilledBy, str]] = {
    "": "",
    "daemon": ", by the daemon",
    "kernel": ", by the kernel",
    "outside": ", from outside",
}


def told(event: Event) -> str:
    """Return what happened, on one line and without control characters."""
    return TELLINGS[type(event)](event)


def down_told(down: Down) -> str:
    """Return a Down notice as one line: which process, why, and what comes of it."""
    pid = "" if down.evidence.pid is None else f" (pid {down.evidence.pid})"
    who = f"process {down.incarnation} of {one_line(down.session_id)}{pid}"
    return f"{who} is down: {_why(down)}; {_verdict(down)}"


def _why(down: Down) -> str:
    reason = down.reason
    last = reason.last if isinstance(reason, RestartIntensityExceeded) else reason
    by = _BY[down.evidence.killed_by] if isinstance(last, Signal) else ""
    return one_line(str(reason), LINE_CHARS_MAX) + by


def _verdict(down: Down) -> str:
    if not down.restarting:
        return "the session has ended"
    wait_ms = down.next_attempt_ms
    when = "" if wait_ms is None else f" in {duration(wait_ms)}" if wait_ms else " at once"
    count = f" (restart {down.restarts})" if down.restarts else ""
    return f"restarting{when} as process {down.incarnation + 1}{count}"


def _arguments(args: Mapping[str, object]) -> str:
    return one_line(", ".join(f"{name}={value!r}" for name, value in args.items()))
