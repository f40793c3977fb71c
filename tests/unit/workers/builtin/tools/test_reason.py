"""The tool that runs strategies: what it asks of its session, in one life and in several."""

import asyncio
import threading
from random import Random

import pytest
from structlog.testing import capture_logs

from cmdc_runtime.events import (
    Envelope,
    ReasoningBranch,
    ReasoningDone,
    ReasoningScore,
    ReasoningThought,
)
from cmdc_runtime.extensions import BranchAnswer, Context, OtherBranchError, SessionPort, ToolError
from cmdc_runtime.extensions.reasoning import Branch, Done, Failed, ReasoningStrategy, Thought
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.reasoning import ReasoningResult
from workers.builtin.tools import reason

USED = TokenUsage(total_tokens=3, cost_usd=0.1)
BOUND_S = 20.0


class Death(BaseException):
    """The process dies."""


class Session(SessionPort):
    """A session as it stands in for the kernel: it outlives the deaths of its call.

    Branches answer in an order that ``chance`` draws in each life; ``dies_at`` is the number of the
    step that is not published any more.
    """

    def __init__(self, chance, dies_at=None, lasting=()):
        self.chance, self.dies_at, self.lasting = chance, dies_at, lasting
        self.steps = []
        self.answers = {}
        self.asked, self.paid = [], []
        self.ended = []
        self.before = 0
        self.refuses = {}
        self._gone = {}

    @property
    def published(self):
        return self.before

    async def publish(self, event):
        if len(self.steps) == self.dies_at:
            self.dies_at = None
            raise Death
        self.steps.append(event)

    async def recall(self, run_id):
        return tuple(
            Envelope(session_id="s-1", index=at + 1, at_ms=at, event=event)
            for at, event in enumerate(self.steps[: self.before])
        )

    async def branch(self, branch_id, prompt, **more):
        self.asked.append(branch_id)
        if (error := self.refuses.get(branch_id)) is not None:
            raise error
        if branch_id not in self.answers:
            gone = self._gone.setdefault(branch_id, asyncio.Event())
            for _ in range(self.chance.randrange(1, 20)):
                await asyncio.sleep(0)
            if branch_id in self.lasting:
                await gone.wait()
                return BranchAnswer(ok=False, text="ended", usage=TokenUsage())
            self.paid.append(branch_id)
            text = f"answer {branch_id}"
            self.answers[branch_id] = BranchAnswer(ok=True, text=text, usage=USED)
        return self.answers[branch_id]

    async def end_branch(self, branch_id):
        self.ended.append(branch_id)
        self._gone.setdefault(branch_id, asyncio.Event()).set()
        return self.answers.get(branch_id) or BranchAnswer(ok=False, text="ended", usage=USED)

    def dies(self):
        """Record a death: what was published is what is recalled from now on."""
        self.before, self.asked = len(self.steps), []
        self._gone, self.lasting = {}, ()  # who is asked again answers


def called(tool, session, **arguments):
    """Return the result of one call, or the death of its process."""
    context = Context(session_id="s-1", call_id="call-1", session=session)

    async def whole():
        async with asyncio.timeout(BOUND_S):
            return await tool.execute(tool.check({"question": "Well?", **arguments}), context)

    return asyncio.run(whole())


def lived(make, session, **limits):
    """Return the result of a call that runs again after each death."""
    while True:
        try:
            return called(reason.create([make], **limits), session)
        except Death:
            session.dies()


class Rounds(ReasoningStrategy):
    """Asks four, scores by chance, prunes half, asks two more for the best."""

    def init(self, opts, context):
        return context.random

    def step(self, state, context):
        return [Branch(f"{context.question} {n}", id=f"a{n}") for n in range(4)]

    def aggregate(self, thoughts, state):
        if len(thoughts) == 2:
            return Done(" + ".join(one.content for one in thoughts))
        scored = [Thought(one.id, one.content, score=state.random()) for one in thoughts]
        self.scored(scored)
        ranked = sorted(scored, key=lambda one: -one.score)
        self.prune(ranked[2:], "weak")
        return [Branch(f"better: {ranked[0].content}", id=f"b{n}") for n in range(2)]


class Quick(ReasoningStrategy):
    """Takes the first two that come, whoever they are."""

    def step(self, state, context):
        return [Branch(f"{context.question} {n}", id=f"a{n}") for n in range(5)]

    def early(self, thoughts, state):
        return Done([one.content for one in thoughts]) if len(thoughts) == 2 else None

    def aggregate(self, thoughts, state):
        return Failed("nobody came")


def test_a_run_pays_each_branch_once_and_answers():
    """All that the machine publishes comes out."""
    session = Session(Random(1))
    answer = lived(Rounds, session)
    result = ReasoningResult.of(session.steps)

    assert answer == "answer b0 + answer b1"
    assert (result.status, result.branches, result.pruned) == ("done", 6, 2)
    assert sorted(session.paid) == ["a0", "a1", "a2", "a3", "b0", "b1"]
    assert result.usage.total_tokens == 18


@pytest.mark.parametrize("strategy", [Rounds, Quick])
@pytest.mark.parametrize("seed", range(4))
def test_a_death_before_any_step_changes_nothing(strategy, seed):
    """The tree, what was published and paid are one run's; who came first stays the first."""
    whole = Session(Random(seed))
    lived(strategy, whole, max_parallel=3)
    for dies_at in range(len(whole.steps)):
        session = Session(Random(seed), dies_at)
        said = lived(strategy, session, max_parallel=3)
        result = ReasoningResult.of(session.steps)
        names = [one.thought_id for one in session.steps if isinstance(one, ReasoningThought)]

        assert result.status == "done", (dies_at, result.reason)
        assert session.before == dies_at
        assert len(names) == len(set(names)) == len(result.thoughts), dies_at
        assert len(session.paid) == len(set(session.paid)), dies_at
        assert sum(isinstance(one, ReasoningDone) for one in session.steps) == 1
        if strategy is Rounds:
            assert said == "answer b0 + answer b1"
        else:
            assert result.answer == [f"answer {name}" for name in sorted(names[:2])]


def test_branches_that_were_ended_are_not_asked_for_again():
    """What they used is reported as it was."""
    session = Session(Random(3), dies_at=11, lasting=("a2", "a3", "a4"))
    lived(Quick, session, max_parallel=5)
    lost = [one for one in session.steps if isinstance(one, ReasoningThought) and one.error]

    assert {one.thought_id for one in lost} == {"a2", "a3", "a4"}
    assert all(one.usage == USED for one in lost[:2])
    assert not {one.thought_id for one in lost[:2]}.intersection(session.asked)


def test_what_is_published_but_cannot_be_read_is_passed_over_by_its_number():
    """As in a session that goes on from another one's state."""
    session = Session(Random(2), dies_at=6)
    with pytest.raises(Death):
        called(reason.create([Rounds]), session)
    session.before, session.steps = len(session.steps), []

    assert called(reason.create([Rounds]), session) == "answer b0 + answer b1"
    assert not any(
        isinstance(one, ReasoningBranch) and one.branch_id == "a0" for one in session.steps
    )


class Fickle(ReasoningStrategy):
    """Decides otherwise in each life."""

    lives = 0

    def step(self, state, context):
        type(self).lives += 1
        return [Branch(f"life {self.lives}", id=f"x{self.lives}"), Branch("same", id="y")]

    def aggregate(self, thoughts, state):
        return Done("there")


def test_a_strategy_that_decides_otherwise_fails():
    """In the words that the contract has for it."""
    session = Session(Random(1), dies_at=3)
    said = lived(Fickle, session)

    assert "[Not finished (failed: strategy is not deterministic: branch 'x1'" in said
    assert ReasoningResult.of(session.steps).usage.total_tokens == 2 * USED.total_tokens


def test_a_branch_that_was_asked_otherwise_fails_the_run():
    """Another that was not started is a thought with its error."""
    session = Session(Random(1))
    session.refuses = {"a1": ToolError("no subagent was started: max_children")}
    assert lived(Rounds, session).startswith("answer b0")
    assert ReasoningResult.of(session.steps).thoughts[1].error.endswith("max_children")

    session = Session(Random(1))
    session.refuses = {"a1": OtherBranchError("it was asked something else before")}
    with pytest.raises(ToolError, match="not deterministic: it was asked something else before"):
        lived(Rounds, session)
    assert session.steps[-1].status == "failed"


class Stuck(ReasoningStrategy):
    """Asks two, and then never decides; ``freed`` lets its threads go."""

    freed = threading.Event()
    begun = 0

    def init(self, opts, context):
        type(self).begun += 1

    def step(self, state, context):
        return [Branch("a", id="a"), Branch("b", id="b")]

    def early(self, thoughts, state):
        self.freed.wait(BOUND_S)

    def aggregate(self, thoughts, state):
        return Done("late")


class Mute(Stuck):
    """Does not get as far as a decision."""

    def init(self, opts, context):
        super().init(opts, context)
        self.freed.wait(BOUND_S)


@pytest.fixture
def stuck():
    """Let what hangs go when the test is over."""
    Stuck.freed = threading.Event()
    yield Stuck
    Stuck.freed.set()
    while left := [one for one in threading.enumerate() if one.name == "strategy"]:
        left[0].join(BOUND_S)


def test_a_strategy_that_does_not_decide_ends_its_run(monkeypatch, stuck):
    """As failed, with the best answer so far, all that was used, and an end that is published."""
    monkeypatch.setattr(reason, "DECIDE_S", 0.05)
    session = Session(Random(1), lasting=("b",))
    said = lived(stuck, session)
    result = ReasoningResult.of(session.steps)

    assert said.startswith("answer a\n\n[Not finished (failed: the strategy did not decide within")
    assert (result.status, result.answer) == ("failed", "answer a")
    assert [one.error for one in result.thoughts] == [None, "the run is over: failed"]
    assert result.usage.total_tokens == 2 * USED.total_tokens
    assert session.ended == ["b"]


@pytest.mark.parametrize("kind", [Stuck, Mute])
def test_a_strategy_that_hangs_does_not_outlast_its_time(monkeypatch, stuck, kind):
    """Wherever it hangs, the run ends by its timeout and says so."""
    monkeypatch.setattr(reason, "GRACE_S", 0.05)
    session = Session(Random(1), lasting=("b",))
    try:
        said = lived(kind, session, timeout=0.2)
    except ToolError as error:
        said = str(error)
    done = session.steps[-1]

    assert "timeout: the strategy had not decided by then" in said
    assert (done.status, done.strategy) == ("timeout", kind.name)
    assert done.answer == ("answer a" if kind is Stuck else None)
    assert done.elapsed_ms < BOUND_S * 1000 / 2


def test_a_strategy_that_cannot_be_made_is_reported_too():
    """The run has an end, though it never began."""

    class Broken(ReasoningStrategy):
        made = 0

        def __init__(self, **opts):
            type(self).made += 1
            if self.made > 1:
                raise RuntimeError("no more")

    session = Session(Random(1))
    why = "broken failed: the strategy cannot be run: Runt"
    with capture_logs() as logs, pytest.raises(ToolError, match=why):
        lived(Broken, session)

    assert session.steps[-1].status == "failed"
    assert [one["event"] for one in logs] == ["strategy.failed", "strategy.given_up"]


def test_what_a_strategy_raises_is_in_the_log():
    """With its traceback; the reason has its line."""

    class Odd(ReasoningStrategy):
        def step(self, state, context):
            raise LookupError("where is it")

    with capture_logs() as logs, pytest.raises(ToolError, match=r"odd\.step: LookupError"):
        lived(Odd, Session(Random(1)))

    (entry,) = logs
    assert (entry["event"], entry["log_level"]) == ("strategy.failed", "warning")
    assert "in step" in entry["exception"]


def test_a_run_that_was_given_up_is_so_again(monkeypatch, stuck):
    """Whatever step it died at: the same end, published once."""
    monkeypatch.setattr(reason, "DECIDE_S", 0.05)
    whole = Session(Random(1), lasting=("b",))
    lived(stuck, whole)
    for dies_at in range(1, len(whole.steps)):
        monkeypatch.setattr(reason, "HUNG_MAX", 100)
        session = Session(Random(1), lasting=("b",), dies_at=dies_at)
        lived(stuck, session)
        result = ReasoningResult.of(session.steps)

        assert result.status == "failed"
        assert result.answer in {"answer a", "answer b"}  # who comes first again is not published
        assert not any(one.content is None for one in result.nodes)
        assert sum(isinstance(one, ReasoningDone) for one in session.steps) == 1


def test_no_more_than_a_few_strategies_hang(monkeypatch, stuck):
    """One more is refused by name, and not asked."""
    monkeypatch.setattr(reason, "DECIDE_S", 0.05)
    monkeypatch.setattr(reason, "HUNG_MAX", 2)
    for _ in range(2):
        lived(stuck, Session(Random(1)))
    before, session = stuck.begun, Session(Random(1))
    with pytest.raises(ToolError, match="stuck failed: 2 strategies that did not decide in time"):
        lived(stuck, session)

    assert (stuck.begun, session.steps[-1].status) == (before, "failed")


def test_time_ends_a_run_and_its_branches():
    """With what is best so far."""
    session = Session(Random(1), lasting=("a1",))
    said = lived(Rounds, session, timeout=0.2)

    assert said.startswith("answer a")
    assert "[Cut off (timeout): this is the best answer so far.]" in said
    assert session.ended == ["a1"]


def test_a_run_that_was_over_in_time_is_so_again():
    """The deadline stands where it stood among what came."""
    session = Session(Random(1), dies_at=8, lasting=("a1",))
    said = lived(Rounds, session, timeout=0.2)
    (done,) = [one for one in session.steps if isinstance(one, ReasoningDone)]

    assert "Cut off (timeout)" in said
    assert done.status == "timeout"
    assert session.paid.count("a0") == 1
    assert not any(isinstance(one, ReasoningScore) for one in session.steps)


class Sized(ReasoningStrategy):
    """Is done with its size."""

    def step(self, state, context):
        return Done(self.opts["size"])


def test_variants_of_a_class_have_the_names_that_they_are_given():
    """The model chooses by them, and events name them; each run has a new one."""
    variants = {"small": lambda: Sized(size=1), "large": lambda: Sized(size=2)}
    tool = reason.create(variants, max_steps=1)
    session = Session(Random(1))
    answers = [called(tool, session, strategy=name) for name in ("large", "small")]

    assert tool.parameters["properties"]["strategy"]["enum"] == ["small", "large"]
    assert answers == ["2", "1"]
    assert [one.strategy for one in session.steps] == ["large", "small"]


def test_strategies_have_names_of_their_own():
    """The model has to choose by them."""
    with pytest.raises(Exception, match="each with its own name"):
        reason.create([Rounds, Rounds])
    with pytest.raises(Exception, match="give one strategy or more"):
        reason.create([])


def test_the_model_reads_that_an_answer_was_cut():
    """What is there of it, and how much that is."""

    class Long(ReasoningStrategy):
        def step(self, state, context):
            return Done("x" * 300_000)

    said = called(reason.create([Long]), Session(Random(0)))

    assert said == (
        "x" * 262_144 + "\n\n[the answer was cut: it is the first 262,144 of 300,000 bytes]"
    )


def test_a_run_that_nobody_reported_is_of_the_first_strategy():
    """Where the call names none, as the model reads of its argument."""
    tool = reason.create({"quick": Quick, "slow": Rounds})

    assert tool.run_strategy == tool.parameters["properties"]["strategy"]["default"] == "quick"
