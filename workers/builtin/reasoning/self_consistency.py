"""Several samples, and the answer that most of them give; it ends when that is decided."""

from typing import Final

import msgspec

from cmdc_runtime import reasoning
from cmdc_runtime.extensions.reasoning import (
    JUDGE,
    OUTPUT,
    ROLE,
    Branch,
    Decision,
    Done,
    Failed,
    ReasoningContext,
    Thought,
)
from cmdc_runtime.reasoning import search
from cmdc_runtime.reasoning.search import Tally
from cmdc_runtime.reasoning.strategies import VALUE_MAX, Judgement
from workers.builtin.reasoning._chain import prompt
from workers.builtin.reasoning._functions import FunctionStrategy, nothing_scored

_OF: Final = "of"


class SampleState(msgspec.Struct):
    """What is asked."""

    question: str
    samples: list[Thought] = []
    """Those that judges are asked about."""


class SelfConsistency(FunctionStrategy):
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
        if self._is_weighted:
            return None  # nobody knows how much the others will weigh
        votes = self.votes(thoughts)
        is_decided = search.decided(votes, self.opts.samples - len(thoughts))
        return Done(votes[0].answer) if is_decided else None

    def aggregate(self, thoughts: list[Thought], state: SampleState) -> Decision:
        """Count the votes, when they are weighed."""
        if thoughts[0].metadata.get(ROLE) == JUDGE:
            scores = _weights(thoughts)
            if failed := nothing_scored(scores, thoughts):
                return failed
            thoughts = self._with_scores(state.samples, scores)
        elif self.opts.judge is not None:
            state.samples = [one for one in thoughts if one.error is None]
            if state.samples:
                return [self._judge(one, state) for one in state.samples]
        elif self.opts.score is not None:
            sound = [one for one in thoughts if one.error is None]
            said = {one.id: self.opts.score(one.content, state.question) for one in sound}
            if sound and (failed := nothing_scored(said)):
                return failed
            thoughts = self._with_scores(thoughts, said)
        votes = self.votes(thoughts)
        if not votes:
            errors = [one.error for one in thoughts if one.error is not None]
            return Failed(f"no sample has an answer: {errors[0] if errors else 'all are empty'}")
        return Done(votes[0].answer)

    def best(self, thoughts: tuple[Thought, ...], state: SampleState) -> str | None:  # noqa: ARG002
        """Return the majority of those that are there."""
        votes = self.votes([one for one in thoughts if one.metadata.get(ROLE) != JUDGE])
        return votes[0].answer if votes else None

    @property
    def _is_weighted(self) -> bool:
        return self.opts.score is not None or self.opts.judge is not None

    def _judge(self, sample: Thought, state: SampleState) -> Branch:
        return Branch(
            prompt(state.question, f"Solution:\n{sample.content}", self.opts.judge_prompt),
            parent_id=sample.id,
            metadata={ROLE: JUDGE, _OF: sample.id},
            model=self.opts.judge,
            result=Judgement,
        )

    def _with_scores(
        self, samples: list[Thought], scores: dict[str, search.Scored | None]
    ) -> list[Thought]:
        """Return the samples with their scores; one without has no vote."""
        scored = search.score(samples, scores)
        self.scored([one for one in scored if one.score is not None])
        return scored

    def votes(self, thoughts: list[Thought] | tuple[Thought, ...]) -> tuple[Tally, ...]:
        """Return the answers with their votes, as the options say."""
        return search.vote(
            thoughts,
            answer_of=self.opts.answer or search.final_answer,
            weighted=self._is_weighted,
        )


def _weights(judges: list[Thought]) -> dict[str, search.Scored | None]:
    """Return what judges say of samples, by their ids."""
    sound = [one.metadata for one in judges if one.error is None]
    return {facts[_OF]: facts[OUTPUT].score / VALUE_MAX for facts in sound}


create = SelfConsistency
