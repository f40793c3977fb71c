"""Operations on thoughts, carried out in the order of their graph.

Each operation has the thoughts that it makes as its results. What needs no model is done at once;
branches of all operations whose inputs are there are asked for together.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import msgspec

from cmdc_runtime import reasoning
from cmdc_runtime.extensions.reasoning import (
    JUDGE,
    OUTPUT,
    PARENTS,
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
from cmdc_runtime.reasoning.strategies import VALUE_MAX, AnyOperation, Judgement, Proposals
from workers.builtin.reasoning._chain import filled, listed, prompt
from workers.builtin.reasoning._functions import FunctionStrategy, nothing_scored

_OPERATION = "operation"
"""In a branch's metadata: the place of the operation that asked for it."""
_OF = "of"
"""In a judge's metadata: the thought that it judges."""


class GraphState(msgspec.Struct):
    """Which operations have been carried out."""

    question: str
    results: dict[int, list[Thought]] = {}
    """By the place of the operation."""
    parts: dict[str, str] = {}
    """What the task was split into, by the thought that is the part."""
    covers: dict[str, frozenset[str]] = {}
    """The parts that a thought is about, where that is not the whole question."""
    fresh: list[Thought] = []
    """Parts that a branch has split the task into, to be put there."""


class GraphOfThoughts(FunctionStrategy):
    """Carries a graph of operations out."""

    name = "graph_of_thoughts"
    Config = reasoning.GraphOfThoughts

    def init(self, opts: reasoning.GraphOfThoughts, context: ReasoningContext) -> GraphState:  # noqa: ARG002
        """Begin with the question alone."""
        return GraphState(context.question)

    def step(self, state: GraphState, context: ReasoningContext) -> Decision:  # noqa: ARG002
        """Go on with what can be done."""
        return self._advanced(state)

    def aggregate(self, thoughts: list[Thought], state: GraphState) -> Decision:
        """Take the results of the operations that asked for branches."""
        by_place: dict[int, list[Thought]] = {}
        for one in thoughts:
            by_place.setdefault(one.metadata[_OPERATION], []).append(one)
        for place, found in by_place.items():
            if failed := self._take(place, found, state):
                return failed
            if not state.results[place]:
                errors = [one.error for one in found if one.error is not None]
                return Failed(f"{self._name(place)} came to nothing: {(errors or ['empty'])[0]}")
        fresh, state.fresh = state.fresh, []
        return Continue_(fresh) if fresh else self._advanced(state)

    def best(self, thoughts: tuple[Thought, ...], state: GraphState) -> str | None:  # noqa: ARG002
        """Return the best result of the latest operation that is about the whole question."""
        for place in sorted(state.results, reverse=True):
            whole = [one for one in state.results[place] if one.id not in state.covers]
            if kept := search.select_beam(whole, 1)[0]:
                return kept[0].content
        return None

    # --- what is done ---

    def _advanced(self, state: GraphState) -> Decision:
        """Do what needs no model, then ask for the branches of all operations that are ready."""
        while True:
            ready = list(self._ready(state))
            quick = [place for place in ready if self._is_quick(self.opts.operations[place])]
            if not quick:
                break
            for place in quick:
                done = self._quick(place, state)
                if isinstance(done, Failed):
                    return done
                if not done:
                    return Failed(f"{self._name(place)} has nothing to work on")
                state.results[place] = done
        if not ready:
            last = state.results[len(self.opts.operations) - 1]
            return Done(search.select_beam(last, 1)[0][0].content)
        wanted = {place: self._branches(place, state) for place in ready}
        for place, branches in wanted.items():
            if not branches:
                return Failed(f"{self._name(place)} has nothing to work on")
        return [*chain.from_iterable(wanted.values())]

    def _ready(self, state: GraphState) -> Iterator[int]:
        for place in range(len(self.opts.operations)):
            needs = self.opts.inputs_of(place)
            if place not in state.results and all(one in state.results for one in needs):
                yield place

    def _inputs(self, place: int, state: GraphState) -> list[Thought]:
        """Return what an operation works on, each thought once."""
        found = chain.from_iterable(state.results[one] for one in self.opts.inputs_of(place))
        return list({one.id: one for one in found}.values())

    def _is_quick(self, operation: AnyOperation) -> bool:
        match operation:
            case reasoning.KeepBest() | reasoning.Select():
                return True
            case reasoning.Score():
                return self.opts.score is not None
            case _:
                return False

    def _name(self, place: int) -> str:
        return f"operations[{place}] ({type(self.opts.operations[place]).__name__})"

    def _quick(self, place: int, state: GraphState) -> list[Thought] | Failed:
        operation, inputs = self.opts.operations[place], self._inputs(place, state)
        match operation:
            case reasoning.Select(part=part):
                return inputs[part : part + 1]
            case reasoning.KeepBest(n=n):
                kept, pruned = search.select_beam(inputs, n)
                self.prune(pruned, f"operations[{place}]")
                return kept
            case _:
                score = self.opts.score
                scores = {one.id: score(one.content, _task(one, state)) for one in inputs}
                return self._with_scores(place, inputs, scores)

    def _with_scores(
        self,
        place: int,
        thoughts: list[Thought],
        scores: dict[str, search.Scored | None],
        judges: Sequence[Thought] = (),
    ) -> list[Thought] | Failed:
        if thoughts and (failed := nothing_scored(scores, judges)):
            return Failed(f"{self._name(place)}: {failed.reason}")
        scored = search.score(thoughts, scores)
        self.scored([one for one in scored if one.score is not None])
        return scored

    def _take(self, place: int, found: Sequence[Thought], state: GraphState) -> Failed | None:
        """Keep what an operation's branches came to as its results."""
        operation, inputs = self.opts.operations[place], self._inputs(place, state)
        sound = [one for one in found if one.error is None]
        match operation:
            case reasoning.Score():
                judged = self._judged(place, inputs, found)
                if isinstance(judged, Failed):
                    return judged
                state.results[place] = judged
            case reasoning.Split():
                state.results[place] = self._parts(sound, operation.parts, state)
            case reasoning.Refine():
                state.results[place] = [*inputs, *sound]
            case _:
                state.results[place] = sound
        for one in sound:
            _place_in(one, state)
        return None

    def _judged(
        self, place: int, inputs: list[Thought], judges: Sequence[Thought]
    ) -> list[Thought] | Failed:
        values: dict[str, list[int]] = {}
        for one in judges:
            if one.error is not None:
                continue
            values.setdefault(one.metadata[_OF], []).append(one.metadata[OUTPUT].score)
        means: dict[str, search.Scored | None] = {
            key: sum(found) / len(found) / VALUE_MAX for key, found in values.items()
        }
        return self._with_scores(place, inputs, means, judges)

    def _parts(self, sound: list[Thought], parts: int, state: GraphState) -> list[Thought]:
        made = [
            Thought(f"{one.id}.{place}", text, one.id)
            for one in sound
            for place, text in enumerate(one.metadata[OUTPUT].items[:parts], 1)
        ]
        state.parts.update((one.id, one.content) for one in made)
        state.covers.update((one.id, frozenset((one.id,))) for one in made)
        state.fresh += made
        return made

    # --- what is asked ---

    def _branches(self, place: int, state: GraphState) -> list[Branch]:
        operation, inputs = self.opts.operations[place], self._inputs(place, state)
        facts = {_OPERATION: place}
        sources: list[Thought | None] = [*inputs] or [None]
        match operation:
            case reasoning.Split():
                wanted = filled(operation.prompt, parts=operation.parts)
                text = prompt(state.question, listed("Result", _contents(inputs)), wanted)
                return [Branch(text, metadata=facts, result=Proposals)]
            case reasoning.Aggregate():
                text = prompt(state.question, operation.prompt, listed("Result", _contents(inputs)))
                parents = [one.id for one in inputs]
                more = {**facts, PARENTS: parents[1:]}
                branch = Branch(text, parent_id=parents[0] if parents else None, metadata=more)
                return [branch] * operation.k
            case reasoning.Score():
                return [
                    Branch(
                        prompt(
                            _context_of(one, state), f"Result:\n{one.content}", operation.prompt
                        ),
                        parent_id=one.id,
                        metadata={**facts, ROLE: JUDGE, _OF: one.id},
                        model=self.opts.judge,
                        result=Judgement,
                    )
                    for one in inputs
                    for _ in range(operation.votes)
                ]
            case reasoning.Generate() | reasoning.Refine():
                return [
                    self._branch(source, operation, facts, state)
                    for source in sources
                    for _ in range(operation.k)
                ]
            case _:
                return []

    def _branch(
        self,
        source: Thought | None,
        operation: reasoning.Generate | reasoning.Refine,
        facts: dict[str, int],
        state: GraphState,
    ) -> Branch:
        if source is None:
            return Branch(prompt(state.question, operation.prompt), metadata=facts)
        so_far = "" if source.id in state.parts else f"Result so far:\n{source.content}"
        text = prompt(_context_of(source, state), so_far, operation.prompt)
        return Branch(text, parent_id=source.id, metadata=facts)


def _place_in(thought: Thought, state: GraphState) -> None:
    """Remember which parts a new thought is about: those of all that it was made of."""
    sources = [thought.parent_id, *thought.metadata.get(PARENTS, ())]
    parts: frozenset[str] = frozenset()
    for source in sources:
        covered = state.covers.get(source or "")
        if covered is None:
            return  # one of them is about the whole question
        parts |= covered
    if parts != frozenset(state.parts):
        state.covers[thought.id] = parts


def _task(thought: Thought, state: GraphState) -> str:
    """Return what a thought should solve: the question, or the parts that it is about."""
    covered = state.covers.get(thought.id)
    if covered is None:
        return state.question
    return "\n\n".join(text for part, text in state.parts.items() if part in covered)


def _context_of(thought: Thought, state: GraphState) -> str:
    """Return the same for a prompt, with the question around a part."""
    task = _task(thought, state)
    if task == state.question:
        return task
    return prompt(f"This is a part of a larger task:\n{state.question}", f"The part:\n{task}")


def _contents(thoughts: list[Thought]) -> list[str]:
    return [one.content for one in thoughts]


create = GraphOfThoughts
