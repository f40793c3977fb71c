"""A search in a tree of partial solutions; how it goes is in the options' documentation.

A level is worked on in three decisions at most: candidates are asked for, put there where one
branch proposed several, and judged where no function scores them. Then the best are pursued.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from cmdc_runtime import reasoning
from cmdc_runtime.extensions.reasoning import (
    JUDGE,
    OUTPUT,
    ROLE,
    Branch,
    Continue_,
    Decision,
    Done,
    Failed,
    ReasoningContext,
    Thought,
)
from cmdc_runtime.reasoning import search
from cmdc_runtime.reasoning.strategies import VALUE_MAX, Choice, Judgement, Proposals
from workers.builtin.reasoning._chain import filled, listed, prompt
from workers.builtin.reasoning._functions import FunctionStrategy, nothing_scored

_OF = "of"
"""In a judge's metadata: the candidate that it judges."""
_FROM = "from"
"""In a proposing branch's metadata: the thought that it goes on from, "" for the question."""


class TreeState(msgspec.Struct):
    """Where the search is."""

    question: str
    frontier: list[Thought] = []
    """What candidates are asked for of; none: of the question."""
    candidates: list[Thought] = []
    paths: dict[str, tuple[str, ...]] = {}
    """The thoughts from the question to each candidate, itself included, as texts."""
    sums: dict[str, float] = {}
    """For a beam: the scores on the path to each."""
    levels: tuple[tuple[Thought, ...], ...] = ()
    """For depth-first search: the candidates at each depth that were not tried."""
    best: str | None = None
    """The deepest best thought so far."""

    def path_to(self, thought: Thought | None) -> tuple[str, ...]:
        """Return the texts up to a thought; none of the question."""
        return () if thought is None else self.paths[thought.id]


class TreeOfThoughts(FunctionStrategy):
    """Generates, scores and pursues."""

    name = "tree_of_thoughts"
    Config = reasoning.TreeOfThoughts

    def init(self, opts: reasoning.TreeOfThoughts, context: ReasoningContext) -> TreeState:  # noqa: ARG002
        """Begin at the question."""
        return TreeState(context.question)

    def step(self, state: TreeState, context: ReasoningContext) -> Decision:  # noqa: ARG002
        """Ask for candidates; those that a branch has proposed are judged."""
        return self._judged(state) if state.candidates else self._wanted(state)

    def aggregate(self, thoughts: list[Thought], state: TreeState) -> Decision:
        """Take candidates, or what judges say of them."""
        if thoughts[0].metadata.get(ROLE) == JUDGE:
            return self._scored(thoughts, state)
        if self.opts.generate == "propose":
            return self._proposed(thoughts, state)
        for one in thoughts:
            if one.error is None:
                self._add(one, _parent_path(state, one.parent_id), state)
        if not state.candidates:
            return self._dead_end(state, _why(thoughts))
        return self._judged(state)

    def best(self, thoughts: tuple[Thought, ...], state: TreeState) -> str | None:  # noqa: ARG002
        """Return the best thought of the deepest level that was scored."""
        return state.best

    # --- candidates ---

    def _wanted(self, state: TreeState) -> Decision:
        parents: list[Thought | None] = [*state.frontier] or [None]
        return [branch for parent in parents for branch in self._branches(parent, state)]

    def _branches(self, parent: Thought | None, state: TreeState) -> list[Branch]:
        opts, path = self.opts, state.path_to(parent)
        parent_id = None if parent is None else parent.id
        known = {"step": len(path) + 1, "depth": opts.depth, "candidates": opts.candidates}
        so_far = listed("Step", path)
        if opts.generate == "propose":
            text = prompt(state.question, so_far, filled(opts.propose_prompt, **known))
            facts = {_FROM: parent_id or ""}
            return [Branch(text, parent_id=parent_id, metadata=facts, result=Proposals)]
        template = opts.last_prompt if len(path) + 1 == opts.depth else opts.step_prompt
        text = prompt(state.question, so_far, filled(template, **known))
        return [Branch(text, parent_id=parent_id) for _ in range(opts.candidates)]

    def _proposed(self, thoughts: list[Thought], state: TreeState) -> Decision:
        """Put there what branches have proposed, each text once."""
        for one in thoughts:
            if one.error is not None:
                continue
            path = _parent_path(state, one.metadata[_FROM] or None)
            texts = list(dict.fromkeys(one.metadata[OUTPUT].items))[: self.opts.candidates]
            for place, text in enumerate(texts, 1):
                self._add(Thought(f"{one.id}.{place}", text, one.id), path, state)
        if not state.candidates:
            return self._dead_end(state, _why(thoughts))
        return Continue_(list(state.candidates))

    def _add(self, thought: Thought, path: tuple[str, ...], state: TreeState) -> None:
        state.candidates.append(thought)
        state.paths[thought.id] = (*path, thought.content)

    # --- scores ---

    def _judged(self, state: TreeState) -> Decision:
        """Score the candidates by the function, or ask judges."""
        opts = self.opts
        if opts.score is not None:
            paths, question = state.paths, state.question
            scorer = {
                one.id: opts.score("\n".join(paths[one.id]), question) for one in state.candidates
            }
            return self._chosen(scorer, (), state)
        if opts.scoring == "vote":
            return self._voters(state)
        return [branch for one in state.candidates for branch in self._valuers(one, state)]

    def _valuers(self, candidate: Thought, state: TreeState) -> list[Branch]:
        so_far = listed("Step", state.path_to(candidate))
        text = prompt(state.question, so_far, self.opts.value_prompt)
        facts = {ROLE: JUDGE, _OF: candidate.id}
        branch = Branch(
            text,
            parent_id=candidate.id,
            metadata=facts,
            model=self.opts.judge,
            result=Judgement,
        )
        return [branch] * self.opts.votes

    def _voters(self, state: TreeState) -> list[Branch]:
        paths = [listed("Step", state.path_to(one)) for one in state.candidates]
        text = prompt(state.question, listed("Candidate", paths), self.opts.vote_prompt)
        branch = Branch(text, metadata={ROLE: JUDGE}, model=self.opts.judge, result=Choice)
        return [branch] * self.opts.votes

    def _scored(self, judges: list[Thought], state: TreeState) -> Decision:
        """Take the means of values, or the parts of votes; who failed does not count."""
        sound = [one.metadata for one in judges if one.error is None]
        scores: dict[str, search.Scored | None]
        if not sound:
            scores = {}
        elif self.opts.scoring == "vote":
            chosen = [facts[OUTPUT].best - 1 for facts in sound]
            counts = {one.id: chosen.count(place) for place, one in enumerate(state.candidates)}
            scores = {key: count / len(sound) for key, count in counts.items()}
        else:
            values: dict[str, list[int]] = {}
            for facts in sound:
                values.setdefault(facts[_OF], []).append(facts[OUTPUT].score)
            scores = {key: sum(found) / len(found) / VALUE_MAX for key, found in values.items()}
        return self._chosen(scores, judges, state)

    # --- the way on ---

    def _chosen(
        self,
        scores: dict[str, search.Scored | None],
        judges: Sequence[Thought],
        state: TreeState,
    ) -> Decision:
        """Pursue the best candidates of a level."""
        if failed := nothing_scored(scores, judges):
            return failed
        scored = search.score(state.candidates, scores)
        self.scored([one for one in scored if one.score is not None])
        state.candidates = []
        state.best = search.select_beam(scored, 1)[0][0].content
        if self.opts.search == "dfs":
            return self._deeper(scored, state)
        ranked = self._ranked(scored, state)
        kept, pruned = search.select_beam(ranked, self.opts.breadth)
        self.prune(pruned, "not among the best")
        state.frontier = kept
        if len(state.path_to(kept[0])) == self.opts.depth:
            state.best = kept[0].content
            return Done(kept[0].content)
        return self._wanted(state)

    def _ranked(self, scored: list[Thought], state: TreeState) -> list[Thought]:
        """Return candidates with what they are ranked by as their score."""
        if self.opts.search != "beam":
            return scored
        for one in scored:
            state.sums[one.id] = (one.score or 0.0) + state.sums.get(_parent(one, state), 0.0)
        return [msgspec.structs.replace(one, score=state.sums[one.id]) for one in scored]

    def _deeper(self, scored: list[Thought], state: TreeState) -> Decision:
        """Follow the best candidate that is good enough, or go back to one that was left."""
        is_good = [(one.score or 0.0) >= self.opts.threshold for one in scored]
        good = [one for one, is_kept in zip(scored, is_good, strict=True) if is_kept]
        poor = [one for one, is_kept in zip(scored, is_good, strict=True) if not is_kept]
        self.prune(poor, "below the threshold")
        state.levels = (*state.levels, tuple(good))
        return self._back(state, "no path is good enough")

    def _dead_end(self, state: TreeState, why: str) -> Decision:
        """Go back where all candidates of a thought have failed; no other search can."""
        return self._back(state, why) if self.opts.search == "dfs" else Failed(why)

    def _back(self, state: TreeState, why: str) -> Decision:
        following, state.levels = search.backtrack(state.levels)
        if following is None:
            return Failed(why)
        if len(state.path_to(following)) == self.opts.depth:
            return Done(following.content)
        state.frontier = [following]
        return self._wanted(state)


def _parent_path(state: TreeState, parent_id: str | None) -> tuple[str, ...]:
    return () if parent_id is None else state.paths[parent_id]


def _parent(thought: Thought, state: TreeState) -> str:
    """Return the id of the candidate that one goes on from, "" for the question."""
    above = state.paths[thought.id][:-1]
    return next((one.id for one in state.frontier if state.paths[one.id] == above), "")


def _why(thoughts: Sequence[Any]) -> str:  # Any: thoughts
    errors = [one.error for one in thoughts if one.error is not None]
    return f"no candidate: {errors[0] if errors else 'nothing was proposed'}"


create = TreeOfThoughts
