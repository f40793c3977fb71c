"""The built-in plugins by name: ``plugins=[cmdc.plugins.CostGuard(max_cost_usd=1.0)]``.

These are light references: an application imports no worker code. A reference is at the same time
the ``Config`` of the plugin in ``workers.builtin.plugins.<short_name>``, so its fields, bounds and
defaults stand here only, each in the module of the plugin's short name.
"""

from cmdc_runtime.plugins.auto_checkpoint import AutoCheckpoint
from cmdc_runtime.plugins.content_policy import ContentPolicy
from cmdc_runtime.plugins.cost_guard import CostGuard
from cmdc_runtime.plugins.episodic_memory import EpisodicMemory
from cmdc_runtime.plugins.event_logger import EventLogger
from cmdc_runtime.plugins.human_approval import HumanApproval
from cmdc_runtime.plugins.large_result_offload import LargeResultOffload
from cmdc_runtime.plugins.memory_flush import MemoryFlush
from cmdc_runtime.plugins.memory_loader import MemoryLoader
from cmdc_runtime.plugins.model_router import ModelRouter
from cmdc_runtime.plugins.output_filter import OutputFilter
from cmdc_runtime.plugins.patch_tool_calls import PatchToolCalls
from cmdc_runtime.plugins.planning import Planning
from cmdc_runtime.plugins.prompt_cache import PromptCache
from cmdc_runtime.plugins.reasoning import Reasoning
from cmdc_runtime.plugins.recovery import Recovery
from cmdc_runtime.plugins.reflection import Reflection
from cmdc_runtime.plugins.security_guard import SecurityGuard
from cmdc_runtime.plugins.skill_guard import SkillGuard
from cmdc_runtime.plugins.telemetry import Telemetry

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
    "Telemetry",
]
