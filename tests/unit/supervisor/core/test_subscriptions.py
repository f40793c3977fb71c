"""What each process follows is counted, bounded and forgotten."""

from supervisor.core.subscriptions import PIDS_MAX, TOPICS_BYTES_MAX, TOPICS_MAX, Subscriptions


def test_the_most_topics_are_allowed_and_no_more():
    """The next one is too many; the same one again is not."""
    found = Subscriptions()
    allowed = [found.add(1, b"%d" % number) for number in range(TOPICS_MAX)]

    assert all(allowed)
    assert found.add(1, b"0")
    assert not found.add(1, b"more")
    assert found.add(2, b"more")


def test_few_long_topics_are_too_many():
    """Each byte of a topic costs memory."""
    found, count = Subscriptions(), TOPICS_BYTES_MAX // 1_024

    assert all(found.add(1, b"%01024d" % number) for number in range(count))
    assert not found.add(1, b"x")


def test_a_topic_without_followers_counts_for_nobody():
    """ZeroMQ tells of the last one, and not who it was."""
    found = Subscriptions()
    for pid in (1, 2):
        found.add(pid, b"one")
    found.remove(b"one")
    found.remove(b"never")

    assert len(found) == 0
    assert all(found.add(1, b"%d" % number) for number in range(TOPICS_MAX))


def test_who_is_forgotten_is_counted_anew():
    """What others follow stays counted for them."""
    found = Subscriptions()
    for number in range(TOPICS_MAX):
        found.add(1, b"%d" % number)
    found.add(2, b"0")
    found.forget(1)
    found.forget(3)

    assert len(found) == 1
    assert all(found.add(1, b"%d" % number) for number in range(TOPICS_MAX))


def test_processes_are_bounded():
    """Each follows what somebody goes on to follow, and ends: none of them stays for ever."""
    found = Subscriptions()
    for pid in range(2 * PIDS_MAX):
        found.add(pid, b"%d" % pid)

    assert len(found) == PIDS_MAX
