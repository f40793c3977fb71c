"""A child that fell at a step which is left out next comes back, and no restart is charged."""

from itertools import product
from typing import get_args

import pytest

from cmdc_runtime.ids import Incarnation
from cmdc_runtime.reasons import RestartIntensityExceeded, Signal
from cmdc_runtime.requests import RestartType
from supervisor.core.tree.messages import (
    Begin,
    ChildExited,
    Due,
    Ending,
    Launch,
    ProcessEnded,
    Ref,
    SetTimer,
    SupervisorEnded,
    Timer,
    TimerKind,
    Up,
)
from supervisor.core.tree.recording import RecordedTree, letters, replay
from supervisor.core.tree.specs import ChildSpec, Flags, SupervisorSpec
from supervisor.core.tree.supervisor import RESTARTS

KILLED = Signal(number=11, name="SIGSEGV")
OFTEN = 10


def ref(number):
    return Ref((), "a", Incarnation(number))


def risen(max_restarts=3, **child):
    """Return a tree with one child that is up."""
    flags = Flags(max_restarts=max_restarts)
    children = (ChildSpec(id="a", start="x", **child),)
    tree = RecordedTree(SupervisorSpec(flags=flags, children=children))
    tree.handle(Begin(), 0.0)
    tree.handle(Up(ref(1), 1), 0.0)
    return tree


def end(tree, number, ending, *, is_up=True):
    """Have the process end, and the next one come up; return what came of the end."""
    effects = tree.handle(ChildExited(ref(number), KILLED, ending), 0.0)
    if is_up and of(Launch, effects):
        tree.handle(Up(ref(number + 1), 1), 0.0)
    return effects


def of(kind, effects):
    return [effect for effect in effects if isinstance(effect, kind)]


def test_every_restart_type_says_what_follows_every_ending():
    """A row that is missing would be found when a process ends so."""
    assert set(RESTARTS) == set(product(get_args(RestartType), Ending))


@pytest.mark.parametrize("restart", get_args(RestartType))
def test_who_comes_back_after_a_crash_comes_back_after_a_fall(restart):
    """It is a crash, and differs in what it costs alone."""
    assert RESTARTS[restart, Ending.FELL] is RESTARTS[restart, Ending.CRASH]


@pytest.mark.parametrize("is_up", [True, False])
def test_falls_cost_nothing_and_crashes_what_they_did(is_up):
    """Whether the processes were up or not; each is a restart of the session all the same."""
    tree = risen()
    for number in range(1, OFTEN + 1):
        fell = end(tree, number, Ending.FELL, is_up=is_up)
    for number in range(OFTEN + 1, OFTEN + 4):
        crashed = end(tree, number, Ending.CRASH, is_up=is_up)
    over = end(tree, OFTEN + 4, Ending.CRASH)

    assert [(one.restarting, one.restarts) for one in of(ProcessEnded, fell)] == [(True, OFTEN)]
    assert [(one.restarting, one.restarts) for one in of(ProcessEnded, crashed)] == [
        (True, OFTEN + 3)
    ]
    assert [type(one.reason) for one in of(SupervisorEnded, over)] == [RestartIntensityExceeded]


def test_who_may_not_be_restarted_at_all_is_not_after_a_fall():
    """No restarts means none."""
    effects = end(risen(max_restarts=0), 1, Ending.FELL)

    assert (of(Launch, effects), len(of(SupervisorEnded, effects))) == ([], 1)


def test_each_fall_makes_the_next_back_off_longer():
    """A process that falls again and again is put off like one that crashes."""
    tree = risen(restart_delay=(0.1, 5.0))
    waits, now_s = [], 0.0
    for number in range(1, 5):
        effects = tree.handle(ChildExited(ref(number), KILLED, Ending.FELL), now_s)
        waits.append(next((one.delay_s for one in of(SetTimer, effects)), 0.0))
        now_s += waits[-1]
        tree.handle(Due(Timer((), "a", TimerKind.DELAY)), now_s)
        tree.handle(Up(ref(number + 1), 1), now_s)

    assert waits == pytest.approx([0.0, 0.1, 0.2, 0.4])


def test_recording_of_it_plays_again():
    """That it fell is a part of the input."""
    tree = risen(max_restarts=1)
    for number in range(1, 4):
        end(tree, number, Ending.FELL)
    played = list(replay(tree.recorder.lines()))

    assert [getattr(one.recorded.input, "ending", None) for one in played].count(Ending.FELL) == 3
    assert all(letters(one.effects) == one.recorded.did for one in played)
