"""What a subagent has of its parent."""

import dataclasses

import msgspec
import pytest

from cmdc_runtime import sandbox
from cmdc_runtime.blueprint import Blueprint
from cmdc_runtime.child_spec import Branching, Parent, child_request
from cmdc_runtime.ids import SessionId
from cmdc_runtime.messages import Message, OpeningCall
from cmdc_runtime.options import parse
from cmdc_runtime.packing import Packed
from cmdc_runtime.requests import Supervision
from cmdc_runtime.spec import AgentSpec, agent_spec
from cmdc_runtime.subagent import REASON_TOOL, TASK_TOOL, SubAgent, SubagentSpec
from cmdc_runtime.wire import codec

MODEL = "openai:gpt-4o-mini"
SCHEMA = {"type": "object"}
TASK = Packed(kind="ref", label=TASK_TOOL, ref=TASK_TOOL)
REASON = Packed(kind="ref", label=REASON_TOOL, ref=REASON_TOOL)
GUARD = Packed(kind="ref", label="guard", ref="guard")
READ = Packed(kind="ref", label="read_file", ref="read_file")
CODE = Packed(kind="value", label="own", data=b"code", python=(3, 11))
KIND = SubagentSpec(name="kind", description="Any.")
OWN = {
    "messages", "response_format", "max_cost_usd", "max_total_tokens", "exit_on", "depth",
    "hibernate_after", "supervision", "prompt_mode", "model", "provider_opts", "tools", "subagents",
}  # fmt: skip
"""What a subagent does not simply have from its parent's definition."""


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
def test_the_prompt_is_a_short_one_unless_asked(said, mode):
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


def test_no_subagent_has_the_chain_of_its_parent():
    """It is the session's own strategy."""
    spec = spec_of(reasoning_strategy="step_back", max_depth=0)
    below = started(of=dataclasses.replace(parent(), plugins=spec.plugins))[1]

    assert (len(spec.plugins), below.plugins) == (1, ())


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
