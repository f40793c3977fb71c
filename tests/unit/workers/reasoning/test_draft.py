"""What one decision adds to a run is looked at as a whole, before any of it is published."""

import pytest

from cmdc_runtime.events import ReasoningBranch, ReasoningThought
from cmdc_runtime.extensions.reasoning import Branch, Continue_, Done, Revise, Thought
from tests.unit.workers.reasoning.test_run import played

UNKNOWN = "there is no thought or branch 'nobody'"


@pytest.mark.parametrize(
    ("decision", "reason"),
    [
        (
            [Branch("a", id="x"), Branch("b", id="x")],
            "a decision asks for two branches 'x', whose prompts differ",
        ),
        (
            [Branch("a"), Branch("b", id="b1")],
            "a decision asks for two branches 'b1', whose prompts differ",
        ),
        ([Branch("a"), Branch("b", parent_id="nobody")], UNKNOWN),
        ([Branch("a"), Branch("b", metadata={"x": {1}})], "the metadata of branch 'b2'"),
        ([Branch("a"), "text"], "a decision has branches, got 'text'"),
        (Continue_([Thought("x", "a"), Thought("x", "b")]), "there is a thought 'x' already"),
        (Continue_(["a", Thought("x", "b", "nobody")]), UNKNOWN),
        (Continue_(["a", Thought("x", "b", score=1e10)]), "the score of 'x'"),
        (Continue_(["a", Thought("x", "b", score=0.0, score_detail={"y": {1}})]), "score_detail"),
    ],
)
def test_of_a_decision_that_cannot_be_nothing_is_published(decision, reason):
    """The parts before the wrong one were published, as branches that then failed."""
    play = played(decision)

    assert play.result.status == "failed"
    assert reason in play.result.reason
    assert [one.kind for one in play.published] == ["reasoning_done"]
    assert not play.result.nodes


def test_nothing_of_a_revision_is_published_that_names_nobody():
    """The branch that it names first was asked to run again."""
    play = played(Branch("a"), Revise("x", ("b1", "nobody")))

    assert UNKNOWN in play.result.reason
    assert [one.id for one in play.result.nodes] == ["b1"]


@pytest.mark.parametrize("named", [("b1", "b1"), ("b1", "b1.r1")])
def test_a_revision_that_names_a_branch_twice_runs_it_once(named):
    """Whichever of its revisions are named."""
    play = played(Branch("a"), Revise("x"), Revise("y", named), Done(1))
    asked = [one.branch_id for one in play.published if isinstance(one, ReasoningBranch)]

    assert play.result.status == "done"
    assert asked == ["b1", "b1.r1", "b1.r2"]


def test_a_revision_takes_no_id_that_is_another_s():
    """A strategy may have named a branch of its own so."""
    play = played([Branch("a"), Branch("b", id="b1.r1")], Revise("x", ("b1",)))

    assert "there is a branch 'b1.r1' already, and a revision would be named so" in (
        play.result.reason
    )
    assert play.result.branches == 2


def test_parts_of_a_decision_may_go_on_from_one_another():
    """From those that stand before them, branches and thoughts alike; what stands twice is one."""
    play = played(
        Continue_([Thought("x", "a"), Thought("y", "b", "x", score=0.5)]),
        [Branch("a", id="z"), Branch("b", parent_id="z"), Branch("a", id="z")],
        lambda s, _, t: Done(len(t)),
    )

    assert play.result.answer == 2
    assert [(one.id, one.parent_id) for one in play.result.nodes] == [
        ("x", None), ("y", "x"), ("z", None), ("b1", "z"),
    ]  # fmt: skip
    ids = [one.thought_id for one in play.published if isinstance(one, ReasoningThought)]
    assert ids == ["x", "y", "z", "b1"]
