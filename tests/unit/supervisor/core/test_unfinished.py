"""Growth of the memory is answered by cuts, step by step, and what stays is allowed."""

from supervisor.core import unfinished
from supervisor.core.unfinished import (
    CLOSE_BYTES,
    CLOSE_LOOK_S,
    LOOK_S,
    OWN_BYTES_MAX,
    SETTLE_S,
    UNFINISHED_BYTES_MAX,
    Growth,
    Heard,
    Step,
    Whom,
)

FLOOR = 30 * 2**20
GROWN = FLOOR + UNFINISHED_BYTES_MAX + 1


def test_little_growth_is_looked_at_more_closely_and_nobody_is_cut():
    """A burst comes and goes."""
    growth = Growth(FLOOR)

    assert growth.look(FLOOR + CLOSE_BYTES, 1.0) == Step(None, LOOK_S)
    assert growth.look(FLOOR + CLOSE_BYTES + 1, 2.0) == Step(None, CLOSE_LOOK_S)
    assert growth.look(FLOOR + UNFINISHED_BYTES_MAX, 3.0) == Step(None, CLOSE_LOOK_S)
    assert growth.calm_s == 1.0
    assert growth.look(FLOOR, 4.0) == Step(None, LOOK_S)
    assert growth.calm_s == 4.0


def test_each_step_cuts_more_until_the_growth_is_gone():
    """Strangers come first; who is left is safe when it has helped."""
    growth = Growth(FLOOR)

    assert growth.look(GROWN, 1.0) == Step(Whom.STRANGERS, SETTLE_S)
    assert growth.look(GROWN, 1.1) == Step(Whom.SENDING, SETTLE_S)
    assert growth.look(FLOOR, 1.2) == Step(None, LOOK_S, has_settled=True)
    assert growth.look(GROWN, 2.0).cut is Whom.STRANGERS


def test_what_no_cut_has_freed_is_the_daemons_own():
    """All have been cut once; the same growth again is no reason to do it again."""
    growth = Growth(FLOOR)
    cuts = [growth.look(GROWN, 1.0).cut for _ in Whom]

    assert cuts == list(Whom)
    assert growth.look(GROWN, 1.3) == Step(None, LOOK_S, has_settled=True)
    assert growth.floor == GROWN
    assert growth.look(FLOOR, 2.0).cut is None
    assert growth.look(GROWN, 3.0).cut is None


def test_what_is_allowed_has_an_end():
    """However much it was that stayed."""
    growth = Growth(0)
    for _ in range(len(Whom) + 1):
        growth.look(4 * OWN_BYTES_MAX, 1.0)

    assert growth.allowed == OWN_BYTES_MAX


def test_a_lower_level_is_the_new_floor():
    """Growth is measured from the least."""
    growth = Growth(GROWN)
    growth.look(FLOOR, 1.0)

    assert growth.look(GROWN, 2.0).cut is Whom.STRANGERS


def test_who_is_meant_by_each_step():
    """By when a message of theirs was taken last."""
    heard = Heard()
    heard.note(1, 1.0)
    heard.note(2, 3.0)
    heard.note(4, 1.0)
    heard.note(None, 3.0)
    meant = {
        whom: [pid for pid in (1, 2, 3, 4) if heard.is_meant(pid, whom, 2.0, is_sending=pid == 4)]
        for whom in Whom
    }

    assert meant == {
        Whom.STRANGERS: [3],
        Whom.SENDING: [3, 4],
        Whom.SILENT: [1, 3, 4],
        Whom.ALL: [1, 2, 3, 4],
    }


def test_who_was_heard_longest_ago_is_forgotten(monkeypatch):
    """It counts as a stranger then."""
    monkeypatch.setattr(unfinished, "PIDS_MAX", 2)
    heard = Heard()
    for pid in (1, 2, 1, 3):
        heard.note(pid, 1.0)

    assert [heard.is_meant(pid, Whom.STRANGERS, 0.0, is_sending=True) for pid in (1, 2, 3)] == [
        False,
        True,
        False,
    ]
