"""Several samples, and the answer that most of them give; it ends when that is decided."""

import msgspec

from cmdc_runtime import reasoning
from cmdc_runtime.extensions.reasoning import (
    Branch,
    Decision,
    Done,
    Failed,
    ReasoningContext,
    ReasoningStrategy,
    Thought,
)
from cmdc_runtime.reasoning import search
from cmdc_runtime.reasoning.search import Tally
from workers.builtin.reasoning._texts import prompt


class SampleState(msgspec.Struct):
    """What is asked."""

    question: str


class SelfConsistency(ReasoningStrategy):
    """Draws samples and has them vote."""

    name = "self_consistency"
    Config = reasoning.SelfConsistency

    def init(self, opts: reasoning.SelfConsistency, context: ReasoningContext) -> SampleState:  # noqa: ARG002
        """Begin with the question."""
        return SampleState(context.question)

    def step(self, state: SampleState, context: ReasoningContext) -> Decision:  # noqa: ARG002
        """Ask for all samples at once."""
        return [Branch(prompt(state.question, self.opts.prompt)) for _ in range(self.opts.samples)]

    def early(self, thoughts: list[Thought], state: SampleState) -> Decision | None:  # noqa: ARG002
        """End when the samples that are missing cannot change the majority."""
        if self.opts.score is not None:
            return None  # nobody knows how much the others will weigh
        votes = self.votes(thoughts)
        is_decided = search.decided(votes, self.opts.samples - len(thoughts))
        return Done(votes[0].answer) if is_decided else None

    def aggregate(self, thoughts: list[Thought], state: SampleState) -> Decision:
        """Count the votes."""
        if self.opts.score is not None:
            thoughts = search.score(
                thoughts, lambda one: float(self.opts.score(one.content, state.question))
            )
            self.scored([one for one in thoughts if one.score is not None])
        votes = self.votes(thoughts)
        if not votes:
            errors = [one.error for one in thoughts if one.error is not None]
            return Failed(f"no sample has an answer: {errors[0] if errors else 'all are empty'}")
        return Done(votes[0].answer)

    def best(self, thoughts: tuple[Thought, ...], state: SampleState) -> str | None:  # noqa: ARG002
        """Return the majority of those that are there."""
        votes = self.votes(thoughts)
        return votes[0].answer if votes else None

    def votes(self, thoughts: list[Thought] | tuple[Thought, ...]) -> tuple[Tally, ...]:
        """Return the answers with their votes, as the options say."""
        return search.vote(
            thoughts,
            answer_of=self.opts.answer or search.final_answer,
            weighted=self.opts.score is not None,
        )


create = SelfConsistency
