"""Two zygotes: a session is in a process with litellm where its model is asked by it."""

import os
import signal
from typing import ClassVar

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.events import AgentHibernated
from supervisor.core.limits import IMPORTS_UNTIL_LEARNED
from tests.e2e.mcp_servers import call, declared
from tests.e2e.test_footprint import SPARES, loaded_libraries, zygote_pid

pytestmark = pytest.mark.process

TURN_S = 60.0
OF_LITELLM = "_tiktoken"
"""A library that it has loaded, and that nothing else loads."""
OF_SDK = "pydantic_core"
"""A library that the SDK of MCP has loaded, as litellm has."""


class ByLitellm:
    """A model that is asked by litellm."""

    def __init__(self, model):
        self.model = model

    def model_source(self):
        name, options = self.model.model_source()
        return name, options | {"via": "litellm"}


def has_litellm(pid):
    return OF_LITELLM in loaded_libraries(pid)


def test_a_session_whose_vendor_is_spoken_to_has_nothing_of_litellm(client, agent, scripted):
    """Neither has the zygote that it comes from."""
    session = agent(scripted("fine"))

    assert session.run("1", timeout=TURN_S).text == "fine"
    assert not has_litellm(session.agent_pid())
    assert not has_litellm(zygote_pid(client))


@pytest.mark.parametrize("model", ["openai:gpt-4o", "anthropic:claude-sonnet-4-5", "groq:llama"])
def test_a_vendor_that_is_spoken_to_has_nothing_of_litellm(agent, model):
    """Whatever its wire, before anything is asked."""
    session = agent(model, provider_opts={"api_key": "k"})

    assert not has_litellm(session.agent_pid())


def test_a_session_that_needs_litellm_gets_a_process_that_has_it(client, agent, scripted):
    """From a zygote of its own, as does the one that takes its place when it is killed."""
    session = agent(ByLitellm(scripted("one", "two")))
    first, text = session.agent_pid(), session.run("1", timeout=TURN_S).text
    has_it, parent, monitor = has_litellm(first), psutil.Process(first).ppid(), session.monitor()
    os.kill(first, signal.SIGKILL)
    monitor.wait(TURN_S)
    again = session.run("2", timeout=TURN_S).text
    second = session.agent_pid()

    assert (text, again) == ("one", "two")
    assert has_it
    assert parent != zygote_pid(client)
    assert (psutil.Process(second).ppid(), session.status().incarnation) == (parent, 2)


class Capitals(cmdc.Tool):
    """Takes one thing or another, which some vendors refuse, so that litellm has to look at it."""

    name = "capitals"
    description = "Count capitals."
    effects = "read"
    parameters: ClassVar = {
        "type": "object",
        "properties": {"text": {"type": "string"}, "file": {"type": "string"}},
        "anyOf": [{"required": ["text"]}, {"required": ["file"]}],
    }

    async def execute(self, args, context):
        return "none"


def test_a_tool_that_a_vendor_may_refuse_needs_litellm(agent, scripted):
    """The session has it from its start, and one that gets such a tool moves between turns."""
    session = agent(scripted("one", "two"), tools=[Capitals()])
    found = [has_litellm(session.agent_pid())]
    session.detach_tool("capitals")
    session.run("1", timeout=TURN_S)
    other = agent(scripted("one", "two"))
    other.run("1", timeout=TURN_S)
    found.append(has_litellm(other.agent_pid()))
    with other.subscribe(types=[AgentHibernated]) as asleep:
        other.attach_tool(Capitals())
        asleep.get(TURN_S)
    other.run("2", timeout=TURN_S)
    found.append(has_litellm(other.agent_pid()))

    assert found == [True, False, True]


def test_a_session_moves_when_its_model_is_switched_to_one_of_litellm(agent, scripted):
    """Between turns, and with nothing lost."""
    model = scripted("one", "two")
    session = agent(model)
    texts = [session.run("1", timeout=TURN_S).text]
    first = session.agent_pid()
    had_it = has_litellm(first)
    with session.subscribe(types=[AgentHibernated]) as asleep:
        session.switch_model(ByLitellm(model))
        asleep.get(TURN_S)
    texts.append(session.run("2", timeout=TURN_S).text)
    second = session.agent_pid()

    assert texts == ["one", "two"]
    assert (had_it, second != first, has_litellm(second)) == (False, True, True)
    assert [one.content for one in session.messages() if one.role == "user"] == ["1", "2"]


def test_sessions_with_servers_get_processes_that_have_the_sdk(client, agent, scripted, poll):
    """The first ones import it for themselves; then the zygote has it, and who comes from there."""
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    for _ in range(IMPORTS_UNTIL_LEARNED):
        session = agent(scripted(call("add", a=2, b=3), "Five."), mcp_servers=[declared()])
        assert session.run("go", timeout=TURN_S).text == "Five."
    assert poll(lambda: OF_SDK in loaded_libraries(zygote_pid(client)), TURN_S)
    later = [
        agent(scripted(call("add", a=2, b=3), "Five."), mcp_servers=[declared()])
        for _ in range(SPARES + 1)
    ]

    assert OF_SDK in loaded_libraries(later[-1].agent_pid())
    assert later[-1].run("go", timeout=TURN_S).text == "Five."
    assert psutil.Process(zygote_pid(client)).num_threads() == 1
