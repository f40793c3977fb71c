"""What the spans of a run of reasoning say besides their begins and ends."""

import pytest

from cmdc_runtime import events as ev
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.reasons import Signal
from workers.builtin.telemetry import names
from workers.builtin.telemetry.calls import NOTES_MAX, RUNS_MAX

TREE = {"run_id": "t-1@1", "strategy": "tree"}
START = ev.AgentStart(command_id="c-1")
CALL = ev.ToolExecutionStart(name="reason", call_id="t-1", args={}, summary="")
RETURNED = ev.ToolExecutionEnd(name="reason", call_id="t-1", ok=True, text="")
END = ev.AgentEnd(messages=(), usage=TokenUsage(), command_id="c-1")
DONE = ev.ReasoningDone(**TREE, status="done", answer="42")
USAGE = TokenUsage(prompt_tokens=30, completion_tokens=7)
RUN = "reason tree"
OF_ALL = ("cmdc.incarnation", "gen_ai.conversation.id", "gen_ai.operation.name")
"""What every span of a session has."""


def branch(number, **more):
    return ev.ReasoningBranch(**{**TREE, **more}, branch_id=f"b-{number}", prompt="Why?")


def thought(number):
    return ev.ReasoningThought(**TREE, thought_id=f"b-{number}", content="So.", usage=USAGE)


def score(number):
    return ev.ReasoningScore(**TREE, thought_id=f"b-{number}", score=0.5)


def own(span):
    """Return the attributes that a span has for itself."""
    return {name: value for name, value in span.attributes.items() if name not in OF_ALL}


@pytest.fixture
def drawn(drawing_of):
    """Draw a run of these events within a call."""

    def draw(*reported, captures=False):
        return drawing_of(captures).play(START, CALL, *reported, RETURNED, END)

    return draw


def test_a_branch_says_what_it_goes_on_from_and_what_it_took(drawn):
    """Its parent in the tree, the revision that it is, its tokens; its words only if wanted."""
    first, second = branch(1), branch(2, parent_id="b-1", revision=3)
    drawing = drawn(first, thought(1), second, thought(2), DONE)
    kinds = {"cmdc.reasoning.strategy": "tree", "cmdc.outcome": "finished"}
    took = {names.USAGE_INPUT: 30, names.USAGE_OUTPUT: 7}

    assert own(drawing.span("branch b-1")) == {
        "cmdc.reasoning.branch_id": "b-1",
        **kinds,
        **took,
    }
    assert own(drawing.span("branch b-2")) == {
        "cmdc.reasoning.branch_id": "b-2",
        "cmdc.reasoning.parent_id": "b-1",
        "cmdc.reasoning.revision": 3,
        **kinds,
        **took,
    }


def begun(number):
    """Return the event of the session of a branch."""
    return ev.SubagentStart(
        of_run="t-1@1",
        strategy="tree",
        call_id="t-1",
        subagent_type="any",
        child_session_id=f"s.{number}",
        description="Why?",
        branch_id=f"b-{number}",
    )


def test_a_branch_that_runs_again_has_its_span(drawing_of):
    """In a process that has not heard its begin; one that has opens none anew."""
    made_again = ev.ToolExecutionMetrics(name="reason", call_id="t-1", meta={"started_at_ms": 1})
    recovered = ev.AgentRecovered(
        incarnation=2, reason=Signal(number=9, name="SIGKILL"), resumed="tools"
    )
    first = drawing_of().play(START, CALL, branch(1), begun(1))
    second = drawing_of().play(recovered, made_again, begun(1), thought(1), DONE, RETURNED, END)
    span = second.span("branch b-1")

    assert (span.parent, second.span(RUN).parent) == (RUN, "execute_tool reason")
    assert span.attributes["cmdc.begin"] == "unknown"
    assert span.attributes["cmdc.outcome"] == "finished"
    assert (span.begin, span.end) == (2, 3)
    assert [one.name for one in first.spans].count("branch b-1") == 1


def test_words_are_recorded_where_content_is_wanted(drawn):
    """The prompt with the branch's begin, its answer with the end."""
    reported = drawn(branch(1), thought(1), DONE, captures=True).span("branch b-1").attributes

    assert "Why?" in reported["cmdc.reasoning.prompt"]
    assert "So." in reported["cmdc.reasoning.thought"]


def test_a_run_says_how_many_branches_it_had(drawn):
    """By its id and its strategy; a branch that is asked anew is one more."""
    drawing = drawn(branch(1), thought(1), branch(1), branch(2), DONE)

    assert own(drawing.span(RUN)) == {
        "cmdc.reasoning.run_id": "t-1@1",
        "cmdc.reasoning.strategy": "tree",
        "cmdc.reasoning.branches": 3,
        "cmdc.outcome": "finished",
    }


def test_what_is_said_of_thoughts_are_events_of_the_run(drawn):
    """Scores, pruning, and thoughts that the strategy has put there itself."""
    prune = ev.ReasoningPrune(**TREE, thought_ids=("b-1", "b-2"))
    drawing = drawn(branch(1), thought(1), score(1), prune, thought(9), DONE)

    assert drawing.notes(names.REASONING_SCORE) == [
        (RUN, {"cmdc.reasoning.thought_id": "b-1", "cmdc.reasoning.score": 0.5})
    ]
    assert drawing.notes(names.REASONING_PRUNE) == [
        (RUN, {"cmdc.reasoning.thought_ids": ("b-1", "b-2")})
    ]
    assert drawing.notes(names.REASONING_THOUGHT) == [(RUN, {"cmdc.reasoning.thought_id": "b-9"})]


@pytest.mark.parametrize("more", [0, 2])
def test_events_of_a_run_have_a_bound(drawn, more):
    """How many are left out is recorded."""
    drawing = drawn(branch(1), thought(1), *[score(1)] * (NOTES_MAX + more), DONE)

    assert len(drawing.notes(names.REASONING_SCORE)) == NOTES_MAX
    assert drawing.span(RUN).attributes.get("cmdc.reasoning.omitted", 0) == more


def test_the_time_of_a_run_is_measured_once(drawn):
    """By its strategy and how it ended; what comes behind its end opens none anew."""
    late = (branch(3), thought(3), score(3))
    timeout = ev.ReasoningDone(**TREE, status="timeout", answer="", reason="too late")
    drawing = drawn(branch(1), timeout, *late, DONE)

    assert drawing.measured(names.REASONING_RUN_DURATION) == [
        (
            1.0,
            {
                "cmdc.reasoning.strategy": "tree",
                "cmdc.outcome": "timeout",
                names.ERROR_TYPE: "timeout",
            },
        )
    ]
    assert [span.name for span in drawing.spans if "b-3" in span.name] == []


def test_runs_at_a_time_have_a_bound(drawn):
    """One too many is not recorded; none of the others is."""
    ids = [f"t-1@{number}" for number in range(1, RUNS_MAX + 2)]
    drawing = drawn(*(branch(1, run_id=one) for one in ids))

    assert [
        span.attributes["cmdc.reasoning.run_id"] for span in drawing.spans if span.name == RUN
    ] == ids[:-1]


def test_runs_of_a_call_that_is_over_end_with_it(drawing_of):
    """Those of another call go on; what is left when the session ends is closed there."""
    other = ev.ToolExecutionStart(name="reason", call_id="t-2", args={}, summary="")
    own, others = branch(1), branch(2, run_id="t-2@1")
    drawing = drawing_of().play(START, CALL, other, own, others, RETURNED)
    closed = [span.name for span in drawing.spans if span.end is not None]

    assert closed.count(RUN) == 1
    assert "branch b-1" in closed
    assert "branch b-2" not in closed
    assert {span.end for span in drawing.end(9).spans if span.name == "branch b-2"} == {9}
