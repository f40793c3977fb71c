"""Event streams over a lossy wire: everything once, in order, and what is gone is reported."""

import asyncio
import gc
import threading

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client.limits import STREAM_EVENTS_MAX, STREAM_REFILL_EVENTS
from cmdc_runtime.reasons import Normal
from cmdc_runtime.requests import Demonitor, Monitor, Replay
from cmdc_runtime.wire.frames import topic_of

WAIT_S = 10.0


@pytest.fixture
def client(peer):
    with cmdc.Client(peer.directory) as found:
        yield found


def take(stream, count):
    """Return the next events of a stream as (index, text)."""
    return [shown(stream.get(WAIT_S)) for _ in range(count)]


def shown(envelope):
    event = envelope.event
    if isinstance(event, cmdc.events.EventsLost):
        return envelope.index, (event.first, event.last)
    return envelope.index, event.delta


def end(peer, session_id):
    """End a session as the daemon does."""
    peer.set(session_id, phase="ended", reason=Normal(), pid=None)
    for ref, (_, request) in list(peer.monitors.items()):
        if request.session_id == session_id:
            peer.down(ref, Normal())


def test_events_come_in_order(peer, client):
    """What is published after ``subscribe`` returned is delivered, under its index."""
    peer.add("s1", last_index=4)
    stream = client.subscribe("s1")
    peer.publish("s1", "a", "b")
    peer.publish("s1", "c")

    assert take(stream, 3) == [(5, "a"), (6, "b"), (7, "c")]


def test_since_replays_the_past(peer, client):
    """With ``since`` the stream begins right behind that index."""
    peer.add("s1")
    peer.publish("s1", "a", "b", "c")
    stream = client.subscribe("s1", since=1)
    peer.publish("s1", "d")

    assert take(stream, 3) == [(2, "b"), (3, "c"), (4, "d")]


def test_lost_batch_is_replayed(peer, client):
    """A gap is filled before what came behind it is delivered."""
    peer.add("s1")
    stream = client.subscribe("s1")
    peer.publish("s1", "a")
    peer.publish("s1", "b", "c", is_lost=True)
    peer.publish("s1", "d")

    assert take(stream, 4) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert [(one.after, one.through) for one in peer.of(Replay)] == [(1, 3)]


def test_lost_tail_is_found_by_a_watermark(peer, client):
    """The last event may be lost like any other: the next watermark shows it."""
    peer.add("s1")
    stream = client.subscribe("s1")
    peer.publish("s1", "a", is_lost=True)
    peer.watermark("s1")

    assert take(stream, 1) == [(1, "a")]


def test_what_is_gone_is_reported(peer, client):
    """Events that no replay holds come as one EventsLost for each hole."""
    peer.add("s1")
    peer.publish("s1", "a", "b", is_kept=False)
    peer.publish("s1", "c")
    peer.publish("s1", "d", is_kept=False)
    stream = client.subscribe("s1", since=0, types=[cmdc.events.MessageDelta])

    assert take(stream, 3) == [(2, (1, 2)), (3, "c"), (4, (4, 4))]


def test_missing_welcome_delays_only(peer, client, monkeypatch):
    """Without the word that the subscription arrived, the stream starts from a replay."""
    monkeypatch.setattr("cmdc_runtime.client.dispatcher.WELCOME_S", 0.05)
    peer.add("s1")
    peer.welcomes = False
    stream = client.subscribe("s1", since=0)
    peer.publish("s1", "a", is_lost=True)
    peer.publish("s1", "b")

    assert take(stream, 2) == [(1, "a"), (2, "b")]


def test_types_choose_what_is_shown(peer, client):
    """Only the chosen kinds are shown, and the others leave no gap."""
    peer.add("s1")
    stream = client.subscribe("s1", types=["agent_end"])
    other = client.subscribe("s1", types=cmdc.events.MessageDelta)
    peer.publish("s1", "a")

    assert take(other, 1) == [(1, "a")]
    with pytest.raises(TimeoutError):
        stream.get(0.01)


def test_wrong_types_are_refused(client):
    """What is no event cannot be chosen."""
    with pytest.raises(cmdc.InvalidOptions, match="types"):
        client.subscribe("s1", types=[int])


def test_iteration_ends_with_the_session(peer, client):
    """A stream ends after the session's last event, even where that was lost on its way."""
    peer.add("s1")
    stream = client.subscribe("s1")
    peer.publish("s1", "a")
    peer.publish("s1", "b", is_lost=True)
    end(peer, "s1")

    assert [shown(envelope) for envelope in stream] == [(1, "a"), (2, "b")]
    with pytest.raises(cmdc.SessionNotAlive):
        stream.get()


def test_restart_does_not_end_a_stream(peer, client):
    """A session that comes back goes on in the same stream."""
    peer.add("s1")
    stream = client.subscribe("s1")
    ref = peer.of(Monitor)[0].ref
    peer.down(ref, Normal(), restarting=True)
    peer.publish("s1", "a")

    assert take(stream, 1) == [(1, "a")]


def test_ended_session_can_be_replayed(peer, client):
    """The past of an ended session is had with ``since``, and only with it."""
    peer.add("s1")
    peer.publish("s1", "a", "b")
    peer.set("s1", phase="ended", reason=Normal())

    assert [shown(one) for one in client.subscribe("s1", since=0)] == [(1, "a"), (2, "b")]
    with pytest.raises(cmdc.SessionNotAlive):
        client.subscribe("s1")


def test_streams_of_a_session_share_a_subscription(peer, client):
    """The second stream subscribes to nothing new, and the last one that closes takes it back."""
    peer.add("s1")
    first, second = client.subscribe("s1"), client.subscribe("s1")
    peer.publish("s1", "a")

    assert take(first, 1) == take(second, 1) == [(1, "a")]
    first.close()
    peer.publish("s1", "b")
    assert take(second, 1) == [(2, "b")]
    client.unsubscribe("s1")
    assert list(second) == []
    peer.wait_for(lambda: (topic_of("s1"), False) in peer.subscribed)
    assert peer.subscribed == [(topic_of("s1"), True), (topic_of("s1"), False)]
    peer.wait_for(lambda: len(peer.of(Demonitor)) == 2)
    assert peer.monitors == {}


def test_slow_consumer_loses_nothing(peer, client):
    """What a full stream cannot take is dropped, and replayed when the consumer has made room."""
    peer.add("s1")
    stream = client.subscribe("s1")
    total = STREAM_EVENTS_MAX + 3 * STREAM_REFILL_EVENTS
    for start in range(0, total, 500):
        peer.publish("s1", *(str(index) for index in range(start, start + 500)))
    peer.wait_for(lambda: len(stream._queue) == STREAM_EVENTS_MAX)
    peer.watermark("s1")
    found = take(stream, total)

    assert found == [(index + 1, str(index)) for index in range(total)]
    assert peer.of(Replay) != []


def test_all_sessions_are_heard(peer, client):
    """One stream hears every session from now on, also those that start later."""
    peer.add("old", last_index=7)
    stream = client.subscribe_all()
    peer.add("new")
    peer.publish("new", "a")
    peer.publish("old", "b")
    found = {one.session_id: shown(one) for one in (stream.get(WAIT_S), stream.get(WAIT_S))}

    assert found == {"new": (1, "a"), "old": (8, "b")}


@pytest.mark.slow
def test_daemon_restart_keeps_a_stream(peer, client):
    """After another daemon took over, the stream goes on where it was."""
    peer.add("s1")
    stream = client.subscribe("s1")
    peer.publish("s1", "a")
    assert take(stream, 1) == [(1, "a")]

    peer.restart("two")
    peer.publish("s1", "b")
    assert take(stream, 1) == [(2, "b")]
    peer.wait_for(lambda: len(peer.of(Monitor)) == 2)
    end(peer, "s1")
    assert list(stream) == []


def test_closing_the_client_ends_its_streams(peer, client):
    """Iteration in another thread ends when the client is closed."""
    peer.add("s1")
    stream = client.subscribe("s1")
    reader = threading.Thread(target=lambda: list(stream))
    reader.start()
    client.close()
    reader.join(WAIT_S)

    assert not reader.is_alive()


def test_coroutines_iterate(peer):
    """In ``aio`` a stream is an async iterator that ends as the other one does."""
    peer.add("s1")

    async def main():
        async with (
            cmdc.AsyncClient(peer.directory) as client,
            await client.subscribe("s1", since=0) as stream,
        ):
            peer.publish("s1", "a")
            peer.publish("s1", "b", is_lost=True)
            end(peer, "s1")
            return [shown(envelope) async for envelope in stream]

    assert asyncio.run(main()) == [(1, "a"), (2, "b")]


@pytest.mark.slow
def test_thousands_of_subscriptions_arrive(peer):
    """No subscription is lost on its way, however many one client has (the default keeps 1,000)."""
    count = 1_200
    for number in range(count):
        peer.add(f"s{number}")

    async def main():
        async with cmdc.AsyncClient(peer.directory) as client:
            streams = [await client.subscribe(f"s{number}") for number in range(count)]
            peer.publish_each((f"s{number}", str(number)) for number in range(count))
            return [shown(await stream.get(WAIT_S)) for stream in streams]

    assert asyncio.run(main()) == [(1, str(number)) for number in range(count)]


@pytest.mark.slow
def test_refused_replay_is_asked_for_again(peer, client):
    """A daemon that is too busy for a replay is asked again a little later."""
    peer.add("s1")
    peer.publish("s1", "a")
    peer.answers[Replay] = lambda request, _frame: (
        cmdc.Overloaded("busy") if len(peer.of(Replay)) == 1 else peer._replayed(request)
    )
    stream = client.subscribe("s1", since=0)

    assert take(stream, 1) == [(1, "a")]


def test_failing_replay_is_raised(peer, client):
    """A past that cannot be had any more does not look like an end."""
    peer.add("s1")
    peer.publish("s1", "a")
    peer.answers[Replay] = cmdc.InvalidSession("pruned")
    stream = client.subscribe("s1", since=0)

    with pytest.raises(cmdc.InvalidSession, match="pruned"):
        list(stream)


def test_stream_keeps_its_client(peer):
    """A stream works as long as somebody holds it, also when nobody holds the client."""
    peer.add("s1")
    stream = cmdc.Client(peer.directory).subscribe("s1")
    gc.collect()
    peer.publish("s1", "a")

    assert take(stream, 1) == [(1, "a")]
