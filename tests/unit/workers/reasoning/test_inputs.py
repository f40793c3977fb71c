"""What a branch counts with that was cut in the middle of a request."""

from cmdc_runtime.events import ReasoningThought
from cmdc_runtime.extensions.reasoning import Branch, ReasoningStrategy
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.reasoning import RunLimits
from workers.reasoning.inputs import PublishEvent, RunBegun, RunBudget, StartBranch, ThoughtCame
from workers.reasoning.run import Run

QUICK = TokenUsage(prompt_tokens=4, completion_tokens=6, total_tokens=10, cost_usd=0.1)


class Hasty(ReasoningStrategy):
    """Is content with the first of two, and asks on."""

    name = "hasty"

    def step(self, state, context):
        """Ask two."""
        return [Branch("a"), Branch("b")]

    def early(self, thoughts, state):
        """Ask on."""
        return Branch("c")


def test_a_branch_that_is_cut_counts_with_all_that_was_reserved():
    """Nobody knows what its request took; its thought says what it counts with."""
    run = Run(Hasty())
    limits = RunLimits(budget_tokens=100, budget_usd=1.0)
    run.handle(RunBegun(run_id="r", question="Why?", limits=limits))
    outputs = run.handle(ThoughtCame(branch_id="b1", content="x", usage=QUICK))
    (third,) = [one for one in outputs if isinstance(one, StartBranch)]
    cut = run.handle(ThoughtCame(branch_id="b2", error="it was ended", is_cut=True))
    (thought,) = [one.event for one in cut if isinstance(one, PublishEvent)]

    assert isinstance(thought, ReasoningThought)
    assert (thought.thought_id, thought.error) == ("b2", "pruned: decided")
    assert (thought.usage.total_tokens, thought.usage.cost_usd) == (50, 0.5)
    assert (third.tokens, third.cost_usd) == (40, 0.4)


def test_what_it_is_known_to_have_used_counts_where_that_is_more():
    """And without a limit it is all that is known."""
    cut = ThoughtCame(branch_id="b1", error="it died", usage=QUICK, is_cut=True)
    tight, wide = RunBudget(RunLimits(budget_tokens=5)), RunBudget(RunLimits())
    tight.reserve("b1", 1)
    wide.reserve("b1", 1)

    assert tight.charged(cut) == wide.charged(cut) == QUICK
