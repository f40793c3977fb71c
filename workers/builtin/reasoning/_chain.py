"""What the chains have in common: one branch for each phase, each reads what the last one wrote."""

import msgspec

from cmdc_runtime.extensions.reasoning import (
    Branch,
    Decision,
    Done,
    Failed,
    ReasoningContext,
    ReasoningStrategy,
    Thought,
)
from cmdc_runtime.reasoning.chains import ChainStrategy
from workers.builtin.reasoning._texts import prompt


class ChainState(msgspec.Struct):
    """How far the chain is."""

    question: str
    phase: int = 0


class ChainRunner(ReasoningStrategy):
    """Base of the strategies that are chains."""

    name = "chain"

    def init(self, opts: ChainStrategy, context: ReasoningContext) -> ChainState:  # noqa: ARG002
        """Begin with the question."""
        return ChainState(context.question)

    def step(self, state: ChainState, context: ReasoningContext) -> Decision:  # noqa: ARG002
        """Ask for the first phase."""
        return Branch(prompt(state.question, self.opts.phases[0]))

    def aggregate(self, thoughts: list[Thought], state: ChainState) -> Decision:
        """Ask for the next phase, with what was written so far; the last one is the answer."""
        thought, phases = thoughts[0], self.opts.phases
        if thought.error is not None:
            return Failed(thought.error)
        state.phase += 1
        if state.phase == len(phases):
            return Done(thought.content)
        text = prompt(state.question, thought.content, phases[state.phase])
        return Branch(text, parent_id=thought.id)
