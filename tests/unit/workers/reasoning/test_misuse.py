"""What a strategy decides that cannot be done: the run fails, and says what and where."""

import json

import pytest

from cmdc_runtime.extensions.reasoning import Branch, Continue_, Done, Failed, Revise, Thought
from scripts.reasoning.play import Play
from tests.unit.workers.reasoning.test_run import Scripted, begun, echo, of, played
from workers.reasoning.inputs import Finish, RunBegun
from workers.reasoning.run import Run


def boom(*_):
    """Raise."""
    raise ValueError("no idea")


def json_of(*_):
    """Raise deep inside a library."""
    return json.loads("no")


def frozen(_strategy, _state, context):
    """Change what is not the strategy's."""
    context.question = "x"


FROZEN_LINE = frozen.__code__.co_firstlineno + 2
JSON_LINE = json_of.__code__.co_firstlineno + 2


@pytest.mark.parametrize(
    ("decision", "reason"),
    [
        (boom, "scripted.step: ValueError: no idea (test_misuse.py:"),
        (json_of, "scripted.step: JSONDecodeError: Expecting value"),
        (frozen, f"cannot assign to field 'question' (test_misuse.py:{FROZEN_LINE}, in frozen)"),
        (Failed("gave up"), "gave up"),
        (Failed(""), "the strategy gave no reason"),
        (Failed(None), "the strategy gave no reason"),
        (lambda *_: Done, "the class Done, not an instance of it, is no decision"),
        ("text", "str is no decision"),
        (lambda *_: None, "scripted.step: TypeError: it returned None"),
        ([], "a decision without a branch: end with Done"),
        (
            [Branch("a")] * 2_001,
            "at most 2,000 thoughts and branches: 0 are there, and this decision adds more",
        ),
        (["text"], "a decision has branches, got 'text'"),
        (Branch("a", parent_id="b7"), "there is no thought or branch 'b7'"),
        (Branch("a", id="no id"), "cannot name a thought or a branch"),
        (Branch(3), "expected a str, got int"),
        (Branch(""), "the prompt of branch 'b1' is empty"),
        (Branch(" \n"), "the prompt of branch 'b1' is empty"),
        (Branch("a", result=object()), "the result of branch 'b1'"),
        (Branch("a", metadata={"parents": ["b7"]}), "parents of 'b1': there is no thought or bran"),
        (Branch("a", metadata={"parents": ["b1"]}), "parents of 'b1': there is no thought or bran"),
        (
            Branch("a", metadata={"parents": [3]}),
            "parents of 'b1': there is no thought or branch 3",
        ),
        (
            Branch("a", metadata={"parents": "b1"}),
            "parents of 'b1': expected a list of ids, got 'b",
        ),
        (Continue_(Thought("t", "a", metadata={"parents": ["x"]})), "parents of 't': there is no"),
        (Branch("a", model=3), "the model of branch 'b1': expected 'provider:model_id', got 3"),
        (Branch("a", metadata={"x": {1}}), "the metadata of branch 'b1'"),
        (Branch("a", metadata=3), "expected a dict, got int"),
        (Branch("a", metadata={"error": "x"}), "'b1': the key 'error' is the run's own"),
        (Branch("a", metadata={"output": "x"}), "'b1': the key 'output' is the run's own"),
        (Branch("a", fork="no"), "fork of branch 'b1': expected a bool, got 'no'"),
        (Branch("a", id=[]), "[] cannot name a thought or a branch"),
        (Branch("a", parent_id=[]), "there is no thought or branch []"),
        ((Branch("a"), Branch("b")), "Branch is no state: return a list of branches"),
        ((Branch("a"), Done(1)), "Done is no state"),
        ((Branch("a"), Branch("b"), Branch("c")), "tuple is no decision"),
        (Continue_(Thought([], "a")), "[] cannot name a thought or a branch"),
        (Continue_(Thought("t", "a", metadata={"error": "x"})), "'t': the key 'error' is the"),
        (Continue_(3), "Continue_ takes a text or a Thought, got 3"),
        (Continue_({"text": "x"}), "Continue_:"),
        (Continue_([Thought("x", "a"), Thought("x", "b")]), "there is a thought 'x' already"),
        (Revise("x"), "Revise: no branch was asked for yet that could run again"),
        (Revise("x", ("b1",)), "there is no thought or branch 'b1'"),
        (Revise("x", ([],)), "there is no thought or branch []"),
        (Revise("x", "b1"), "Revise: branch_ids: expected ids, got 'b1'"),
        (Done({1, 2}), "the answer:"),
    ],
)
def test_what_cannot_be_done_fails_the_run(decision, reason):
    """With the error's name and text; nothing was paid."""
    play = played(decision)

    assert play.result.status == "failed"
    assert reason in play.result.reason
    assert not play.started


def note(**noted):
    """Return a decision that notes something that cannot be."""

    def decide(strategy, *_):
        strategy.scored(noted.get("scored", ()))
        strategy.prune(noted.get("pruned", ()), noted.get("reason", ""))
        return Done(1)

    return decide


@pytest.mark.parametrize(
    ("decision", "reason"),
    [
        (note(scored=[Thought("b1", "", score=float("nan"))]), "nan is not a finite number"),
        (note(scored=[Thought("b1", "")]), "'b1' has no thought, or was given no score"),
        (note(scored=[Thought("b9", "", score=1.0)]), "there is no thought or branch 'b9'"),
        (note(pruned=["b9"]), "there is no thought or branch 'b9'"),
        (note(scored=[3]), "scored: expected thoughts, got 3"),
        (note(pruned=[[]]), "there is no thought or branch []"),
        (note(pruned="b1"), "prune: expected thoughts or their ids, got 'b1' (test_misuse.py:"),
        (note(pruned=["b1"], reason=5), "prune: reason: expected a str, got 5 (test_misuse.py:"),
        (Revise(None), "the feedback of Revise: expected a str, got NoneType"),
        (boom, "scripted.aggregate: ValueError: no idea"),
    ],
    ids=[
        *("no number", "no score", "unknown", "unknown and pruned", "no thought", "no id"),
        *("ids as a text", "a reason that is no text"),
        *("no feedback", "raised"),
    ],
)
def test_so_does_what_is_said_of_nobody(decision, reason):
    """Also in the middle of a run."""
    assert reason in played(Branch("a"), decision).result.reason


def test_a_strategy_that_cannot_begin():
    """It may say why, or raise."""

    class Picky(Scripted):
        def init(self, opts, context):
            return Failed("not my kind of question")

    class Broken(Scripted):
        init = boom

    assert Play(echo).play(Picky(), "Why?").reason == "not my kind of question"
    why = Play(echo).play(Broken(), "Why?").reason
    assert why.startswith("broken.init: ValueError: no idea (test_misuse.py:")
    assert why.endswith(", in boom)")


def test_the_line_of_an_error_is_the_strategys_own():
    """Not that of the library that raised it; the traceback has all."""
    run, outputs = begun(json_of)
    (finish,) = of(outputs, Finish)
    fine = Run(Scripted(Done(1)))
    fine.handle(RunBegun(run_id="r", question="Why?"))

    assert finish.result.reason.endswith(f"(test_misuse.py:{JSON_LINE}, in json_of)")
    assert "json/decoder.py" in run.trace
    assert (fine.trace, fine.is_finished) == ("", True)
