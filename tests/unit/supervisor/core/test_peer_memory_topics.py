"""What each process follows is counted, bounded and forgotten."""

from supervisor.core import peer_memory
from supervisor.core.peer_memory import (
    ALL_TOPICS_BYTES_MAX,
    ALL_TOPICS_MAX,
    BARRED_S,
    FOLLOWERS_MAX,
    TOPICS_BYTES_MAX,
    TOPICS_MAX,
    Barred,
    Subscriptions,
)


def test_the_most_topics_are_allowed_and_no_more():
    """The next one is too many; the same one again is not."""
    found = Subscriptions()
    allowed = [found.add(1, b"%d" % number) for number in range(TOPICS_MAX)]

    assert not any(allowed)
    assert found.add(1, b"0") is None
    assert found.add(1, b"more") == 1
    found.forget(1)
    assert found.add(2, b"more") is None


def test_few_long_topics_are_too_many():
    """Each byte of a topic costs memory."""
    found, count = Subscriptions(), TOPICS_BYTES_MAX // 1_024

    assert not any(found.add(1, b"%01024d" % number) for number in range(count))
    assert found.add(1, b"x") == 1


def test_a_topic_without_followers_counts_for_nobody():
    """ZeroMQ reports the last one, and not who it was."""
    found = Subscriptions()
    for pid in (1, 2):
        found.add(pid, b"one")
    found.remove(b"one")
    found.remove(b"never")

    assert len(found) == 0
    assert not any(found.add(1, b"%d" % number) for number in range(TOPICS_MAX))


def test_who_is_forgotten_is_counted_anew():
    """What others follow stays counted for them."""
    found = Subscriptions()
    for number in range(TOPICS_MAX):
        found.add(1, b"%d" % number)
    found.add(2, b"0")
    found.forget(1)
    found.forget(3)

    assert len(found) == 1
    assert not any(found.add(1, b"%d" % number) for number in range(TOPICS_MAX))


def test_processes_are_bounded():
    """Each follows what somebody goes on to follow, and ends: none of them stays for ever."""
    found = Subscriptions()
    for pid in range(2 * FOLLOWERS_MAX):
        found.add(pid, b"%d" % pid)

    assert len(found) == FOLLOWERS_MAX


def test_who_subscribed_longest_ago_is_counted_anew(monkeypatch):
    """One that follows more and more for days is not forgotten for those that come and go."""
    monkeypatch.setattr(peer_memory, "FOLLOWERS_MAX", 2)
    monkeypatch.setattr(peer_memory, "TOPICS_MAX", 2)
    found = Subscriptions()
    for pid, topic in ((1, b"a"), (2, b"b"), (1, b"c"), (3, b"d")):
        assert found.add(pid, topic) is None

    assert found.add(1, b"e") == 1


def test_what_is_left_or_forgotten_is_room_for_others(monkeypatch):
    """Of one process and of all together, byte by byte, and a topic that nobody had is none."""
    monkeypatch.setattr(peer_memory, "TOPICS_BYTES_MAX", 10)
    monkeypatch.setattr(peer_memory, "ALL_TOPICS_BYTES_MAX", 12)
    found = Subscriptions()
    found.add(1, b"keep")
    for _ in range(3):
        assert found.add(1, b"passes") is None
        found.remove(b"passes")
        found.remove(b"a topic of nobody")
    for _ in range(3):
        assert found.add(2, b"all of 8") is None
        found.forget(2)

    assert found.add(2, b"all of 8") is None
    assert found.add(2, b"x") == 2
    found.forget(2)
    assert found.add(1, b"1234567") == 1


def test_the_same_topic_by_ever_more_connections_is_too_much(monkeypatch):
    """Each costs memory, and nobody says when one has gone."""
    monkeypatch.setattr(peer_memory, "REPEATS_MAX", 3)
    found = Subscriptions()

    assert [found.add(1, b"one") for _ in range(5)] == [None] * 4 + [1]


def test_who_follows_most_is_cut_where_all_together_follow_too_much():
    """Not who asks for one more; and what several follow counts once."""
    found, share = Subscriptions(), ALL_TOPICS_MAX // 2
    for number in range(share):
        found.add(1, b"a%05d" % number)
        found.add(2, b"b%05d" % number)
        assert found.add(3, b"a%05d" % number) is None

    assert found.add(4, b"a00000") is None
    assert found.add(4, b"c") in {1, 2, 3}
    found.forget(1)
    assert found.add(4, b"c") in {2, 3}  # what the first one followed is followed by the third
    found.forget(2)
    assert found.add(4, b"c") is None


def test_the_bytes_of_all_together_are_bounded():
    """They are counted down again, too."""
    found, count = Subscriptions(), ALL_TOPICS_BYTES_MAX // 2_048
    long = [b"%01024d" % number for number in range(2 * count)]
    for _ in range(2):
        assert [found.add(1 + number % 2, topic) for number, topic in enumerate(long)] == [None] * (
            2 * count
        )
        found.add(1, b"x" * 10)
        assert found.add(3, b"x" * 11) == 1
        for topic in (*long, b"x" * 10, b"x" * 11):
            found.remove(topic)


def test_who_was_cut_waits_for_a_while(monkeypatch):
    """And nobody else; the table has an end."""
    monkeypatch.setattr(peer_memory, "FOLLOWERS_MAX", 2)
    barred = Barred()
    for pid in (1, 2, 1, 3):
        barred.add(pid, 10.0)

    assert [barred.holds(pid, 10.0) for pid in (1, 2, 3, 4, None)] == [True, False, True] + [
        False
    ] * 2
    assert barred.holds(1, 10.0 + BARRED_S - 0.1)
    assert not barred.holds(1, 10.0 + BARRED_S)
