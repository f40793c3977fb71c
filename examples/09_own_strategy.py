"""A strategy of one's own: two sides plead, a judge decides, and says it again where in doubt.

CMDC_MODEL=openai:gpt-4o-mini python examples/09_own_strategy.py
"""

import os

import msgspec

import cmdc_runtime as cmdc


class Verdict(msgspec.Struct):
    """What the judge answers."""

    answer: str
    is_sure: bool


class Trial(cmdc.ReasoningStrategy):
    """Two pleas, then a verdict."""

    SIDES = ("for", "against")

    def step(self, _state: object, context: cmdc.ReasoningContext) -> list[cmdc.Branch]:
        """Have both sides plead at a time."""
        ask = f"{context.question}\n\nIn two sentences, plead"
        return [cmdc.Branch(f"{ask} {side} it.", id=side) for side in self.SIDES]

    def aggregate(
        self, thoughts: list[cmdc.Thought], _state: object
    ) -> cmdc.Branch | cmdc.Revise | cmdc.Done | cmdc.Failed:
        """Go on with what has come: the pleas, or the verdict."""
        if lost := [one.error for one in thoughts if one.error]:
            return cmdc.Failed(lost[0])
        if thoughts[0].id in self.SIDES:
            pleas = "\n".join(f"{one.id}: {one.content}" for one in thoughts)
            return cmdc.Branch(f"Judge between these:\n{pleas}", id="judge", result=Verdict)
        verdict = thoughts[0].metadata["output"]
        return cmdc.Done(verdict.answer) if verdict.is_sure else cmdc.Revise("Make up your mind.")


question = "Should a small team write its own job queue?"
result = cmdc.Runner.run(Trial, question, model=os.environ["CMDC_MODEL"], budget_tokens=50_000)
print(f"{result.status}: {result.answer} ({result.branches} branches)")
print(result.to_mermaid())
