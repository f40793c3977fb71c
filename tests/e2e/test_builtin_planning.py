"""The planning in a running session."""

from cmdc_runtime import events, plugins

TURN_S = 20.0
PLAN = "- [ ] Dig\n- [ ] Build"


def system(request):
    """Return the system prompt of a request."""
    return request["messages"][0]["content"]


def test_a_plan_is_made_shown_followed_and_put_away(agent, scripted, cycle_of):
    """From the directive to the request after the one in which its last step was done."""
    model = scripted(PLAN, "- [x] Dig\n- [x] Build\n\nThe house stands.", "You are welcome.")
    session = agent(model, plugins=[plugins.Planning()])
    stream = session.subscribe(since=0)
    reply = session.run("Build a house with a garden.", timeout=TURN_S)
    heard = [one.event for one in cycle_of(stream)]
    session.run("Thanks.", timeout=TURN_S)
    asked, working, after = model.requests

    assert reply.text.endswith("The house stands.")
    assert [event.name for event in heard if isinstance(event, events.PluginEvent)] == [
        "plan_generated",
        "plan_step_completed",
        "plan_step_completed",
        "plan_completed",
    ]
    assert asked["messages"][-1]["content"].startswith("Before you act on this request")
    assert "Current step: Dig" not in system(asked)
    assert "Current step: Dig" in system(working)
    assert "Completed:" not in system(after)
