"""The request that resumes a session, made of its old definition and what is given anew."""

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client.resuming import check_free, definition_of, resume_request
from cmdc_runtime.errors import InvalidOptions, SessionExists
from cmdc_runtime.ids import SESSION_ID_RULE
from cmdc_runtime.options import Options
from cmdc_runtime.requests import Origin
from cmdc_runtime.spec import agent_spec

ORIGIN = Origin(session_id="s-1", checkpoint_id="c-1")
OLD = agent_spec(
    Options(
        model="x:m",
        tools=["read_file"],
        plugins=["telemetry"],
        system_prompt="Be brief.",
        exit_on=["provider_timeout"],
        loop_exempt_tools=["poll"],
        restart="permanent",
        restart_delay=(0.2, 1.0),
        memory_limit=2**30,
        max_turns=7,
        provider_opts={"api_key": "k"},
        user_data={"n": 1},
        messages=[cmdc.Message.user("hi")],
    )
)


KIND = cmdc.SubAgent("reader", "Reads.")


class Source:
    """A model that knows how it is reached."""

    def model_source(self):
        return "y:n", {"api_base": "there"}


def resumed(new_id=None, **given):
    return resume_request(ORIGIN, new_id, OLD, "g", given)


def made(**given):
    """Return the new definition, and what of it is changed."""
    spec = definition_of(resumed(**given).agent)
    return spec, spec.resumed.changes


def test_without_options_the_definition_is_the_old_one():
    """But for the mark that it was resumed, which is new each time."""
    request, again = resumed(), resumed()
    spec = definition_of(request.agent)

    assert without_mark(spec) == OLD
    assert spec.resumed.changes == ()
    assert definition_of(again.agent).resumed.id != spec.resumed.id
    assert (request.session_id, request.origin, request.group_id) == ("s-1", ORIGIN, "g")
    assert request.supervision == OLD.supervision


def without_mark(spec):
    """Return a definition as if it had not been resumed."""
    return msgspec.structs.replace(spec, resumed=None)


def test_a_new_id_is_the_forks():
    """A group stays unless it is given."""
    assert resumed("fork").session_id == "fork"
    assert resumed("fork", group_id=None).group_id is None
    assert resumed(group_id="h").group_id == "h"


def test_limits_are_simply_other_ones():
    """No part of the state, so nothing has to be recorded."""
    spec, changes = made(max_turns=9, system_prompt=None, restart="temporary", exit_on=[])

    assert changes == ()
    assert (spec.max_turns, spec.system_prompt, spec.exit_on) == (9, None, ())
    assert (spec.supervision.restart, spec.supervision.restart_delay) == ("temporary", (0.2, 1.0))
    assert spec.loop_exempt_tools == ("poll",)


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ({"model": "y:n"}, ("model",)),
        ({"model": Source()}, ("model", "provider_opts")),
        ({"provider_opts": {"seed": 1}}, ("provider_opts",)),
        ({"tools": []}, ("tools",)),
        ({"plugins": ["cost_guard"]}, ("plugins",)),
    ],
    ids=["model", "source", "options", "tools", "plugins"],
)
def test_what_is_part_of_the_state_is_named(given, changes):
    """The agent records it once, in the place of what the state has."""
    assert made(**given)[1] == changes


def test_a_model_that_is_only_named_is_reached_as_before():
    """As ``switch_model`` does."""
    assert made(model="y:n")[0].provider_opts == {"api_key": "k"}
    assert made(model=Source())[0].provider_opts == {"api_base": "there"}


def labels(packed):
    """Return what these are called in error texts, which for others than ours is their place."""
    return [one.ref or one.label for one in packed]


@pytest.mark.parametrize(
    ("was", "given", "part", "expected"),
    [
        ({"reasoning_strategy": "step_back"}, {"plugins": []}, "plugins", ["reasoning"]),
        (
            {"reasoning_strategy": "step_back", "plugins": ["telemetry"]},
            {"plugins": ["cost_guard"]},
            "plugins",
            ["cost_guard", "reasoning"],
        ),
        ({"reasoning_strategy": "self_consistency"}, {"tools": []}, "tools", ["reason"]),
        ({"subagents": [KIND]}, {"tools": ["read_file"]}, "tools", ["read_file", "task"]),
        ({"subagents": [KIND]}, {"tools": ["task"]}, "tools", ["task"]),
        ({"subagents": [KIND]}, {"tools": [], "subagents": []}, "tools", []),
        ({"tools": ["task"]}, {"tools": []}, "tools", []),
        ({"plugins": ["reasoning"]}, {"plugins": []}, "plugins", []),
    ],
    ids=[
        *("chain", "chain beside a plugin", "strategy", "kinds", "kinds with the tool"),
        *("other kinds", "tool by hand", "plugin by hand"),
    ],
)
def test_what_another_option_brought_along_stays(was, given, part, expected):
    """A strategy's plugin or tool, and the tool that starts the kinds of subagents."""
    old = agent_spec(Options(model="x:m", **was))
    spec = definition_of(resume_request(ORIGIN, None, old, "g", given).agent)

    assert labels(getattr(spec, part)) == expected


def test_a_sessions_own_chain_is_not_given_a_second_time():
    """As ``create_agent`` refuses it."""
    old = agent_spec(Options(model="x:m", reasoning_strategy="step_back"))
    with pytest.raises(InvalidOptions, match="plugins: the session has a strategy of its own"):
        resume_request(ORIGIN, None, old, "g", {"plugins": ["reasoning"]})


@pytest.mark.parametrize("name", ["session_id", "messages", "blueprint"])
def test_what_cannot_be_given_is_refused(name):
    """The message says what to do instead."""
    with pytest.raises(InvalidOptions, match=f"{name}: "):
        resumed(**{name: None})


def test_what_is_given_is_checked_with_what_stays():
    """Every problem at once."""
    with pytest.raises(InvalidOptions) as wrong:
        resumed(retry_max_delay=1.0, max_turns="5", nonsense=1)

    assert [one.split(":")[0] for one in wrong.value.problems] == [
        "max_turns",
        "nonsense",
        "retry_base_delay",
    ]


@pytest.mark.parametrize("new_id", [None, "s-1"])
def test_a_live_session_is_not_had_twice(new_id):
    """An ended one may be resumed, and a live one be forked."""
    with pytest.raises(SessionExists, match="give new_id to fork it"):
        check_free(ORIGIN, new_id, is_alive=True)
    check_free(ORIGIN, new_id, is_alive=False)
    check_free(ORIGIN, "fork", is_alive=True)


@pytest.mark.parametrize("new_id", ["", ".x", "a b", 5])
def test_a_new_id_that_no_session_can_have_is_refused_by_the_whole_rule(new_id):
    """With the words that ``create_agent`` has for it."""
    with pytest.raises(InvalidOptions) as caught:
        check_free(ORIGIN, new_id, is_alive=False)

    assert caught.value.problems == (f"new_id: expected {SESSION_ID_RULE}, got {new_id!r}",)
