"""A draft, feedback, a better draft, until the feedback finds nothing or the limit is reached."""

import msgspec

from cmdc_runtime import reasoning
from cmdc_runtime.extensions.reasoning import (
    JUDGE,
    ROLE,
    Branch,
    Decision,
    Done,
    Failed,
    ReasoningContext,
    ReasoningStrategy,
    Revise,
    Thought,
)
from workers.builtin.reasoning._chain import filled, prompt


class RefineState(msgspec.Struct):
    """What was written so far."""

    question: str
    drafts: list[Thought] = []
    feedback: list[str] = []

    def history(self) -> str:
        """Return all drafts with the feedback on each."""
        pairs = zip(self.drafts, self.feedback, strict=True)
        return "\n\n".join(
            f"Answer {number}:\n{draft.content}\n\nFeedback on it:\n{feedback}"
            for number, (draft, feedback) in enumerate(pairs, 1)
        )


class SelfRefine(ReasoningStrategy):
    """Drafts, reviews and refines."""

    name = "self_refine"
    Config = reasoning.SelfRefine

    def init(self, opts: reasoning.SelfRefine, context: ReasoningContext) -> RefineState:  # noqa: ARG002
        """Begin with the question."""
        return RefineState(context.question)

    def step(self, state: RefineState, context: ReasoningContext) -> Decision:  # noqa: ARG002
        """Ask for the draft."""
        return Branch(prompt(state.question, self.opts.draft_prompt))

    def aggregate(self, thoughts: list[Thought], state: RefineState) -> Decision:
        """Ask for feedback on a draft, or for a better draft; one that fails ends the loop."""
        thought = thoughts[0]
        if thought.error is not None:
            return Done(state.drafts[-1].content) if state.drafts else Failed(thought.error)
        if thought.metadata.get(ROLE) == JUDGE:
            return self._reviewed(thought, state)
        state.drafts.append(thought)
        if len(state.drafts) > self.opts.revisions:
            return Done(thought.content)
        wanted = filled(self.opts.feedback_prompt, stop=self.opts.stop)
        text = prompt(state.question, f"Answer:\n{thought.content}", wanted)
        return Branch(text, parent_id=thought.id, metadata={ROLE: JUDGE})

    def best(self, thoughts: tuple[Thought, ...], state: RefineState) -> str | None:  # noqa: ARG002
        """Return the latest draft."""
        return state.drafts[-1].content if state.drafts else None

    def _reviewed(self, feedback: Thought, state: RefineState) -> Decision:
        draft = state.drafts[-1]
        if self.opts.stop.casefold() in feedback.content.casefold():
            return Done(draft.content)
        state.feedback.append(feedback.content)
        return Revise(prompt(state.history(), self.opts.refine_prompt), (draft.id,))


create = SelfRefine
