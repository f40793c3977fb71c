"""The tool that runs a strategy: its branches are sessions, its steps events, its end a result."""

import itertools
import os
import time
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.reasoning import ReasoningResult
from cmdc_runtime.testing import Hold, ScriptedModel, Text, ToolCalls, ToolUse

TURN_S = 60.0
HELD = {"description": "Look around.", "subagent_type": "scout"}


def asked(**args):
    """Return a model's call of the tool."""
    return ToolCalls(ToolUse("reason", {"question": "What is six times seven?", **args}))


def general(model):
    """The kind that branches are of, with a model of its own."""
    return cmdc.SubAgent("general-purpose", "Thinks.", model=model)


def result_of(model):
    """Return what the model read of its call."""
    return model.requests[-1]["messages"][-1]["content"]


def session_ids(client):
    return [one.session_id for one in client.list_sessions()]


@pytest.fixture
def reasoned(agent, client, scripted, cycle_of, poll):
    """Have a model call the tool once; return what it read, and the run as events report it."""

    def run(below, *strategies, **limits):
        model = scripted(asked(), "done")
        tool = cmdc.tools.Reason(strategies=list(strategies), **limits)
        session = agent(model, tools=[tool], subagents=[general(below)])
        stream = session.subscribe()
        session.prompt("Think.")
        result = ReasoningResult.of(cycle_of(stream))
        assert poll(lambda: session_ids(client) == [session.id])
        return result_of(model), result

    return run


def test_votes_are_sessions_and_their_majority_is_the_result(reasoned, scripted):
    """Each is paid once; the tree of them is published as it grows."""
    below = scripted("Answer: 41", "Answer: 42", "Answer: 42")
    reported, result = reasoned(below, cmdc.reasoning.SelfConsistency(samples=3), max_parallel=1)

    assert reported == "42"
    assert (result.status, result.answer, result.strategy) == ("done", "42", "self_consistency")
    assert [one.content for one in result.thoughts] == ["Answer: 41", "Answer: 42", "Answer: 42"]
    assert (result.branches, len(below.requests)) == (3, 3)
    assert "What is six times seven?" in below.requests[0]["messages"][-1]["content"]


def test_branches_sample_at_the_temperature_of_their_kind(agent, scripted):
    """The session's own requests keep theirs."""
    model, below = scripted(asked(), "done"), scripted(default="Answer: 42")
    warm = {"temperature": 0.7}
    kind = cmdc.SubAgent("general-purpose", "Votes.", model=below, provider_opts=warm)
    tool = cmdc.tools.Reason(strategies=[cmdc.reasoning.SelfConsistency(samples=2)])
    cool = {"temperature": 0.0}
    session = agent(model, tools=[tool], subagents=[kind], provider_opts=cool)
    session.run("Think.", timeout=TURN_S)

    assert {one.get("temperature") for one in below.requests} == {0.7}
    assert {one.get("temperature") for one in model.requests} == {0.0}


def valued(request):
    """Answer a judge with a score, others with a step; what ends in 9 is worth most."""
    text = request["messages"][-1]["content"]
    if "judge" not in text:
        return f"step {len(text) % 10}"
    return '{"score": 9, "why": "so"}' if "step 9" in text else '{"score": 3, "why": "so"}'


def test_a_tree_is_scored_and_pruned(reasoned, scripted):
    """By typed answers of judges, which are branches too."""
    tree = cmdc.reasoning.TreeOfThoughts(depth=2, breadth=1, candidates=2, scoring="value", votes=1)
    reported, result = reasoned(scripted(default=valued), tree)

    assert result.status == "done", result.reason
    assert reported == result.answer
    assert reported.startswith("step ")
    assert result.pruned > 0
    assert result.best_score is not None
    assert result.branches == len(result.nodes) == 8


class Sure(cmdc.ReasoningStrategy):
    """Is content with the first answer."""

    def step(self, state, context):
        return [cmdc.Branch(context.question, id=f"b{n}") for n in range(3)]

    def early(self, thoughts, state):
        return cmdc.Done(thoughts[0].content)


def test_losers_end_when_it_is_decided(reasoned, scripted):
    """Their sessions are gone before the run is; what they used is reported."""
    below = scripted("first", (Hold(), "late"), (Hold(), "late"))
    reported, result = reasoned(below, Sure)

    assert reported == "first"
    assert [one.error for one in result.nodes if one.error] == ["pruned: decided"] * 2
    assert result.pruned == 2


class Three(cmdc.ReasoningStrategy):
    """Waits for all three."""

    def step(self, state, context):
        return [cmdc.Branch(context.question, id=f"b{n}") for n in range(3)]


def test_branches_wait_for_room_beside_other_subagents(agent, scripted, tmp_path):
    """However many a strategy asks for, and whoever has the room: none of them fails."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    model = scripted(ToolCalls(ToolUse("task", HELD), asked().calls[0]), "done")
    held = scripted((Hold(), "scouted"))
    below = scripted(default="yes")
    tool = cmdc.tools.Reason(strategies=[Five(gate=str(gate))], max_parallel=9)
    kinds = [general(below), cmdc.SubAgent("scout", "Looks.", model=held)]
    session = agent(model, tools=[tool], subagents=kinds, max_children=2)
    stream = session.subscribe()
    session.prompt("Think.")
    held.wait_held(TURN_S)  # it has its room: behind the branches it would be refused
    gate.write_text("")
    reported = []
    while not (reported and reported[-1].event.kind == "reasoning_done"):
        reported.append(stream.get(TURN_S))
    held.release()
    result = ReasoningResult.of(reported)

    assert session.collect_reply(timeout=TURN_S) == "done"
    assert (result.status, result.answer, result.branches) == ("done", " ".join(["yes"] * 5), 5)
    assert {one.error for one in result.thoughts} == {None}


class Five(cmdc.ReasoningStrategy):
    """Waits for all five, which begin when somebody has opened the gate, a FIFO."""

    def step(self, state, context):
        Path(self.opts["gate"]).read_text()
        return [cmdc.Branch(context.question) for _ in range(5)]

    def aggregate(self, thoughts, state):
        return cmdc.Done(" ".join(one.content for one in thoughts))


class Odd(cmdc.ReasoningStrategy):
    """Breaks."""

    def step(self, state, context):
        raise LookupError("where is it")


def test_an_exception_of_a_strategy_is_the_tools_error(reasoned, scripted):
    """By its name."""
    reported, result = reasoned(scripted(), Odd)

    assert "odd failed: odd.step: LookupError: where is it (tests.e2e.test_reason:" in reported
    assert result.status == "failed"
    assert result.reason.startswith("odd.step: LookupError: where is it (tests.e2e.test_reason:")


class Halfway(cmdc.ReasoningStrategy):
    """Has half of it."""

    def step(self, state, context):
        return cmdc.Failed("out of ideas") if context.thoughts else cmdc.Continue_("41")


def test_what_a_failed_run_has_is_reported_as_that(reasoned, scripted):
    """The model reads the best answer so far, and that the run has failed."""
    reported, result = reasoned(scripted(), Halfway)

    assert (
        reported == "41\n\n[Not finished (failed: out of ideas): this is the best answer so far.]"
    )
    assert (result.status, result.answer) == ("failed", "41")


class Busy(cmdc.ReasoningStrategy):
    """Computes for a second."""

    def step(self, state, context):
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            pass
        return cmdc.Done("there")


def test_a_busy_strategy_does_not_stop_the_loop(agent, scripted):
    """The session answers meanwhile."""
    model = scripted(asked(), "done")
    session = agent(model, tools=[cmdc.tools.Reason(strategies=[Busy])])
    stream = session.subscribe(types=[events.ToolExecutionStart])
    session.prompt("Think.")
    stream.get(TURN_S)
    looks = 0
    while session.status().state == "executing_tools":
        looks += 1

    assert looks > 1
    assert session.collect_reply(timeout=TURN_S) == "done"
    assert result_of(model) == "there"


class Two(cmdc.ReasoningStrategy):
    """Asks one after another, for ever."""

    def step(self, state, context):
        return cmdc.Branch("Once more.")

    def aggregate(self, thoughts, state):
        return cmdc.Branch("Once more.")


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        ({"max_steps": 2}, "max_steps_exceeded"),
        ({"budget_tokens": 60_100}, "budget_exceeded"),
        ({"timeout": 5.0}, "timeout"),
    ],
)
def test_a_limit_ends_a_run_with_what_is_best_so_far(reasoned, scripted, limits, status):
    """And the model reads that it is."""
    usage = cmdc.TokenUsage(prompt_tokens=20_000, completion_tokens=10_000)
    answers = [Text("one", usage=usage), Text("two", usage=usage)]
    below = scripted(*answers, (Hold(), "late"))
    reported, result = reasoned(below, Two, **limits)

    assert result.status == status
    assert result.answer == "two"
    assert reported.startswith(f"two\n\n[Cut off ({status}")


def test_an_abort_leaves_nothing(agent, client, scripted, poll):
    """No branch outlives the cycle that asked for it."""
    below = scripted((Hold(), "late"), (Hold(), "late"), (Hold(), "late"))
    tool = cmdc.tools.Reason(strategies=[Sure])
    session = agent(scripted(asked()), tools=[tool], subagents=[general(below)])
    session.prompt("Think.")
    below.wait_held(TURN_S, count=3)
    session.abort()

    assert poll(lambda: session_ids(client) == [session.id], TURN_S)


def test_an_aborted_run_ends_behind_its_children(agent, scripted, client):
    """Each branch's session is gone before the run has its end, which closes the tree; once."""
    below = scripted("first", (Hold(), "late"), (Hold(), "late"))
    tool = cmdc.tools.Reason(strategies=[Three])
    session = agent(scripted(asked()), tools=[tool], subagents=[general(below)])
    stream = session.subscribe()
    session.prompt("Think.")
    below.wait_held(TURN_S, count=2)
    reported = []
    while not (reported and reported[-1].event.kind == "reasoning_thought"):
        reported.append(stream.get(TURN_S))
    session.abort(reason="enough")
    while not (reported and reported[-1].event.kind == "reasoning_done"):
        reported.append(stream.get(TURN_S))
    alive = session_ids(client)
    ends = (events.AgentAbort, events.SubagentEnd, events.ReasoningDone)
    late = [type(one.event) for one in reported if isinstance(one.event, ends)]
    result = ReasoningResult.of(reported)

    assert alive == [session.id]
    assert sorted(map(str, late[:-1])) == sorted(map(str, [events.AgentAbort, *[ends[1]] * 3]))
    assert (result.status, result.reason) == ("aborted", "enough")
    assert sorted(one.error or one.content for one in result.nodes) == [
        *("first", *["the run is over: aborted"] * 2)
    ]
    session.stop()
    assert [one.event.kind for one in stream if one.event.kind == "reasoning_done"] == []


def test_a_run_out_of_time_ends_children_first(agent, scripted, cycle_of):
    """Each branch's session has its end before the run has, and the run before its call."""
    below = scripted((Hold(), "late"), (Hold(), "late"), (Hold(), "late"))
    tool = cmdc.tools.Reason(strategies=[Sure], timeout=5.0)
    session = agent(scripted(asked(), "done"), tools=[tool], subagents=[general(below)])
    stream = session.subscribe()
    session.prompt("Think.")
    ends = (events.SubagentEnd, events.ReasoningDone, events.ToolExecutionEnd)
    reported = [type(one.event) for one in cycle_of(stream) if isinstance(one.event, ends)]

    assert reported == [*[events.SubagentEnd] * 3, *ends[1:]]


def test_the_model_chooses_among_strategies(agent, scripted):
    """By their names, and reads which there are."""
    model = scripted(asked(strategy="two"), "done")
    below = scripted("one", "two")
    tool = cmdc.tools.Reason(strategies=[Sure, Two], max_steps=2)
    session = agent(model, tools=[tool], subagents=[general(below)])
    session.run("Think.", timeout=TURN_S)
    (given,) = [
        one["function"] for one in model.requests[0]["tools"] if one["function"]["name"] == "reason"
    ]

    assert result_of(model).startswith("two\n\n[Cut off")
    assert given["parameters"]["properties"]["strategy"]["enum"] == ["sure", "two"]


class Once(cmdc.ReasoningStrategy):
    """Asks one branch."""

    def step(self, state, context):
        return cmdc.Branch(context.question)


def test_the_model_chooses_among_variants_of_a_strategy(agent, scripted, cycle_of):
    """By the names that they were given, which events report."""
    model, below = scripted(asked(strategy="one"), "done"), scripted(default="Answer: 42")
    variants = {
        "many": cmdc.reasoning.SelfConsistency(samples=9),
        "one": cmdc.reasoning.SelfConsistency(samples=1),
    }
    session = agent(
        model, tools=[cmdc.tools.Reason(strategies=variants)], subagents=[general(below)]
    )
    stream = session.subscribe()
    session.prompt("Think.")
    result = ReasoningResult.of(cycle_of(stream))

    assert (result.strategy, result.branches, result.answer) == ("one", 1, "42")


class Hasty(cmdc.ReasoningStrategy):
    """Is content with the first of two."""

    def step(self, state, context):
        return [cmdc.Branch("One?"), cmdc.Branch("Two?")]

    def early(self, thoughts, state):
        return cmdc.Done(thoughts[0].content)

    def aggregate(self, thoughts, state):
        return cmdc.Done("both")


BUDGET = 60_000


def test_a_branch_that_is_ended_in_its_request_counts_with_its_part(reasoned, scripted):
    """What it had streamed was paid, and nobody says how much that is."""
    usage = cmdc.TokenUsage(prompt_tokens=10, completion_tokens=10)
    below = scripted((Hold(), "late"), Text("soon", usage=usage))
    _, result = reasoned(below, Hasty, budget_tokens=BUDGET)

    assert (result.status, result.answer) == ("done", "soon")
    assert result.usage.total_tokens == BUDGET / 2 + 20


def test_a_branch_that_is_ended_in_its_request_counts_with_what_it_had_said(
    agent, client, scripted
):
    """Without a budget too, as an estimate: nobody says how much it was."""
    said = "so far " * 1_000
    tool = cmdc.tools.Reason(strategies=[Once])
    below = scripted((said, Hold(), "late"))
    session = agent(scripted(asked()), tools=[tool], subagents=[general(below)])
    stream = session.subscribe()
    session.prompt("Think.")
    below.wait_held(TURN_S)
    (branch,) = [one for one in session_ids(client) if one != session.id]
    pieces = cmdc.Session(branch, client).subscribe(since=0, types=[events.MessageDelta])
    heard = 0
    while heard < len(said):
        heard += len(pieces.get(TURN_S).event.delta)
    session.abort()
    reported = []
    while not (reported and reported[-1].event.kind == "reasoning_done"):
        reported.append(stream.get(TURN_S))
    usage = ReasoningResult.of(reported).usage

    assert 1_000 < usage.completion_tokens < 3_000
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > 1_000


def test_samples_that_a_small_budget_leaves_out_are_noted(client, scripted):
    """The answer is that of the others; how many they are not is said."""
    usage = cmdc.TokenUsage(prompt_tokens=2_000, completion_tokens=100)
    numbers = itertools.count()
    model = scripted(default=lambda _: Text(f"Answer: {next(numbers)}", usage=usage))
    strategy = cmdc.reasoning.SelfConsistency(samples=9)
    result = cmdc.Runner.run(
        strategy, "Well?", model=model, budget_tokens=10_000, max_parallel=1, client=client
    )
    lost = sum(one.error is not None for one in result.thoughts)

    assert lost > 0
    assert result.notes == (
        f"{lost} of 9 branches were left out: budget_tokens=10,000 is too little for them",
    )


def at_length():
    """Answer something else each time, with as many tokens as nearly the whole budget has."""
    numbers = itertools.count()
    usage = cmdc.TokenUsage(prompt_tokens=50, completion_tokens=50_000)
    return lambda _: Text(f"{next(numbers)} is the answer. " * 100, usage=usage)


@pytest.mark.parametrize("samples", [4, 9])
def test_answers_longer_than_their_share_are_cut_at_it(client, scripted, samples):
    """So a budget is never exceeded, however many branches run at a time."""
    model, strategy = scripted(default=at_length()), cmdc.reasoning.SelfConsistency(samples=samples)
    result = cmdc.Runner.run(strategy, "Well?", model=model, budget_tokens=BUDGET, client=client)
    asked = [one["max_tokens"] for one in model.requests]

    assert BUDGET / 2 < result.usage.total_tokens <= BUDGET
    assert max(asked) < BUDGET / 4
    assert sum(one.content != "" for one in result.thoughts) == len(asked) >= 4


def test_a_model_that_keeps_to_no_bound_overruns_by_the_branches_in_flight(client):
    """Each of those is one answer, and no branch begins after it."""
    strategy = cmdc.reasoning.SelfConsistency(samples=6)
    with ScriptedModel([], default=at_length(), keeps_to_max_tokens=False) as model:
        result = cmdc.Runner.run(
            strategy, "Well?", model=model, max_parallel=2, budget_tokens=BUDGET, client=client
        )

        assert result.status == "budget_exceeded"
        assert result.usage.total_tokens == 2 * 50_050
        assert len(model.requests) == 2


class Reminded(cmdc.ReasoningStrategy):
    """Asks one that has the session's conversation, and one that has not."""

    def step(self, state, context):
        return [cmdc.Branch("And now?", id=name, fork=name == "fork") for name in ("fork", "bare")]

    def aggregate(self, thoughts, state):
        return cmdc.Done(" ".join(f"{one.id}: {one.content}." for one in thoughts))


def test_a_fork_of_the_conversation_is_what_a_branch_begins_with(agent, client, scripted):
    """Its model reads what was said; that of another branch its own prompt alone."""

    def said(request):
        return str(sum(one["role"] != "system" for one in request["messages"]))

    model, below = scripted("It is blue.", asked(), "done"), scripted(default=said)
    tool = cmdc.tools.Reason(strategies=[Reminded])
    session = agent(model, tools=[tool], subagents=[general(below)])
    session.run("What colour?", timeout=TURN_S)
    session.run("Think.", timeout=TURN_S)
    longest = max((one["messages"] for one in below.requests), key=len)

    assert result_of(model) == "fork: 4. bare: 1."
    assert [one["content"] for one in longest[-4:]] == [
        *("What colour?", "It is blue.", "Think.", "And now?")
    ]
    assert session_ids(client) == [session.id]
