"""The reflection in a running session."""

import cmdc_runtime as cmdc
from cmdc_runtime import events, plugins

TURN_S = 20.0


def names(stream, cycle_of):
    """Return the names of the plugin's events of one cycle."""
    heard = (one.event for one in cycle_of(stream))
    return [event.name for event in heard if isinstance(event, events.PluginEvent)]


def test_the_reply_is_the_answer_and_not_the_approval(agent, scripted, cycle_of):
    """The model corrects its answer, approves it, and gives it once more."""
    model = scripted("Two and two is 5.", "It is 4.", "APPROVED", "Two and two is 4.")
    session = agent(model, plugins=[plugins.Reflection(criteria=("It is right.",))])
    stream = session.subscribe(since=0)
    session.prompt("Two and two?")

    assert session.collect_reply(timeout=TURN_S) == "Two and two is 4."
    assert "- It is right." in model.requests[1]["messages"][-1]["content"]
    assert names(stream, cycle_of) == [
        "reflection_started",
        "reflection_failed",
        "reflection_started",
        "reflection_passed",
    ]


def test_another_model_reviews_apart_from_the_conversation(agent, scripted, cycle_of):
    """Its feedback is all that enters it, and an approved answer is the reply as it is."""
    model, judge = scripted("5", "4"), scripted("It is 4, not 5.", "APPROVED")
    name, opts = judge.model_source()
    reviewer = plugins.Reflection(reviewer_model=name, reviewer_provider_opts=opts)
    session = agent(model, plugins=[reviewer])
    stream = session.subscribe(since=0)

    assert session.run("Two and two?", timeout=TURN_S).text == "4"
    assert "<answer>\n5\n</answer>" in judge.requests[0]["messages"][-1]["content"]
    assert "It is 4, not 5." in model.requests[1]["messages"][-1]["content"]
    assert [said.role for said in session.messages()][1:] == ["user", "assistant"] * 2
    assert names(stream, cycle_of)[-1] == "reflection_passed"


def test_a_subagent_may_review(agent, scripted):
    """It is one of the session's own, by its type."""
    model, judge = scripted("4"), scripted("APPROVED")
    name, opts = judge.model_source()
    critic = cmdc.SubAgent(
        name="critic", description="Reviews.", model=name, provider_opts=opts, plugins=[]
    )
    session = agent(
        model, subagents=[critic], plugins=[plugins.Reflection(reviewer_subagent="critic")]
    )

    assert session.run("Two and two?", timeout=TURN_S).text == "4"
    assert "<answer>\n4\n</answer>" in judge.requests[0]["messages"][-1]["content"]
