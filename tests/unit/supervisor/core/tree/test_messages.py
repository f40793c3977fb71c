"""Messages are values: what was reported stays as it was reported, and has its place."""

from typing import get_args

import pytest

from cmdc_runtime.reasons import Normal, Signal
from supervisor.core.tree.messages import (
    AnyInput,
    Begin,
    ChildExited,
    DeleteChild,
    Due,
    Ending,
    Fail,
    HibernateChild,
    Ignored,
    Input,
    KillSupervisor,
    Label,
    ProcessEnded,
    Reconfigure,
    Ref,
    Report,
    RestartChild,
    StartChild,
    Stop,
    TerminateChild,
    Timer,
    TimerKind,
    Up,
    WakeChild,
)
from supervisor.core.tree.specs import ChildSpec, SupervisorSpec

REF = Ref(("s",), "a", 1)
KILLED = Signal(number=9, name="SIGKILL")
CHILD = ("s", "a")
# fmt: off
PLACES = (
    (Begin(),                                          ()),
    (Stop(),                                           ()),
    (Up(REF),                                          CHILD),
    (Ignored(REF),                                     CHILD),
    (ChildExited(REF, KILLED, Ending.CRASH),           CHILD),
    (Fail(REF, KILLED),                                CHILD),
    (Due(Timer(("s",), "a", TimerKind.KILL)),          CHILD),
    (StartChild(("s",), ChildSpec(id="a", start=1), 1), CHILD),
    (TerminateChild(("s",), "a", 1),                   CHILD),
    (HibernateChild(("s",), "a", 1),                   CHILD),
    (RestartChild(("s",), "a", 1),                     CHILD),
    (WakeChild(("s",), "a", 1),                        CHILD),
    (DeleteChild(("s",), "a", 1),                      CHILD),
    (KillSupervisor(("s",)),                           ("s",)),
    (Reconfigure(("s",), SupervisorSpec()),            ("s",)),
)
# fmt: on


def family(kind):
    """Return a class and all below it."""
    return [kind, *(one for below in kind.__subclasses__() for one in family(below))]


@pytest.mark.parametrize("kind", family(Input))
def test_no_input_can_be_changed(kind):
    """It is kept for a replay after the tree has had it."""
    assert kind.__struct_config__.frozen


@pytest.mark.parametrize(("given", "place"), PLACES)
def test_an_input_says_where_what_it_is_about_is(given, place):
    """By the path of the child, or that of the supervisor itself."""
    assert given.place == place


def test_a_recording_has_the_words_of_the_input():
    """Those of today are to be read for years."""
    assert StartChild.__struct_config__.tag == "start_child"


def test_every_input_is_tried():
    """A new one is to be added to ``PLACES``."""
    assert {type(given) for given, _ in PLACES} == set(get_args(AnyInput))


def test_what_is_not_said_is_nothing():
    """An end that puts nothing off, and a report about nobody who is known."""
    gone = ProcessEnded(ref=REF, reason=Normal(), restarting=False, asked=True, restarts=0)
    report = Report(label=Label.UNEXPECTED, path=(), context="x", child=None)

    assert gone.delay_s == 0.0
    assert (report.generation, report.restarts, report.in_window, report.max_restarts) == (
        0,
        0,
        0,
        0,
    )
