"""One stream for all sessions of a group, those that start later included."""

import asyncio
import secrets
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

import cmdc_runtime as cmdc

TURN_S = 20.0
LATER = 6


@pytest.fixture
def group():
    """A name that no other test's group has."""
    return f"group {secrets.token_hex(4)}"


def until_ends(stream, count):
    """Return the envelopes by session, up to the ``count``-th end of a cycle."""
    found = defaultdict(list)
    ended = 0
    while ended < count:
        envelope = stream.get(TURN_S)
        found[envelope.session_id].append(envelope)
        ended += envelope.event.kind == "agent_end"
    return found


def is_whole(envelopes, first):
    """Say whether the indexes begin at ``first`` and have no gap."""
    return [one.index for one in envelopes] == [*range(first, first + len(envelopes))]


def test_sessions_that_join_are_heard_from_their_first_event(agent, client, scripted, group):
    """However many start at once, and whatever others do meanwhile."""
    model = scripted(default="fine")
    old = agent(model, group_id=group)
    old.run("Before.", timeout=TURN_S)
    begin = client.last_index(old)
    stream = client.subscribe_group(group)
    with ThreadPoolExecutor(LATER) as pool:
        later = list(pool.map(lambda _: agent(model, group_id=group), range(LATER)))
        stranger = agent(model)
        asked = [stranger, old, *later]
        list(pool.map(lambda one: one.run("Go.", timeout=TURN_S), asked))
    found = until_ends(stream, LATER + 1)

    assert set(found) == {old.id, *(one.id for one in later)}
    assert is_whole(found[old.id], begin + 1)
    assert [one.id for one in later if not is_whole(found[one.id], 1)] == []


def test_past_of_a_group_can_be_had(agent, client, scripted, group):
    """With ``since`` 0 the members that are there report all that they did."""
    model = scripted(default="fine")
    one = agent(model, group_id=group)
    one.run("Before.", timeout=TURN_S)
    stream = client.subscribe_group(group, since=0)
    found = until_ends(stream, 1)

    assert is_whole(found[one.id], 1)


def test_short_lives_are_reported_as_a_whole(agent, client, scripted, group):
    """A member that has ended by the time it is followed leaves no hole."""
    model = scripted(default="fine")
    stream = client.subscribe_group(group)
    sessions = []
    for _ in range(3):
        session = agent(model, group_id=group)
        session.run("Go.", timeout=TURN_S)
        session.stop()
        sessions.append(session.id)
    found = until_ends(stream, 3)

    assert sorted(found) == sorted(sessions)
    assert [name for name in sessions if not is_whole(found[name], 1)] == []


def test_coroutines_follow_groups(cmdc_daemon, scripted, group):
    """In ``aio`` it is the same stream."""
    model = scripted(default="fine")

    async def main():
        async with (
            cmdc.AsyncClient(cmdc_daemon.address) as client,
            await client.subscribe_group(group, types=["agent_end"]) as stream,
        ):
            session = await client.create_agent(model=model, group_id=group)
            await session.run("Go.", timeout=TURN_S)
            envelope = await stream.get(TURN_S)
            await session.stop()
            return envelope.session_id == session.id

    assert asyncio.run(main())


def test_one_prompt_is_given_to_a_group_or_to_those_that_are_named(agent, scripted, client):
    """Each has it in its own queue; one that can't take it hinders no other."""
    model = scripted(default="yes")
    first, second = (agent(model, group_id="crew-of-broadcast") for _ in range(2))
    other = agent(model)
    receipts = client.broadcast("All hands!", group_id="crew-of-broadcast")
    replies = [one.collect_reply(timeout=TURN_S) for one in (first, second)]
    other.stop()
    named = client.broadcast("You two!", sessions=[first, other.id, first])

    assert set(receipts) == {first.id, second.id}
    assert all(not receipt.queued for receipt in receipts.values())
    assert replies == ["yes", "yes"]
    assert [*named] == [first.id, other.id]
    assert named[first.id].command_id
    assert isinstance(named[other.id], cmdc.SessionNotAlive)
    assert client.broadcast("Nobody?", group_id="nobody") == {}
    for wrong in ({}, {"sessions": [first], "group_id": "x"}, {"sessions": first.id}):
        with pytest.raises(cmdc.UsageError, match="sessions"):
            client.broadcast("Go.", **wrong)
    assert first.collect_reply(timeout=TURN_S) == "yes"
