"""Handoffs as an application says them, and what travels of them."""

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import tools
from cmdc_runtime.child_spec import Parent, child_request
from cmdc_runtime.client.resuming import session_keys
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.handoff import Handoff, own_agent
from cmdc_runtime.ids import SessionId
from cmdc_runtime.options import parse
from cmdc_runtime.spec import AgentSpec, acting, agent_spec, carries_code
from cmdc_runtime.subagent import GENERAL_PURPOSE, TRANSFER_TOOL, SubAgent, transfer_tools
from cmdc_runtime.wire import codec

DESK = SubAgent("desk", "Knows money.", system_prompt="You count.", tools=[tools.ReadFile])
SHOP = cmdc.Blueprint(
    name="The shop!", purpose="Sells.", model="anthropic:claude", prompt_mode="minimal"
)


@cmdc.tool
def own() -> str:
    """Live in a test module, which no worker can import."""
    return ""


def options_of(**given):
    return parse(None, {"model": "openai:x", **given})


def spec_of(**given):
    return agent_spec(options_of(**given))


def test_a_definition_with_handoffs_survives_the_wire():
    """The session's own agent is the first, and has a tool for each of the others."""
    spec = spec_of(tools=[tools.ListDir], handoffs=[DESK, Handoff(SHOP, name="shop")])
    names = [one.agent.name for one in spec.handoffs]

    assert codec.decode_as(AgentSpec, codec.raw(spec)) == spec
    assert names == ["main", "desk", "shop"]
    assert [one.label for one in spec.tools] == ["list_dir", "transfer_to_desk", "transfer_to_shop"]
    assert spec.handoffs[2].identity == "You are The shop!.\nYour purpose: Sells."
    assert spec.handoffs[2].agent.tools == ()


def test_each_agent_has_a_way_to_each_other():
    """Its description is what the model chooses by."""
    spec = spec_of(handoffs=[DESK, Handoff(SHOP, name="shop")])
    ways = transfer_tools(spec.handoffs, "desk")
    about = [msgspec.msgpack.decode(one.data)["about"] for one in ways]

    assert [one.label for one in ways] == ["transfer_to_main", "transfer_to_shop"]
    assert [one.ref for one in ways] == [TRANSFER_TOOL] * 2
    assert about == [own_agent(None).description, "Sells."]


@pytest.mark.parametrize(
    ("agent", "prompt", "identity", "mode"),
    [
        ("", "You lead.", "You are Ada.", "full"),
        ("Ada", "You lead.", "You are Ada.", "full"),
        ("desk", "You count.", "", "full"),
        ("The_shop", None, "You are The shop!.\nYour purpose: Sells.", "minimal"),
        ("plain", "You lead.", "You are Ada.", "full"),
        ("gone", "You lead.", "You are Ada.", "full"),
    ],
)
def test_who_acts_has_its_prompt(agent, prompt, identity, mode):
    """What an agent does not say is the session's; a mode that is for tasks counts as unsaid."""
    spec = spec_of(
        blueprint=cmdc.Blueprint(name="Ada"),
        system_prompt="You lead.",
        handoffs=[DESK, SHOP, SubAgent("plain", "Is as you are.")],
    )
    found = acting(spec, agent)

    assert (found.system_prompt, found.identity, found.prompt_mode) == (prompt, identity, mode)


def test_a_subagent_is_taken_by_its_name():
    """And is one of the agents that the task tool starts, besides."""
    spec = spec_of(subagents=[DESK], handoffs=["desk", Handoff("desk", "clerk", "Counts.")])

    assert [one.agent.name for one in spec.handoffs] == ["main", "desk", "clerk"]
    assert spec.handoffs[2].agent.description == "Counts."
    assert spec.subagents[0].name == "desk"


def test_a_subagent_hands_nothing_over():
    """The ways to other agents are the session's own."""
    spec = spec_of(handoffs=[DESK])
    parent = Parent(
        session_id=SessionId("s"),
        spec=spec,
        model=spec.model,
        provider_opts={},
        tools=spec.tools,
        plugins=(),
        group_id=None,
    )
    request = child_request(parent, SessionId("s.1"), GENERAL_PURPOSE)
    child = codec.decode_as(AgentSpec, request.agent)

    assert (child.handoffs, child.tools) == ((), ())


def test_code_and_keys_of_the_next_agent_travel(monkeypatch):
    """Both are there before it acts."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-other")
    options = options_of(handoffs=[Handoff(SHOP, name="shop")])

    assert session_keys(options, agent_spec(options))["anthropic"] == "sk-other"
    assert carries_code(spec_of(handoffs=[SubAgent("a", "A.", tools=[own])]))
    assert carries_code(spec_of(handoffs=[Handoff(DESK, history=lambda seen: seen)]))
    assert not carries_code(spec_of(handoffs=[Handoff(DESK, history="module:name")]))


class Broken:
    """Describes no options."""

    name = "broken"

    def to_options(self):
        raise ValueError("it broke")


@pytest.mark.parametrize(
    ("handoffs", "problem"),
    [
        ("desk", "handoffs: expected a list of cmdc.Handoff"),
        ([DESK] * 33, "at most 32 handoffs"),
        ([Broken()], r"handoffs\[0\].to: .*ValueError: it broke"),
        ([Handoff(DESK, name="a b")], r"handoffs\[0\].name: expected 1 to 64"),
        ([Handoff(DESK, description=" ")], r"handoffs\[0\].description: expected"),
        ([SubAgent("a", "A.", model="nope")], r"handoffs\[0\].model"),
        ([SubAgent("a", "A.", tools=[5])], r"handoffs\[0\].to.tools\[0\]"),
        ([cmdc.Blueprint], r"handoffs\[0\].to: expected a cmdc.SubAgent"),
        ([Handoff(DESK, history=5)], r"handoffs\[0\].history: expected"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(handoffs, problem):
    """Before anything is sent."""
    with pytest.raises((InvalidOptions, cmdc.InvalidTool), match=problem):
        spec_of(handoffs=handoffs)


def test_a_tool_that_is_called_like_a_way_to_an_agent_is_refused():
    """Of the session, or of any agent."""

    @cmdc.tool
    def transfer_to_desk() -> str:
        """Go nowhere."""
        return ""

    for given in (
        {"tools": [transfer_to_desk], "handoffs": [DESK]},
        {"handoffs": [SubAgent("a", "A.", tools=[transfer_to_desk])]},
    ):
        with pytest.raises(InvalidOptions, match="a tool is called 'transfer_to_desk'"):
            spec_of(**given)
