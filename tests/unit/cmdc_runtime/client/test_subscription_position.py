"""A subscriber's place: nothing twice, nothing out of order, nothing skipped in silence."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmdc_runtime.client import subscription as module
from cmdc_runtime.client.subscription import EventBatch, Position, Range
from cmdc_runtime.events import EventsLost, MessageDelta
from cmdc_runtime.requests import Replayed, ReplayedBatch
from cmdc_runtime.wire import codec

ROOM = 1_000
NOW_MS = 77


def entry(index):
    return index, MessageDelta(delta=str(index))


def batch(first, last):
    body = codec.encode_events([entry(index) for index in range(first, last + 1)])
    return EventBatch(first, last - first + 1, body)


def answer(*pairs, through, last=None):
    batches = tuple(
        ReplayedBatch(first=one.first, count=one.last - one.first + 1, body=one.body)
        for one in (batch(*pair) for pair in pairs)
    )
    return Replayed(batches=batches, through=through, last=through if last is None else last)


def shown(envelopes):
    """Return indexes; what is lost as (first, last)."""
    return [
        (one.event.first, one.event.last) if isinstance(one.event, EventsLost) else one.index
        for one in envelopes
    ]


def after(cursor):
    return Position("s", cursor)


def live(place, first, last, room=ROOM):
    return shown(place.live(batch(first, last), room, NOW_MS))


def test_live_events_follow_each_other():
    """What comes in order is delivered at once, with index, time and session."""
    place = after(0)
    (envelope,) = place.live(batch(1, 1), ROOM, NOW_MS)

    assert (envelope.session_id, envelope.index, envelope.at_ms) == ("s", 1, 1)
    assert live(place, 2, 4) == [2, 3, 4]
    assert place.missing(ROOM) is None


def test_duplicates_and_overlaps_are_dropped():
    """An event that was delivered is not delivered again."""
    place = after(3)

    assert live(place, 1, 3) == []
    assert live(place, 2, 5) == [4, 5]


def test_gap_is_asked_for_and_filled_in_order():
    """What came too early waits until the gap before it is filled."""
    place = after(0)

    assert live(place, 4, 5) == []
    assert live(place, 4, 5) == []
    assert live(place, 8, 8) == []
    assert place.missing(ROOM) == Range(0, 3)
    assert shown(place.replayed(Range(0, 3), answer((1, 3), through=3), ROOM, NOW_MS)) == [
        1,
        2,
        3,
        4,
        5,
    ]
    assert place.missing(ROOM) == Range(5, 7)


def test_watermark_shows_a_lost_tail():
    """An index beyond the cursor means that something is missing; an old one means nothing."""
    place = after(2)
    place.extend(1)

    assert place.missing(ROOM) is None
    place.extend(4)
    assert place.missing(ROOM) == Range(2, 4)


@pytest.mark.parametrize(
    "hear", [lambda p: p.extend(6), lambda p: live(p, 7, 7)], ids=["watermark", "batch"]
)
def test_stranger_starts_where_it_is_first_heard(hear):
    """Without a cursor the first thing heard is where the stream begins."""
    place = after(None)

    assert place.missing(ROOM) is None
    hear(place)
    assert live(place, 7, 8) in ([7, 8], [8])


def test_holes_in_a_replay_are_reported():
    """Each hole is one EventsLost at its last index, with the time of now."""
    place = after(0)
    place.extend(9)
    found = place.replayed(Range(0, 9), answer((3, 4), (6, 7), through=9), ROOM, NOW_MS)

    assert shown(found) == [(1, 2), 3, 4, (5, 5), 6, 7, (8, 9)]
    assert (found[-1].index, found[-1].at_ms) == (9, NOW_MS)


def test_unreached_rest_is_asked_for_again():
    """An answer that does not reach the end of the question loses nothing of the rest."""
    place = after(0)
    place.extend(9)

    assert shown(place.replayed(Range(0, 9), answer((1, 4), through=4, last=9), ROOM, NOW_MS)) == [
        1,
        2,
        3,
        4,
    ]
    assert place.missing(ROOM) == Range(4, 9)


def test_answer_without_progress_means_lost():
    """What the daemon knows of and can't give any more, it will not give later either."""
    place = after(5)
    place.extend(9)

    assert shown(place.replayed(Range(5, 9), answer(through=5, last=9), ROOM, NOW_MS)) == [(6, 9)]
    assert place.missing(ROOM) is None


def test_daemon_that_does_not_know_of_events_yet_loses_none():
    """An answer of one that has not heard so much itself says nothing of the rest."""
    place = after(5)
    place.extend(9)

    assert place.replayed(Range(5, 9), answer(through=4, last=4), ROOM, NOW_MS) == []
    assert shown(place.replayed(Range(5, 9), answer((6, 7), through=7), ROOM, NOW_MS)) == [6, 7]
    assert place.missing(ROOM) == Range(7, 9)


def test_going_back_is_reported():
    """Where the daemon counts less far, the rest is lost, and the stream goes on from there."""
    place = after(9)
    live(place, 12, 12)
    assert place.is_ahead_of(4)
    (reported,) = place.go_back(4, NOW_MS)

    assert (reported.index, reported.at_ms) == (4, NOW_MS)
    assert (reported.event.first, reported.event.last) == (5, 12)
    assert live(place, 5, 6) == [5, 6]
    assert place.missing(ROOM) is None
    assert place.go_back(6, NOW_MS) == []


def test_what_was_never_delivered_is_lost_as_well():
    """What was only heard of is gone like the rest; the cursor stays where it was."""
    place = after(2)
    place.extend(9)
    (reported,) = place.go_back(4, NOW_MS)

    assert (reported.index, reported.event.first, reported.event.last) == (2, 5, 9)
    assert place.missing(ROOM) == Range(2, 4)
    stranger = after(None)
    stranger.known = 3
    assert shown(stranger.go_back(1, NOW_MS)) == [(2, 3)]
    assert stranger.cursor == 1


def test_another_session_of_the_id_is_followed_from_its_beginning():
    """Nothing of the earlier one stands in its way."""
    place = after(5)
    live(place, 8, 9)
    place.begin_again(77)

    assert place.created_ms == 77
    assert live(place, 1, 3) == [1, 2, 3]
    assert place.missing(ROOM) is None


def test_late_answer_changes_nothing():
    """A replay of what was delivered meanwhile delivers nothing."""
    place = after(6)

    assert place.replayed(Range(0, 5), answer((1, 5), through=5), ROOM, NOW_MS) == []


def test_full_stream_takes_no_more():
    """What there is no room for is dropped, and asked for when there is room again."""
    place = after(0)

    assert live(place, 1, 5, room=3) == [1, 2, 3]
    assert live(place, 6, 7, room=0) == []
    assert place.missing(0) is None
    assert place.missing(2) == Range(3, 5)
    found = place.replayed(Range(3, 7), answer((4, 5), (6, 7), through=7), 2, NOW_MS)
    assert shown(found) == [4, 5]
    found = place.replayed(Range(5, 7), answer((6, 7), through=7), 1, NOW_MS)
    assert shown(found) == [6]


def test_what_is_kept_aside_is_bounded(monkeypatch):
    """Behind a gap only so many events are kept; the rest comes by replays."""
    monkeypatch.setattr(module, "AHEAD_EVENTS_MAX", 2)
    place = after(0)
    live(place, 2, 3)
    live(place, 4, 4)

    assert shown(place.replayed(Range(0, 1), answer((1, 1), through=1), ROOM, NOW_MS)) == [1, 2, 3]
    assert place.missing(ROOM) == Range(3, 4)


def test_kept_batch_that_was_replayed_is_dropped():
    """A batch kept aside whose events came by a replay is not delivered again."""
    place = after(0)
    live(place, 3, 3)

    assert shown(place.replayed(Range(0, 4), answer((1, 4), through=4), ROOM, NOW_MS)) == [
        1,
        2,
        3,
        4,
    ]
    assert place.drain(ROOM, NOW_MS) == []


@pytest.mark.parametrize("body", [b"\xff", codec.encode_events([entry(1)])])
def test_unreadable_batch_counts_as_lost(body):
    """A batch that is not what it says it is, is reported as lost."""
    place = after(0)

    assert shown(place.live(EventBatch(1, 3, body), ROOM, NOW_MS)) == [(1, 3)]


def test_end_is_reached_with_the_last_event():
    """A stream is finished when the session has ended and everything was delivered."""
    place = after(0)
    place.end_at(2)

    assert not place.is_finished
    assert live(place, 1, 2) == [1, 2]
    assert place.is_finished
    nothing = after(None)
    nothing.end_at(5)
    assert nothing.is_finished


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.data())
def test_every_event_is_delivered_once_or_reported_as_lost(data):
    """Whatever is dropped, doubled or late: the stream counts every index once and in order."""
    total = data.draw(st.integers(1, 40))
    kept = data.draw(st.sets(st.integers(1, total)))
    cuts = sorted({*data.draw(st.sets(st.integers(1, total))), total})
    starts = [1, *(cut + 1 for cut in cuts[:-1])]
    batches = [batch(first, last) for first, last in zip(starts, cuts, strict=True)]
    wire = data.draw(st.permutations([one for one in batches for _ in data.draw(COPIES)]))
    place, found = after(0), []
    for one in wire:
        found += shown(place.live(one, data.draw(st.integers(0, 9)), NOW_MS))
    place.extend(total)
    rounds = 0
    while not (place.cursor == total and place.missing(ROOM) is None):
        room = data.draw(st.integers(1, 9))
        found += shown(place.drain(room, NOW_MS))
        asked = place.missing(room)
        rounds += 1
        assert rounds <= 4 * total
        if asked is not None:
            reach = data.draw(st.integers(asked.after + 1, asked.through))
            held = [(index, index) for index in range(asked.after + 1, reach + 1) if index in kept]
            replay = answer(*held, through=reach, last=total)
            found += shown(place.replayed(asked, replay, room, NOW_MS))

    counted = [
        index
        for one in found
        for index in (range(one[0], one[1] + 1) if isinstance(one, tuple) else [one])
    ]
    assert counted == list(range(1, total + 1))
    lost = {index for one in found if isinstance(one, tuple) for index in range(one[0], one[1] + 1)}
    assert not lost & kept


COPIES = st.sampled_from([(), (1,), (1,), (1, 2)])
