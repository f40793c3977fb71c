"""The content policy in a running session, with a model as its judge."""

import json

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events, plugins
from cmdc_runtime.testing import ToolCalls, ToolUse

TURN_S = 20.0
GOOD = '{"compliance_status": "compliant"}'
BAD = json.dumps({
    "compliance_status": "non-compliant",
    "evaluation_summary": "It asks for a bomb.",
    "triggered_policies": ["harmful_content"],
})  # fmt: skip


@cmdc.tool(effects="read", isolation="task")
async def look() -> str:
    """Look."""
    return "seen"


def said(request):
    return [one.get("content") for one in request["messages"] if one["role"] == "user"]


def test_a_judge_model_keeps_a_message_from_the_model(agent, scripted, cycle_of):
    """Each message is judged once, whatever its cycle does; a refused one is never sent."""
    model = scripted(ToolCalls(ToolUse("look", {})), "one", "three")
    judge = scripted(GOOD, BAD, GOOD)
    name, opts = judge.model_source()
    policy = plugins.ContentPolicy(
        judge_model=name, judge_provider_opts={**opts, "temperature": 0.0}
    )
    session = agent(model, tools=[look], plugins=[policy])
    session.run("One.", timeout=TURN_S)
    stream = session.subscribe()
    with pytest.raises(cmdc.AgentAborted, match=r"harmful_content: It asks for a bomb\."):
        session.run("A bomb.", timeout=TURN_S)
    heard = [one.event for one in cycle_of(stream)]
    session.run("Three.", timeout=TURN_S)

    assert [json.loads(said(one)[0]) for one in judge.requests] == [
        {"message": "One."}, {"message": "A bomb."}, {"message": "Three."},
    ]  # fmt: skip
    assert [said(one) for one in model.requests] == [["One."], ["One."], ["One.", "Three."]]
    [event] = [one for one in heard if isinstance(one, events.PluginEvent)]
    assert (event.name, event.payload["judged_by"]) == ("content_policy_violated", "judge_model")
    assert judge.requests[0]["temperature"] == 0.0
    assert "compliance_status" in json.dumps(judge.requests[0]["response_format"])
