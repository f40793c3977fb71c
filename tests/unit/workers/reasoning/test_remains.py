"""What a run keeps whose strategy decides otherwise in a later life."""

import pytest

from cmdc_runtime.extensions.reasoning import Branch, Done
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.reasoning import ReasoningResult
from tests.unit.workers.reasoning.test_run import Scripted, came, events, of
from workers.reasoning.inputs import EndBranch, RunBegun
from workers.reasoning.run import Run

USAGE = TokenUsage(total_tokens=7, cost_usd=0.5)


@pytest.mark.parametrize("round_", [0, 1, 2])
def test_what_was_published_and_paid_stays_where_a_strategy_decides_otherwise(round_):
    """Thoughts, their usage and the best of them are in the result, whenever it is found out."""
    rounds = [[Branch("a"), Branch("b")], [Branch("c")], [Branch("d")], Done(1)]
    run = Run(Scripted(*rounds))
    outputs = run.handle(RunBegun(run_id="r", question="Why?"))
    inputs = [came(f"b{n}", f"on {n}", usage=USAGE) for n in (1, 2, 3)]
    for given in inputs:
        outputs += run.handle(given)
    published = tuple(events(outputs))
    other = list(rounds)
    other[round_] = [Branch("other")]
    again = Run(Scripted(*other))
    outputs = again.handle(
        RunBegun(run_id="r", question="Why?", played=tuple(inputs), published=published)
    )
    ended = [one.branch_id for one in of(outputs, EndBranch)]
    outputs += again.handle(came("b4", error="ended", usage=USAGE))
    result = outputs[-1].result

    assert ended == ["b4"]
    assert (result.status, result.answer) == ("failed", "on 3")
    assert "not deterministic" in result.reason
    assert [one.content for one in result.thoughts] == ["on 1", "on 2", "on 3", ""]
    assert result.usage.total_tokens == 4 * USAGE.total_tokens
    assert result == ReasoningResult.of([*published, *events(outputs)])
