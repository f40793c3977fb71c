"""The built-in plugins by name: ``plugins=[cmdc.plugins.CostGuard(max_cost_usd=1.0)]``.

These are light references: an application imports no worker code. A reference is at the same time
the ``Config`` of the plugin in ``workers.builtin.plugins.<short_name>``, so its fields, bounds and
defaults stand here only, in the module of those that do alike: ``guards``, ``conversation``,
``thinking``, ``observers``.
"""

from cmdc_runtime.plugins.conversation import (
    AutoCheckpoint,
    EpisodicMemory,
    LargeResultOffload,
    MemoryFlush,
    MemoryLoader,
    PatchToolCalls,
    PromptCache,
    Recovery,
    Skills,
)
from cmdc_runtime.plugins.guards import (
    ContentPolicy,
    CostGuard,
    HumanApproval,
    OutputFilter,
    SecurityGuard,
    SkillGuard,
)
from cmdc_runtime.plugins.observers import EventLogger, Telemetry
from cmdc_runtime.plugins.thinking import ModelRouter, Planning, Reasoning, Reflection

__all__ = [
    "AutoCheckpoint",
    "ContentPolicy",
    "CostGuard",
    "EpisodicMemory",
    "EventLogger",
    "HumanApproval",
    "LargeResultOffload",
    "MemoryFlush",
    "MemoryLoader",
    "ModelRouter",
    "OutputFilter",
    "PatchToolCalls",
    "Planning",
    "PromptCache",
    "Reasoning",
    "Recovery",
    "Reflection",
    "SecurityGuard",
    "SkillGuard",
    "Skills",
    "Telemetry",
]
