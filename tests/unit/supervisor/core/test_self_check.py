"""Which part has stalled, which has recovered, and when a gap is nobody's fault."""

import pytest

from supervisor.core.limits import LOOP_STALL_S, PAUSE_S
from supervisor.core.self_check import Findings, Gap, PartStates, Silence, gap_of


def test_parts_that_answer_are_well():
    """A round with all answers has nothing to report."""
    states = PartStates(("journal", "router"), 0.0)

    assert [states.judge((), 5.0), states.judge((), 10.0)] == [Findings(is_well=True)] * 2


def test_a_silent_part_is_reported_once_and_again_when_it_is_back():
    """The times count from the last answer; nothing is well until every part has answered."""
    states = PartStates(("journal", "router"), 0.0)
    states.judge((), 5.0)
    rounds = [states.judge({"journal"}, 12.0), states.judge({"journal"}, 20.0)]
    back = states.judge((), 25.0)

    assert rounds == [
        Findings(is_well=False, stalled=(Silence("journal", 7.0),)),
        Findings(is_well=False),
    ]
    assert back == Findings(is_well=True, recovered=(Silence("journal", 20.0),))
    assert states.judge((), 30.0) == Findings(is_well=True)


def test_parts_stall_and_recover_apart():
    """One part that is back does not hide another that is not."""
    states = PartStates(("journal", "router"), 0.0)
    states.judge({"journal", "router"}, 5.0)
    found = states.judge({"router"}, 10.0)

    assert found == Findings(is_well=False, recovered=(Silence("journal", 10.0),))


@pytest.mark.parametrize(
    ("loop_age_s", "look_age_s", "gap"),
    [
        (0.5, 0.5, Gap.NONE),
        (LOOP_STALL_S, 0.5, Gap.BLOCKED),
        (LOOP_STALL_S, PAUSE_S, Gap.PAUSED),
        (0.0, 60.0, Gap.PAUSED),
    ],
    ids=["turning", "blocked", "paused", "stopped"],
)
def test_a_pause_of_the_process_is_no_stall_of_the_loop(loop_age_s, look_age_s, gap):
    """A witness that was away itself accuses nobody."""
    assert gap_of(loop_age_s=loop_age_s, look_age_s=look_age_s) is gap
