"""What a subscriber sees: every event once and in order, however slow it is."""

import threading

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client import stream as stream_module
from cmdc_runtime.client import subscription
from cmdc_runtime.testing import Hold, Text, ToolCalls, ToolUse

TURN_S = 20.0
WORDS = "word " * 1500


def seen(envelopes):
    return [(envelope.index, envelope.event) for envelope in envelopes]


def take(stream, count):
    return [stream.get(TURN_S) for _ in range(count)]


def test_stream_begins_where_it_is_asked_to(agent, scripted, cycle_of):
    """``since=n`` gives what came after ``n``, of the past and of the present, without a seam."""
    session = agent(scripted("one", "two"))
    live = session.subscribe()
    session.run("1", timeout=TURN_S)
    first = cycle_of(live)
    middle = first[3].index
    late = session.subscribe(since=middle)
    session.run("2", timeout=TURN_S)
    everything = first + cycle_of(live)

    assert seen(cycle_of(late) + cycle_of(late)) == seen(everything[4:])
    assert seen(take(session.subscribe(since=0), len(everything))) == seen(everything)
    assert session.last_index() == everything[-1].index


def test_two_clients_see_the_same(agent, scripted, cycle_of, cmdc_daemon):
    """Subscribers of different clients get equal events in equal order."""
    session = agent(scripted(Text(WORDS, chunk_chars=8)))
    with cmdc.Client(cmdc_daemon.address) as other:
        streams = [session.subscribe(), session.subscribe(), other.subscribe(session.id)]
        session.prompt("Talk.")
        one, two, three = [seen(cycle_of(stream)) for stream in streams]

    assert one == two == three
    assert [index for index, _ in one] == [*range(1, len(one) + 1)]


def test_slow_consumer_gets_everything_or_learns_what_it_missed(agent, scripted, cycle_of):
    """A late reader finds all durable events; an ephemeral one is there or reported as lost."""
    model = scripted(Text(WORDS, chunk_chars=4), "two")
    session = agent(model, event_buffer_size=50)
    quick = session.subscribe()
    session.prompt("Talk.")
    everything = cycle_of(quick)
    slow = session.subscribe(since=0)
    found = cycle_of(slow)
    lost = set()
    for envelope in found:
        if isinstance(envelope.event, cmdc.events.EventsLost):
            lost |= {*range(envelope.event.first, envelope.event.last + 1)}
    got = {envelope.index: envelope.event for envelope in found if envelope.index not in lost}

    assert len(everything) > 1500
    assert sorted([*lost, *got]) == [*range(1, len(everything) + 1)]
    durable = {one.index: one.event for one in everything if one.event.durable}
    assert {index: got[index] for index in durable} == durable
    assert lost


def test_reader_that_stops_for_a_while_misses_nothing(agent, scripted, monkeypatch):
    """A stream keeps so much of what its reader does not fetch, and gets the rest again later."""
    for module, name, value in (
        (subscription, "STREAM_EVENTS_MAX", 100),
        (subscription, "STREAM_REFILL_EVENTS", 50),
        (stream_module, "STREAM_REFILL_EVENTS", 50),
    ):
        monkeypatch.setattr(module, name, value)
    session = agent(scripted(Text(WORDS, chunk_chars=8)), event_buffer_size=100_000)
    stream = session.subscribe()
    session.run("Talk.", timeout=60.0)
    last = session.last_index()
    found = take(stream, last)

    assert last > len(WORDS) // 8
    assert [envelope.index for envelope in found] == [*range(1, last + 1)]
    text = "".join(one.event.delta for one in found if one.event.kind == "message_delta")
    assert text == WORDS


def test_the_buffer_is_enabled_and_disabled_while_a_session_lives(
    agent, scripted, client, cycle_of
):
    """What is kept is replayed, deltas too; the rest is reported lost, but for durable events."""
    session = agent(scripted(default="one two three"), event_buffer_size=0)

    def replayed(since):
        return {one.event.kind for one in cycle_of(session.subscribe(since=since))}

    session.run("1", timeout=TURN_S)
    unkept, first = replayed(0), session.last_index()
    session.enable_buffer(500)
    session.run("2", timeout=TURN_S)
    kept = replayed(first)
    session.disable_buffer()
    gone = replayed(first)
    stopped = agent(scripted("one"))
    stopped.stop()

    assert "message_delta" not in unkept | gone
    assert "message_delta" in kept
    assert "agent_end" in unkept & kept & gone
    for size in (0, 1_000_001):
        with pytest.raises(cmdc.UsageError, match="size"):
            session.enable_buffer(size)
    with pytest.raises(cmdc.SessionNotAlive):
        stopped.enable_buffer()
    with pytest.raises(cmdc.InvalidSession):
        client.disable_buffer("s-nobody")


def test_types_are_chosen(agent, scripted):
    """A stream shows the chosen kinds only; the indexes are those of the session."""
    session = agent(scripted("one"))
    stream = session.subscribe(types=[cmdc.events.AgentStart, "agent_end"])
    session.run("1", timeout=TURN_S)

    assert [one.event.kind for one in take(stream, 2)] == ["agent_start", "agent_end"]


def test_unsubscribed_stream_ends(agent, scripted, client, cycle_of):
    """After ``unsubscribe`` the iterator is at its end, and nothing more arrives in it."""
    session = agent(scripted("one"))
    one, two = session.subscribe(), session.subscribe()
    client.unsubscribe(one)
    session.run("1", timeout=TURN_S)

    assert list(one) == []
    assert cycle_of(two)[0].event.kind == "prompt_received"
    session.unsubscribe()
    assert list(two) == []
    with pytest.raises(cmdc.UsageError, match="unsubscribed"):
        two.get(0)


def test_stream_ends_with_its_session(agent, scripted, client):
    """The iterator ends when the session is over and everything was delivered."""
    model = scripted("one")
    session = agent(model)
    stream, waiting = session.subscribe(), session.subscribe()
    found = []
    reader = threading.Thread(target=lambda: found.extend(waiting))
    reader.start()
    session.run("1", timeout=TURN_S)
    session.stop()
    reader.join(TURN_S)

    assert seen(stream) == seen(found)
    assert found[-1].event.kind == "agent_end"
    assert seen(client.subscribe(session, since=0)) == seen(found)


def test_prefix_of_an_id_is_another_session(agent, scripted, client):
    """``s1`` hears nothing of ``s10``, and a stream of all hears both apart."""
    model = scripted(default="fine")
    one, ten = agent(model, session_id="s1"), agent(model, session_id="s10")
    everything = client.subscribe_all(types=["prompt_received"])
    stream = one.subscribe()
    ten.run("to s10", timeout=TURN_S)
    one.run("to s1", timeout=TURN_S)
    new = agent(model, session_id="s100")
    new.run("to s100", timeout=TURN_S)
    heard = [(one.session_id, one.event.text) for one in take(everything, 3)]
    everything.close()

    assert stream.get(TURN_S).event.text == "to s1"
    assert heard == [("s10", "to s10"), ("s1", "to s1"), ("s100", "to s100")]


def test_stream_of_all_sees_what_each_session_publishes(agent, scripted, client, cycle_of):
    """All events of all sessions, each session's own in order and without a gap."""
    model = scripted(default="fine")
    sessions = [agent(model) for _ in range(3)]
    everything = client.subscribe_all()
    for session in sessions:
        session.run("1", timeout=TURN_S)
    found = [one for _ in sessions for one in cycle_of(everything)]
    everything.close()

    for session in sessions:
        own = [one.index for one in found if one.session_id == session.id]
        assert own == [*range(1, session.last_index() + 1)]


def test_held_answer_is_seen_as_it_comes(agent, scripted):
    """A piece of text is there before the answer is complete."""
    model = scripted(("half ", Hold(), "whole"))
    session = agent(model)
    stream = session.subscribe(types=["message_delta"])
    session.prompt("Go.")

    assert stream.get(TURN_S).event.delta == "half "
    assert session.status().state == "streaming"
    model.release()
    assert stream.get(TURN_S).event.delta == "whole"


def test_cycle_larger_than_a_message_ends_all_the_same(agent, scripted, cycle_of):
    """Its events leave out what does not fit into a message; the conversation has all of it."""

    @cmdc.tool(effects="read")
    def fill(count: int) -> str:
        """Return a long text."""
        return "x" * count

    uses = [ToolUse("fill", {"count": 400_000}) for _ in range(45)]
    model = scripted(ToolCalls(*uses), "done", "what a summary says", "next")
    session = agent(model, tools=[fill], loop_exempt_tools=["fill"])
    stream = session.subscribe()
    session.prompt("Go.")
    found = cycle_of(stream)

    assert [envelope.index for envelope in found] == [*range(1, len(found) + 1)]
    assert found[-1].event.kind == "agent_end"
    assert session.collect_reply(timeout=TURN_S) == "done"
    results = [one for one in session.messages() if one.role == "tool_result"]
    assert [len(one.content) for one in results] == [400_000] * 45
    assert session.run("Again.", timeout=TURN_S).text == "next"


def test_events_are_there_as_soon_as_the_reply_is(agent, scripted):
    """Who has a cycle's reply can have its events: none is called lost that is on its way."""
    session = agent(scripted(default="fine"))
    seen_last, found = 0, []
    for _ in range(100):
        session.run("1", timeout=TURN_S)
        last = session.last_index()
        with session.subscribe(since=seen_last) as stream:
            while not found or found[-1].index < last:
                found.append(stream.get(TURN_S))
        seen_last = last

    assert [envelope.index for envelope in found] == [*range(1, seen_last + 1)]
    assert [one for one in found if one.event.kind == "events_lost"] == []
