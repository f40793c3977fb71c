"""The definition of an agent, from its options."""

import msgspec
import pytest

from cmdc_runtime import reasoning, tools
from cmdc_runtime.blueprint import Blueprint
from cmdc_runtime.errors import InvalidOptions, InvalidTool
from cmdc_runtime.extensions import tool
from cmdc_runtime.extensions.reasoning import ReasoningStrategy
from cmdc_runtime.messages import OpeningCall
from cmdc_runtime.options import Options, parse
from cmdc_runtime.packing import Packed
from cmdc_runtime.requests import Supervision
from cmdc_runtime.spec import AgentSpec, agent_spec, carries_code
from cmdc_runtime.subagent import (
    GENERAL_PURPOSE,
    REASON_TOOL,
    STRATEGY_TOOL,
    TASK_TOOL,
    SubAgent,
)
from cmdc_runtime.wire import codec

MODEL = "openai:gpt-4o-mini"
SCHEMA = {"type": "object"}
TASK = Packed(kind="ref", label=TASK_TOOL, ref=TASK_TOOL)
READ = Packed(kind="ref", label="read_file", ref="read_file")


class Source:
    """A model that knows how it is reached."""

    def model_source(self):
        return "openai/scripted", {"api_base": "http://127.0.0.1:1"}


@tool
def local(text: str) -> str:
    """Live in a test module, which no worker can import."""
    return text


def spec_of(**given):
    return agent_spec(parse(None, {"model": MODEL, **given}))


# --- from options -------------------------------------------------------------------------------


def test_a_definition_survives_the_wire():
    """A restarted agent is built from the same bytes."""
    spec = spec_of(subagents=[SubAgent("a", "b", tools=[local])], response_format=SCHEMA)

    assert codec.decode_as(AgentSpec, codec.raw(spec)) == spec


def test_every_agent_option_is_in_the_definition():
    """What is not is the daemon's, the client's, said by an Assign, or a tool or plugin."""
    elsewhere = {*Supervision.__struct_fields__, "session_id", "group_id", "blueprint"}
    elsewhere |= {"reasoning_strategy", "config", "api_key", "send_keys", "memory", "skills_dirs"}

    missing = {*Options.__struct_fields__} - {*AgentSpec.__struct_fields__} - elsewhere
    assert missing == set()


def test_names_come_sorted_and_once():
    """A set has no order that would be the same in the next process."""
    spec = spec_of(
        exit_on={"provider_timeout", "plugin_aborted"},
        interrupt_immune_tools=["b", "a", "b"],
        loop_exempt_tools=("y", "x"),
    )

    assert spec.exit_on == ("plugin_aborted", "provider_timeout")
    assert spec.interrupt_immune_tools == ("a", "b")
    assert spec.loop_exempt_tools == ("x", "y")


def test_the_topmost_session_has_depth_0_and_its_supervision():
    """Its subagents are kept as it is."""
    spec = spec_of(event_buffer_size=7)

    assert spec.depth == 0
    assert spec.supervision == Supervision(event_buffer_size=7)


def test_a_blueprint_says_who_the_agent_is():
    """Without one there is nothing to say."""
    assert spec_of(blueprint=Blueprint(name="Ada")).identity == "You are Ada."
    assert spec_of().identity == ""


def test_an_unchecked_response_format_becomes_a_schema_too():
    """Options need not come from ``parse``."""
    spec = agent_spec(Options(model=MODEL, response_format=int))

    assert spec.response_format == {"type": "integer"}


@pytest.mark.parametrize(
    ("given", "labels"),
    [
        ({}, []),
        ({"tools": [tools.ReadFile]}, ["read_file"]),
        ({"subagents": [SubAgent("a", "b")], "tools": [tools.ReadFile]}, ["read_file", "task"]),
        ({"subagents": [SubAgent("a", "b")], "tools": ["task", "glob"]}, ["task", "glob"]),
    ],
)
def test_the_task_tool_comes_with_subagents(given, labels):
    """Unless it is there."""
    assert [tool.label for tool in spec_of(**given).tools] == labels


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"tools": ["glob", tools.Reason(strategies=["adaptive"])], "max_depth": 0},
            (
                "tools[1]: 'reason' starts sessions, and max_depth=0 allows none: give max_depth=1"
                " or more, or leave it out"
            ),
        ),
        (
            {"tools": [tools.Task], "max_depth": 0},
            (
                "tools[0]: 'task' starts sessions, and max_depth=0 allows none: give max_depth=1 or"
                " more, or leave it out"
            ),
        ),
        (
            {"subagents": [SubAgent("a", "b")], "max_depth": 0},
            "subagents: max_depth=0 allows none: give max_depth=1 or more, or leave them out",
        ),
        (
            {"subagents": [SubAgent("a", "b", tools=[tools.Reason])], "max_depth": 1},
            (
                "subagents[0].tools[0]: 'reason' starts sessions below the subagent, and"
                " max_depth=1 allows none: give max_depth=2 or more, or leave it out"
            ),
        ),
    ],
    ids=["reason", "task", "subagents", "a subagent's"],
)
def test_what_starts_sessions_needs_levels_for_them(given, problem):
    """What is given by name is not left out without a word."""
    with pytest.raises(InvalidOptions) as caught:
        spec_of(**given)

    assert caught.value.problems == (problem,)
    assert spec_of(**{**given, "max_depth": 2})


def test_the_general_purpose_subagent_is_always_there():
    """Unless one of its name is given, or none may be started."""
    own = SubAgent("general-purpose", "Ours.")

    assert spec_of().subagents == (GENERAL_PURPOSE,)
    assert [one.name for one in spec_of(subagents=[SubAgent("a", "b")]).subagents] == [
        "a",
        "general-purpose",
    ]
    assert [one.description for one in spec_of(subagents=[own]).subagents] == ["Ours."]
    assert spec_of(max_depth=0).subagents == ()


def test_a_subagents_tools_are_packed():
    """None stays None: that means the parent's."""
    given = [SubAgent("a", "b", tools=[tools.ReadFile]), SubAgent("c", "d")]
    packed, inheriting, _ = spec_of(subagents=given).subagents

    assert packed.tools == (READ,)
    assert inheriting.tools is None


def test_a_subagents_tool_that_cannot_travel_is_reported_with_its_place():
    """There may be many."""
    with pytest.raises(InvalidTool, match=r"subagents\[1\]\.tools\[0\]: 5 is no tool"):
        spec_of(subagents=[SubAgent("a", "b"), SubAgent("c", "d", tools=[5])])


def test_a_subagents_model_may_know_how_it_is_reached():
    """What is given besides wins."""
    given = SubAgent("a", "b", model=Source(), provider_opts={"temperature": 0})
    packed = spec_of(subagents=[given]).subagents[0]

    assert packed.model == "openai/scripted"
    assert packed.provider_opts == {"api_base": "http://127.0.0.1:1", "temperature": 0}


def test_code_of_subagents_counts_as_code():
    """A daemon that takes none must not get it this way either."""
    assert not carries_code(spec_of(tools=[tools.ReadFile]))
    assert carries_code(spec_of(tools=[local]))
    assert carries_code(spec_of(subagents=[SubAgent("a", "b", tools=[local])]))


# --- the strategy of a session --------------------------------------------------------------------


class Mine(ReasoningStrategy):
    """Lives in a test module, so it travels by value."""

    def step(self, state, context):
        return None


@pytest.mark.parametrize("given", [Mine, Mine(), (Mine, {"x": 1}), "adaptive", "pkg.mod:Class"])
def test_a_strategy_is_a_tool_and_the_call_that_opens_a_cycle(given):
    """The model's own ``reason`` may be there too: it has another name."""
    spec = spec_of(reasoning_strategy=given, tools=[tools.Reason])
    own = spec.tools[-1]

    assert [one.label for one in spec.tools] == ["reason", STRATEGY_TOOL]
    assert spec.opening_call == OpeningCall(name=STRATEGY_TOOL, text_as="question")
    assert (own.ref, carries_code(spec)) == (REASON_TOOL, not isinstance(given, str))
    assert codec.decode_as(AgentSpec, codec.raw(spec)) == spec


@pytest.mark.parametrize("given", ["step_back", reasoning.StepBack, reasoning.StepBack()])
def test_a_chain_is_a_plugin_of_the_session(given):
    """No call opens its cycles, and it needs no branches."""
    spec = spec_of(reasoning_strategy=given, max_depth=0)

    assert [(one.label, one.ref) for one in spec.plugins] == [(STRATEGY_TOOL, "reasoning")]
    assert (spec.tools, spec.opening_call) == ((), None)


def test_a_chain_beside_the_plugin_is_refused():
    """Both would ask for the same."""
    with pytest.raises(InvalidOptions, match="the plugin Reasoning is there"):
        spec_of(reasoning_strategy="step_back", plugins=["reasoning"])


def test_limits_of_a_strategy_come_with_the_tool():
    """All but its name, which is the session's business."""
    limits = tools.Reason(strategies=["adaptive"], max_steps=7, name="mine")
    options = msgspec.msgpack.decode(spec_of(reasoning_strategy=limits).tools[0].data)

    assert (options["max_steps"], options["name"]) == (7, STRATEGY_TOOL)
