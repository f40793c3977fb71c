"""A ladder of strategies, from the cheapest to the dearest, climbed where answers do not agree."""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from cmdc_runtime import reasoning
from cmdc_runtime.extensions.reasoning import (
    Branch,
    Continue_,
    Decided,
    Done,
    Failed,
    ReasoningContext,
    Thought,
    drained,
)
from cmdc_runtime.reasoning import search
from cmdc_runtime.reasoning.search import Tally
from workers.builtin.reasoning._chain import prompt
from workers.builtin.reasoning._functions import FunctionStrategy
from workers.builtin.reasoning.self_consistency import SelfConsistency
from workers.builtin.reasoning.tree_of_thoughts import TreeOfThoughts

Stage = Literal["chain", "self_consistency", "tree_of_thoughts"]


class LadderState(msgspec.Struct):
    """How high the ladder was climbed."""

    question: str
    tokens: int | None
    """What the budget had at the beginning."""
    usd: float | None
    stage: Stage = "chain"
    samples: list[Thought] = []
    tree: Any = None  # Any: the state of the tree


class Adaptive(FunctionStrategy):
    """Climbs as far as it has to, and as the budget lets it."""

    name = "adaptive"
    Config = reasoning.Adaptive

    def init(self, opts: reasoning.Adaptive, context: ReasoningContext) -> LadderState:
        """Begin on the ground, with the parts ready."""
        self._sampling = SelfConsistency(**msgspec.structs.asdict(opts.sampling))
        self._tree = TreeOfThoughts(**msgspec.structs.asdict(opts.tree))
        tree = self._tree.init(self._tree.opts, context)
        return LadderState(context.question, context.tokens_left, context.usd_left, tree=tree)

    def step(self, state: LadderState, context: ReasoningContext) -> Decided:
        """Ask for the samples of the stage, or climb to the next one that there is room for."""
        if state.stage == "tree_of_thoughts":
            return self._of_tree(lambda: self._tree.step(state.tree, context))
        if not state.samples:
            return self._samples(self.opts.probes, state)
        missing = self.opts.sampling.samples - len(state.samples)
        if state.stage == "chain" and missing > 0 and self._has_room(missing, 1, state, context):
            state.stage = "self_consistency"
            return self._samples(missing, state)
        if self._has_room(self._tree_branches(), self._tree_steps(), state, context):
            state.stage = "tree_of_thoughts"
            return self._of_tree(lambda: self._tree.step(state.tree, context))
        votes = self._votes(state)
        return Done(votes[0].answer) if votes else Failed("no sample has an answer")

    def aggregate(self, thoughts: list[Thought], state: LadderState) -> Decided:
        """Be done where the samples agree; else climb."""
        if state.stage == "tree_of_thoughts":
            return self._of_tree(lambda: self._tree.aggregate(thoughts, state.tree))
        state.samples += thoughts
        votes = self._votes(state)
        found = search.agreement(votes)
        sound = sum(one.error is None for one in state.samples)
        wanted = 1.0 if state.stage == "chain" else self.opts.agreement
        if votes and found >= wanted:
            return Done(votes[0].answer)
        return Continue_(f"{state.stage}: {sound} answers agree to {found:.0%}")

    def best(self, thoughts: tuple[Thought, ...], state: LadderState) -> str | None:
        """Return what the tree has so far, else the majority of the samples."""
        result: str | None = self._tree.best(thoughts, state.tree)
        votes = self._votes(state)
        return result or (votes[0].answer if votes else None)

    def _samples(self, count: int, state: LadderState) -> list[Branch]:
        return [Branch(prompt(state.question, self.opts.sampling.prompt)) for _ in range(count)]

    def _votes(self, state: LadderState) -> tuple[Tally, ...]:
        return self._sampling.votes(state.samples)

    def _of_tree(self, method: Callable[[], Decided]) -> Decided:
        """Return what the tree decides, with what it notes as if it were noted here."""
        result = method()
        notes = drained(self._tree)
        self.scored(notes.scored)
        for ids, reason in notes.pruned:
            self.prune(ids, reason)
        return result

    def _has_room(
        self, branches: int, steps: int, state: LadderState, context: ReasoningContext
    ) -> bool:
        """Say whether budget and steps have room for a stage, at what a branch took so far."""
        ran = max(1, len(state.samples))
        for begun, left in ((state.tokens, context.tokens_left), (state.usd, context.usd_left)):
            if begun is not None and left is not None and (begun - left) / ran * branches > left:
                return False
        return context.steps_left >= steps

    def _tree_branches(self) -> int:
        """Return how many branches the tree has at most, or nearly so."""
        tree = self.opts.tree
        judged = 0
        if tree.score is None:
            judged = tree.votes * (tree.candidates if tree.scoring == "value" else 1)
        asked = 1 if tree.generate == "propose" else tree.candidates
        return int(tree.depth * tree.breadth * (asked + judged))

    def _tree_steps(self) -> int:
        tree = self.opts.tree
        return int(tree.depth * (1 + (tree.generate == "propose") + (tree.score is None)))


create = Adaptive
