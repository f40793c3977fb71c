"""The definition of an agent, and what a subagent has of its parent."""

import dataclasses

import msgspec
import pytest

from cmdc_runtime import reasoning, sandbox, tools
from cmdc_runtime.blueprint import Blueprint
from cmdc_runtime.errors import InvalidOptions, InvalidTool
from cmdc_runtime.extensions import tool
from cmdc_runtime.extensions.reasoning import ReasoningStrategy
from cmdc_runtime.ids import SessionId
from cmdc_runtime.messages import Message, OpeningCall
from cmdc_runtime.options import Options, parse
from cmdc_runtime.packing import Packed
from cmdc_runtime.requests import Supervision
from cmdc_runtime.spec import AgentSpec, Branching, Parent, agent_spec, carries_code, child_request
from cmdc_runtime.subagent import (
    GENERAL_PURPOSE,
    REASON_TOOL,
    STRATEGY_TOOL,
    TASK_TOOL,
    SubAgent,
    SubagentSpec,
)
from cmdc_runtime.wire import codec

MODEL = "openai:gpt-4o-mini"
SCHEMA = {"type": "object"}
TASK = Packed(kind="ref", label=TASK_TOOL, ref=TASK_TOOL)
GUARD = Packed(kind="ref", label="guard", ref="guard")
READ = Packed(kind="ref", label="read_file", ref="read_file")
CODE = Packed(kind="value", label="own", data=b"code", python=(3, 11))
KIND = SubagentSpec(name="kind", description="Any.")
OWN = {
    "messages", "response_format", "max_cost_usd", "max_total_tokens", "exit_on", "depth",
    "hibernate_after", "supervision", "prompt_mode", "model", "provider_opts", "tools", "subagents",
}  # fmt: skip
"""What a subagent does not simply have from its parent's definition."""


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


def parent(**given):
    """Return a parent with everything said, and with more now than it started with."""
    now = {name: given.pop(name) for name in ("model", "provider_opts", "tools") if name in given}
    spec = spec_of(
        blueprint=Blueprint(name="boss"),
        system_prompt="You lead.",
        messages=[Message(id="m", role="user")],
        response_format=SCHEMA,
        user_data={"team": "a"},
        max_cost_usd=9.0,
        max_total_tokens=9,
        max_turns=9,
        exit_on=["provider_timeout"],
        restart="permanent",
        event_buffer_size=5,
        hibernate_after=1.0,
        prompt_mode="minimal",
        **given,
    )
    now = {
        "model": "openai:now",
        "provider_opts": {"api_key": "k"},
        "tools": (READ, TASK),
        "plugins": (GUARD,),
        **now,
    }
    return Parent(session_id=SessionId("boss"), spec=spec, group_id="g", **now)


def started(subagent=KIND, of=None, **limits):
    """Return the request for a subagent, and the definition in it."""
    request = child_request(of or parent(), SessionId("child"), subagent, **limits)
    return request, codec.decode_as(AgentSpec, request.agent)


# --- from options -------------------------------------------------------------------------------


def test_a_definition_survives_the_wire():
    """A restarted agent is built from the same bytes."""
    spec = spec_of(subagents=[SubAgent("a", "b", tools=[local])], response_format=SCHEMA)

    assert codec.decode_as(AgentSpec, codec.raw(spec)) == spec


def test_every_agent_option_is_in_the_definition():
    """What is not is the daemon's, the client's, told by an Assign, or a tool or plugin."""
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


def test_a_subagents_tool_that_cannot_travel_is_told_with_its_place():
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


# --- a subagent of a parent ---------------------------------------------------------------------


def test_a_subagent_is_a_session_below_its_parent():
    """It is never restarted, and kept like its parent in all else."""
    request, spec = started()

    assert (request.session_id, request.parent_id) == ("child", "boss")
    assert request.supervision == Supervision(restart="temporary", event_buffer_size=5)
    assert (spec.depth, spec.supervision) == (1, request.supervision)


def test_a_subagent_starts_afresh():
    """The conversation, its form and what ends the parent's process stay with the parent."""
    _, spec = started()

    assert (spec.messages, spec.response_format, spec.exit_on) == ((), None, ())
    assert spec.hibernate_after is None


def test_no_cycle_of_a_subagent_opens_with_its_parents_call():
    """What the parent does with each prompt is not what its subagents are for."""
    before = parent()
    call = OpeningCall(name="reason", text_as="question")
    spec = msgspec.structs.replace(before.spec, opening_call=call)
    _, below = started(of=dataclasses.replace(before, spec=spec))

    assert below.opening_call is None


REASON = Packed(kind="ref", label="reason", ref="reason")


def test_a_branch_starts_no_sessions_of_its_own():
    """It has the tools of the parent but for those two, also where a level below is allowed."""
    before = parent(max_depth=3, tools=(READ, TASK, REASON))
    branching = Branching(response_format={"type": "integer"})
    _, spec = started(of=before, branching=branching)
    _, plain = started(of=before)

    assert (spec.tools, spec.subagents) == ((READ,), ())
    assert spec.response_format == {"type": "integer"}
    assert (plain.tools, plain.response_format) == ((READ, TASK, REASON), None)
    assert (spec.model, spec.provider_opts) == (plain.model, plain.provider_opts)


def test_a_fork_takes_nothing_of_the_saved_state_but_the_conversation():
    """Model, tools and plugins are those that any branch has."""
    _, spec = started(branching=Branching(forks=True))

    assert spec.resumed.changes == ("model", "plugins", "provider_opts", "tools")
    assert started(branching=Branching())[1].resumed is None


@pytest.mark.parametrize(
    ("model", "opts"), [("openai:other", {"api_key": "k"}), ("anthropic:claude", {})]
)
def test_a_branch_with_a_model_of_its_own_gets_no_key_of_another_provider(model, opts):
    """The options that go with a model are those of its provider."""
    kind = msgspec.structs.replace(KIND, model="x:y", provider_opts={"api_key": "its own"})
    _, spec = started(kind, branching=Branching(model=model))

    assert (spec.model, spec.provider_opts) == (model, opts)


def test_everything_else_is_the_parents():
    """Field by field; a new option is inherited unless this test and ``child_request`` say no."""
    _, spec = started()
    before = msgspec.structs.asdict(parent().spec) | {"plugins": (GUARD,)}

    after = msgspec.structs.asdict(spec)
    assert {name for name in after if after[name] != before[name]} <= OWN
    assert (spec.system_prompt, spec.identity) == ("You lead.", "You are boss.")
    assert (spec.user_data, spec.working_dir) == ({"team": "a"}, parent().spec.working_dir)


def test_model_tools_plugins_and_group_are_those_of_now():
    """The parent may have changed them since it started."""
    request, spec = started(of=parent(max_depth=2))

    assert (spec.model, spec.provider_opts) == ("openai:now", {"api_key": "k"})
    assert (spec.tools, request.group_id) == ((READ, TASK), "g")
    assert spec.plugins == (GUARD,)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("system_prompt", "You follow."),
        ("model", "anthropic:claude"),
        ("provider_opts", {"api_key": "own"}),
        ("provider_opts", {}),
        ("tools", (CODE,)),
        ("tools", ()),
        ("user_data", {}),
        ("prompt_mode", "none"),
        ("max_turns", 2),
    ],
)
def test_what_a_subagent_says_wins(field, value):
    """An empty value is a value; only None is the parent's."""
    _, spec = started(msgspec.structs.replace(KIND, **{field: value}))

    assert getattr(spec, field) == value


def test_a_subagents_group_wins():
    """It stands in the request, not in the definition."""
    request, _ = started(msgspec.structs.replace(KIND, group_id="own"))

    assert request.group_id == "own"


@pytest.mark.parametrize(("said", "mode"), [("task", "task"), ("full", "full"), (None, "minimal")])
def test_the_prompt_is_a_short_one_unless_told(said, mode):
    """None, here too, is the parent's."""
    _, spec = started(msgspec.structs.replace(KIND, prompt_mode=said))

    assert spec.prompt_mode == mode
    assert SubAgent("a", "b").prompt_mode == "task"


def test_an_own_prompt_brings_no_foreign_identity():
    """Who the parent is would contradict it."""
    _, spec = started(msgspec.structs.replace(KIND, system_prompt="You are Bob."))

    assert spec.identity == ""


@pytest.mark.parametrize(
    ("model", "opts"),
    [("openai/other", {"api_key": "k"}), ("anthropic:claude", {})],
)
def test_a_key_goes_to_no_other_provider(model, opts):
    """The parent's provider options are for the parent's provider."""
    _, spec = started(msgspec.structs.replace(KIND, model=model))

    assert spec.provider_opts == opts


def test_budgets_are_those_that_are_granted():
    """The parent's own would be spent twice."""
    _, spec = started(max_total_tokens=3, max_cost_usd=0.5)
    _, free = started()

    assert (spec.max_total_tokens, spec.max_cost_usd) == (3, 0.5)
    assert (free.max_total_tokens, free.max_cost_usd) == (None, None)


@pytest.mark.parametrize(("max_depth", "may"), [(1, False), (2, True)])
def test_the_last_level_cannot_delegate(max_depth, may):
    """It has neither the task tool, its own or inherited, nor anything to start."""
    own = msgspec.structs.replace(KIND, tools=(TASK, READ))
    _, inheriting = started(of=parent(max_depth=max_depth))
    _, listing = started(own, of=parent(max_depth=max_depth))

    assert [TASK in spec.tools for spec in (inheriting, listing)] == [may, may]
    assert [bool(spec.subagents) for spec in (inheriting, listing)] == [may, may]


def test_depth_adds_up():
    """A subagent's subagent stands two levels down."""
    _, child = started(of=parent(max_depth=2))
    below = Parent(
        session_id=SessionId("child"),
        spec=child,
        model=child.model,
        provider_opts={},
        tools=child.tools,
        plugins=(GUARD,),
        group_id=None,
    )
    _, grandchild = started(of=below)

    assert (grandchild.depth, grandchild.tools) == (2, (READ,))


def test_a_child_has_the_span_that_it_is_started_in():
    """That of the call, and not what its parent was itself started in."""
    above = parent()
    of = dataclasses.replace(above, trace_parent="00-a-b-01")
    _, child = started(of=of)

    assert (above.spec.trace_parent, child.trace_parent) == (None, "00-a-b-01")


@pytest.mark.parametrize(("carried", "code"), [((READ,), False), ((READ, CODE), True)])
def test_a_request_says_whether_code_travels(carried, code):
    """Of the tools that this subagent has."""
    request, _ = started(of=parent(tools=carried))

    assert request.carries_code is code


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
def test_a_chain_is_a_plugin_of_the_session_alone(given):
    """No call opens its cycles, it needs no branches, and no subagent has it."""
    spec = spec_of(reasoning_strategy=given, max_depth=0)
    below = started(of=dataclasses.replace(parent(), plugins=spec.plugins))[1]

    assert [(one.label, one.ref) for one in spec.plugins] == [(STRATEGY_TOOL, "reasoning")]
    assert (spec.tools, spec.opening_call, below.plugins) == ((), None, ())


def test_a_chain_beside_the_plugin_is_refused():
    """Both would ask for the same."""
    with pytest.raises(InvalidOptions, match="the plugin Reasoning is there"):
        spec_of(reasoning_strategy="step_back", plugins=["reasoning"])


def test_limits_of_a_strategy_come_with_the_tool():
    """All but its name, which is the session's business."""
    limits = tools.Reason(strategies=["adaptive"], max_steps=7, name="mine")
    options = msgspec.msgpack.decode(spec_of(reasoning_strategy=limits).tools[0].data)

    assert (options["max_steps"], options["name"]) == (7, STRATEGY_TOOL)


def test_a_subagent_reasons_by_no_strategy():
    """It has no call to open with, and below the last level no tool that branches."""
    own = spec_of(reasoning_strategy="adaptive").tools[0]
    before = parent(reasoning_strategy="adaptive", max_depth=2, tools=(READ, REASON, own))
    deep = parent(reasoning_strategy="adaptive", max_depth=1, tools=(READ, REASON))

    assert started(of=before)[1].opening_call is None
    assert started(of=before)[1].tools == (READ, REASON)
    assert started(of=deep)[1].tools == (READ,)


def test_a_child_has_no_other_sandbox_than_its_parent():
    """A kind of subagent has no word for one, and what is required of it is required below."""
    above = parent(sandbox=sandbox.Local(root="below"), require_sandbox=True)
    _, spec = started(of=above)

    assert spec.sandbox is not None
    assert spec.sandbox == above.spec.sandbox
    assert spec.require_sandbox
    assert not {"sandbox", "require_sandbox"} & {*SubAgent.__struct_fields__}
