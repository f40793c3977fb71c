"""What the event log writes of everything that it can hear: at which level, and what is content.

``EVENTS`` has a row for every event that a session publishes, ``HOOKS_HEARD`` one for each hook
that nothing published tells of, and ``HOOKS_TOLD`` names what tells of the others. To add an event
or a hook, add its row; a test says which are missing.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

from cmdc_runtime import events
from cmdc_runtime.extensions import hooks
from cmdc_runtime.extensions.plugin import Observed, PipelineRun

Level: TypeAlias = Literal["debug", "info", "warning"]
LEVELS: Final[tuple[Level, ...]] = ("debug", "info", "warning")
"""From the least to the greatest."""


class Row(NamedTuple):
    """How one thing is written."""

    level: Level
    content: tuple[str, ...] = ()
    """Fields that hold what people, the model, tools or plugins say."""


# fmt: off
_EVENTS: Final[dict[type[Observed], Row]] = {
    events.AgentAbort:            Row("warning"),
    events.AgentEnd:              Row("info", ("messages",)),
    events.AgentError:            Row("warning"),
    events.AgentHibernated:       Row("info"),
    events.AgentRecovered:        Row("warning"),
    events.AgentResumed:          Row("info"),
    events.AgentStart:            Row("info"),
    events.AgentWoken:            Row("info"),
    events.ApprovalRequired:      Row("info", ("args", "hint")),
    events.AskUser:               Row("info", ("question", "options")),
    events.ContextOverflow:       Row("warning"),
    events.ConversationCompacted: Row("info"),
    events.CostUnknown:           Row("warning"),
    events.LoopDetected:          Row("warning"),
    events.MessageDelta:          Row("debug", ("delta",)),
    events.MessageStart:          Row("debug"),
    events.ModelSwitched:         Row("info"),
    events.PluginAttached:        Row("info"),
    events.PluginCrashed:         Row("warning", ("error",)),
    events.PluginDetached:        Row("info"),
    events.PluginEvent:           Row("info", ("payload",)),
    events.PluginModelCall:       Row("info"),
    events.PluginUpdated:         Row("info"),
    events.PromptDropped:         Row("warning", ("text",)),
    events.PromptReceived:        Row("info", ("text",)),
    events.ReasoningBranch:       Row("info", ("prompt", "metadata")),
    events.ReasoningDone:         Row("info", ("answer", "reason")),
    events.ReasoningPrune:        Row("debug", ("reason",)),
    events.ReasoningScore:        Row("debug", ("detail",)),
    events.ReasoningThought:      Row("info", ("content", "error", "metadata")),
    events.RecordSetAside:        Row("warning"),
    events.RequestStart:          Row("info"),
    events.ResponseComplete:      Row("info", ("message",)),
    events.Retry:                 Row("warning"),
    events.StatusUpdate:          Row("info", ("text",)),
    events.SteeringApplied:       Row("info"),
    events.SteeringReceived:      Row("info", ("text",)),
    events.StreamError:           Row("warning"),
    events.StreamReset:           Row("info"),
    events.StreamStalled:         Row("warning"),
    events.SubagentEnd:           Row("info", ("text",)),
    events.SubagentStart:         Row("info", ("description",)),
    events.SupervisorReport:      Row("debug"),
    events.ThinkingDelta:         Row("debug", ("delta",)),
    events.ThinkingStart:         Row("debug"),
    events.TitleGenerated:        Row("info", ("title",)),
    events.TodoChange:            Row("info", ("todos",)),
    events.ToolApproved:          Row("info"),
    events.ToolAttached:          Row("info"),
    events.ToolBlocked:           Row("warning", ("reason",)),
    events.ToolCallUnknown:       Row("warning"),
    events.ToolCalls:             Row("info"),
    events.ToolDetached:          Row("info"),
    events.ToolExecutionEnd:      Row("info", ("text",)),
    events.ToolExecutionMetrics:  Row("debug"),
    events.ToolExecutionStart:    Row("info", ("args", "summary")),
    events.ToolKilled:            Row("warning"),
    events.ToolRejected:          Row("info"),
    events.ToolsUpdated:          Row("info"),
    events.UserResponded:         Row("info", ("response",)),
    PipelineRun:                  Row("debug"),
}
_HOOKS_HEARD: Final[dict[type[hooks.Hook], Row]] = {
    hooks.OnToolError:  Row("warning", ("error",)),
    hooks.SessionEnd:   Row("info"),
    hooks.SessionStart: Row("info"),
}
_HOOKS_TOLD: Final[dict[type[hooks.Hook], tuple[type[events.Event], ...]]] = {
    hooks.AfterResponse:  (events.ResponseComplete,),
    hooks.AfterTool:      (events.ToolExecutionEnd, events.ToolExecutionMetrics),
    hooks.AfterToolBatch: (events.ToolExecutionEnd,),
    hooks.AfterTurn:      (events.AgentEnd, events.AgentAbort, events.AgentError),
    hooks.BeforeCompact:  (events.ConversationCompacted,),
    hooks.BeforeFinish:   (events.AgentEnd,),
    hooks.BeforePrompt:   (events.PromptReceived, events.AgentStart),
    hooks.BeforeRequest:  (events.RequestStart,),
    hooks.BeforeSteering: (events.SteeringReceived,),
    hooks.BeforeTool:     (events.ToolExecutionStart, events.ToolBlocked),
}
# fmt: on

EVENTS: Final[Mapping[type[Observed], Row]] = MappingProxyType(_EVENTS)
"""Everything that ``observe`` can be told."""
HOOKS_HEARD: Final[Mapping[type[hooks.Hook], Row]] = MappingProxyType(_HOOKS_HEARD)
"""Hooks that the log hears itself."""
HOOKS_TOLD: Final[Mapping[type[hooks.Hook], tuple[type[events.Event], ...]]] = MappingProxyType(
    _HOOKS_TOLD
)
"""Hooks that the log does not hear, so that no session waits for it: with what tells of each. That
plugins were asked there at all is a ``PipelineRun``."""
