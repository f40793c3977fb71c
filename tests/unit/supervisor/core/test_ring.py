"""The newest batches of a session's events."""

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.ring import KeptBatch, Ring, filling

sizes = st.tuples(st.integers(1, 5), st.integers(0, 30))


def filled(events_max, bytes_max, shapes):
    """Return a ring and every batch that was ever added to it."""
    ring, batches = Ring(events_max, bytes_max), []
    for count, size in shapes:
        batches.append(KeptBatch(first=ring.last + 1, count=count, body=b"x" * size))
        ring.add(batches[-1])
    return ring, batches


@given(st.integers(1, 12), st.integers(1, 60), st.lists(sizes, min_size=1, max_size=20))
def test_the_newest_batches_within_the_bounds_are_kept(events_max, bytes_max, shapes):
    """As many as fit, counted from the newest; the newest always stays."""
    ring, batches = filled(events_max, bytes_max, shapes)
    kept = ring.between(0, ring.last)
    right = batches[-1:]
    for batch in reversed(batches[:-1]):
        longer = [batch, *right]
        events = sum(one.count for one in longer)
        if events > events_max or sum(len(one.body) for one in longer) > bytes_max:
            break
        right = longer

    assert kept == right
    assert ring.first == kept[0].first
    assert ring.last == sum(count for count, _ in shapes)


@given(st.lists(sizes, min_size=1, max_size=12), st.integers(0, 70), st.integers(0, 70))
def test_between_gives_every_batch_that_has_a_wanted_event(shapes, after, through):
    """No wanted index is missing, and no batch without one is there."""
    ring, batches = filled(1_000, 10_000, shapes)
    wanted = set(range(after + 1, through + 1))
    right = [one for one in batches if wanted & set(range(one.first, one.last + 1))]

    assert ring.between(after, through) == right


def test_a_ring_of_no_events_counts_on():
    """The buffer is off, and the next index is still known."""
    ring, _ = filled(0, 100, [(2, 5), (3, 5)])

    assert ring.between(0, 99) == []
    assert (ring.first, ring.last) == (6, 5)


def test_an_empty_ring_begins_with_the_next_index():
    """A session that begins after the loss of everything starts where it was asked to."""
    assert Ring(10, 100).first == 1
    assert Ring(10, 100, last=41).first == 42


def test_events_that_are_gone_are_counted():
    """What was let go has its indexes, and nothing of it is found."""
    ring, _ = filled(10, 100, [(2, 1)])
    ring.skip(5)
    ring.add(KeptBatch(first=6, count=1, body=b"x"))

    assert ring.last == 6
    assert [one.first for one in ring.between(0, 6)] == [1, 6]
    assert ring.between(2, 5) == []


def test_a_ring_of_one_event_keeps_the_newest_batch():
    """However many events the newest batch has, it can be had again."""
    ring, batches = filled(1, 100, [(1, 5), (3, 5)])

    assert ring.between(0, 99) == batches[1:]


@given(st.lists(st.integers(0, 30)), st.integers(1, 60))
def test_the_first_ones_that_fill_it_are_counted(some, bytes_max):
    """Without the last of them it was not full; where all have room, all are counted."""
    count = filling(some, bytes_max)

    assert sum(some[: max(0, count - 1)]) < bytes_max
    assert count == len(some) or sum(some[:count]) >= bytes_max


def test_a_ring_is_resized():
    """Of what is kept the newest batches stay; with 0 none does, and the count goes on."""
    ring = Ring(10, 1_000)
    for first in (1, 3, 5):
        ring.add(KeptBatch(first=first, count=2, body=b"x"))
    ring.resize(3)
    small = [batch.first for batch in ring.between(0, 9)]
    ring.resize(0)
    nothing = ring.between(0, 9)
    ring.add(KeptBatch(first=7, count=2, body=b"x"))
    ring.resize(10)
    ring.add(KeptBatch(first=9, count=1, body=b"x"))

    assert small == [5]
    assert nothing == []
    assert [batch.first for batch in ring.between(0, 9)] == [9]
    assert ring.last == 9
