"""A child that nobody asked to end is killed because it hangs or uses too much."""

import pytest

from cmdc_runtime.reasons import Unkillable, Unresponsive
from supervisor.core.tree.messages import (
    UNKILLABLE_AFTER_S,
    Begin,
    ChildExited,
    Due,
    Ending,
    Fail,
    Kill,
    Launch,
    ProcessEnded,
    Ref,
    Stop,
    SupervisorEnded,
    Timer,
    TimerKind,
    Up,
)
from supervisor.core.tree.recording import RecordedTree, letters, read, replay
from supervisor.core.tree.specs import ChildSpec, SupervisorSpec

SILENT = Unresponsive(silent_ms=30_000)
TIMER = Timer((), "a", TimerKind.UNKILLABLE)
FIRST = Ref((), "a", 1)


def risen(restart="permanent"):
    """Return a tree with one child that is up."""
    tree = RecordedTree(SupervisorSpec(children=(ChildSpec(id="a", start="x", restart=restart),)))
    tree.handle(Begin(), 0.0)
    tree.handle(Up(FIRST, 1), 0.0)
    return tree


def of(kind, effects):
    return [effect for effect in effects if isinstance(effect, kind)]


def test_it_is_killed_once_and_comes_back_with_the_reason_reported():
    """What happens meanwhile changes nothing: SIGKILL is under way."""
    tree = risen()
    effects = tree.handle(Fail(FIRST, SILENT), 1.0)

    assert of(Kill, effects) == [Kill(FIRST, SILENT)]
    assert of(Kill, tree.handle(Fail(FIRST, SILENT), 1.1)) == []
    ended = tree.handle(ChildExited(FIRST, SILENT, Ending.CRASH), 1.2)
    assert [(one.reason, one.restarting) for one in of(ProcessEnded, ended)] == [(SILENT, True)]
    assert [one.ref.generation for one in of(Launch, ended)] == [2]
    assert tree.handle(Due(TIMER), 1.0 + UNKILLABLE_AFTER_S) == []


@pytest.mark.parametrize(
    ("restart", "ends"), [("permanent", True), ("transient", True), ("temporary", False)]
)
def test_one_that_cannot_be_killed_is_reported_and_not_replaced(restart, ends):
    """Who would have to be restarted takes its supervisor with it: nothing may take its place."""
    tree = risen(restart)
    tree.handle(Fail(FIRST, SILENT), 1.0)
    effects = tree.handle(Due(TIMER), 1.0 + UNKILLABLE_AFTER_S)
    (reported,) = of(ProcessEnded, effects)

    assert reported.reason == Unkillable(seconds=UNKILLABLE_AFTER_S)
    assert (reported.restarting, reported.asked, reported.record) == (False, False, None)
    assert of(Launch, effects) == []
    assert bool(of(SupervisorEnded, effects)) is ends


def test_stop_meanwhile_waits_for_the_same_end():
    """It is not killed a second time, and the place is given up when it would have been."""
    tree = risen()
    tree.handle(Fail(FIRST, SILENT), 1.0)
    assert of(Kill, tree.handle(Stop("enough", 3.0), 2.0)) == []

    assert of(SupervisorEnded, tree.handle(Due(TIMER), 1.0 + UNKILLABLE_AFTER_S)) != []


def test_recording_of_it_plays_again():
    """It is an input like the others."""
    tree = risen()
    tree.handle(Fail(FIRST, SILENT), 1.0)
    tree.handle(ChildExited(FIRST, SILENT, Ending.CRASH), 1.2)
    lines = list(tree.recorder.lines())
    _, taken = read(lines)

    assert [type(one.input) for one in taken] == [Begin, Up, Fail, ChildExited]
    assert all(letters(again.effects) == again.recorded.did for again in replay(lines))
