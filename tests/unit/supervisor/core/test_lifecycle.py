"""The words in which a session's life is told."""

from typing import get_args

from cmdc_runtime.requests import SessionPhase
from supervisor.core.lifecycle import HAVING_CHILDREN, SHOWN, Phase


def test_every_phase_is_told_by_one_of_the_public_words():
    """Callers are told of each phase, and each word that they may be told stands for one."""
    assert set(SHOWN) == set(Phase)
    assert set(SHOWN.values()) == set(get_args(SessionPhase))


def test_a_process_on_its_way_out_gets_no_child():
    """A child is started for a process that is there and stays."""
    assert {SHOWN[phase] for phase in HAVING_CHILDREN} == {"starting", "up"}
