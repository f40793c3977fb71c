"""Streams of a group against a peer that speaks the daemon's frames: no member is missed."""

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.reasons import Normal
from cmdc_runtime.requests import Demonitor, ListSessions, Monitor
from cmdc_runtime.wire.frames import Joined, Watermark, group_topic_of, topic_of

WAIT_S = 10.0
TOPIC = group_topic_of("g")


@pytest.fixture
def client(peer):
    peer.answers[ListSessions] = lambda request, _frame: tuple(
        one for one in peer.sessions.values() if one.group_id == request.group_id
    )
    with cmdc.Client(peer.directory) as found:
        yield found


def join(peer, session_id, number, *, is_lost=False):
    """Start a session of the group."""
    peer.add(session_id, group_id="g")
    if not is_lost:
        peer.do(lambda: peer._say(TOPIC, Joined(session_id=session_id, number=number)))


def newest(peer, number):
    """Publish the newest number of the group."""
    peer.do(lambda: peer._say(TOPIC, Watermark(last=number)))


def end(peer, session_id):
    """End a session as the daemon does."""
    peer.set(session_id, phase="ended", reason=Normal(), pid=None)
    notify_down(peer, session_id)


def notify_down(peer, session_id, **more):
    """Notify those who watch a session that its process ended."""
    for ref, (_, request) in list(peer.monitors.items()):
        if request.session_id == session_id:
            peer.down(ref, Normal(), **more)


def take(stream, count):
    """Return the next events of a stream as (session, index, text)."""
    found = [stream.get(WAIT_S) for _ in range(count)]
    return [(one.session_id, one.index, one.event.delta) for one in found]


def test_members_are_heard_from_now_on_and_new_ones_from_their_start(peer, client):
    """Who is there already has a past that was not asked for; who joins has none."""
    peer.add("old", last_index=7, group_id="g")
    peer.add("stranger", group_id="h")
    stream = client.subscribe_group("g")
    peer.publish("stranger", "no")
    peer.publish("old", "a")
    assert take(stream, 1) == [("old", 8, "a")]

    join(peer, "new", 1)
    peer.publish("new", "b", "c")
    assert take(stream, 2) == [("new", 1, "b"), ("new", 2, "c")]


def test_what_a_new_member_published_before_it_was_followed_is_replayed(peer, client):
    """Between the announcement and the subscription nothing is lost."""
    stream = client.subscribe_group("g")
    peer.add("new", group_id="g")
    peer.publish("new", "a", is_lost=True)
    join_again = Joined(session_id="new", number=1)
    peer.do(lambda: peer._say(TOPIC, join_again))
    peer.publish("new", "b")

    assert take(stream, 2) == [("new", 1, "a"), ("new", 2, "b")]


@pytest.mark.parametrize("is_reported", [True, False], ids=["next number", "watermark"])
def test_lost_announcement_is_found(peer, client, is_reported):
    """A gap in the numbers, or a number that was never heard, leads to the list of sessions."""
    stream = client.subscribe_group("g")
    join(peer, "lost", 1, is_lost=True)
    peer.publish("lost", "a", is_lost=True)
    if is_reported:
        join(peer, "next", 2)
    else:
        newest(peer, 1)

    assert take(stream, 1) == [("lost", 1, "a")]
    assert len(peer.of(ListSessions)) == 2


def test_number_that_follows_asks_for_no_list(peer, client):
    """A member that was heard of is followed for what was heard."""
    stream = client.subscribe_group("g")
    for number in (1, 2, 3):
        join(peer, f"s{number}", number)
        newest(peer, number)
    peer.publish("s3", "a")

    assert take(stream, 1) == [("s3", 1, "a")]
    assert len(peer.of(ListSessions)) == 1


def test_members_end_and_the_stream_goes_on(peer, client):
    """A member is left behind its last event, and its subscription given back."""
    join(peer, "one", 1)
    stream = client.subscribe_group("g")
    peer.publish("one", "a")
    peer.publish("one", "b", is_lost=True)
    end(peer, "one")
    assert take(stream, 2) == [("one", 1, "a"), ("one", 2, "b")]

    peer.wait_for(lambda: (topic_of("one"), False) in peer.subscribed)
    join(peer, "two", 1)
    peer.publish("two", "c")
    assert take(stream, 1) == [("two", 1, "c")]


def test_restarted_member_is_followed_on(peer, client):
    """An end that another process follows is none."""
    join(peer, "one", 1)
    stream = client.subscribe_group("g")
    notify_down(peer, "one", restarting=True)
    peer.publish("one", "a")

    assert take(stream, 1) == [("one", 1, "a")]


def test_member_that_ended_before_it_was_followed_is_heard(peer, client):
    """A short life is reported as a whole."""
    stream = client.subscribe_group("g")
    peer.add("short", group_id="g")
    peer.publish("short", "a", "b")
    peer.set("short", phase="ended", reason=Normal(), pid=None)
    peer.do(lambda: peer._say(TOPIC, Joined(session_id="short", number=1)))
    peer.wait_for(lambda: peer.of(Monitor) != [])
    notify_down(peer, "short")

    assert take(stream, 2) == [("short", 1, "a"), ("short", 2, "b")]


def test_id_that_begins_anew_is_followed_anew(peer, client):
    """The end of the old session is reported when the new one of its id is there already."""
    join(peer, "one", 1)
    stream = client.subscribe_group("g")
    peer.publish("one", "a")
    assert take(stream, 1) == [("one", 1, "a")]

    peer.logs["one"] = {}
    join(peer, "one", 1)
    peer.publish("one", "b")
    notify_down(peer, "one")
    assert take(stream, 1) == [("one", 1, "b")]


def test_streams_of_a_group_share_subscriptions(peer, client):
    """The last one that closes gives everything back: topics and monitors."""
    join(peer, "one", 1)
    first, second = client.subscribe_group("g"), client.subscribe_group("g")
    peer.publish("one", "a")
    assert take(first, 1) == take(second, 1) == [("one", 1, "a")]

    first.close()
    peer.publish("one", "b")
    assert take(second, 1) == [("one", 2, "b")]
    second.close()
    peer.wait_for(lambda: len(peer.of(Demonitor)) == 2)
    peer.wait_for(lambda: {(TOPIC, False), (topic_of("one"), False)} <= {*peer.subscribed})
    assert sorted(peer.subscribed) == sorted(
        (topic, is_on) for topic in (TOPIC, topic_of("one")) for is_on in (True, False)
    )


def test_missing_welcome_delays_only(peer, client, monkeypatch):
    """Without the word that the subscription arrived, the first announcement is looked into."""
    monkeypatch.setattr("cmdc_runtime.client.dispatcher.WELCOME_S", 0.05)
    peer.welcomes = False
    stream = client.subscribe_group("g")
    join(peer, "lost", 1, is_lost=True)
    peer.publish("lost", "a", is_lost=True)
    newest(peer, 1)

    assert take(stream, 1) == [("lost", 1, "a")]


def test_too_many_members_are_reported(peer, client, monkeypatch):
    """A stream that would have to leave a member out ends with an error that says so."""
    monkeypatch.setattr("cmdc_runtime.client.dispatcher.SESSIONS_FOLLOWED_MAX", 1)
    stream = client.subscribe_group("g")
    join(peer, "one", 1)
    join(peer, "two", 2)

    with pytest.raises(cmdc.Overloaded, match="at most 1 sessions"):
        stream.get(WAIT_S)


def test_member_that_cannot_be_watched_is_reported(peer, client):
    """Rather an error than a stream that lacks somebody's end."""
    stream = client.subscribe_group("g")
    peer.answers[Monitor] = cmdc.Overloaded("enough")
    join(peer, "one", 1)

    with pytest.raises(cmdc.Overloaded, match="enough"):
        stream.get(WAIT_S)


def test_list_that_cannot_be_had_is_reported(peer, client):
    """The same holds for the list that a gap asks for."""
    stream = client.subscribe_group("g")
    peer.answers[ListSessions] = cmdc.AccessDenied("no")
    newest(peer, 5)

    with pytest.raises(cmdc.AccessDenied, match="no"):
        stream.get(WAIT_S)


@pytest.mark.slow
def test_new_daemon_is_looked_through(peer, client):
    """Who started while the client was cut off is found when it is welcomed again."""
    join(peer, "one", 1)
    stream = client.subscribe_group("g")
    newest(peer, 1)
    peer.restart("two")
    join(peer, "two", 1, is_lost=True)
    peer.publish("two", "a", is_lost=True)
    peer.publish("one", "b")

    assert sorted(take(stream, 2)) == [("one", 1, "b"), ("two", 1, "a")]
