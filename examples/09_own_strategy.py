"""A strategy of one's own: two sides plead, a judge decides, and says it again where in doubt.

CMDC_MODEL=openai:gpt-4o-mini python examples/09_own_strategy.py
"""

import os

import msgspec

import cmdc_runtime as cmdc
from cmdc_runtime.extensions.reasoning import Decision


class Verdict(msgspec.Struct):
    """What the judge answers."""

    answer: str
    is_sure: bool


class Trial(cmdc.ReasoningStrategy):
    """Two pleas, then a verdict."""

    def step(self, _state: object, context: cmdc.ReasoningContext) -> Decision:
        """Have both sides plead at a time."""
        return [cmdc.Branch(f"Plead {one}: {context.question}", id=one) for one in ("pro", "con")]

    def aggregate(self, thoughts: list[cmdc.Thought], _state: object) -> Decision:
        """Go on with what has come: the pleas, or the verdict."""
        if lost := [one.error for one in thoughts if one.error]:
            return cmdc.Failed(lost[0])
        if verdict := thoughts[0].metadata.get("output"):
            return cmdc.Done(verdict.answer) if verdict.is_sure else cmdc.Revise("Be sure of it.")
        pleas = "\n".join(f"{one.id}: {one.content}" for one in thoughts)
        return cmdc.Branch(f"Judge between these:\n{pleas}", id="judge", result=Verdict)


question = "Should a small team write its own job queue?"
result = cmdc.Runner.run(Trial, question, model=os.environ["CMDC_MODEL"], budget_tokens=50_000)
print(f"{result.status}: {result.answer} ({result.branches} branches)\n{result.to_mermaid()}")
