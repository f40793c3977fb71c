"""What the chains have in common: one branch for each phase, each reads what the last one wrote.

How prompts of branches are put together, and options filled into them, is common to all strategies.
"""

from collections.abc import Sequence

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
from cmdc_runtime.reasoning.strategies import ChainStrategy

# --- prompts --------------------------------------------------------------------------------------


def prompt(question: str, *parts: str) -> str:
    """Return the question with what belongs to it below, each part apart."""
    return "\n\n".join(part for part in (question, *parts) if part)


def filled(template: str, **values: object) -> str:
    """Return a template with ``{name}`` replaced; other braces stay as they are."""
    for name, value in values.items():
        template = template.replace("{" + name + "}", str(value))
    return template


def listed(title: str, texts: Sequence[str]) -> str:
    """Return texts under a title with their numbers, "" where there are none."""
    if not texts:
        return ""
    return "\n\n".join(f"{title} {number}:\n{text}" for number, text in enumerate(texts, 1))


# --- chains ---------------------------------------------------------------------------------------


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
