"""Adaptive: begin with the cheapest strategy, and take a dearer one where answers do not agree.

CMDC_MODEL=openai:gpt-4o-mini python examples/14_adaptive.py
"""

import os

import cmdc_runtime as cmdc


def adaptive(question: str, model: str) -> cmdc.reasoning.ReasoningResult:
    """Return what the run came to."""
    strategy = cmdc.reasoning.Adaptive(probes=2)
    return cmdc.Runner.run(strategy, question, model=model, budget_tokens=200_000, max_steps=30)


for question in ("What is six times seven?", "What is the best colour?"):
    result = adaptive(question, os.environ["CMDC_MODEL"])
    print(f"{question} {result.answer} ({result.status}, {result.branches} branches)")
