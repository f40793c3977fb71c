"""One event as a subscriber gets it, and the union of all that there are.

``AnyEvent`` lets type checkers say which events a ``match`` has left out. A new event is named here
too; a test says when one is missing.
"""

from typing import TypeAlias

import msgspec

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.events.cycle import (
    AgentAbort,
    AgentEnd,
    AgentError,
    AgentRecovered,
    AgentResumed,
    AgentStart,
    ContextOverflow,
    CostUnknown,
    GuardrailTripped,
    HandedOff,
    HandoffFailed,
    MessageDelta,
    MessageStart,
    ModelSwitched,
    PromptDropped,
    PromptReceived,
    RecordSetAside,
    RequestCut,
    RequestStart,
    ResponseComplete,
    Retry,
    StatusUpdate,
    StreamError,
    StreamReset,
    StreamStalled,
    ThinkingDelta,
    ThinkingStart,
    TitleGenerated,
)
from cmdc_runtime.events.people import (
    ApprovalRequired,
    AskUser,
    SteeringApplied,
    SteeringReceived,
    ToolApproved,
    ToolRejected,
    UserResponded,
)
from cmdc_runtime.events.reasoning import (
    ReasoningBranch,
    ReasoningDone,
    ReasoningPrune,
    ReasoningScore,
    ReasoningThought,
)
from cmdc_runtime.events.session import (
    AgentHibernated,
    AgentWoken,
    ConversationCompacted,
    EventsLost,
    PluginAttached,
    PluginCrashed,
    PluginDetached,
    PluginEvent,
    PluginModelCall,
    PluginUpdated,
    SubagentEnd,
    SubagentStart,
    SupervisorReport,
    UnknownEvent,
)
from cmdc_runtime.events.tools import (
    ClientToolCalled,
    LoopDetected,
    McpServerChanged,
    TodoChange,
    ToolAttached,
    ToolBlocked,
    ToolCalls,
    ToolCallUnknown,
    ToolDetached,
    ToolExecutionEnd,
    ToolExecutionMetrics,
    ToolExecutionStart,
    ToolKilled,
    ToolsUpdated,
)
from cmdc_runtime.ids import EventIndex, SessionId

AnyEvent: TypeAlias = (
    AgentAbort
    | AgentEnd
    | AgentError
    | AgentHibernated
    | AgentRecovered
    | AgentResumed
    | AgentStart
    | AgentWoken
    | ApprovalRequired
    | AskUser
    | ClientToolCalled
    | ContextOverflow
    | ConversationCompacted
    | CostUnknown
    | EventsLost
    | GuardrailTripped
    | HandedOff
    | HandoffFailed
    | LoopDetected
    | McpServerChanged
    | MessageDelta
    | MessageStart
    | ModelSwitched
    | PluginAttached
    | PluginCrashed
    | PluginDetached
    | PluginEvent
    | PluginModelCall
    | PluginUpdated
    | PromptDropped
    | PromptReceived
    | ReasoningBranch
    | ReasoningDone
    | ReasoningPrune
    | ReasoningScore
    | ReasoningThought
    | RecordSetAside
    | RequestCut
    | RequestStart
    | ResponseComplete
    | Retry
    | StatusUpdate
    | SteeringApplied
    | SteeringReceived
    | StreamError
    | StreamReset
    | StreamStalled
    | SubagentEnd
    | SubagentStart
    | SupervisorReport
    | ThinkingDelta
    | ThinkingStart
    | TitleGenerated
    | TodoChange
    | ToolApproved
    | ToolAttached
    | ToolBlocked
    | ToolCallUnknown
    | ToolCalls
    | ToolDetached
    | ToolExecutionEnd
    | ToolExecutionMetrics
    | ToolExecutionStart
    | ToolKilled
    | ToolRejected
    | ToolsUpdated
    | UnknownEvent
    | UserResponded
)
"""Any event; one of a newer daemon is an ``UnknownEvent``."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """One event as a subscriber gets it; ``at_ms`` is wall time, milliseconds since 1970."""

    session_id: SessionId
    index: EventIndex
    at_ms: int
    event: AnyEvent
