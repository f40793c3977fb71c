"""Everything an observer can see a session do.

To add an event, add one class in the file of its theme and its name here: the codec, the journal
and the reference pages derive from ``Event.__subclasses__()``. ``durable`` says whether the journal
keeps it: a durable event outlives every crash, an ephemeral one lives as long as the ring remembers
it. Names and payloads are those of the CMDC event catalogue; where a field's name is a reserved
word it ends in an underscore.
"""

from cmdc_runtime.events.base import (
    Event,
)
from cmdc_runtime.events.client import (
    Envelope,
    EventsLost,
    UnknownEvent,
)
from cmdc_runtime.events.cycle import (
    AgentAbort,
    AgentEnd,
    AgentError,
    AgentRecovered,
    AgentResumed,
    AgentStart,
    PromptDropped,
    PromptReceived,
    RecordSetAside,
)
from cmdc_runtime.events.model import (
    ContextOverflow,
    MessageDelta,
    MessageStart,
    ModelSwitched,
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
from cmdc_runtime.events.session import (
    AgentHibernated,
    AgentWoken,
    ConversationCompacted,
    PluginAttached,
    PluginCrashed,
    PluginDetached,
    PluginEvent,
    PluginModelCall,
    PluginUpdated,
    SubagentEnd,
    SubagentStart,
)
from cmdc_runtime.events.supervision import (
    SupervisorReport,
)
from cmdc_runtime.events.tools import (
    LoopDetected,
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

__all__ = [
    "AgentAbort",
    "AgentEnd",
    "AgentError",
    "AgentHibernated",
    "AgentRecovered",
    "AgentResumed",
    "AgentStart",
    "AgentWoken",
    "ApprovalRequired",
    "AskUser",
    "ContextOverflow",
    "ConversationCompacted",
    "Envelope",
    "Event",
    "EventsLost",
    "LoopDetected",
    "MessageDelta",
    "MessageStart",
    "ModelSwitched",
    "PluginAttached",
    "PluginCrashed",
    "PluginDetached",
    "PluginEvent",
    "PluginModelCall",
    "PluginUpdated",
    "PromptDropped",
    "PromptReceived",
    "RecordSetAside",
    "RequestStart",
    "ResponseComplete",
    "Retry",
    "StatusUpdate",
    "SteeringApplied",
    "SteeringReceived",
    "StreamError",
    "StreamReset",
    "StreamStalled",
    "SubagentEnd",
    "SubagentStart",
    "SupervisorReport",
    "ThinkingDelta",
    "ThinkingStart",
    "TitleGenerated",
    "TodoChange",
    "ToolApproved",
    "ToolAttached",
    "ToolBlocked",
    "ToolCallUnknown",
    "ToolCalls",
    "ToolDetached",
    "ToolExecutionEnd",
    "ToolExecutionMetrics",
    "ToolExecutionStart",
    "ToolKilled",
    "ToolRejected",
    "ToolsUpdated",
    "UnknownEvent",
    "UserResponded",
]
