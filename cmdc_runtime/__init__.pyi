# Made by `make sync` of cmdc_runtime/exports.py: change that, not this.
from cmdc_runtime import (
    aio as aio,
)
from cmdc_runtime import (
    backends as backends,
)
from cmdc_runtime import (
    events as events,
)
from cmdc_runtime import (
    plugins as plugins,
)
from cmdc_runtime import (
    reasoning as reasoning,
)
from cmdc_runtime import (
    reasons as reasons,
)
from cmdc_runtime import (
    stores as stores,
)
from cmdc_runtime import (
    tools as tools,
)
from cmdc_runtime.blueprint import Blueprint as Blueprint
from cmdc_runtime.checkpoints import Snapshot as Snapshot
from cmdc_runtime.client.exchange import Reply as Reply
from cmdc_runtime.client.functions import (
    abort as abort,
)
from cmdc_runtime.client.functions import (
    agent_pid as agent_pid,
)
from cmdc_runtime.client.functions import (
    approve as approve,
)
from cmdc_runtime.client.functions import (
    attach_plugin as attach_plugin,
)
from cmdc_runtime.client.functions import (
    attach_tool as attach_tool,
)
from cmdc_runtime.client.functions import (
    attach_tools as attach_tools,
)
from cmdc_runtime.client.functions import (
    checkpoint as checkpoint,
)
from cmdc_runtime.client.functions import (
    collect_reply as collect_reply,
)
from cmdc_runtime.client.functions import (
    create_agent as create_agent,
)
from cmdc_runtime.client.functions import (
    delete_checkpoint as delete_checkpoint,
)
from cmdc_runtime.client.functions import (
    demonitor as demonitor,
)
from cmdc_runtime.client.functions import (
    detach_plugin as detach_plugin,
)
from cmdc_runtime.client.functions import (
    detach_tool as detach_tool,
)
from cmdc_runtime.client.functions import (
    detach_tools as detach_tools,
)
from cmdc_runtime.client.functions import (
    last_index as last_index,
)
from cmdc_runtime.client.functions import (
    list_checkpoints as list_checkpoints,
)
from cmdc_runtime.client.functions import (
    list_sessions as list_sessions,
)
from cmdc_runtime.client.functions import (
    load_checkpoint as load_checkpoint,
)
from cmdc_runtime.client.functions import (
    messages as messages,
)
from cmdc_runtime.client.functions import (
    monitor as monitor,
)
from cmdc_runtime.client.functions import (
    prompt as prompt,
)
from cmdc_runtime.client.functions import (
    reject as reject,
)
from cmdc_runtime.client.functions import (
    replace_tools as replace_tools,
)
from cmdc_runtime.client.functions import (
    resume_session as resume_session,
)
from cmdc_runtime.client.functions import (
    run as run,
)
from cmdc_runtime.client.functions import (
    session_id as session_id,
)
from cmdc_runtime.client.functions import (
    status as status,
)
from cmdc_runtime.client.functions import (
    steer as steer,
)
from cmdc_runtime.client.functions import (
    stop as stop,
)
from cmdc_runtime.client.functions import (
    stream as stream,
)
from cmdc_runtime.client.functions import (
    stream_events as stream_events,
)
from cmdc_runtime.client.functions import (
    subscribe as subscribe,
)
from cmdc_runtime.client.functions import (
    subscribe_all as subscribe_all,
)
from cmdc_runtime.client.functions import (
    subscribe_group as subscribe_group,
)
from cmdc_runtime.client.functions import (
    switch_model as switch_model,
)
from cmdc_runtime.client.functions import (
    tree as tree,
)
from cmdc_runtime.client.functions import (
    unsubscribe as unsubscribe,
)
from cmdc_runtime.client.functions import (
    update_plugin as update_plugin,
)
from cmdc_runtime.client.functions import (
    user_respond as user_respond,
)
from cmdc_runtime.client.session import AsyncClient as AsyncClient
from cmdc_runtime.client.session import AsyncSession as AsyncSession
from cmdc_runtime.client.stream import (
    AsyncEventStream as AsyncEventStream,
)
from cmdc_runtime.client.stream import (
    AsyncMonitor as AsyncMonitor,
)
from cmdc_runtime.client.sync.parallel import Parallel as Parallel
from cmdc_runtime.client.sync.runner import Runner as Runner
from cmdc_runtime.client.sync.session import Client as Client
from cmdc_runtime.client.sync.session import Session as Session
from cmdc_runtime.client.sync.stream import EventStream as EventStream
from cmdc_runtime.client.sync.stream import Monitor as Monitor
from cmdc_runtime.commands import (
    PromptReceipt as PromptReceipt,
)
from cmdc_runtime.commands import (
    Status as Status,
)
from cmdc_runtime.commands import (
    ToolsDiff as ToolsDiff,
)
from cmdc_runtime.errors import (
    AccessDenied as AccessDenied,
)
from cmdc_runtime.errors import (
    AgentAborted as AgentAborted,
)
from cmdc_runtime.errors import (
    AgentFailed as AgentFailed,
)
from cmdc_runtime.errors import (
    AlreadyAttached as AlreadyAttached,
)
from cmdc_runtime.errors import (
    ApprovalNotFound as ApprovalNotFound,
)
from cmdc_runtime.errors import (
    AskNotFound as AskNotFound,
)
from cmdc_runtime.errors import (
    Busy as Busy,
)
from cmdc_runtime.errors import (
    CheckpointFailed as CheckpointFailed,
)
from cmdc_runtime.errors import (
    CheckpointNotFound as CheckpointNotFound,
)
from cmdc_runtime.errors import (
    CheckpointUnreadable as CheckpointUnreadable,
)
from cmdc_runtime.errors import (
    CmdcError as CmdcError,
)
from cmdc_runtime.errors import (
    CollectTimeout as CollectTimeout,
)
from cmdc_runtime.errors import (
    CommandTimeout as CommandTimeout,
)
from cmdc_runtime.errors import (
    DaemonUnavailable as DaemonUnavailable,
)
from cmdc_runtime.errors import (
    InvalidOptions as InvalidOptions,
)
from cmdc_runtime.errors import (
    InvalidSession as InvalidSession,
)
from cmdc_runtime.errors import (
    InvalidText as InvalidText,
)
from cmdc_runtime.errors import (
    InvalidTool as InvalidTool,
)
from cmdc_runtime.errors import (
    Overloaded as Overloaded,
)
from cmdc_runtime.errors import (
    PluginNotFound as PluginNotFound,
)
from cmdc_runtime.errors import (
    ProtocolError as ProtocolError,
)
from cmdc_runtime.errors import (
    QueueFull as QueueFull,
)
from cmdc_runtime.errors import (
    SessionError as SessionError,
)
from cmdc_runtime.errors import (
    SessionExists as SessionExists,
)
from cmdc_runtime.errors import (
    SessionNotAlive as SessionNotAlive,
)
from cmdc_runtime.errors import (
    SessionParked as SessionParked,
)
from cmdc_runtime.errors import (
    StartFailed as StartFailed,
)
from cmdc_runtime.errors import (
    SteeringRejected as SteeringRejected,
)
from cmdc_runtime.errors import (
    StorageFull as StorageFull,
)
from cmdc_runtime.errors import (
    ToolNotFound as ToolNotFound,
)
from cmdc_runtime.errors import (
    ToolValidationFailed as ToolValidationFailed,
)
from cmdc_runtime.errors import (
    TransientError as TransientError,
)
from cmdc_runtime.errors import (
    UsageError as UsageError,
)
from cmdc_runtime.events import Envelope as Envelope
from cmdc_runtime.extensions import (
    Context as Context,
)
from cmdc_runtime.extensions import (
    Tool as Tool,
)
from cmdc_runtime.extensions import (
    ToolError as ToolError,
)
from cmdc_runtime.extensions import (
    tool as tool,
)
from cmdc_runtime.extensions.actions import (
    Abort as Abort,
)
from cmdc_runtime.extensions.actions import (
    BlockTool as BlockTool,
)
from cmdc_runtime.extensions.actions import (
    Continue as Continue,
)
from cmdc_runtime.extensions.actions import (
    Emit as Emit,
)
from cmdc_runtime.extensions.actions import (
    Intervene as Intervene,
)
from cmdc_runtime.extensions.actions import (
    ReplaceMessages as ReplaceMessages,
)
from cmdc_runtime.extensions.actions import (
    ReplaceToolArgs as ReplaceToolArgs,
)
from cmdc_runtime.extensions.actions import (
    ReplaceToolResult as ReplaceToolResult,
)
from cmdc_runtime.extensions.actions import (
    Skip as Skip,
)
from cmdc_runtime.extensions.actions import (
    SwitchModel as SwitchModel,
)
from cmdc_runtime.extensions.hooks import (
    AfterResponse as AfterResponse,
)
from cmdc_runtime.extensions.hooks import (
    AfterTool as AfterTool,
)
from cmdc_runtime.extensions.hooks import (
    AfterToolBatch as AfterToolBatch,
)
from cmdc_runtime.extensions.hooks import (
    AfterTurn as AfterTurn,
)
from cmdc_runtime.extensions.hooks import (
    BeforeCompact as BeforeCompact,
)
from cmdc_runtime.extensions.hooks import (
    BeforeFinish as BeforeFinish,
)
from cmdc_runtime.extensions.hooks import (
    BeforePrompt as BeforePrompt,
)
from cmdc_runtime.extensions.hooks import (
    BeforeRequest as BeforeRequest,
)
from cmdc_runtime.extensions.hooks import (
    BeforeSteering as BeforeSteering,
)
from cmdc_runtime.extensions.hooks import (
    BeforeTool as BeforeTool,
)
from cmdc_runtime.extensions.hooks import (
    OnToolError as OnToolError,
)
from cmdc_runtime.extensions.hooks import (
    SessionEnd as SessionEnd,
)
from cmdc_runtime.extensions.hooks import (
    SessionStart as SessionStart,
)
from cmdc_runtime.extensions.kernel_emits import (
    DecideApproval as DecideApproval,
)
from cmdc_runtime.extensions.kernel_emits import (
    MemoryContents as MemoryContents,
)
from cmdc_runtime.extensions.kernel_emits import (
    MetadataUpdate as MetadataUpdate,
)
from cmdc_runtime.extensions.kernel_emits import (
    RequireApproval as RequireApproval,
)
from cmdc_runtime.extensions.kernel_emits import (
    SyntheticResult as SyntheticResult,
)
from cmdc_runtime.extensions.kernel_emits import (
    SyntheticToolResults as SyntheticToolResults,
)
from cmdc_runtime.extensions.kernel_emits import (
    UpdateMessageMetadata as UpdateMessageMetadata,
)
from cmdc_runtime.extensions.kernel_emits import (
    UpdateSystemContext as UpdateSystemContext,
)
from cmdc_runtime.extensions.memory import (
    Memory as Memory,
)
from cmdc_runtime.extensions.memory import (
    MemoryStore as MemoryStore,
)
from cmdc_runtime.extensions.memory import (
    MemoryStoreError as MemoryStoreError,
)
from cmdc_runtime.extensions.plugin import (
    PipelineRun as PipelineRun,
)
from cmdc_runtime.extensions.plugin import (
    Plugin as Plugin,
)
from cmdc_runtime.extensions.plugin import (
    TextFilter as TextFilter,
)
from cmdc_runtime.extensions.plugin import (
    hook as hook,
)
from cmdc_runtime.extensions.plugin_context import (
    PluginCallError as PluginCallError,
)
from cmdc_runtime.extensions.plugin_context import (
    PluginContext as PluginContext,
)
from cmdc_runtime.extensions.reasoning import (
    Branch as Branch,
)
from cmdc_runtime.extensions.reasoning import (
    Continue_ as Continue_,
)
from cmdc_runtime.extensions.reasoning import (
    Done as Done,
)
from cmdc_runtime.extensions.reasoning import (
    Failed as Failed,
)
from cmdc_runtime.extensions.reasoning import (
    ReasoningContext as ReasoningContext,
)
from cmdc_runtime.extensions.reasoning import (
    ReasoningStrategy as ReasoningStrategy,
)
from cmdc_runtime.extensions.reasoning import (
    Revise as Revise,
)
from cmdc_runtime.extensions.reasoning import (
    Thought as Thought,
)
from cmdc_runtime.extensions.tool import Effect as Effect
from cmdc_runtime.messages import Message as Message
from cmdc_runtime.messages import TokenUsage as TokenUsage
from cmdc_runtime.messages import ToolCall as ToolCall
from cmdc_runtime.options import Options as Options
from cmdc_runtime.plan import (
    IllegalTransition as IllegalTransition,
)
from cmdc_runtime.plan import (
    Plan as Plan,
)
from cmdc_runtime.plan import (
    PlanStep as PlanStep,
)
from cmdc_runtime.reasons import Down as Down
from cmdc_runtime.reasons import DownReason as DownReason
from cmdc_runtime.requests import TreeNode as TreeNode
from cmdc_runtime.subagent import SubAgent as SubAgent

__version__: str
