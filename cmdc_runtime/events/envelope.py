"""One event as a subscriber gets it, and the union of all that there are.

``AnyEvent`` lets type checkers say which events a ``match`` has left out. A new event is named here
too; a test says when one is missing.
"""

from typing import TypeAlias

import msgspec

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.events import cycle, people, reasoning, session, tools
from cmdc_runtime.ids import EventIndex, SessionId

AnyEvent: TypeAlias = (
    cycle.AgentAbort
    | cycle.AgentEnd
    | cycle.AgentError
    | session.AgentHibernated
    | cycle.AgentRecovered
    | cycle.AgentResumed
    | cycle.AgentStart
    | session.AgentWoken
    | people.ApprovalRequired
    | people.AskUser
    | tools.ClientToolCalled
    | cycle.ContextOverflow
    | session.ConversationCompacted
    | cycle.CostUnknown
    | session.EventsLost
    | cycle.GuardrailTripped
    | cycle.HandedOff
    | cycle.HandoffFailed
    | tools.LoopDetected
    | tools.McpServerChanged
    | cycle.MessageDelta
    | cycle.MessageStart
    | cycle.ModelSwitched
    | session.PluginAttached
    | session.PluginCrashed
    | session.PluginDetached
    | session.PluginEvent
    | session.PluginModelCall
    | session.PluginUpdated
    | cycle.PromptDropped
    | cycle.PromptReceived
    | reasoning.ReasoningBranch
    | reasoning.ReasoningDone
    | reasoning.ReasoningPrune
    | reasoning.ReasoningScore
    | reasoning.ReasoningThought
    | cycle.RecordSetAside
    | cycle.RequestCut
    | cycle.RequestStart
    | cycle.ResponseComplete
    | cycle.Retry
    | cycle.StatusUpdate
    | people.SteeringApplied
    | people.SteeringReceived
    | cycle.StreamError
    | cycle.StreamReset
    | cycle.StreamStalled
    | session.SubagentEnd
    | session.SubagentStart
    | session.SupervisorReport
    | cycle.ThinkingDelta
    | cycle.ThinkingStart
    | cycle.TitleGenerated
    | tools.TodoChange
    | people.ToolApproved
    | tools.ToolAttached
    | tools.ToolBlocked
    | tools.ToolCallUnknown
    | tools.ToolCalls
    | tools.ToolDetached
    | tools.ToolExecutionEnd
    | tools.ToolExecutionMetrics
    | tools.ToolExecutionStart
    | tools.ToolKilled
    | people.ToolRejected
    | tools.ToolsUpdated
    | session.UnknownEvent
    | people.UserResponded
)
"""Any event; one of a newer daemon is an ``UnknownEvent``."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """One event as a subscriber gets it; ``at_ms`` is wall time, milliseconds since 1970."""

    session_id: SessionId
    index: EventIndex
    at_ms: int
    event: AnyEvent
