"""Where the daemon counts less far than a stream: reported, and neither a gap nor a hang."""

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client import subscription
from cmdc_runtime.reasons import Normal
from cmdc_runtime.requests import FindSession, ListSessions, Replay, Replayed

WAIT_S = 10.0


@pytest.fixture
def client(peer, monkeypatch):
    monkeypatch.setattr(subscription, "HEAD_LOOK_S", 0.01)
    with cmdc.Client(peer.directory) as found:
        yield found


def take(stream, count):
    return [shown(stream.get(WAIT_S)) for _ in range(count)]


def shown(envelope):
    event = envelope.event
    if isinstance(event, cmdc.events.EventsLost):
        return envelope.index, (event.first, event.last)
    return envelope.index, event.delta


def test_cursor_beyond_the_newest_event_is_reported(peer, client):
    """A client whose state is newer than the daemon's learns it, and goes on from there."""
    peer.add("s1", last_index=3)
    stream = client.subscribe("s1", since=10)

    assert take(stream, 1) == [(3, (4, 10))]
    peer.publish("s1", "a", "b")
    assert take(stream, 2) == [(4, "a"), (5, "b")]


def test_cursor_beyond_an_ended_session_is_reported(peer, client):
    """Nothing follows, and the difference is reported before the end."""
    peer.add("s1", last_index=3, phase="ended", reason=Normal())

    assert [shown(one) for one in client.subscribe("s1", since=5)] == [(3, (4, 5))]
    assert list(client.subscribe("s1", since=3)) == []


@pytest.mark.slow
def test_daemon_with_an_older_journal_is_reported(peer, client):
    """A stream that is open when such a daemon takes over goes back with it."""
    peer.add("s1")
    stream = client.subscribe("s1")
    peer.publish("s1", "a", "b", "c")
    assert take(stream, 3) == [(1, "a"), (2, "b"), (3, "c")]
    peer.set("s1", last_index=1)
    peer.restart("two")

    assert take(stream, 1) == [(1, (2, 3))]
    peer.publish("s1", "B")
    assert take(stream, 1) == [(2, "B")]


@pytest.mark.slow
def test_agent_that_sends_again_loses_nothing(peer, client):
    """A new daemon knows less until the agent has called: that is waited for."""
    peer.add("s1")
    stream = client.subscribe("s1")
    peer.publish("s1", "a", "b")
    assert take(stream, 2) == [(1, "a"), (2, "b")]
    peer.publish("s1", "c", is_lost=True)
    peer.set("s1", last_index=1, phase="starting")
    peer.restart("two")
    peer.wait_for(lambda: len(peer.of(FindSession)) > 4)
    peer.set("s1", last_index=3, phase="up")
    peer.publish("s1", "d")

    assert take(stream, 2) == [(3, "c"), (4, "d")]


def test_replay_of_what_the_daemon_does_not_know_is_no_loss(peer, client):
    """Its answer ends before the question begins, and then it knows more."""
    peer.add("s1", last_index=2)
    peer.publish("s1", "a")
    early = Replayed(batches=(), through=1, last=1)
    peer.answers[Replay] = lambda request, _frame: (
        early if len(peer.of(FindSession)) == 1 else peer._replayed(request)
    )
    stream = client.subscribe("s1", since=2)

    assert take(stream, 1) == [(3, "a")]
    assert len(peer.of(Replay)) == 2


@pytest.mark.slow
def test_tail_that_was_lost_with_the_daemon_is_found(peer, client):
    """The next daemon is asked how far each session is, whatever it publishes."""
    peer.add("s1")
    stream, everything = client.subscribe("s1", since=0), client.subscribe_all()
    peer.publish("s1", "a", is_lost=True)
    peer.welcomes = False
    peer.restart("two")

    assert take(stream, 1) == take(everything, 1) == [(1, "a")]


def test_used_id_is_heard_in_a_stream_of_all(peer, client):
    """Another session of the same id is heard from its first event on."""
    peer.add("s1", created_ms=1)
    stream = client.subscribe_all()
    peer.publish("s1", "a", "b", "c")
    assert take(stream, 3) == [(1, "a"), (2, "b"), (3, "c")]
    peer.logs["s1"] = {}
    peer.add("s1", created_ms=2)
    peer.publish("s1", "A")
    peer.publish("s1", "B")
    peer.wait_for(lambda: peer.of(FindSession))
    peer.watermark("s1")

    assert take(stream, 2) == [(1, "A"), (2, "B")]


@pytest.mark.slow
def test_word_that_is_older_than_what_was_heard_is_no_loss(peer, client):
    """The list of the sessions may come later than what they publish meanwhile."""
    peer.add("s1")
    stream = client.subscribe("s1")
    peer.publish("s1", "a", "b")
    assert take(stream, 2) == [(1, "a"), (2, "b")]
    old = msgspec.structs.replace(peer.sessions["s1"], last_index=1)
    asked = len(peer.of(FindSession))
    peer.answers[ListSessions] = (old,)
    peer.restart("two")
    peer.wait_for(lambda: len(peer.of(FindSession)) > asked)
    peer.publish("s1", "c")

    assert take(stream, 1) == [(3, "c")]


@pytest.mark.slow
def test_other_session_of_the_id_is_reported_to_a_stream_of_one(peer, client):
    """It was opened for the one before, whose events are gone with it."""
    peer.add("s1", created_ms=1)
    stream = client.subscribe("s1")
    peer.publish("s1", "a", "b", "c")
    assert take(stream, 3) == [(1, "a"), (2, "b"), (3, "c")]
    peer.logs["s1"] = {}
    peer.add("s1", created_ms=2)
    peer.publish("s1", "A", is_lost=True)
    peer.restart("two")

    assert take(stream, 2) == [(0, (1, 3)), (1, "A")]


@pytest.mark.parametrize("is_silent", [False, True])
def test_beginning_of_a_new_session_is_not_skipped(peer, client, is_silent):
    """A stream of all asks for what it lost of a session that began meanwhile."""
    stream = client.subscribe_all()
    peer.add("new")
    peer.publish("new", "a", is_lost=True)
    if is_silent:
        peer.watermark("new")
    else:
        peer.publish("new", "b")

    assert take(stream, 1) == [(1, "a")]


def test_session_that_is_over_is_not_reported_anew(peer, client):
    """What is said of it is no news in a stream that began after its end."""
    peer.add("old", last_index=4, phase="ended", reason=Normal())
    peer.answers[ListSessions] = ()
    stream = client.subscribe_all()
    peer.watermark("old")
    peer.add("s1")
    peer.publish("s1", "a")

    assert take(stream, 1) == [(1, "a")]
    assert peer.of(Replay) == []


@pytest.mark.parametrize("since", [-1, 1.5, "3", True])
def test_place_that_is_no_index_is_refused(peer, client, since):
    """The error says what was given, and what it should be."""
    peer.add("s1")

    for subscribe in (client.subscribe, client.subscribe_group):
        with pytest.raises(cmdc.UsageError, match=f"since: .*{since!r}"):
            subscribe("s1", since=since)


def test_member_of_a_group_is_not_skipped_up_to_an_index_of_another_one(peer, client):
    """A member that has fewer events is heard from its next one on."""
    peer.add("s1", group_id="g", last_index=3)
    stream = client.subscribe_group("g", since=10)
    peer.publish("s1", "a")

    assert take(stream, 1) == [(4, "a")]
