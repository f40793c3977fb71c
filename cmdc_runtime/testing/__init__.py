"""For people who test their agents: models that answer, and fail, exactly as a test says."""

from cmdc_runtime.testing.scripted import ScriptedModel
from cmdc_runtime.testing.steps import (
    Answer,
    Delay,
    Disconnect,
    Error,
    Hold,
    Piece,
    Request,
    Sequence,
    Stall,
    Step,
    Text,
    Thinking,
    ToolCalls,
    ToolUse,
    Truncate,
)

__all__ = [
    "Answer",
    "Delay",
    "Disconnect",
    "Error",
    "Hold",
    "Piece",
    "Request",
    "ScriptedModel",
    "Sequence",
    "Stall",
    "Step",
    "Text",
    "Thinking",
    "ToolCalls",
    "ToolUse",
    "Truncate",
]
