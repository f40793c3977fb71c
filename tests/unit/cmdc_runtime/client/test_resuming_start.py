"""The request that starts an agent, before it is sent."""

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client.resuming import AGENT_BYTES_MAX, start_request
from cmdc_runtime.wire import codec
from cmdc_runtime.wire.frames import ASKED_BYTES_MAX


def test_start_request_carries_the_definition():
    """Options become a definition, a supervision and an id; the given ones come on top."""
    options = cmdc.Options(model="a:b", max_turns=5)
    request = start_request(options, {"max_turns": 7, "restart": "permanent", "group_id": "g"})
    spec = msgspec.msgpack.decode(request.agent)

    assert (spec["model"], spec["max_turns"]) == ("a:b", 7)
    assert (request.supervision.restart, request.group_id) == ("permanent", "g")
    assert not request.carries_code
    assert codec.decode(type(request).__base__, codec.encode(request)) == request


def test_code_by_value_is_declared():
    """A tool that is not installed travels by value, and the request says so."""

    @cmdc.tool
    def local(text: str) -> str:
        """Return it."""
        return text

    assert start_request(None, {"model": "a:b", "tools": [local]}).carries_code


def test_code_of_a_subagent_is_declared():
    """What a subagent will run travels with its parent, and counts as much."""

    @cmdc.tool
    def local(text: str) -> str:
        """Return it."""
        return text

    helper = cmdc.SubAgent(name="helper", description="Helps.", tools=[local])

    assert start_request(None, {"model": "a:b", "subagents": [helper]}).carries_code


@pytest.mark.parametrize(
    ("options", "given", "problem"),
    [
        ({"model": "a:b"}, {}, "options"),
        (None, {"model": "a:b", "user_data": {"x": object()}}, "user_data['x']"),
        (None, {"model": "a:b", "provider_opts": {"x": object()}}, "provider_opts['x']"),
    ],
    ids=["a dict", "user data", "provider options"],
)
def test_options_that_cannot_travel_are_named(options, given, problem):
    """The error names the option, not a place inside a codec."""
    with pytest.raises(cmdc.InvalidOptions) as caught:
        start_request(options, given)

    assert [line.partition(":")[0] for line in caught.value.problems] == [problem]


LARGE = "x" * (AGENT_BYTES_MAX - 100)
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "description": LARGE}}}
TOO_LARGE = {
    "user_data": {"user_data": {"k": LARGE}},
    "provider_opts": {"provider_opts": {"k": LARGE}},
    "messages": {"messages": [cmdc.Message.user(LARGE)]},
    "metadata": {"messages": [cmdc.Message(role="user", metadata={"k": LARGE})]},
    "response_format": {"response_format": SCHEMA},
    "subagents": {"subagents": [cmdc.SubAgent("a", "b", user_data={"k": LARGE})]},
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_an_option_that_is_too_large_is_named(name):
    """With its size and the bound, before anything is sent; what is small is not."""
    with pytest.raises(cmdc.InvalidOptions) as caught:
        start_request(None, {"model": "a:b", "system_prompt": "y" * 1000, **TOO_LARGE[name]})

    (line,) = caught.value.problems
    assert line.startswith("messages: " if name == "metadata" else f"{name}: ")
    assert f"{AGENT_BYTES_MAX:,} is the most" in line


def test_options_that_are_too_large_together_are_all_named():
    """The largest first, as many as there is too much."""
    third = "x" * (AGENT_BYTES_MAX // 3)
    large = {"k": third + third}
    given = {"user_data": large, "provider_opts": large, "messages": [cmdc.Message.user(third * 2)]}
    with pytest.raises(cmdc.InvalidOptions) as caught:
        start_request(None, {"model": "a:b", **given})

    named = [line.partition(":")[0] for line in caught.value.problems]
    assert len(named) == len(set(named)) == 2
    assert set(named) < set(given)


def test_options_of_the_largest_size_are_sent():
    """The whole request fits into what a daemon takes."""
    room = AGENT_BYTES_MAX - len(start_request(None, {"model": "a:b"}).agent) - 100
    request = start_request(None, {"model": "a:b", "user_data": {"k": "x" * room}})

    assert len(codec.encode(request)) < ASKED_BYTES_MAX - 4096


HELPER = cmdc.SubAgent(name="helper", description="Helps.", model="groq:m")
OF_GROQ = cmdc.Config(providers=[cmdc.ProviderConfig(models=["groq:m"], api_key="sk-config")])
KEYS = {
    "this process's": ({}, {"openai": "sk-env"}),
    "not sent": ({"send_keys": False}, {}),
    "given": ({"api_key": "sk-given"}, {"openai": "sk-given"}),
    "given, not sent": ({"api_key": "sk-g", "send_keys": False}, {"openai": "sk-g"}),
    "by provider": ({"api_key": {"x": "sk-x"}}, {"openai": "sk-env", "x": "sk-x"}),
    "has one": ({"provider_opts": {"api_key": "sk-own"}}, {}),
    "a subagent's": ({"subagents": [HELPER]}, {"openai": "sk-env", "groq": "sk-groq"}),
    "a config's": (
        {"subagents": [HELPER], "config": OF_GROQ},
        {"openai": "sk-env", "groq": "sk-groq", "groq:m": "sk-config"},
    ),
    "a config's, outranked": (
        {"subagents": [HELPER], "config": OF_GROQ, "api_key": {"groq": "sk-g"}},
        {"openai": "sk-env", "groq": "sk-g"},
    ),
}


@pytest.mark.parametrize(("given", "keys"), KEYS.values(), ids=KEYS)
def test_a_session_is_given_the_keys_of_its_models(monkeypatch, given, keys):
    """They are beside the definition, and nobody who prints the request sees them."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
    monkeypatch.setenv("GROQ_API_KEY", "sk-groq")

    request = start_request(None, {"model": "openai:m", **given})

    assert request.keys == keys
    own = given.get("provider_opts", {})
    assert [key for key in keys.values() if key.encode() in bytes(request.agent)] == []
    assert (b"sk-own" in bytes(request.agent)) == bool(own)
    assert [key for key in keys.values() if key in repr(request)] == []
    assert "sk-" not in repr(cmdc.Options(**given))


def test_a_key_that_is_given_twice_is_refused():
    """One of them would be dropped without a word."""
    given = {"model": "a:b", "api_key": "sk-1", "provider_opts": {"api_key": "sk-2"}}
    with pytest.raises(cmdc.InvalidOptions) as caught:
        start_request(None, given)

    assert caught.value.problems == ("api_key: provider_opts has one, too: give one of them",)
