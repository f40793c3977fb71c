"""Growth of the memory is answered by cuts, step by step, and what stays is allowed."""

from supervisor.core import peer_memory
from supervisor.core.peer_memory import (
    CLOSE_BYTES,
    CLOSE_LOOK_S,
    LOOK_S,
    OWN_BYTES_MAX,
    UNFINISHED_BYTES_MAX,
    Growth,
    Heard,
    Step,
    Whom,
)

FLOOR = 30 * 2**20
GROWN = FLOOR + UNFINISHED_BYTES_MAX + 1
HUGE = FLOOR + OWN_BYTES_MAX + 1


def test_little_growth_is_looked_at_more_closely_and_nobody_is_cut():
    """A burst comes and goes."""
    growth = Growth(FLOOR)

    assert growth.look(FLOOR + CLOSE_BYTES, 1.0) == Step(None, LOOK_S)
    assert growth.look(FLOOR + CLOSE_BYTES + 1, 2.0) == Step(None, CLOSE_LOOK_S)
    assert growth.look(FLOOR + UNFINISHED_BYTES_MAX, 3.0) == Step(None, CLOSE_LOOK_S)
    assert growth.calm_s == 1.0
    assert growth.look(FLOOR, 4.0) == Step(None, LOOK_S)
    assert growth.calm_s == 4.0


def test_growth_is_answered_by_cutting_who_sends_for_as_long_as_it_lasts():
    """Nobody else is meant, however often it is looked at."""
    growth = Growth(FLOOR)

    assert [growth.look(GROWN, at) for at in (1.0, 1.1, 1.2)] == [
        Step(Whom.SENDING, CLOSE_LOOK_S)
    ] * 3
    assert growth.look(FLOOR + OWN_BYTES_MAX, 2.0) == Step(Whom.SENDING, CLOSE_LOOK_S)
    assert growth.look(FLOOR, 3.0) == Step(None, LOOK_S, has_ended=True)
    assert growth.look(FLOOR, 4.0) == Step(None, LOOK_S)


def test_what_is_more_than_work_needs_is_answered_step_by_step():
    """Who is left is safe when it has helped; next time it begins anew."""
    growth = Growth(FLOOR)
    for _ in range(2):
        assert growth.look(HUGE, 1.0) == Step(Whom.SENDING, 0.0)
        assert growth.look(HUGE, 1.1) == Step(Whom.STRANGERS, 0.0)
        assert growth.look(GROWN, 1.2) == Step(Whom.SENDING, CLOSE_LOOK_S)
        assert growth.look(HUGE, 1.3) == Step(Whom.SILENT, 0.0)
        assert growth.look(FLOOR, 1.4) == Step(None, LOOK_S, has_ended=True)


def test_what_no_cut_has_freed_is_the_daemons_own():
    """All have been cut once; the same level again is no reason to do it again."""
    growth = Growth(FLOOR)
    cuts = [growth.look(HUGE, 1.0).cut for _ in Whom]

    assert cuts == list(Whom)
    assert growth.look(HUGE, 1.3) == Step(None, LOOK_S, has_ended=True)
    assert (growth.floor, growth.grown) == (HUGE, 0)
    assert growth.look(HUGE, 2.0) == Step(None, LOOK_S)


def test_a_bound_itself_is_allowed_whatever_was_done_before():
    """Also where all have been cut: what is above it then is the daemon's own, and not this."""
    growth = Growth(FLOOR)
    for _ in Whom:
        growth.look(HUGE, 1.0)

    assert growth.look(FLOOR + OWN_BYTES_MAX, 2.0) == Step(Whom.SENDING, CLOSE_LOOK_S)
    assert growth.floor == FLOOR


def test_nothing_has_grown_before_the_first_look():
    """And the memory was never calm, for who asks since when somebody was silent."""
    growth = Growth(FLOOR)

    assert (growth.grown, growth.calm_s) == (0, 0.0)


def test_a_lower_level_is_the_new_floor():
    """Growth is measured from the least."""
    growth = Growth(GROWN)
    growth.look(FLOOR, 1.0)

    assert growth.look(GROWN, 2.0).cut is Whom.SENDING


def test_who_is_meant_by_each_step():
    """By when a message of theirs was taken last."""
    heard = Heard()
    heard.note(1, 1.0)
    heard.note(2, 3.0)
    heard.note(4, 1.0)
    heard.note(6, 2.0)
    heard.note(None, 3.0)
    meant = {
        whom: [
            pid
            for pid in (1, 2, 3, 4, 5, 6)
            if heard.is_meant(pid, whom, 2.0, is_sending=pid in {2, 4, 5})
        ]
        for whom in Whom
    }

    assert meant == {
        Whom.SENDING: [4, 5],
        Whom.STRANGERS: [3, 5],
        Whom.SILENT: [1, 3, 4, 5],
        Whom.ALL: [1, 2, 3, 4, 5, 6],
    }


def test_who_was_heard_longest_ago_is_forgotten(monkeypatch):
    """It counts as a stranger then."""
    monkeypatch.setattr(peer_memory, "HEARD_MAX", 2)
    heard = Heard()
    for pid in (1, 2, 1, 3):
        heard.note(pid, 1.0)

    assert [heard.is_meant(pid, Whom.STRANGERS, 0.0, is_sending=True) for pid in (1, 2, 3)] == [
        False,
        True,
        False,
    ]
