"""The model router in a running session."""

from cmdc_runtime import plugins
from cmdc_runtime.plugins.thinking import Rule, TaskComplexity, UserTier
from cmdc_runtime.testing import Text

TURN_S = 20.0
HARD = "Refactor and test this:\n- one\n- two\n- three\n```\nx = 1\n```"


def test_each_request_goes_to_the_model_that_the_rules_choose(agent, scripted):
    """The first rule that holds, else the default; a person's switch lasts until the next one."""
    model = scripted(default=Text("so"))
    router = plugins.ModelRouter(
        rules=(
            Rule(UserTier("gold"), "openai/gold"),
            Rule(TaskComplexity("complex"), "openai/large"),
        ),
        default_model="openai/small",
    )
    session = agent(model, plugins=[router], user_data={"user_tier": "free"})
    stream = session.subscribe(since=0, types=["model_switched"])
    session.run("Hi!", timeout=TURN_S)
    session.run(HARD, timeout=TURN_S)
    session.switch_model("openai/by-hand")
    session.run("Thanks.", timeout=TURN_S)
    switched = [stream.get(TURN_S).event.to for _ in range(4)]

    assert [request["model"] for request in model.requests] == ["small", "large", "small"]
    assert switched == ["openai/small", "openai/large", "openai/by-hand", "openai/small"]
