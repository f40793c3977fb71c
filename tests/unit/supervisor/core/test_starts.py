"""A few starts at a time, two queues that take turns, one alarm for a crowd."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.starts import (
    CROWD_EACH,
    PLACES_MIN,
    RETRY_S_MIN,
    Alarm,
    Places,
    paced,
    places_for,
    retry_after_s,
)


@pytest.mark.parametrize(("processors", "right"), [(1, PLACES_MIN), (2, 4), (8, 16)])
def test_places_go_by_the_processors(processors, right):
    """Two for each, and never so few that one slow start holds up all others."""
    assert places_for(processors) == right


@given(st.integers(1, 5), st.lists(st.sampled_from(["first", "again", "over", "give up"])))
def test_no_more_than_the_places_are_taken_and_nobody_is_forgotten(at_once, steps):
    """Against a model that counts: each ticket has a place, waits, or has left; in their order."""
    places, going, waiting, most = Places(at_once), set(), {True: [], False: []}, 0
    for ticket, step in enumerate(steps):
        if step in {"first", "again"}:
            is_first = step == "first"
            has_place = places.ask(ticket, is_first=is_first)
            assert has_place == (len(going) < at_once)
            going.add(ticket) if has_place else waiting[is_first].append(ticket)
        elif step == "over" and going:
            going.pop()
            called = places.free()
            heads = [queue[0] for queue in waiting.values() if queue]
            assert (called in heads) if heads else (called is None)
            waiting = {
                key: [one for one in queue if one != called] for key, queue in waiting.items()
            }
            going |= {called} - {None}
        elif step == "give up" and waiting[True]:
            places.give_up(waiting[True].pop())
        assert (places.taken, places.waiting) == (len(going), sum(map(len, waiting.values())))
        most = max(most, len(going))
        assert most == places.peak <= at_once


def test_first_starts_and_restarts_take_turns():
    """Sixty restarts hold up nobody who starts one session, and the other way round."""
    places = Places(1)
    places.ask(0, is_first=False)
    for ticket in range(1, 7):
        places.ask(ticket, is_first=ticket > 3)

    assert [places.free() for _ in range(7)] == [4, 1, 5, 2, 6, 3, None]


def test_one_alarm_for_a_crowd():
    """It goes on once, stays on while anybody waits, and may go on again after that."""
    alarm = Alarm(CROWD_EACH)
    turned = [alarm.turns(waiting) for waiting in (1, 3, 4, 9, 4, 1, 5, 0, 3, 4, 0)]

    assert [number for number, turns in enumerate(turned) if turns] == [2, 7, 9, 10]
    assert (alarm.is_on, alarm.count) == (False, 2)


def test_who_is_refused_learns_when_the_others_will_have_started():
    """By how long starts take, which the newest ones show."""
    start_s = 0.2
    for _ in range(100):
        start_s = paced(start_s, 0.4)

    assert start_s == pytest.approx(0.4, rel=0.01)
    assert retry_after_s(1_000, 4, start_s) == pytest.approx(100.0, rel=0.01)
    assert retry_after_s(1, 4, start_s) == RETRY_S_MIN
    assert retry_after_s(10, 3, 1.0) == 3.3
