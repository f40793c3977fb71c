"""What third parties implement; re-exports without logic."""

from cmdc_runtime.extensions.context import BranchAnswer, Context, SessionPort, ToolContext
from cmdc_runtime.extensions.provider import ToolSpec
from cmdc_runtime.extensions.tool import (
    Answer,
    Effect,
    Effects,
    FunctionTool,
    Isolation,
    NeedsApproval,
    Tool,
    Where,
    as_tool,
    tool,
)
from cmdc_runtime.extensions.tool_error import OtherBranchError, ToolError

__all__ = [
    "Answer",
    "BranchAnswer",
    "Context",
    "Effect",
    "Effects",
    "FunctionTool",
    "Isolation",
    "NeedsApproval",
    "OtherBranchError",
    "SessionPort",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolSpec",
    "Where",
    "as_tool",
    "tool",
]
