"""What becomes of a write on a full disk."""

from itertools import product

import pytest

from supervisor.core.storage import FATES, Fate, Level, Need


def test_every_need_has_a_fate_on_every_level():
    """No write meets a level of which nobody has thought."""
    assert set(FATES) == set(product(Need, Level))


def test_all_goes_while_there_is_room():
    """Nothing is refused or held as long as there is plenty."""
    assert {FATES[need, Level.PLENTY] for need in Need} == {Fate.GO}


@pytest.mark.parametrize("need", Need)
def test_less_room_is_never_better(need):
    """What is held or refused on one level goes on none below it."""
    goes = [FATES[need, level] is Fate.GO for level in Level]

    assert goes == sorted(goes, reverse=True)


@pytest.mark.parametrize("level", list(Level)[1:])
def test_nothing_new_is_taken_and_no_work_is_thrown_away(level):
    """A caller is refused, where it can ask again; what an agent has done waits."""
    assert FATES[Need.NEW, level] is Fate.REFUSE
    assert FATES[Need.WORK, level] is not Fate.REFUSE


def test_ends_go_longest():
    """The last part of the reserve is theirs."""
    assert FATES[Need.END, Level.LAST] is Fate.GO
    assert FATES[Need.WORK, Level.LAST] is Fate.WAIT
