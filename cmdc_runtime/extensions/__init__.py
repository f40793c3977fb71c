"""What third parties implement; re-exports without logic."""

from cmdc_runtime.extensions.context import Context, ToolContext
from cmdc_runtime.extensions.provider import ToolSpec
from cmdc_runtime.extensions.tool import (
    Effects,
    FunctionTool,
    Isolation,
    Tool,
    ToolError,
    as_tool,
    tool,
)

__all__ = [
    "Context",
    "Effects",
    "FunctionTool",
    "Isolation",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolSpec",
    "as_tool",
    "tool",
]
