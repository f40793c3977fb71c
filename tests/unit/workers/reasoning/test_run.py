"""One run as a machine: what each decision leads to, what bounds it, and how it is played again."""

import msgspec
import pytest

from cmdc_runtime.events import (
    ReasoningBranch,
    ReasoningDone,
    ReasoningPrune,
    ReasoningScore,
    ReasoningThought,
)
from cmdc_runtime.extensions.reasoning import (
    Branch,
    Continue_,
    Done,
    ReasoningStrategy,
    Revise,
    Thought,
)
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.reasoning import RunLimits
from scripts.reasoning.play import Answer, Play
from workers.reasoning.inputs import (
    Deadline,
    EndBranch,
    Finish,
    PublishEvent,
    Recorded,
    RunAborted,
    RunBegun,
    StartBranch,
    ThoughtCame,
)
from workers.reasoning.run import Run

USAGE = TokenUsage(total_tokens=7, cost_usd=0.5)
KINDS = (ReasoningBranch, ReasoningThought, ReasoningScore, ReasoningPrune, ReasoningDone)


class Scripted(ReasoningStrategy):
    """Decides what it is asked to, one decision after the other; a function is called."""

    name = "scripted"

    def __init__(self, *decisions, early=None, best="best"):
        """Keep the decisions."""
        super().__init__()
        self.left = list(decisions)
        self.early_ = early
        self.best_ = best
        self.seen = []
        self.contexts = []

    def step(self, state, context):
        """Decide."""
        self.contexts.append(context)
        return self.following(state, context)

    def aggregate(self, thoughts, state):
        """Decide."""
        self.seen.append([(one.id, one.content, one.error) for one in thoughts])
        return self.following(state, thoughts)

    def early(self, thoughts, state):
        """Decide, or wait."""
        return self.early_ and self.early_(self, thoughts)

    def best(self, thoughts, state):
        """Answer."""
        return self.best_

    def following(self, *given):
        """Return the next decision."""
        decision = self.left.pop(0)
        return decision(self, *given) if callable(decision) else decision


def echo(branch):
    """Answer with the prompt."""
    return Answer(f"on {branch.prompt}", tokens=10, cost_usd=0.01)


def played(*decisions, model=echo, limits=None, early=None, **more):
    """Return a whole run."""
    play = Play(model, limits or RunLimits(), **more)
    play.play(Scripted(*decisions, early=early), "Why?")
    return play


def begun(*decisions, early=None, limits=None):
    """Return a run that has begun, with what it wants done."""
    run = Run(Scripted(*decisions, early=early))
    return run, run.handle(RunBegun(run_id="r", question="Why?", limits=limits or RunLimits()))


def came(branch_id, content="x", **more):
    """Return the thought of a branch."""
    return ThoughtCame(branch_id=branch_id, content=content, **more)


def of(outputs, kind):
    """Return the outputs of a kind."""
    return [one for one in outputs if isinstance(one, kind)]


def test_branches_become_thoughts_and_an_answer():
    """What is asked is published, then what came, then the end; usage and cost are summed up."""
    play = played([Branch("a"), Branch("b", parent_id=None)], lambda s, _, t: Done(t[1].content))
    result = play.result

    assert (result.status, result.answer, result.branches) == ("done", "on b", 2)
    assert [one.content for one in result.thoughts] == ["on a", "on b"]
    assert (result.usage.total_tokens, result.usage.cost_usd) == (20, 0.02)
    assert [one.kind for one in play.published] == [
        "reasoning_branch", "reasoning_branch", "reasoning_thought", "reasoning_thought",
        "reasoning_done",
    ]  # fmt: skip
    assert {one.run_id for one in play.published} == {"r-1"}
    assert {one.strategy for one in play.published} == {"scripted"}


def test_one_branch_needs_no_list():
    """It is a decision by itself, and its metadata comes back."""
    metadata = {"a": [1]}
    play = played(Branch("a", metadata=metadata), lambda s, _, t: Done(t[0].metadata))

    assert play.result.answer == metadata


def test_thoughts_are_in_the_order_of_branches():
    """However they arrive."""
    run, _ = begun([Branch("a"), Branch("b"), Branch("c")], Done(1))
    for name in ("b3", "b1", "b2"):
        outputs = run.handle(came(name, name))

    assert run.is_finished
    assert run._strategy.seen == [[("b1", "b1", None), ("b2", "b2", None), ("b3", "b3", None)]]
    assert [one.id for one in outputs[-1].result.thoughts] == ["b1", "b2", "b3"]


def test_own_thoughts_are_put_there():
    """As text, as dicts, several at a time; the strategy is asked for the next step."""
    play = played(
        Continue_("one"),
        Continue_({"content": "two", "parent_id": "t1", "score": 0.5}),
        Continue_([Thought("x", "three", "t1"), "four"]),
        Done("end"),
    )

    assert [(one.id, one.content, one.parent_id, one.score) for one in play.result.thoughts] == [
        ("t1", "one", None, None), ("t2", "two", "t1", 0.5), ("x", "three", "t1", None),
        ("t3", "four", None, None),
    ]  # fmt: skip


def test_a_state_is_kept_or_replaced():
    """A decision may bring a new one."""
    strategy = Scripted((Continue_("a"), "new"), lambda s, state, _: Done(state))

    assert Play(echo).play(strategy, "Why?").answer == "new"


def test_a_revision_runs_the_same_prompt_with_feedback():
    """Of all branches of the latest decision, or of those that are named."""
    play = played(
        [Branch("a"), Branch("b")],
        Revise("shorter"),
        Revise("longer", ("b2.r1",)),
        lambda s, _, t: Done(t[0].content),
    )

    assert {name: one.branch.prompt for name, one in play.started.items()} == {
        "b1": "a", "b2": "b", "b1.r1": "a\n\nshorter", "b2.r1": "b\n\nshorter",
        "b2.r2": "b\n\nlonger",
    }  # fmt: skip
    assert play.result.revisions == 2
    assert play.result.answer == "on b\n\nlonger"
    assert play.result.nodes[-1].parent_id == "b2.r1"


def test_revisions_are_bounded():
    """One more than there may be ends the run with the best answer."""
    limits = RunLimits(max_revisions=1)
    result = played(Branch("a"), Revise("x"), Revise("y"), limits=limits).result

    assert (result.status, result.answer, result.revisions) == ("max_steps_exceeded", "best", 1)


def test_steps_are_bounded():
    """Decisions that go on are counted, the last one that ends it is not."""
    limits = RunLimits(max_steps=2)
    fits = played(Continue_("a"), Branch("b"), Done(1), limits=limits).result
    exceeds = played(Continue_("a"), Branch("b"), Continue_("c"), limits=limits).result

    assert (fits.status, fits.answer) == ("done", 1)
    assert (exceeds.status, exceeds.answer) == ("max_steps_exceeded", "best")


def test_a_strategy_knows_what_is_left():
    """Steps, tokens and dollars, and all thoughts so far."""
    limits = RunLimits(max_steps=5, budget_tokens=100, budget_usd=1.0)
    strategy = Scripted(Branch("a"), Continue_("b"), Done(1))
    Play(echo, limits).play(strategy, "Why?")
    first, last = strategy.contexts

    assert (first.question, first.steps_left, first.tokens_left, first.thoughts) == (
        "Why?", 5, 100, (),
    )  # fmt: skip
    assert (last.steps_left, last.tokens_left, last.usd_left) == (3, 90, 0.99)
    assert [one.content for one in last.thoughts] == ["on a", "b"]


def test_chance_is_that_of_the_run():
    """The same for the same id, in any process; another one for another."""

    def roll(run_id):
        strategy = Scripted(lambda s, _, context: Done(context.random.random()))
        return Play(echo, run_id=run_id).play(strategy, "Why?").answer

    assert roll("r-1") == roll("r-1") == 0.29904425559950354
    assert roll("r-1") != roll("r-2")


def test_chance_is_that_of_the_session_too():
    """The first run of every fresh session has the same id, and is dealt other cards."""

    def roll(session_id):
        run = Run(Scripted(lambda s, _, context: Done(context.random.random())))
        begin = RunBegun(run_id="call-m-2@0", question="Why?", session_id=session_id)
        return of(run.handle(begin), Finish)[0].result.answer

    assert roll("s-1") == roll("s-1")
    assert roll("s-1") != roll("s-2")


def test_at_most_so_many_at_a_time():
    """The next one starts when one has ended."""
    run, outputs = begun(
        [Branch(text) for text in "abc"], Done(1), limits=RunLimits(max_parallel=2)
    )

    assert [one.branch.id for one in of(outputs, StartBranch)] == ["b1", "b2"]
    assert [one.branch.id for one in of(run.handle(came("b2")), StartBranch)] == ["b3"]


def test_a_failed_branch_is_a_thought_with_its_error():
    """The run goes on."""
    answers = {"a": Answer(error="crashed", tokens=3), "b": Answer("fine")}
    play = played(
        [Branch("a"), Branch("b")],
        lambda s, _, t: Done([one.error for one in t]),
        model=lambda branch: answers[branch.prompt],
    )
    first = play.result.thoughts[0]

    assert play.result.answer == ["crashed", None]
    assert (first.content, first.score, first.metadata) == ("", None, {"error": "crashed"})
    assert play.result.usage.total_tokens == 3


def test_typed_answers():
    """They are of their type, or the branch has failed."""

    class Verdict(msgspec.Struct):
        score: int

    answers = {"a": '{"score": 3}', "b": '{"score": "x"}', "c": "no"}
    play = played(
        [Branch(text, result=Verdict) for text in "abc"],
        lambda s, _, t: Done([one.metadata.get("output", Verdict(0)).score for one in t]),
        model=lambda branch: answers[branch.prompt],
    )

    assert play.result.answer == [3, 0, 0]
    assert "its answer is not of the type" in play.result.thoughts[1].error
    assert play.result.thoughts[0].metadata == {}


def score_and_prune(strategy, _, thoughts):
    """Score both, prune the second, and end."""
    strategy.scored(
        [msgspec.structs.replace(one, score=place / 2) for place, one in enumerate(thoughts)]
    )
    strategy.prune(thoughts[1:], "weak")
    return Done(1)


def test_scores_and_prunings_are_published():
    """In the order in which they were noted, before what is decided."""
    play = played([Branch("a"), Branch("b")], score_and_prune)
    noted = [one for one in play.published if isinstance(one, ReasoningScore | ReasoningPrune)]

    assert [one.kind for one in noted] == ["reasoning_score", "reasoning_score", "reasoning_prune"]
    assert (noted[2].thought_ids, noted[2].reason) == (("b2",), "weak")
    assert (play.result.best_score, play.result.pruned) == (0.5, 1)
    assert [one.score for one in play.result.thoughts] == [0.0, 0.5]


def prune_others(strategy, thoughts):
    """Give up all that are not there, but say nothing."""
    strategy.prune({"b1", "b2", "b3"} - {one.id for one in thoughts})


def test_what_is_pruned_while_it_runs_is_ended():
    """At once, also one that waits; the others are the batch, and its usage is counted."""
    limits = RunLimits(max_parallel=2)
    decisions = ([Branch(text) for text in "abc"], lambda s, _, t: Done([one.error for one in t]))
    run, _ = begun(*decisions, early=prune_others, limits=limits)
    outputs = run.handle(came("b1"))

    assert [one.branch_id for one in of(outputs, EndBranch)] == ["b2"]
    assert not run.is_finished  # the branch has not ended yet
    late = came("b2", error="killed", usage=TokenUsage(total_tokens=7))
    result = run.handle(late)[-1].result
    assert (result.status, result.answer) == ("done", [None, "pruned", "pruned"])
    assert (result.pruned, result.usage.total_tokens, len(result.thoughts)) == (2, 7, 3)


def test_an_early_decision_ends_the_others():
    """They are pruned, and the run goes on with what was decided."""
    run, _ = begun(
        [Branch("a"), Branch("b")], early=lambda strategy, thoughts: Done(thoughts[0].content)
    )
    outputs = run.handle(came("b2", "quick"))

    assert [one.branch_id for one in of(outputs, EndBranch)] == ["b1"]
    result = run.handle(came("b1", "slow"))[-1].result
    assert (result.answer, result.pruned) == ("quick", 1)
    assert [one.content for one in result.thoughts] == ["", "quick"]


def test_the_last_branch_is_not_asked_about_early():
    """All are there then, and ``aggregate`` is asked."""
    asked = []
    played([Branch("a"), Branch("b")], Done(1), early=lambda s, t: asked.append(len(t)))

    assert asked == [1]


def test_a_known_branch_is_not_run_again():
    """Its thought is handed back; other words under its name are refused."""
    play = played(
        Branch("a", id="x"), [Branch("a", id="x"), Branch("b")], lambda s, _, t: Done(t[0].content)
    )
    other = played(Branch("a", id="x"), Branch("b", id="x"))

    assert (play.result.answer, play.result.branches) == ("on a", 2)
    assert other.result.status == "failed"
    assert "strategy is not deterministic: branch 'x' has another prompt" in other.result.reason


def test_over_budget():
    """Shares are reserved before branches start; where there is none left, the best one counts."""
    limits = RunLimits(budget_tokens=25)
    play = played([Branch(text) for text in "abcd"], Done(1), limits=limits, model=spender)

    assert [one.tokens for one in play.started.values()] == [6, 6, 6, 7]
    assert play.result.usage.total_tokens == 25
    over = played([Branch("a")], [Branch("b"), Branch("c")], limits=limits, model=spender)
    assert [one.tokens for one in over.started.values()] == [25]
    assert (over.result.status, over.result.answer) == ("budget_exceeded", "best")
    assert len(over.result.thoughts) == over.result.branches == 3


def test_what_a_budget_leaves_out_is_noted():
    """How many branches, and by which limit; where it leaves none out there is nothing to say."""
    limits = RunLimits(budget_tokens=25, budget_usd=1.0)
    broke = Answer(error="the subagent's cycle was aborted: max_total_tokens_exceeded")
    poor = played(
        [Branch(text) for text in "abc"],
        Done(1),
        limits=limits,
        model=lambda one: broke if one.id != "b3" else Answer("x", tokens=5),
    )
    unbegun = played([Branch("a")], [Branch("b"), Branch("c")], limits=limits, model=spender)
    (done,) = [one for one in poor.published if isinstance(one, ReasoningDone)]
    which = "budget_tokens=25 and budget_usd=1.0 is too little for them"

    assert poor.result.status == "done"
    assert poor.result.notes == done.notes == (f"2 of 3 branches were left out: {which}",)
    assert unbegun.result.notes[0].startswith("2 of 3 branches were left out: budget_tokens=25 ")
    assert played([Branch("a")], Done(1), limits=limits).result.notes == ()


def spender(_):
    """Use all that there is."""
    return Answer("x", tokens=99)


def test_what_a_branch_has_not_used_comes_back():
    """The next one may use it."""
    limits = RunLimits(budget_usd=1.0, max_parallel=1)
    play = played([Branch(text) for text in "ab"], Done(1), limits=limits)

    assert [one.cost_usd for one in play.started.values()] == [0.5, 0.99]


def test_an_unknown_price_counts_as_all_of_the_share():
    """So the budget holds, whatever a model costs."""
    limits = RunLimits(budget_usd=1.0, max_parallel=1)
    unpriced = Answer("x", tokens=5, cost_usd=None)
    play = played([Branch(text) for text in "ab"], Done(1), limits=limits, model=lambda _: unpriced)

    assert [one.cost_usd for one in play.started.values()] == [0.5, 0.5]


@pytest.mark.parametrize(
    ("given", "status", "answer"),
    [
        (Deadline(at_ms=50), "timeout", "best"),
        (RunAborted(reason="stop", at_ms=50), "aborted", None),
    ],
)
def test_what_ends_a_run_from_outside(given, status, answer):
    """Branches that run are ended, and waited for; a second time nobody is."""
    for is_patient in (True, False):
        run, _ = begun([Branch("a"), Branch("b")])
        run.handle(came("b2", at_ms=20))
        outputs = run.handle(given)

        assert [one.branch_id for one in of(outputs, EndBranch)] == ["b1"]
        last = came("b1", usage=TokenUsage(total_tokens=9), at_ms=60) if is_patient else given
        result = run.handle(last)[-1].result
        assert (result.status, result.answer) == (status, answer)
        assert result.elapsed_ms == (60 if is_patient else 50)
        assert result.usage.total_tokens == (9 if is_patient else 0)
        assert result.thoughts[0].error == f"the run is over: {status}"


def test_nothing_is_said_after_the_end():
    """Whatever comes, and a thought that comes twice counts once."""
    run, _ = begun([Branch("a"), Branch("b")], Done(1))
    run.handle(came("b1", "first"))
    assert run.handle(came("b1", "again")) == []
    assert run.handle(came("nobody")) == []
    result = run.handle(came("b2"))[-1].result

    assert result.thoughts[0].content == "first"
    assert run.handle(came("b2")) == run.handle(Deadline()) == []


TWO_ROUNDS = ([Branch("a"), Branch("b")], [Branch("c"), Branch("d")], Done(1))


def test_a_run_is_played_again():
    """The same branches go on; nothing is published or paid twice."""
    came_ = (came("b2", "two"), came("b1", "one"), came("b4", "four"))
    published = events(run_again(TWO_ROUNDS, came_, ()))

    for known in (tuple(published), len(published)):
        assert run_again(TWO_ROUNDS, came_, known) == [StartBranch(branch=Branch("c", "b3"))]


def events(outputs):
    """Return what outputs publish."""
    return [one.event for one in of(outputs, PublishEvent)]


def run_again(decisions, played_, published):
    """Return what a run that is played again wants done."""
    known = published if isinstance(published, int) else tuple(published)
    begin = RunBegun(run_id="r", question="Why?", played=played_, published=known)
    return Run(Scripted(*decisions)).handle(begin)


def test_a_thought_that_nobody_published_is_published():
    """It came before the death, and what it led to did not."""
    published = events(run_again(TWO_ROUNDS, (), ()))
    outputs = run_again(TWO_ROUNDS, (came("b1", "one"),), published)

    assert [one.thought_id for one in events(outputs)] == ["b1"]
    assert [one.branch.id for one in of(outputs, StartBranch)] == ["b2"]


def test_a_strategy_that_decides_otherwise_is_refused():
    """A branch that is known under other words ends the run before anything is paid."""
    published = events(run_again(TWO_ROUNDS, (), ()))
    run = Run(Scripted([Branch("a"), Branch("B")], Done(1)))
    begin = RunBegun(run_id="r", question="Why?", published=tuple(published))
    outputs = run.handle(begin)
    ended = [one.branch_id for one in of(outputs, EndBranch)]
    outputs += run.handle(came("b1", error="ended", usage=USAGE))
    outputs += run.handle(came("b2", error="ended", usage=USAGE))
    result = outputs[-1].result

    assert ended == ["b1", "b2"]
    assert result.usage.total_tokens == 2 * USAGE.total_tokens
    assert result.status == "failed"
    assert result.reason == (
        "strategy is not deterministic: branch 'b2' of prompt 'b' was published, and now it is"
        " branch 'b2' of prompt 'B'"
    )
    assert not of(outputs, StartBranch)


def test_an_end_that_was_begun_goes_on():
    """A deadline that had come is one of the inputs: what runs is ended again."""
    first = run_again(TWO_ROUNDS, (), ())
    published = events(first)
    outputs = run_again(TWO_ROUNDS, (Deadline(at_ms=9), came("b1", error="killed")), published)

    assert [type(one).__name__ for one in outputs] == ["EndBranch", "PublishEvent"]
    assert outputs[0].branch_id == "b2"


@pytest.mark.parametrize(
    "given",
    [came("b1", error="lost", usage=TokenUsage(total_tokens=1), at_ms=3), Deadline(), RunAborted()],
    ids=lambda given: type(given).__name__,
)
def test_what_comes_can_be_kept(given):
    """As one of its kind, and within the beginning of the next life."""
    begin = RunBegun(
        run_id="r", question="Why?", played=(given,), published=tuple(events(begun([])[1]))
    )
    counted = msgspec.structs.replace(begin, published=3)
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(begin), type=RunBegun)

    assert kept == begin
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(counted), type=RunBegun) == counted
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(given), type=Recorded) == given
