"""Refused frames: all are counted, few are logged."""

from supervisor.core.authority import LINES_MAX, PEERS_MAX, WINDOW_S, Refusals


def test_of_one_peer_ever_fewer_are_logged():
    """The first one, then each time the count has doubled."""
    refusals = Refusals()
    logged = [count for at in range(100) if (count := refusals.count(b"one", 100.0 * at))]

    assert logged == [1, 2, 4, 8, 16, 32, 64]
    assert refusals.total == 100


def test_of_many_peers_so_many_are_logged_in_a_window():
    """A stranger who calls under ever new names fills no log."""
    refusals = Refusals()
    first = [refusals.count(b"%d" % peer, 5.0) for peer in range(LINES_MAX + 50)]
    later = refusals.count(b"late", 5.0 + WINDOW_S)

    assert first == [1] * LINES_MAX + [None] * 50
    assert later == 1
    assert refusals.total == LINES_MAX + 51


def test_a_windows_lines_are_logged_from_the_clocks_first_moment_on():
    """A clock may begin at 0; each window is as long as the others and has as many lines."""
    refusals = Refusals()
    times_s = [0.0] * (LINES_MAX + 1) + [WINDOW_S] * (LINES_MAX + 1)
    logged = [refusals.count(b"%d" % at, now_s) for at, now_s in enumerate(times_s)]

    assert logged == [*[1] * LINES_MAX, None] * 2
    assert refusals.count(b"more", 2 * WINDOW_S - 1.0) is None


def test_a_window_that_begins_with_the_clock_is_no_shorter():
    """Nor has it more lines."""
    refusals = Refusals()
    for peer in range(LINES_MAX):
        refusals.count(b"%d" % peer, 0.0)

    assert refusals.count(b"more", 1.0) is None


def test_peers_refused_long_ago_are_forgotten():
    """What is remembered of peers is bounded; the count of all goes on."""
    refusals = Refusals()
    for peer in range(PEERS_MAX + 1):
        refusals.count(b"%d" % peer, 0.0)

    assert refusals.count(b"1", WINDOW_S) == 2
    assert refusals.count(b"0", WINDOW_S) == 1
    assert refusals.count(b"%d" % PEERS_MAX, WINDOW_S) == 2
    assert refusals.total == PEERS_MAX + 4
