"""Trees and graphs of thoughts: which candidates they pursue, and what they ask of a model."""

import pytest
from msgspec import structs

from cmdc_runtime import reasoning
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.events import ReasoningPrune
from cmdc_runtime.packing import pack_strategy
from cmdc_runtime.reasoning.strategies import Choice, Judgement, Proposals
from scripts.reasoning.play import Answer, Play
from workers.loader import load_strategy


def played(given, model, **more):
    """Return a whole run."""
    play = Play(model, **more)
    play.play(load_strategy(pack_strategy(given, "")), "Which way?")
    return play


def last_digits(path, question):
    """Score a path by the number at its end."""
    return float(path.split()[-1])


SCORED = [
    reasoning.SelfConsistency(samples=3, prompt="?"),
    reasoning.TreeOfThoughts(depth=1, candidates=3),
    reasoning.GraphOfThoughts(
        operations=[reasoning.Generate(k=3), reasoning.Score(), reasoning.KeepBest()]
    ),
]
every_scored = pytest.mark.parametrize("given", SCORED, ids=lambda one: one.short_name)


@every_scored
def test_a_function_may_give_no_score_or_its_details(given):
    """What has none is behind all that have one; why one has it is reported."""
    said = {"way 1": None, "way 2": (True, {"why": "so"}), "way 3": 0.5}
    play = played(structs.replace(given, score=lambda text, _: said[text]), numbered)
    found = {one.content: (one.score, one.score_detail) for one in play.result.thoughts}

    assert play.result.answer == "way 2"
    assert found == {"way 1": (None, {}), "way 2": (1.0, {"why": "so"}), "way 3": (0.5, {})}


@every_scored
@pytest.mark.parametrize("bad", ["0.5", [1.0], (1.0, {}, 2), (None, {})])
def test_what_else_a_function_says_is_named(given, bad):
    """The run has failed, and says what it may be."""
    play = played(structs.replace(given, score=lambda _text, _question: bad), numbered)

    assert play.result.status == "failed"
    assert "the score of 'b" in play.result.reason
    assert "return a number, (number, details) or None" in play.result.reason


def test_samples_without_a_score_weigh_nothing():
    """Where none has one there is no vote."""
    sampling = reasoning.SelfConsistency(samples=3, score=lambda _text, _question: None)
    play = played(sampling, numbered)

    assert (play.result.status, play.result.reason) == (
        "failed",
        "score has scored none of the thoughts",
    )


def numbered(branch):
    """Answer with the number of the branch."""
    return f"way {branch.id[1:]}"


def pruned(play):
    """Return who was given up."""
    return [one.thought_ids for one in play.published if isinstance(one, ReasoningPrune)]


def test_the_best_of_each_level_are_pursued():
    """By a function's scores; the answer is the best of the last level, below its own path."""
    tree = reasoning.TreeOfThoughts(depth=2, breadth=2, candidates=3, score=last_digits)
    play = played(tree, numbered)

    assert play.result.answer == "way 9"
    assert pruned(play) == [("b1",), ("b4", "b5", "b6", "b7")]
    assert play.result.nodes[-1].parent_id == "b2"
    prompt = play.started["b9"].branch.prompt
    assert prompt.index("Which way?") < prompt.index("Step 1:\nway 2") < prompt.index("last one")
    assert "you take step 1" in play.started["b1"].branch.prompt


def test_a_beam_ranks_by_sums():
    """Where the levels' scores alone would choose another one."""
    scores = {"b1": 9, "b2": 1, "b3": 4, "b4": 3, "b5": 6, "b6": 2}
    answers = [
        played(
            reasoning.TreeOfThoughts(
                search=search, depth=2, breadth=2, candidates=2, score=last_digits
            ),
            lambda branch: f"way {scores[branch.id]}",
        ).result.answer
        for search in ("bfs", "beam")
    ]

    assert answers == ["way 6", "way 4"]


def test_depth_first_goes_back():
    """Where all candidates are poor, the next best one that was left is followed."""
    scores = {"b1": 7, "b2": 8, "b3": 1, "b4": 2, "b5": 9, "b6": 3}
    tree = reasoning.TreeOfThoughts(
        search="dfs", depth=2, candidates=2, score=last_digits, threshold=5
    )
    play = played(tree, lambda branch: f"way {scores[branch.id]}")

    assert [one.branch.parent_id for one in play.started.values()] == [
        None, None, "b2", "b2", "b1", "b1",
    ]  # fmt: skip
    assert play.result.answer == "way 9"
    assert pruned(play) == [("b3", "b4"), ("b6",)]


def test_depth_first_gives_up():
    """When nothing is left to try."""
    tree = reasoning.TreeOfThoughts(
        search="dfs", depth=2, candidates=2, score=last_digits, threshold=5
    )
    result = played(tree, lambda branch: "way 1" if branch.parent_id else "way 6").result

    assert (result.status, result.reason) == ("failed", "no path is good enough")


def test_judges_value_or_vote():
    """The mean of values, the part of votes; a judge that fails does not count."""
    values = {"b1": 2, "b2": 8}
    answers = iter(['{"score": 10}', '{"score": 6}', "what?", '{"score": 9}'])

    def valuer(branch):
        return next(answers) if branch.result is Judgement else f"way {values[branch.id]}"

    tree = {"depth": 1, "candidates": 2, "votes": 2}
    valued = played(reasoning.TreeOfThoughts(scoring="value", **tree), valuer)
    votes = iter(['{"best": 2}', '{"best": 7}'])
    voted = played(
        reasoning.TreeOfThoughts(scoring="vote", **tree),
        lambda branch: next(votes) if branch.result is Choice else numbered(branch),
    )

    assert [one.score for one in valued.result.thoughts[:2]] == [0.8, 0.9]
    assert [one.score for one in voted.result.thoughts[:2]] == [0, 0.5]
    assert (valued.result.answer, voted.result.answer) == ("way 8", "way 2")
    assert "Candidate 2:\nStep 1:\nway 2" in voted.started["b3"].branch.prompt


JUDGED = {
    "tree, values": reasoning.TreeOfThoughts(scoring="value", judge="x:judge", votes=1),
    "tree, votes": reasoning.TreeOfThoughts(judge="x:judge", votes=2),
    "graph": reasoning.GraphOfThoughts(judge="x:judge"),
    "samples": reasoning.SelfConsistency(samples=3, judge="x:judge"),
}


@pytest.mark.parametrize("given", JUDGED.values(), ids=JUDGED)
def test_judges_are_of_the_model_that_is_named(given):
    """And nothing else is; their answers are typed."""
    asked = []

    def model(branch):
        asked.append(branch)
        if branch.result is not None:
            return Answer('{"best": 1}' if branch.result is Choice else '{"score": 7}')
        return Answer("Answer: 42")

    result = played(given, model).result

    assert result.status == "done", result.reason
    assert {one.model for one in asked if one.result is not None} == {"x:judge"}
    assert {one.model for one in asked if one.result is None} == {None}


def test_samples_weigh_what_judges_say():
    """One that is surely right beats two that are surely wrong; one without a judge has no vote."""

    def model(branch):
        if branch.result is None:
            return Answer("Answer: 42" if branch.id == "b1" else "Answer: 41")
        if "Answer: 42" in branch.prompt:
            return Answer('{"score": 10}')
        return Answer('{"score": 1}') if branch.parent_id == "b2" else Answer(error="crashed")

    result = played(reasoning.SelfConsistency(samples=3, judge="x:judge"), model).result

    assert (result.status, result.answer) == ("done", "42")
    assert [one.score for one in result.thoughts[:3]] == [1.0, 0.1, None]


def test_samples_that_no_judge_weighs_are_no_answer():
    """A judge whose answer is of another form has failed, and its text is reported."""

    def model(branch):
        return Answer("Answer: 42" if branch.result is None else "quite good")

    result = played(reasoning.SelfConsistency(samples=2, judge="x:judge"), model).result

    assert result.status == "failed"
    assert result.reason.startswith("no judge has answered: its answer is not of the type")
    assert {"'quite good'" in str(one.error) for one in result.thoughts[2:]} == {True}


MODELS = ["openai:gpt-4o", "openai:o3", "anthropic/claude-x", "x:a-b"]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "kind", [reasoning.TreeOfThoughts, reasoning.GraphOfThoughts, reasoning.SelfConsistency]
)
def test_a_model_is_no_score(kind, name):
    """The error says what takes it."""
    with pytest.raises(InvalidOptions, match=f"give a model that judges as judge='{name}'"):
        kind(score=name)
    assert kind(judge=name).judge == name
    assert kind(score="my.lib:score").score == "my.lib:score"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"judge": "gpt"}, "judge: expected 'provider:model_id', got 'gpt'"),
        ({"judge": "x:m", "score": "my.lib:score"}, "a score takes the place of judges"),
    ],
)
def test_a_judge_that_cannot_be_asked_is_refused(options, why):
    """Where it is written."""
    with pytest.raises(InvalidOptions, match=why):
        reasoning.TreeOfThoughts(**options)


def test_a_level_that_no_judge_has_seen_is_no_answer():
    """The run says so, with the best thought of the level before where there was one."""

    def judged(branch):
        return "what?" if branch.result in {Judgement, Choice} else numbered(branch)

    play = played(reasoning.TreeOfThoughts(depth=1, candidates=2, votes=2), judged)

    assert play.result.status == "failed"
    assert play.result.reason.startswith("no judge has answered: ")
    assert play.result.answer is None


UNSCORED = {
    "tree": (reasoning.TreeOfThoughts, ""),
    "graph": (reasoning.GraphOfThoughts, "operations[1] (Score): "),
    "samples": (reasoning.SelfConsistency, ""),
}


@pytest.mark.parametrize(("kind", "where"), UNSCORED.values(), ids=UNSCORED)
def test_where_nothing_is_scored_nothing_is_chosen(kind, where):
    """By judges who all fail, or a function that says None: the run fails, and nothing is lost."""

    def model(branch):
        return numbered(branch) if branch.result is None else Answer(error="crashed")

    judged = played(kind(judge="x:judge"), model).result
    alone = played(kind(score=lambda _text, _question: None), model).result

    assert (judged.status, judged.reason) == ("failed", f"{where}no judge has answered: crashed")
    assert alone.reason == f"{where}score has scored none of the thoughts"
    assert {one.status for one in (judged, alone)} == {"failed"}
    assert (judged.pruned, alone.pruned) == (0, 0)


def test_an_operation_without_inputs_is_named():
    """It has no branches to ask for."""
    graph = reasoning.GraphOfThoughts(operations=(reasoning.Score(),))

    assert played(graph, numbered).result.reason == ("operations[0] (Score) has nothing to work on")


def test_a_level_without_candidates_leaves_the_best_of_the_one_before():
    """The run has failed, and what it has come to is not thrown away."""

    def barren(branch):
        return numbered(branch) if branch.parent_id is None else Answer(error="gone")

    tree = reasoning.TreeOfThoughts(depth=2, candidates=2, score=last_digits)
    result = played(tree, barren).result

    assert (result.status, result.answer) == ("failed", "way 2")


@pytest.mark.parametrize("scoring", ["value", "vote"])
def test_a_tree_without_judges_has_no_choice(scoring):
    """It has failed, and gives the best of the level before: none of these is better than any."""
    tree = reasoning.TreeOfThoughts(depth=2, candidates=2, votes=2, scoring=scoring)

    def judged(branch):
        if branch.result is None:
            return numbered(branch)
        is_deep = "Step 2" in branch.prompt
        good = '{"score": 9}' if branch.result is Judgement else '{"best": 1}'
        return Answer(error="crashed") if is_deep else good

    play = played(tree, judged)
    result = play.result

    assert (result.status, result.reason) == ("failed", "no judge has answered: crashed")
    assert result.answer == "way 1"
    assert result.thoughts[-1].score is None


def test_one_branch_may_propose_all():
    """Each text once, as a thought of its own."""
    tree = reasoning.TreeOfThoughts(
        depth=2, candidates=3, generate="propose", score=last_digits, breadth=1
    )
    play = played(tree, lambda _: '{"items": ["1", "3", "3", "2", "9"]}')

    assert [one.id for one in play.result.thoughts] == [
        "b1", "b1.1", "b1.2", "b1.3", "b2", "b2.1", "b2.2", "b2.3",
    ]  # fmt: skip
    assert play.started["b2"].branch.parent_id == "b1.2"
    assert play.result.answer == "3"


def test_a_tree_that_is_cut_off_has_its_best():
    """The best of the last level that was scored."""
    tree = reasoning.TreeOfThoughts(depth=3, candidates=2, score=last_digits)
    result = played(tree, numbered, limits=reasoning.RunLimits(max_steps=1)).result

    assert (result.status, result.answer) == ("max_steps_exceeded", "way 2")


def test_a_graph_splits_and_merges():
    """Parts are worked on alone, merged, and what is merged is about the whole question."""

    def model(branch):
        if branch.result is Proposals:
            return '{"items": ["left half", "right half", "too much"]}'
        return Answer(f"<{branch.id}>")

    graph = reasoning.GraphOfThoughts(
        operations=[
            reasoning.Split(parts=2),
            reasoning.Generate(k=1),
            reasoning.Select(part=0),
            reasoning.Refine(k=1),
            reasoning.Aggregate(k=1, inputs=[1]),
            reasoning.Refine(k=1),
        ]
    )
    play = played(graph, model)
    prompts = {name: one.branch.prompt for name, one in play.started.items()}

    assert "into 2 parts" in prompts["b1"]
    assert prompts["b2"].startswith("This is a part of a larger task:\nWhich way?")
    assert "The part:\nleft half" in prompts["b2"]
    assert "The part:\nright half" in prompts["b3"]
    assert "The part:\nleft half" in prompts["b4"]
    assert "Result so far:\n<b2>" in prompts["b4"]
    assert prompts["b5"].startswith("Which way?")
    assert prompts["b5"].endswith("Result 1:\n<b2>\n\nResult 2:\n<b3>")
    assert prompts["b6"].startswith("Which way?\n\nResult so far:\n<b5>")
    assert play.result.nodes[6].metadata["parents"] == ["b3"]
    assert play.result.answer == "<b5>"  # no score: the first of the results


def test_what_can_run_together_does():
    """Operations whose inputs are there are one decision."""
    graph = reasoning.GraphOfThoughts(
        operations=[
            reasoning.Generate(k=2, inputs=[]),
            reasoning.Generate(k=2, inputs=[]),
            reasoning.Aggregate(inputs=[0, 1]),
        ]
    )
    play = played(graph, numbered, limits=reasoning.RunLimits(max_steps=2))

    assert play.result.status == "done"
    assert len(play.started) == 5


@pytest.mark.parametrize(
    ("operations", "reason"),
    [
        (
            [reasoning.Generate(), reasoning.Select(part=3)],
            "operations[1] (Select) has nothing to work on",
        ),
        (
            [reasoning.Split()],
            "operations[0] (Split) came to nothing: its answer is not of the type",
        ),
    ],
)
def test_a_graph_that_comes_to_nothing(operations, reason):
    """It says where."""
    result = played(reasoning.GraphOfThoughts(operations=operations), numbered).result

    assert result.status == "failed"
    assert result.reason.startswith(reason)
