"""Refine: a draft, feedback on it, a better draft, until there is nothing left to improve.

CMDC_MODEL=openai:gpt-4o-mini python examples/12_refine.py
"""

import os

import cmdc_runtime as cmdc
from cmdc_runtime.events import ReasoningThought


def refine(task: str, model: str, times: int = 2) -> str:
    """Return the last draft; all of them are shown as they come."""

    def show(event: object) -> None:
        if isinstance(event, ReasoningThought):
            print(f"- {event.content}")

    strategy = cmdc.reasoning.SelfRefine(revisions=times)
    result = cmdc.Runner.run(strategy, task, model=model, on_event=show, timeout=120.0)
    return str(result.answer)


print(refine("Write a slogan for a bakery.", os.environ["CMDC_MODEL"]))
