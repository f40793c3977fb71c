"""OTP for LLM agents: one supervised process per session, and nothing acknowledged is lost.

``import cmdc_runtime as cmdc``. This is the whole public API; what is not named here is ours.

A name is loaded when it is first used, so that the import stays quick: ``homes`` says from where.
To add a name: its import below, for type checkers, its place in ``HOMES`` there, and in the list
of public names; a test compares the three.
"""

import importlib
from typing import TYPE_CHECKING, Any

import cmdc_runtime.messages as _messages
from cmdc_runtime.homes import HOME_OF, MODULES
from cmdc_runtime.version import VERSION as __version__  # noqa: N811 - Python's own name for it

if TYPE_CHECKING:
    from cmdc_runtime import aio, backends, events, plugins, reasoning, reasons, stores, tools
    from cmdc_runtime.blueprint import (
        Blueprint,
    )
    from cmdc_runtime.checkpoints import (
        Snapshot,
    )
    from cmdc_runtime.client.async_client import (
        AsyncClient,
    )
    from cmdc_runtime.client.calls import (
        Reply,
    )
    from cmdc_runtime.client.client import (
        Client,
    )
    from cmdc_runtime.client.default import (
        abort,
        agent_pid,
        approve,
        attach_plugin,
        attach_tool,
        attach_tools,
        checkpoint,
        collect_reply,
        create_agent,
        delete_checkpoint,
        demonitor,
        detach_plugin,
        detach_tool,
        detach_tools,
        last_index,
        list_checkpoints,
        list_sessions,
        load_checkpoint,
        messages,
        monitor,
        prompt,
        reject,
        replace_tools,
        resume_session,
        run,
        session_id,
        status,
        steer,
        stop,
        stream,
        stream_events,
        subscribe,
        subscribe_all,
        subscribe_group,
        switch_model,
        tree,
        unsubscribe,
        update_plugin,
        user_respond,
    )
    from cmdc_runtime.client.monitors import (
        AsyncMonitor,
        Monitor,
    )
    from cmdc_runtime.client.parallel import (
        Parallel,
    )
    from cmdc_runtime.client.runner import (
        Runner,
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
        ToolsDiff,
    )
    from cmdc_runtime.errors import (
        AccessDenied,
        AgentAborted,
        AgentFailed,
        AlreadyAttached,
        ApprovalNotFound,
        AskNotFound,
        Busy,
        CheckpointFailed,
        CheckpointNotFound,
        CheckpointUnreadable,
        CmdcError,
        CollectTimeout,
        CommandTimeout,
        DaemonUnavailable,
        InvalidOptions,
        InvalidSession,
        InvalidText,
        InvalidTool,
        Overloaded,
        PluginNotFound,
        ProtocolError,
        QueueFull,
        SessionError,
        SessionExists,
        SessionNotAlive,
        SessionParked,
        StartFailed,
        SteeringRejected,
        StorageFull,
        ToolNotFound,
        ToolValidationFailed,
        TransientError,
        UsageError,
    )
    from cmdc_runtime.events import (
        Envelope,
    )
    from cmdc_runtime.extensions import (
        Context,
        Tool,
        ToolError,
        tool,
    )
    from cmdc_runtime.extensions.actions import (
        Abort,
        BlockTool,
        Continue,
        Emit,
        Intervene,
        ReplaceMessages,
        ReplaceToolArgs,
        ReplaceToolResult,
        Skip,
        SwitchModel,
    )
    from cmdc_runtime.extensions.hooks import (
        AfterResponse,
        AfterTool,
        AfterToolBatch,
        AfterTurn,
        BeforeCompact,
        BeforeFinish,
        BeforePrompt,
        BeforeRequest,
        BeforeSteering,
        BeforeTool,
        OnToolError,
        SessionEnd,
        SessionStart,
    )
    from cmdc_runtime.extensions.kernel_emits import (
        DecideApproval,
        MemoryContents,
        MetadataUpdate,
        RequireApproval,
        SyntheticResult,
        SyntheticToolResults,
        UpdateMessageMetadata,
        UpdateSystemContext,
    )
    from cmdc_runtime.extensions.memory import (
        Memory,
        MemoryStore,
        MemoryStoreError,
    )
    from cmdc_runtime.extensions.plugin import (
        PipelineRun,
        Plugin,
        TextFilter,
        hook,
    )
    from cmdc_runtime.extensions.plugin_context import (
        PluginCallError,
        PluginContext,
    )
    from cmdc_runtime.extensions.reasoning import (
        Branch,
        Continue_,
        Done,
        Failed,
        ReasoningContext,
        ReasoningStrategy,
        Revise,
        Thought,
    )
    from cmdc_runtime.extensions.tool import (
        Effect,
    )
    from cmdc_runtime.messages import (
        Message,
        TokenUsage,
        ToolCall,
    )
    from cmdc_runtime.options import (
        Options,
    )
    from cmdc_runtime.plan import (
        IllegalTransition,
        Plan,
        PlanStep,
    )
    from cmdc_runtime.reasons import (
        Down,
        DownReason,
    )
    from cmdc_runtime.requests import (
        TreeNode,
    )
    from cmdc_runtime.subagent import (
        SubAgent,
    )


# The import of a submodule binds its name here: the call ``messages`` comes first.
del _messages, globals()["messages"]


def __getattr__(name: str) -> Any:  # Any: whatever the name stands for
    """Load a public name."""
    if name in MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)


__all__ = [
    "Abort",
    "AccessDenied",
    "AfterResponse",
    "AfterTool",
    "AfterToolBatch",
    "AfterTurn",
    "AgentAborted",
    "AgentFailed",
    "AlreadyAttached",
    "ApprovalNotFound",
    "AskNotFound",
    "AsyncClient",
    "AsyncEventStream",
    "AsyncMonitor",
    "AsyncSession",
    "BeforeCompact",
    "BeforeFinish",
    "BeforePrompt",
    "BeforeRequest",
    "BeforeSteering",
    "BeforeTool",
    "BlockTool",
    "Blueprint",
    "Branch",
    "Busy",
    "CheckpointFailed",
    "CheckpointNotFound",
    "CheckpointUnreadable",
    "Client",
    "CmdcError",
    "CollectTimeout",
    "CommandTimeout",
    "Context",
    "Continue",
    "Continue_",
    "DaemonUnavailable",
    "DecideApproval",
    "Done",
    "Down",
    "DownReason",
    "Effect",
    "Emit",
    "Envelope",
    "EventStream",
    "Failed",
    "IllegalTransition",
    "Intervene",
    "InvalidOptions",
    "InvalidSession",
    "InvalidText",
    "InvalidTool",
    "Memory",
    "MemoryContents",
    "MemoryStore",
    "MemoryStoreError",
    "Message",
    "MetadataUpdate",
    "Monitor",
    "OnToolError",
    "Options",
    "Overloaded",
    "Parallel",
    "PipelineRun",
    "Plan",
    "PlanStep",
    "Plugin",
    "PluginCallError",
    "PluginContext",
    "PluginNotFound",
    "PromptReceipt",
    "ProtocolError",
    "QueueFull",
    "ReasoningContext",
    "ReasoningStrategy",
    "ReplaceMessages",
    "ReplaceToolArgs",
    "ReplaceToolResult",
    "Reply",
    "RequireApproval",
    "Revise",
    "Runner",
    "Session",
    "SessionEnd",
    "SessionError",
    "SessionExists",
    "SessionNotAlive",
    "SessionParked",
    "SessionStart",
    "Skip",
    "Snapshot",
    "StartFailed",
    "Status",
    "SteeringRejected",
    "StorageFull",
    "SubAgent",
    "SwitchModel",
    "SyntheticResult",
    "SyntheticToolResults",
    "TextFilter",
    "Thought",
    "TokenUsage",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolNotFound",
    "ToolValidationFailed",
    "ToolsDiff",
    "TransientError",
    "TreeNode",
    "UpdateMessageMetadata",
    "UpdateSystemContext",
    "UsageError",
    "__version__",
    "abort",
    "agent_pid",
    "aio",
    "approve",
    "attach_plugin",
    "attach_tool",
    "attach_tools",
    "backends",
    "checkpoint",
    "collect_reply",
    "create_agent",
    "delete_checkpoint",
    "demonitor",
    "detach_plugin",
    "detach_tool",
    "detach_tools",
    "events",
    "hook",
    "last_index",
    "list_checkpoints",
    "list_sessions",
    "load_checkpoint",
    "messages",
    "monitor",
    "plugins",
    "prompt",
    "reasoning",
    "reasons",
    "reject",
    "replace_tools",
    "resume_session",
    "run",
    "session_id",
    "status",
    "steer",
    "stop",
    "stores",
    "stream",
    "stream_events",
    "subscribe",
    "subscribe_all",
    "subscribe_group",
    "switch_model",
    "tool",
    "tools",
    "tree",
    "unsubscribe",
    "update_plugin",
    "user_respond",
]
