"""The request that starts an agent, before it is sent."""

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import codec
from cmdc_runtime.client.start import start_request


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
