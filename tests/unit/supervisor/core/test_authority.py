"""Who may ask for what: the table is total, and everything new is a person's."""

import msgspec
import pytest

from cmdc_runtime import requests
from cmdc_runtime.checkpoints import CheckpointFacts
from supervisor.core.authority import (
    PERSON,
    REACH,
    Kind,
    Peer,
    Reach,
    SenderEnded,
    is_own_child,
    problem,
    reach_of,
    refusal,
    target_of,
)

AGENT = Peer(Kind.AGENT, "s1", 3)


def test_every_request_has_a_row():
    """One that is missing is refused to agents, and is to be decided upon."""
    missing = {one.__name__ for one in set(requests.Request.__subclasses__()) - set(REACH)}

    assert not missing, f"add {missing} to REACH in supervisor/core/authority.py"


def test_a_request_without_a_row_is_a_persons():
    """Nothing new is an agent's because nobody thought of it."""

    class New(msgspec.Struct):
        session_id: str = "s1"

    assert reach_of(New()) is Reach.NONE


@pytest.mark.parametrize(
    "kind", [kind for kind, reach in REACH.items() if reach in (Reach.BELOW, Reach.TREE)]
)
def test_what_reaches_below_names_a_session(kind):
    """By its field; a checkpoint's is in its facts."""
    assert "session_id" in kind.__struct_fields__


def test_a_checkpoint_is_of_the_session_in_its_facts():
    """That is where it is kept."""
    facts = CheckpointFacts(
        session_id="s9", checkpoint_id="c", label=None, saved_ms=0, schema_version=1, metadata=b""
    )

    assert target_of(requests.KeepCheckpoint(facts=facts, body=b"")) == "s9"
    assert target_of(requests.FindSession(session_id="s2")) == "s2"


@pytest.mark.parametrize(
    ("peer", "words"),
    [
        (PERSON, None),
        (AGENT, None),
        (Peer(Kind.TOOL, "s1", 3), "a tool of session 's1'"),
        (Peer(Kind.TOOL), "a tool of a session"),
        (Peer(Kind.GONE), "has ended"),
    ],
)
def test_tools_and_the_dead_are_not_heard(peer, words):
    """The text says whose process it is; who has ended is not taken for one that asks too much."""
    error = problem(peer)

    assert (error is None) == (words is None)
    assert words is None or words in str(error)
    assert isinstance(error, SenderEnded) == (peer.kind is Kind.GONE)


@pytest.mark.parametrize(
    ("parent", "incarnation", "past", "is_own"),
    [
        ("s1", 3, None, True),
        ("s1", None, None, True),
        ("s1", 2, None, False),
        ("s2", 3, None, False),
        (None, None, None, False),
        ("s1", 3, "s1", True),
        ("s1", 3, "s2", False),
    ],
)
def test_an_agent_starts_sessions_below_itself(parent, incarnation, past, is_own):
    """With its own past or none: another session's is not its to read."""
    request = requests.StartSession(
        session_id="c",
        supervision=requests.Supervision(),
        agent=msgspec.Raw(b"\xc0"),
        carries_code=False,
        parent_id=parent,
        parent_incarnation=incarnation,
        origin=None if past is None else requests.Origin(session_id=past),
    )

    assert is_own_child(AGENT, request) is is_own


def test_a_refusal_names_the_agent_and_what_it_asked():
    """And the way out."""
    assert refusal(AGENT, "approve").startswith("the agent of session 's1' may not send 'approve'")
