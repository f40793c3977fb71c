"""What third parties implement; re-exports without logic."""

from cmdc_runtime.extensions.context import Context, SessionPort, ToolContext
from cmdc_runtime.extensions.provider import ToolSpec
from cmdc_runtime.extensions.tool import (
    Answer,
    Effect,
    Effects,
    FunctionTool,
    Isolation,
    NeedsApproval,
    Tool,
    ToolError,
    as_tool,
    tool,
)

__all__ = [
    "Answer",
    "Context",
    "Effect",
    "Effects",
    "FunctionTool",
    "Isolation",
    "NeedsApproval",
    "SessionPort",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolSpec",
    "as_tool",
    "tool",
]
