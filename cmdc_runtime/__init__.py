"""OTP for LLM agents: one supervised process per session, and nothing acknowledged is lost.

``import cmdc_runtime as cmdc``. This is the whole public API; what is not named here is ours.

A name is loaded when it is first used, so that the import stays quick: ``_HOMES`` says from where.
To add a name: its import below, for type checkers, its place in ``_HOMES`` and in ``__all__``; a
test compares the three.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

import cmdc_runtime.messages as _messages
from cmdc_runtime.version import VERSION as __version__  # noqa: N811 - Python's own name for it

if TYPE_CHECKING:
    from cmdc_runtime import aio, events, reasons, tools
    from cmdc_runtime.client.async_client import AsyncClient
    from cmdc_runtime.client.calls import Reply
    from cmdc_runtime.client.client import Client
    from cmdc_runtime.client.default import (
        abort,
        agent_pid,
        collect_reply,
        create_agent,
        demonitor,
        last_index,
        list_sessions,
        messages,
        monitor,
        prompt,
        run,
        session_id,
        status,
        stop,
        subscribe,
        subscribe_all,
        tree,
        unsubscribe,
    )
    from cmdc_runtime.client.monitors import (
        AsyncMonitor,
        Monitor,
    )
    from cmdc_runtime.client.session import (
        AsyncSession,
        Session,
    )
    from cmdc_runtime.client.stream import (
        AsyncEventStream,
        EventStream,
    )
    from cmdc_runtime.commands import (
        PromptReceipt,
        Status,
    )
    from cmdc_runtime.errors import (
        AccessDenied,
        AgentAborted,
        AgentFailed,
        AlreadyAttached,
        ApprovalNotFound,
        AskNotFound,
        CmdcError,
        CollectTimeout,
        CommandTimeout,
        DaemonUnavailable,
        InvalidOptions,
        InvalidSession,
        InvalidText,
        InvalidTool,
        Overloaded,
        ProtocolError,
        QueueFull,
        SessionError,
        SessionExists,
        SessionNotAlive,
        StartFailed,
        SteeringRejected,
        ToolNotFound,
        ToolValidationFailed,
        TransientError,
        UsageError,
    )
    from cmdc_runtime.events import Envelope
    from cmdc_runtime.extensions import (
        Context,
        Tool,
        ToolError,
        tool,
    )
    from cmdc_runtime.messages import (
        Message,
        TokenUsage,
        ToolCall,
    )
    from cmdc_runtime.options import Options
    from cmdc_runtime.reasons import (
        Down,
        DownReason,
    )
    from cmdc_runtime.requests import TreeNode

_HOMES: Final = {
    "cmdc_runtime.client.default": (
        "abort",
        "agent_pid",
        "collect_reply",
        "create_agent",
        "demonitor",
        "last_index",
        "list_sessions",
        "messages",
        "monitor",
        "prompt",
        "run",
        "session_id",
        "status",
        "stop",
        "subscribe",
        "subscribe_all",
        "tree",
        "unsubscribe",
    ),
    "cmdc_runtime.client.async_client": ("AsyncClient",),
    "cmdc_runtime.client.calls": ("Reply",),
    "cmdc_runtime.client.client": ("Client",),
    "cmdc_runtime.client.monitors": (
        "AsyncMonitor",
        "Monitor",
    ),
    "cmdc_runtime.client.session": (
        "AsyncSession",
        "Session",
    ),
    "cmdc_runtime.client.stream": (
        "AsyncEventStream",
        "EventStream",
    ),
    "cmdc_runtime.commands": (
        "PromptReceipt",
        "Status",
    ),
    "cmdc_runtime.errors": (
        "AccessDenied",
        "AgentAborted",
        "AgentFailed",
        "AlreadyAttached",
        "ApprovalNotFound",
        "AskNotFound",
        "CmdcError",
        "CollectTimeout",
        "CommandTimeout",
        "DaemonUnavailable",
        "InvalidOptions",
        "InvalidSession",
        "InvalidText",
        "InvalidTool",
        "Overloaded",
        "ProtocolError",
        "QueueFull",
        "SessionError",
        "SessionExists",
        "SessionNotAlive",
        "StartFailed",
        "SteeringRejected",
        "ToolNotFound",
        "ToolValidationFailed",
        "TransientError",
        "UsageError",
    ),
    "cmdc_runtime.events": ("Envelope",),
    "cmdc_runtime.extensions": (
        "Context",
        "Tool",
        "ToolError",
        "tool",
    ),
    "cmdc_runtime.messages": (
        "Message",
        "TokenUsage",
        "ToolCall",
    ),
    "cmdc_runtime.options": ("Options",),
    "cmdc_runtime.reasons": (
        "Down",
        "DownReason",
    ),
    "cmdc_runtime.requests": ("TreeNode",),
}
_MODULES: Final = ("aio", "events", "reasons", "tools")
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}

# The import of a submodule binds its name here: the call ``messages`` comes first.
del _messages, globals()["messages"]


def __getattr__(name: str) -> Any:  # Any: whatever the name stands for
    """Load a public name."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)


__all__ = [
    "AccessDenied",
    "AgentAborted",
    "AgentFailed",
    "AlreadyAttached",
    "ApprovalNotFound",
    "AskNotFound",
    "AsyncClient",
    "AsyncEventStream",
    "AsyncMonitor",
    "AsyncSession",
    "Client",
    "CmdcError",
    "CollectTimeout",
    "CommandTimeout",
    "Context",
    "DaemonUnavailable",
    "Down",
    "DownReason",
    "Envelope",
    "EventStream",
    "InvalidOptions",
    "InvalidSession",
    "InvalidText",
    "InvalidTool",
    "Message",
    "Monitor",
    "Options",
    "Overloaded",
    "PromptReceipt",
    "ProtocolError",
    "QueueFull",
    "Reply",
    "Session",
    "SessionError",
    "SessionExists",
    "SessionNotAlive",
    "StartFailed",
    "Status",
    "SteeringRejected",
    "TokenUsage",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolNotFound",
    "ToolValidationFailed",
    "TransientError",
    "TreeNode",
    "UsageError",
    "__version__",
    "abort",
    "agent_pid",
    "aio",
    "collect_reply",
    "create_agent",
    "demonitor",
    "events",
    "last_index",
    "list_sessions",
    "messages",
    "monitor",
    "prompt",
    "reasons",
    "run",
    "session_id",
    "status",
    "stop",
    "subscribe",
    "subscribe_all",
    "tool",
    "tools",
    "tree",
    "unsubscribe",
]
