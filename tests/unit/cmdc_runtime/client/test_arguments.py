"""Whom a call is about."""

from dataclasses import dataclass

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client.arguments import checked_group, checked_id, id_of
from cmdc_runtime.options import parse


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


def test_group_is_its_name():
    """A group has no object; its name is any text but none."""
    assert checked_group("team a") == "team a"


@pytest.mark.parametrize("group", [None, 5, "", SessionObject("s1")])
def test_what_cannot_be_a_group_is_refused(group):
    """A stream of no group would be silent for ever."""
    with pytest.raises(cmdc.UsageError, match="non-empty str"):
        checked_group(group)


@pytest.mark.parametrize(
    "group", [5, "", "a\nb", "\ud800", "x" * 10_000, "a", "team a", "ü", " "], ids=ascii
)
def test_a_group_that_can_be_made_can_be_followed(group):
    """One rule and one text for ``create_agent``, subagents and ``subscribe_group``."""
    helper = cmdc.SubAgent(name="a", description="b", group_id=group)
    ways = (
        lambda: checked_group(group),
        lambda: parse(None, {"model": "a:b", "group_id": group}),
        lambda: parse(None, {"model": "a:b", "subagents": [helper]}),
    )
    errors = {said(way).replace("subagents[0].", "") for way in ways}

    assert len(errors) == 1


def said(way):
    """Return the text of the refusal, "" where there is none."""
    try:
        way()
    except cmdc.InvalidOptions as error:
        (problem,) = error.problems
        return problem
    except cmdc.UsageError as error:
        return str(error)
    return ""
