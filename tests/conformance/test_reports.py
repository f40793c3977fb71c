"""What is reported of everything that happens in a tree."""

from cmdc_runtime.ids import Incarnation
from supervisor.core.tree.messages import (
    UNKILLABLE_AFTER_S,
    ChildExited,
    ChildState,
    Ending,
    Label,
    Ref,
)
from supervisor.core.tree.specs import ChildSpec
from tests.conformance.script import ENDS, KILLED, Life, below, case, child, one_for_one

STUCK = Life(stop="ignore", killable=False)


def every_report(sim):
    """Play until each label was reported, and return all reports."""
    spec = one_for_one(
        child("a", Life(), Life(start="exit"), Life()),
        child("b", Life(stop="exception")),
        child("stuck", STUCK, shutdown=0),
        max_restarts=3,
        max_seconds=60,
    )
    sim.start(spec)
    sim.crash("a")
    sim.until_up("a3")
    sim.perform(
        sim.tree.handle(ChildExited(Ref((), "a", Incarnation(1)), KILLED, Ending.CRASH), sim.now())
    )
    sim.call("terminate_child", "stuck")
    sim.call("terminate_child", "b")
    sim.pass_time(UNKILLABLE_AFTER_S)
    for _ in range(2):
        sim.crash("a")
    return [note.fact for note in sim.log if note.what == "report"]


@case("C68")
def test_every_report_has_every_field(sim):
    """Whatever is reported, it is of a child at a place, with its budget and what comes next."""
    reports = every_report(sim)
    crash = next(one for one in reports if one.label is Label.CHILD_TERMINATED)
    progress = next(one for one in reports if one.label is Label.PROGRESS)

    assert {report.label for report in reports} == set(Label)
    for report in reports:
        assert report.path == ()
        assert report.context
        assert isinstance(report.child, ChildSpec)
        assert report.child.id in {"a", "b", "stuck"}
        assert report.generation >= 1
        assert report.label is Label.UNEXPECTED or report.max_restarts == 3
        assert 0 <= report.in_window <= 4
        assert (report.reason is None) == (report.label in {Label.PROGRESS, Label.UNEXPECTED})
    assert (crash.reason, crash.handle is not None, crash.next_attempt_s) == (KILLED, True, 0.0)
    assert (crash.child.restart, crash.child.shutdown, crash.child.type) == (
        *("permanent", 5.0, "worker"),
    )
    assert (progress.handle is not None, progress.child.start is not None) == (True, True)


@case("C68")
def test_a_report_of_a_supervisor_has_its_place(stage):
    """What happens below is reported with the path of the supervisor that it happened to."""
    stage.start(one_for_one(below("inner", one_for_one(child("x")))))
    stage.crash("x", path=("inner",))
    stage.until_up("x2", path=("inner",))
    (report,) = stage.reported("child_terminated")
    started = [(one.path, one.child.id, one.child.type) for one in stage.reported("progress")]

    assert report.path == ("inner",)
    assert started == [
        (("inner",), "x", "worker"),
        ((), "inner", "supervisor"),
        (("inner",), "x", "worker"),
    ]


@case("C63")
def test_states_have_the_words_of_the_documents():
    """What callers see of a child is one of six words."""
    assert [str(state) for state in ChildState] == [
        *("starting", "up", "stopping", "restarting", "down", "unkillable"),
    ]
    assert set(ENDS) >= {"normal", "shutdown", "shutdown_term", "exception", "kill"}
