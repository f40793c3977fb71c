"""Noise, load, change, and what comes at the wrong moment."""

import sys
from collections import deque
from pathlib import Path

import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.ids import Incarnation
from cmdc_runtime.reasons import Normal
from supervisor.core.tree.messages import (
    Ask,
    Begin,
    ChildExited,
    ChildState,
    Due,
    Ending,
    Ignored,
    Kill,
    Label,
    Launch,
    Ref,
    StartChild,
    Stop,
    Timer,
    TimerKind,
    Up,
)
from supervisor.core.tree.tree import Tree
from tests.conformance.script import (
    KILLED,
    Life,
    below,
    case,
    child,
    dynamic,
    kept,
    one_for_all,
    one_for_one,
    rest_for_one,
)

STATIC = ["one_for_one", "one_for_all", "rest_for_one"]
ENGINE = str(Path("supervisor", "core", "tree"))
FEW, MANY = 100, 1_000
MORE_MAX = 11.0
"""How much more work ten times as many may be; a square would be 100."""


# --- noise ------------------------------------------------------------------------------------


@case("C63")
@pytest.mark.parametrize(
    "ref", [Ref((), "z", 1), Ref(("z",), "a", 1), Ref((), "a", 7), Ref((), "a", 0)]
)
def test_news_of_nobody_are_reported_and_ignored(sim, ref):
    """What is said of an unknown child, place or generation changes nothing."""
    sim.start(one_for_one(child("a")))
    before = sim.tree.which_children()
    reports = [
        *sim.tree.handle(Up(ref, 1), sim.now()),
        *sim.tree.handle(ChildExited(ref, KILLED, Ending.CRASH), sim.now()),
        *sim.tree.handle(Ignored(ref), sim.now()),
    ]

    assert [effect.label for effect in reports] == [Label.UNEXPECTED] * 3
    assert sim.tree.which_children() == before


@case("C63", "X14")
def test_timers_of_nobody_are_ignored(sim):
    """A timer that was cancelled, or never set, does nothing when it goes off all the same."""
    sim.start(one_for_one(child("a", start_timeout=5.0)))
    timers = [
        Timer(path, name, kind) for path in ((), ("z",)) for name in "az" for kind in TimerKind
    ]

    assert [sim.tree.handle(Due(timer), sim.now()) for timer in timers] == [[]] * len(timers)


@case("C69")
def test_an_end_that_comes_twice_is_one(sim):
    """The second time it is reported as unexpected; the next process is not taken for the first."""
    sim.start(one_for_one(child("a", restart_delay=(0.0, 0.0)), max_restarts=1))
    sim.crash("a")
    sim.until_up("a2")
    again = sim.tree.handle(
        ChildExited(Ref((), "a", Incarnation(1)), KILLED, Ending.CRASH), sim.now()
    )

    assert [effect.label for effect in again] == [Label.UNEXPECTED]
    assert sim.states() == {"a": "up"}


@case("C69")
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
def test_an_end_that_comes_twice_at_once_is_one(sim, restart):
    """Before its next process, or where there is none, an end counts once too."""
    spec = child("a", Life(ends_s=0.0), restart=restart, restart_delay=(5.0, 5.0))
    sim.start(one_for_one(spec, child("b")))
    last = 1 if restart == "temporary" else 2  # the third one waits for its back-off
    sim.wait(lambda: f"a{last}" in sim.noted("exit"), "the crashes")
    before = sim.states()
    ref = Ref((), "a", Incarnation(last))
    again = sim.tree.handle(ChildExited(ref, Normal(), Ending.NORMAL), sim.now())

    assert [effect.label for effect in again] == [Label.UNEXPECTED]
    assert sim.states() == before


@case("C69")
@pytest.mark.process
def test_a_process_that_announces_its_end_ends_once(proc):
    """Its last words and its status are two proofs of one end."""
    proc.start(one_for_one(child("a"), max_restarts=1))
    proc.crash("a", "exception")
    proc.until_up("a2")

    assert proc.noted("exit") == ["a1"]
    assert [report.in_window for report in proc.reported("child_terminated")] == [1]


@case("C63")
def test_being_up_twice_is_being_up(sim):
    """A process that says again that it is ready changes nothing."""
    sim.start(one_for_one(child("a")))

    assert sim.tree.handle(Up(Ref((), "a", Incarnation(1)), "other"), sim.now()) == []
    assert sim.view("a").handle != "other"


# --- change -----------------------------------------------------------------------------------


@case("C64")
def test_a_bad_change_is_no_change(stage):
    """A new specification with a mistake anywhere leaves everything as it was."""
    spec = one_for_one(child("a"), below("d", dynamic()), max_restarts=2)
    stage.start(spec)
    pids = stage.pids("a")
    for wrong, problem in [
        (one_for_one(child("b"), child("a", shutdown=-1)), "child 'a': shutdown"),
        (dynamic(), "strategy: one_for_one can't become dynamic"),
        (one_for_one(child("d")), "child 'd': a supervisor can't become a worker"),
    ]:
        with pytest.raises(InvalidOptions, match=problem):
            stage.reconfigure(wrong)
    with pytest.raises(InvalidOptions, match="there is no supervisor at nowhere"):
        stage.reconfigure(spec, path=("nowhere",))

    assert stage.states() == {"a": "up", "d": "up"}
    assert stage.pids("a") == pids


@case("C64", "C66")
def test_a_change_starts_and_ends_nothing(stage):
    """Who is new is not started, who is missing runs on, and the new order holds."""
    stage.start(one_for_one(child("a"), child("b"), child("c")))
    pids = stage.pids("b", "c")
    stage.reconfigure(one_for_one(child("new"), child("c"), child("b", shutdown=0)))

    assert stage.states() == {"new": "down", "c": "up", "b": "up", "a": "up"}
    assert stage.pids("b", "c") == pids
    assert stage.ask_for("restart_child", "new") == "ok"
    stage.stop()
    assert stage.noted("exit") == ["a1", "b1", "c1", "new1"]
    assert stage.noted("ask") == ["a1", "c1", "new1"]


@case("C64")
def test_a_new_intensity_counts_at_once(stage):
    """The next crash is judged by it."""
    stage.start(one_for_one(child("a"), max_restarts=5))
    stage.crash("a")
    stage.until_up("a2")
    stage.reconfigure(one_for_one(child("a"), max_restarts=1))
    stage.crash("a")
    stage.wait(stage.has_ended, "the end")

    assert stage.tree.end.reason.restarts == 1


@case("C64")
def test_a_change_outlives_its_supervisor(stage):
    """A supervisor that is restarted, alone or with the one above it, is what it was changed to."""
    path = ("outer", "inner")
    stage.start(one_for_one(below("outer", one_for_one(below("inner", one_for_one(child("x")))))))
    stage.reconfigure(one_for_one(child("x"), child("y"), max_restarts=0), path=path)
    stage.kill_supervisor(path)
    stage.until_up("x2", "y1", path=path)
    stage.kill_supervisor(("outer",))
    stage.until_up("x3", "y2", path=path)

    assert stage.states(path) == {"x": "up", "y": "up"}


# --- load -------------------------------------------------------------------------------------


class Eager:
    """A tree whose processes are up at once and obey at once, and nothing else to cost time."""

    def __init__(self, spec):
        self.tree = Tree(spec)
        self.play(self.tree.handle(Begin(), 0.0))

    def play(self, effects):
        """Do what the tree wants until there is nothing left to do."""
        todo = deque(effects)
        while todo:
            match todo.popleft():
                case Launch(ref=ref):
                    todo.extend(self.tree.handle(Up(ref), 0.0))
                case Ask(ref=ref) | Kill(ref=ref):
                    todo.extend(self.tree.handle(ChildExited(ref, Normal(), Ending.NORMAL), 0.0))

    def stop(self):
        """End the tree."""
        self.play(self.tree.handle(Stop("enough", None), 0.0))
        assert self.tree.end is not None


def start_and_stop(number):
    """Start so many static children and end them."""
    Eager(one_for_one(*(child(f"c{n}") for n in range(number)))).stop()


def restart_group(number):
    """Restart a group of so many a few times."""
    eager = Eager(one_for_all(*(child(f"c{n}") for n in range(number))))
    for generation in (1, 2):
        ref = Ref((), "c7", Incarnation(generation))
        eager.play(eager.tree.handle(ChildExited(ref, KILLED, Ending.CRASH), 0.0))
    assert eager.tree.child((), f"c{number - 1}").generation == 3
    eager.stop()


def come_and_go(number):
    """Have so many temporary children that end by themselves, and as many that do not."""
    eager = Eager(dynamic())
    for n in range(2 * number):
        name = f"c{n}"
        spec = child(name, restart="temporary")
        eager.play(eager.tree.handle(StartChild((), spec, None), 0.0))
        if n % 2:
            ref = Ref((), name, Incarnation(1))
            eager.play(eager.tree.handle(ChildExited(ref, KILLED, Ending.CRASH), 0.0))
    assert [one.state for one in eager.tree.which_children()] == [ChildState.UP] * number
    eager.stop()


def lines_of(work):
    """Return how many lines of the engine were run: unlike a time, that is the same every time."""
    count = 0

    def line(_frame, _event, _argument):
        nonlocal count
        count += 1
        return line

    def call(frame, _event, _argument):
        return line if ENGINE in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@case("C65")
@pytest.mark.slow
@pytest.mark.parametrize("play", [start_and_stop, restart_group, come_and_go])
def test_work_grows_with_the_number_of_children(play):
    """Ten times the children are ten times the work, and not a hundred times."""
    few, many = (lines_of(lambda number=number: play(number)) for number in (FEW, MANY))

    assert few > FEW
    assert many / few < MORE_MAX


@case("C66")
@pytest.mark.parametrize("strategy", STATIC)
def test_children_are_listed_in_the_order_of_their_start(stage, strategy):
    """A crash, a restart by hand and a new child leave the order as it is."""
    stage.start(kept(strategy, *(child(name) for name in "dbca")))
    stage.crash("b")
    stage.until_up("b2")
    stage.ask_for("terminate_child", "d")
    stage.ask_for("restart_child", "d")
    stage.ask_for("start_child", child("A"))

    assert list(stage.states()) == ["d", "b", "c", "a", "A"]


@case("C67")
@pytest.mark.parametrize("strategy", ["one_for_one", "dynamic"])
def test_a_slow_start_delays_nobody(stage, strategy):
    """While one child takes its time, another one that crashes is back, and waits for no timer."""
    stage.start(kept(strategy))
    stage.ask_for("start_child", child("quick"))
    slow = stage.call("start_child", child("slow", Life(start_s=9.0), start_timeout=30.0))
    stage.wait(lambda: "slow1" in stage.noted("launch"), "the slow start")
    stage.crash("quick")
    stage.until_up("quick2")
    took_s = stage.note("up", "quick2").at_s - stage.note("exit", "quick1").at_s

    assert took_s == 0.0
    assert slow.answer is None
    assert str(stage.answer(slow).outcome) == "ok"
    assert stage.when("up", "slow1") - stage.when("launch", "slow1") == pytest.approx(9.0)


@case("C71")
def test_one_child_too_many_is_refused(stage):
    """It is an answer of its own; nothing is started and nothing charged, and room is reused."""
    stage.start(dynamic(max_children=2, max_restarts=0))
    outcomes = [stage.ask_for("start_child", child(name)) for name in "abc"]
    stage.ask_for("terminate_child", "a")

    assert outcomes == ["ok", "ok", "max_children"]
    assert stage.noted("launch") == ["a1", "b1"]
    assert stage.ask_for("start_child", child("d")) == "ok"


@case("C72")
@pytest.mark.parametrize("strategy", STATIC)
def test_a_stop_during_the_start_undoes_it(stage, strategy):
    """Who starts is aborted, who was to come never does, who was up is ended in reverse."""
    slow = child("c", Life(start="never"), start_timeout=9.0)
    stage.open(kept(strategy, child("a"), child("b"), slow, child("d")))
    stage.wait(lambda: "c1" in stage.noted("launch"), "the third start")
    call = stage.call("start_child", child("x"))
    took_s = stage.stop()

    assert took_s < 5.0
    assert stage.noted("launch") == ["a1", "b1", "c1"]
    assert stage.noted("exit") == ["c1", "b1", "a1"]
    assert str(call.answer.outcome) == "noproc"


@case("C72")
@pytest.mark.parametrize("make", [one_for_all, rest_for_one])
def test_a_stop_during_a_group_restart_ends_it(stage, make):
    """Nothing is started after a stop, whatever the restart had still to do."""
    slow = Life(stop_s=0.1)
    stage.start(make(child("a"), child("b", slow), child("c", slow)))
    stage.crash("a")
    stage.stop()

    assert stage.noted("launch") == ["a1", "b1", "c1"]
    assert stage.noted("exit") == ["a1", "c1", "b1"]


@case("C72")
@pytest.mark.parametrize("moment_s", [n * 0.25 for n in range(40)])
def test_a_stop_at_any_moment_ends_all(sim, moment_s):
    """Whatever is under way at any moment of a restless life, a stop is the end of it."""
    restless = Life(start_s=0.5, ends_s=1.5, stop_s=0.3)
    slow = Life(start_s=1.0, stop_s=0.7)
    grouped = rest_for_one(
        child("x", restless, restart_delay=(0.5, 2.0)), child("y", slow), max_restarts=2
    )
    sim.open(
        one_for_all(
            child("a", slow),
            below("g", grouped),
            below("d", one_for_one(child("z", restless), child("w", slow))),
            max_restarts=99,
        )
    )
    sim.pass_time(moment_s)
    sim.stop(within_s=1.0)

    assert sim.audit.alive == {}
