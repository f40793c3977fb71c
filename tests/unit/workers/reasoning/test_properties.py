"""What holds of every run, whoever decides, whoever is quicker, and wherever it dies."""

from collections import Counter
from hashlib import sha256
from math import inf
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from cmdc_runtime.events import ReasoningBranch, ReasoningPrune, ReasoningScore, ReasoningThought
from cmdc_runtime.extensions.reasoning import (
    Branch,
    Continue_,
    Done,
    Failed,
    ReasoningStrategy,
    Revise,
)
from cmdc_runtime.reasoning import ReasoningResult, RunLimits, search
from scripts.reasoning.play import Answer, Play
from workers.reasoning.inputs import Deadline, RunAborted

LIMITS = st.builds(
    RunLimits,
    max_steps=st.integers(1, 8),
    max_parallel=st.integers(1, 5),
    max_revisions=st.integers(0, 2),
    budget_tokens=st.none() | st.integers(1, 200),
    budget_usd=st.none() | st.floats(0.001, 1.0),
)
SEEDS = st.integers(0, 10_000)
ANSWER_TOKENS, ANSWER_USD = 60, 0.1
"""Of the longest answer."""
EXAMPLES = settings(max_examples=40)


class Wanderer(ReasoningStrategy):
    """Decides by chance, as the run's own random has it, with everything that a strategy may do."""

    name = "wanderer"

    def init(self, opts, context):
        """Keep chance at hand."""
        return context.random

    def step(self, state, context):
        """Wander."""
        return self._decision(state, context.thoughts)

    def aggregate(self, thoughts, state):
        """Score some, give some up, and wander on."""
        sound = [one for one in thoughts if one.error is None]
        self.scored([msgspec.structs.replace(one, score=state.random()) for one in sound])
        self.prune([one for one in thoughts if state.random() < 0.3], "unlucky")
        return self._decision(state, thoughts)

    def early(self, thoughts, state):
        """Now and then, end it early, or give up what still runs."""
        if self._draw(thoughts) < 0.1:
            return Continue_("enough")
        if self._draw(thoughts) < 0.2:
            self.prune(thoughts[:1])
        return None

    def _draw(self, thoughts):
        """Return a number that depends on who is there, not on when it came."""
        return Random(",".join(one.id for one in thoughts)).random()

    def _decision(self, chance, thoughts):
        drawn = chance.random()
        if drawn < 0.1:
            return Done([one.id for one in thoughts])
        if drawn < 0.13:
            return Failed("tired")
        if drawn < 0.3:
            return Continue_(["a", "b"])
        if drawn < 0.4 and thoughts and any(one.id.startswith("b") for one in thoughts):
            return Revise("again", tuple(o.id for o in thoughts if o.id.startswith("b"))[:2])
        return [Branch(f"what about {chance.random()}") for _ in range(chance.randint(1, 6))]


def model(branch):
    """Answer by chance, the same branch the same."""
    chance = Random(sha256(f"{branch.id} {branch.prompt}".encode()).hexdigest())
    error = "crashed" if chance.random() < 0.2 else None
    cost = None if chance.random() < 0.1 else chance.random() * ANSWER_USD
    return Answer("so", error, tokens=chance.randint(0, ANSWER_TOKENS), cost_usd=cost)


def meddler(seed):
    """Return what ends a run from outside, now and then."""
    chance = Random(seed)

    def meddle(play):
        if chance.random() > 0.05:
            return None
        return Deadline() if chance.random() < 0.5 else RunAborted(reason="stop")

    return meddle


def check(play):
    """See that a run that is over is accounted for."""
    asked = [one.branch_id for one in play.published if isinstance(one, ReasoningBranch)]
    came = Counter(one.thought_id for one in play.published if isinstance(one, ReasoningThought))
    pruned = [
        name
        for one in play.published
        if isinstance(one, ReasoningPrune)
        for name in one.thought_ids
    ]
    result, limits = play.result, play.limits

    assert len(set(asked)) == len(asked)
    assert set(play.started) <= set(asked) <= set(came)
    assert set(came.values()) <= {1}
    assert len(set(pruned)) == len(pruned) == result.pruned
    assert result == ReasoningResult.of(play.published)
    assert result.branches == len(asked)
    assert len(result.thoughts) == len(result.nodes) == len(came)
    assert result.revisions <= limits.max_revisions
    over = limits.max_parallel * min(play.overrun, ANSWER_TOKENS)
    assert result.usage.total_tokens <= (limits.budget_tokens or 10**9) + over
    over = limits.max_parallel * min(play.overrun, ANSWER_USD)
    assert (result.usage.cost_usd or 0) <= (limits.budget_usd or 10**9) + over + 1e-9


@EXAMPLES
@given(SEEDS, LIMITS, SEEDS)
def test_every_run_ends_and_is_accounted_for(seed, limits, order):
    """Each branch has one thought, no budget is exceeded, and the result is what was published."""
    play = Play(model, limits, Random(order), meddler(order), run_id=f"r-{seed}")
    play.play(Wanderer(), "Where to?")

    check(play)


@EXAMPLES
@given(SEEDS, LIMITS, SEEDS, st.sampled_from([0.01, 3.0, inf]))
def test_a_budget_is_overrun_by_the_branches_in_flight_alone(seed, limits, order, overrun):
    """By the error of one estimate each, or by one answer each of a model that keeps to nothing."""
    play = Play(model, limits, Random(order), run_id=f"r-{seed}", overrun=overrun)
    play.play(Wanderer(), "Where to?")

    check(play)


@EXAMPLES
@given(SEEDS, LIMITS, st.data())
def test_a_run_that_dies_goes_on_as_if_it_had_not(seed, limits, data):
    """Wherever it dies, also between a thought and its events: the same events, none paid twice."""
    play = Play(model, limits, run_id=f"r-{seed}")
    play.play(Wanderer(), "Where to?")
    whole, result = list(play.published), play.result
    for _ in range(data.draw(st.integers(1, 3))):
        inputs = data.draw(st.integers(0, len(play.inputs)))
        marks = [*play.published_before, len(play.published)]
        least = marks[inputs - 1] if inputs else 0
        published = data.draw(st.integers(least, marks[inputs]))
        run = play.again(Wanderer(), "Where to?", inputs, published)
        del play.published_before[inputs:]
        if play.result is None:
            play.go_on(run)

        assert play.published == whole
        assert play.result == result
        check(play)


@EXAMPLES
@given(SEEDS, LIMITS, SEEDS, st.data())
def test_so_it_does_when_others_are_quicker_after_it(seed, limits, order, data):
    """What follows may be another way, and is accounted for all the same."""
    play = Play(model, limits, Random(order), meddler(order), run_id=f"r-{seed}")
    play.play(Wanderer(), "Where to?")
    inputs = data.draw(st.integers(0, len(play.inputs)))
    published = [*play.published_before, len(play.published)][inputs]
    before = play.published[:published]
    run = play.again(Wanderer(), "Where to?", inputs, published)
    if play.result is None:
        play.go_on(run)

    assert play.published[:published] == before
    check(play)


class Chancy(ReasoningStrategy):
    """Scores by the run's chance, keeps the best of each level, and goes on from them."""

    name = "chancy"

    def init(self, opts, context):
        """Keep chance at hand, and how many levels there are."""
        return context.random, context.random.randint(1, 4)

    def step(self, state, context):
        """Ask the first level."""
        return self._wanted(state[0], [None])

    def aggregate(self, thoughts, state):
        """Score a level, keep two of it, and ask the next one."""
        chance, left = state
        sound = [one for one in thoughts if one.error is None]
        scored = search.score(sound, lambda one: chance.random())
        self.scored(scored)
        kept, pruned = search.select_beam(scored, 2)
        self.prune(pruned, "not among the best")
        if left == 1 or not kept:
            return Done([[one.id, one.content, one.score] for one in kept])
        return self._wanted(chance, [one.id for one in kept]), (chance, left - 1)

    def _wanted(self, chance, parents):
        return [
            Branch(f"draw {chance.random()}", parent_id=parent)
            for parent in parents
            for _ in range(chance.randint(1, 4))
        ]


@EXAMPLES
@given(SEEDS, st.integers(1, 8), st.lists(SEEDS, min_size=2, max_size=4, unique=True))
def test_a_seeded_scorer_does_not_feel_who_was_quicker(seed, parallel, orders):
    """Nodes, scores, prunings and answer are those of the seed, in whatever order thoughts come."""
    found = []
    for order in [None, *map(Random, orders)]:
        play = Play(model, RunLimits(max_parallel=parallel), order, run_id=f"r-{seed}")
        play.play(Chancy(), "Where to?")
        nodes = sorted(play.result.nodes, key=lambda one: one.id)
        pruned = [one.thought_ids for one in play.published if isinstance(one, ReasoningPrune)]
        scores = [
            (one.thought_id, one.score) for one in play.published if isinstance(one, ReasoningScore)
        ]
        found.append((play.result.status, play.result.answer, nodes, scores, pruned))

    assert found[0][0] == "done"
    assert all(one == found[0] for one in found)
