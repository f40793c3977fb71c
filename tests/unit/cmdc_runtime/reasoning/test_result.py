"""The result of a run as a fold of its events, and the pictures of its tree."""

import msgspec
import pytest

from cmdc_runtime.events import (
    AgentStart,
    Envelope,
    PluginEvent,
    ReasoningBranch,
    ReasoningDone,
    ReasoningPrune,
    ReasoningScore,
    ReasoningThought,
)
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.reasoning import ReasoningResult

WHOSE = {"run_id": "r-1", "strategy": "tree"}
USAGE = TokenUsage(total_tokens=10, cost_usd=0.5)
EVENTS = (
    ReasoningBranch(**WHOSE, branch_id="b1", prompt="first?"),
    ReasoningBranch(**WHOSE, branch_id="b2", parent_id="b1", prompt="second?", metadata={"x": 1}),
    ReasoningThought(**WHOSE, thought_id="b2", parent_id="b1", content='"two"', usage=USAGE),
    ReasoningThought(**WHOSE, thought_id="b1", content="", error="crashed", usage=USAGE),
    ReasoningScore(**WHOSE, thought_id="b2", score=0.5, detail={"why": "well"}),
    ReasoningPrune(**WHOSE, thought_ids=("b2",), reason="weak"),
    ReasoningBranch(**WHOSE, branch_id="b2.r1", parent_id="b2", prompt="again?", revision=1),
    ReasoningThought(**WHOSE, thought_id="t1", content="own", metadata={"parents": ["b2"]}),
    ReasoningDone(**WHOSE, status="timeout", answer="own", reason="late", elapsed_ms=7),
)


def test_the_events_are_the_result():
    """In the order in which thoughts were asked for; what still runs is a node and no thought."""
    result = ReasoningResult.of(EVENTS)

    assert (result.status, result.answer, result.reason) == ("timeout", "own", "late")
    assert (result.branches, result.revisions, result.pruned) == (3, 1, 1)
    assert (result.best_score, result.elapsed_ms) == (0.5, 7)
    assert (result.usage.total_tokens, result.usage.cost_usd) == (20, 1.0)
    assert [node.id for node in result.nodes] == ["b1", "b2", "b2.r1", "t1"]
    assert [(one.id, one.content, one.metadata) for one in result.thoughts] == [
        ("b1", "", {"error": "crashed"}), ("b2", '"two"', {"x": 1}),
        ("t1", "own", {"parents": ["b2"]}),
    ]  # fmt: skip
    assert result.thoughts[1].score_detail == {"why": "well"}


def test_of_a_stream():
    """Envelopes, other events, other runs, and what is published twice: one run counts once."""
    other = ReasoningDone(run_id="r-2", strategy="tree", status="done")
    noise = (AgentStart(command_id="c-1"), PluginEvent(name="x", payload=1), other)
    stream = [
        Envelope(session_id="s", index=index, at_ms=0, event=event)
        for index, event in enumerate((*EVENTS[:3], *noise, *EVENTS, EVENTS[0]), 1)
    ]

    assert ReasoningResult.of(stream, "r-1") == ReasoningResult.of(EVENTS)
    assert ReasoningResult.of(stream, "r-2").status == "done"
    assert ReasoningResult.of(()) == ReasoningResult()


def test_of_a_part():
    """A run that goes on is shown as far as it is; a thought of an unknown branch stands alone."""
    assert ReasoningResult.of(EVENTS[:2]).status == "running"
    assert ReasoningResult.of(EVENTS[:2]).thoughts == ()
    late = ReasoningResult.of(EVENTS[2:6])
    assert [(one.id, one.parent_id, one.score) for one in late.thoughts] == [
        ("b2", "b1", 0.5), ("b1", None, None),
    ]  # fmt: skip


@pytest.mark.parametrize("event", EVENTS, ids=range(len(EVENTS)))
def test_of_a_plugin(event):
    """The Reasoning plugin has the same fields; a payload of somebody else's is passed over."""
    payload = {**msgspec.structs.asdict(event), "user_data": {}}
    published = PluginEvent(name=event.kind, payload=payload)

    assert ReasoningResult.of([*EVENTS[:2], published]) == ReasoningResult.of([*EVENTS[:2], event])
    assert ReasoningResult.of([PluginEvent(name=event.kind, payload=3)]) == ReasoningResult()


def test_as_json():
    """With usage and cost of each node."""
    published = msgspec.json.decode(ReasoningResult.of(EVENTS).to_json())

    assert published["nodes"][0]["usage"]["cost_usd"] == 0.5
    assert published["status"] == "timeout"


def test_as_mermaid():
    """Each node with its text, each edge of the graph; what is lost is dashed, and text is text."""
    assert (
        ReasoningResult.of(EVENTS).to_mermaid()
        == """\
flowchart TD
    n0["b1<br/>crashed<br/>10 tokens · #36;0.5"]
    n1["b2 · 0.5<br/>#34;two#34;<br/>10 tokens · #36;0.5"]
    n2["b2.r1<br/>…"]
    n3["t1<br/>own"]
    n0 -.-> n1
    n1 --> n2
    n1 --> n3
    classDef lost stroke-dasharray: 4 4;
    class n0,n1 lost;
"""
    )


def test_as_dot():
    """The same for Graphviz."""
    assert (
        ReasoningResult.of(EVENTS).to_dot()
        == """\
digraph reasoning {
    node [shape=box];
    n0 [label="b1\\ncrashed\\n10 tokens · $0.5", style=dashed];
    n1 [label="b2 · 0.5\\n\\"two\\"\\n10 tokens · $0.5", style=dashed];
    n2 [label="b2.r1\\n…"];
    n3 [label="t1\\nown"];
    n0 -> n1 [style=dashed];
    n1 -> n2;
    n1 -> n3;
}
"""
    )


def test_an_empty_run_has_a_picture():
    """Of nothing."""
    assert ReasoningResult().to_mermaid() == "flowchart TD\n"
