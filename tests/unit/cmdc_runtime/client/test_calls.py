"""What a call sends, before it is sent."""

from dataclasses import dataclass

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import codec
from cmdc_runtime.client.calls import checked_id, id_of, start_request


@dataclass(frozen=True)
class SessionObject:
    id: str


def test_session_is_an_object_or_its_id():
    """Both kinds are taken; an id that nobody checked comes back as it is."""
    assert id_of(SessionObject("s1")) == id_of("s1") == "s1"
    assert id_of("no id at all") == "no id at all"


@pytest.mark.parametrize("session", [None, 5, "", "no id at all", SessionObject("a b")])
def test_what_cannot_be_a_session_is_refused(session):
    """A call does not go out for a name that no session can have."""
    with pytest.raises(cmdc.InvalidSession):
        checked_id(session)


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


@pytest.mark.parametrize(
    ("options", "given", "problem"),
    [
        ({"model": "a:b"}, {}, "options"),
        (None, {"model": "a:b", "user_data": {"x": object()}}, "user_data"),
        (None, {"model": "a:b", "provider_opts": {"x": object()}}, "provider_opts"),
    ],
    ids=["a dict", "user data", "provider options"],
)
def test_options_that_cannot_travel_are_named(options, given, problem):
    """The error names the option, not a place inside a codec."""
    with pytest.raises(cmdc.InvalidOptions) as caught:
        start_request(options, given)

    assert [line.partition(":")[0] for line in caught.value.problems] == [problem]
