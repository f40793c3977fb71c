"""Reasoning by strategies: ``reasoning_strategy=cmdc.reasoning.TreeOfThoughts(depth=3)``.

These are light references: an application imports no worker code. A reference is at the same time
the ``Config`` of the strategy in ``workers.builtin.reasoning.<short_name>``, so its fields, bounds
and defaults stand here only. ``search`` has what strategies are made of, ``ReasoningResult`` is
what a run came to.
"""

from cmdc_runtime.reasoning import search
from cmdc_runtime.reasoning.limits import RunLimits
from cmdc_runtime.reasoning.result import ReasoningNode, ReasoningResult
from cmdc_runtime.reasoning.strategies import (
    Adaptive,
    Aggregate,
    ChainOfThought,
    ChainStrategy,
    Generate,
    GraphOfThoughts,
    KeepBest,
    PlanAndSolve,
    Refine,
    Score,
    Select,
    SelfConsistency,
    SelfRefine,
    Split,
    StepBack,
    TreeOfThoughts,
)

__all__ = [
    "Adaptive",
    "Aggregate",
    "ChainOfThought",
    "ChainStrategy",
    "Generate",
    "GraphOfThoughts",
    "KeepBest",
    "PlanAndSolve",
    "ReasoningNode",
    "ReasoningResult",
    "Refine",
    "RunLimits",
    "Score",
    "Select",
    "SelfConsistency",
    "SelfRefine",
    "Split",
    "StepBack",
    "TreeOfThoughts",
    "search",
]
