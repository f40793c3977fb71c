"""Which hooks the event log writes, at which level, and what of them is content.

Of an event its class says that. ``HOOKS_HEARD`` has a row for each hook that no event follows from,
``HOOKS_TOLD`` names the events that follow from the others. To add a hook, add its row; a test says
which are missing.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from cmdc_runtime import events
from cmdc_runtime.events.base import Level
from cmdc_runtime.extensions import hooks


class Row(NamedTuple):
    """How one thing is written."""

    level: Level
    content_fields: tuple[str, ...] = ()
    """Fields that hold what people, the model, tools or plugins say."""


# fmt: off
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

HOOKS_HEARD: Final[Mapping[type[hooks.Hook], Row]] = MappingProxyType(_HOOKS_HEARD)
"""Hooks that the log hears itself."""
HOOKS_TOLD: Final[Mapping[type[hooks.Hook], tuple[type[events.Event], ...]]] = MappingProxyType(
    _HOOKS_TOLD
)
"""Hooks that the log does not hear, so that no session waits for it: with what tells of each. That
plugins were asked there at all is a ``PipelineRun``."""
