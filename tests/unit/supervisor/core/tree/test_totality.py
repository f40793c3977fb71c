"""Whatever comes in whatever state: it is defined, and nothing that must hold is broken.

Each scene brings the child ``b`` of three siblings into one state; then one input is given, and the
tree is ended. The audit of the stage looks at every step: no two processes of one child, no start
after a stop, each generation one more, each end reported once, no timer left.
"""

import contextlib
import itertools
import random

import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.ids import Incarnation
from supervisor.core.tree.children import GroupStage
from supervisor.core.tree.messages import (
    UNKILLABLE_AFTER_S,
    Begin,
    ChildExited,
    ChildState,
    Due,
    Ending,
    Ignored,
    Ref,
    Stop,
    SupervisorPhase,
    Timer,
    TimerKind,
    Up,
)
from supervisor.core.tree.specs import Strategy
from tests.conformance.script import ENDS, KILLED, Life, below, child, dynamic, kept, one_for_one
from tests.conformance.sim_stage import SimStage

STUCK = Life(stop="ignore", killable=False)
SLOW = Life(), Life(start="never", stop="ignore")
ALIVE = {ChildState.STARTING, ChildState.UP, ChildState.STOPPING}


class Recorder(SimStage):
    """A stage that knows all its calls."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def call(self, name, *given, path=(), **more):
        call = super().call(name, *given, path=path, **more)
        self.calls.append(call)
        return call

    def finish(self):
        """End whatever is left, and check that everybody was answered."""
        if not self.has_ended():
            self.stop(within_s=3.0)
        self.release()
        self.audit.is_over()
        assert [call.name for call in self.calls if call.answer is None] == []


def siblings(sim, strategy, middle):
    """Start three children, of which the one in the middle is the point."""
    sim.start(kept(strategy, max_restarts=9))
    for spec in (child("a"), middle, child("c")):
        sim.call("start_child", spec)
        sim.settle()


def starting(sim, strategy):
    siblings(sim, strategy, child("b", *SLOW, start_timeout=9.0))
    sim.crash("b")
    sim.settle()


def up(sim, strategy):
    siblings(sim, strategy, child("b"))


def stopping(sim, strategy):
    siblings(sim, strategy, child("b", Life(stop="ignore"), shutdown=2.0))
    sim.call("terminate_child", "b")


def restarting(sim, strategy):
    siblings(sim, strategy, child("b", restart_delay=(5.0, 5.0)))
    sim.crash("b")
    sim.settle()
    sim.crash("b")
    sim.settle()


def down(sim, strategy):
    siblings(sim, strategy, child("b"))
    sim.call("hibernate_child", "b", stop=Stop())
    sim.settle()


def unkillable(sim, strategy):
    siblings(sim, strategy, child("b", STUCK, shutdown=0))
    sim.call("terminate_child", "b")
    sim.pass_time(UNKILLABLE_AFTER_S)


SCENES = {
    ChildState.STARTING: starting,
    ChildState.UP: up,
    ChildState.STOPPING: stopping,
    ChildState.RESTARTING: restarting,
    ChildState.DOWN: down,
    ChildState.UNKILLABLE: unkillable,
}


def scene(state, strategy):
    """Return a stage on which ``b`` is in a state."""
    sim = Recorder()
    SCENES[state](sim, strategy)
    assert sim.view("b").state is state
    return sim


def going_off(kind):
    """Return the input of a timer that goes off, whether it was set or is stale."""

    def give(sim):
        supervisor = sim.tree._supervisors[()]
        is_set = kind in supervisor.children["b"].timers
        if not is_set:
            supervisor.children["b"].timers.add(kind)
        if kind is TimerKind.UNKILLABLE and ("b",) in sim.audit.alive:
            sim.process_of("b").is_killed = True  # it goes off behind a SIGKILL alone
        timer = Timer((), "b", kind)
        sim._cancel(timer)
        sim.perform(sim.tree.handle(Due(timer), sim.now()))

    return give


def ending_as(how):
    """Return the input of an end, which is one more report where there is no process."""

    def give(sim):
        place = ("b",)
        if place in sim.audit.alive:
            sim.order(sim.process_of("b"), how)
            sim.settle()
        else:
            ref = Ref((), "b", sim.view("b").generation)
            ending = Ending.FINAL if how == "chosen" else Ending.CRASH
            sim.perform(sim.tree.handle(ChildExited(ref, ENDS[how][2], ending), sim.now()))

    return give


def ignoring(sim):
    if ("b",) in sim.audit.alive:
        process = sim.process_of("b")
        process.has_ignored = sim.view("b").state is not ChildState.UP
        sim.order(process, "normal")
        sim.settle()
    else:
        ref = Ref((), "b", sim.view("b").generation)
        sim.perform(sim.tree.handle(Ignored(ref), sim.now()))


def crashing_sibling(sim):
    if ("a",) in sim.audit.alive:
        sim.crash("a")


def saying_up(generation=0):
    def give(sim):
        known = generation or sim.view("b").generation
        sim.perform(sim.tree.handle(Up(Ref((), "b", Incarnation(known)), "again"), sim.now()))

    return give


def calling(name, *given, **more):
    return lambda sim: sim.call(name, *given, **more)


INPUTS = {
    **{f"timer {kind}": going_off(kind) for kind in TimerKind},
    **{f"exited {how}": ending_as(how) for how in ("normal", "kill", "chosen")},
    "ignored": ignoring,
    "up": saying_up(),
    "up of another": saying_up(77),
    "start_child": calling("start_child", child("b")),
    "start_child of another": calling("start_child", child("x")),
    "start_child of a supervisor": calling("start_child", below("s", one_for_one(child("y")))),
    "terminate_child": calling("terminate_child", "b"),
    "terminate_child in the past": calling("terminate_child", "b", stop=Stop("now", 0.0)),
    "hibernate_child": calling("hibernate_child", "b", stop=Stop("rest", 1e6)),
    "restart_child": calling("restart_child", "b"),
    "wake_child": calling("wake_child", "b"),
    "delete_child": calling("delete_child", "b"),
    "crash of a sibling": crashing_sibling,
    "kill": lambda sim: sim.kill_supervisor(),
    "stop": lambda sim: sim.begin_stop(),
    "stop in the past": lambda sim: sim.begin_stop(within_s=-1.0),
    "begin": lambda sim: sim.perform(sim.tree.handle(Begin(), sim.now())),
}
"""Everything that a tree is given; ``reconfigure`` is below, since it has its own rules."""


@contextlib.contextmanager
def cell(*names):
    """Have whatever fails name the pair that it is about."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the cell {' / '.join(names)}")
        raise


@pytest.mark.parametrize("state", ChildState)
def test_every_input_in_a_state_is_defined(state):
    """Under each strategy it raises nothing, breaks nothing, and the tree can still be ended."""
    for strategy, name in itertools.product(Strategy, INPUTS):
        with cell(strategy, name):
            sim = scene(state, strategy)
            INPUTS[name](sim)
            check(sim)
            sim.pass_time(0.3)
            check(sim)
            sim.finish()


@pytest.mark.parametrize("state", ChildState)
def test_a_change_in_every_state_is_defined(state):
    """Other flags and another order hold from the next step on, whatever is under way."""
    for strategy in ("one_for_one", "one_for_all", "rest_for_one"):
        with cell(strategy):
            sim = scene(state, strategy)
            other = "one_for_all" if strategy == "one_for_one" else "one_for_one"
            sim.reconfigure(kept(other, child("c"), child("b", restart="transient"), child("new")))
            check(sim)
            sim.pass_time(7.0)
            check(sim)
            sim.finish()


# --- long walks ---------------------------------------------------------------------------------

NAMES = "abcd"
STEPS = 150


def some_life(chance):
    return Life(
        start=chance.choice(["up"] * 8 + ["ignore", "raise", "exit", "never"]),
        start_s=chance.choice([0.0, 0.0, 0.5, 2.0]),
        end=chance.choice(list(ENDS)),
        ends_s=chance.choice([None, None, 0.25, 3.0]),
        stop=chance.choice(["obey", "obey", "ignore", "deaf", "exception"]),
        stop_s=chance.choice([0.0, 0.3, 2.0]),
        killable=chance.random() > 0.05,
    )


def some_child(chance, name, flags, depth):
    restart = chance.choice(["permanent", "transient", "temporary"])
    may_matter = str(flags.auto_shutdown) != "never" and restart != "permanent"
    common = {
        "restart": restart,
        "significant": may_matter and chance.random() < 0.5,
        "restart_delay": chance.choice([(0.0, 0.0), (0.5, 2.0)]),
    }
    if depth < 2 and chance.random() < 0.3:
        return below(name.upper(), some_supervisor(chance, depth + 1), **common)
    lives = [some_life(chance) for _ in range(chance.randint(1, 4))]
    grace_s = chance.choice([0, 1.0, 5.0, None])
    return child(name, *lives, shutdown=grace_s, start_timeout=1.0, **common)


def some_supervisor(chance, depth=0):
    if chance.random() < 0.2:
        return dynamic(max_restarts=3, max_children=chance.choice([None, 2]))
    empty = kept(
        chance.choice(["one_for_one", "one_for_all", "rest_for_one"]),
        max_restarts=chance.choice([0, 3, 30]),
        auto_shutdown=chance.choice(["never", "never", "any_significant", "all_significant"]),
        resumes=chance.random() < 0.2,
    )
    count = chance.randint(1, len(NAMES))
    children = (some_child(chance, name, empty.flags, depth) for name in NAMES[:count])
    return type(empty)(flags=empty.flags, children=tuple(children))


def some_step(sim, chance):
    """Do one thing to a tree, at random."""
    path = chance.choice(list(sim.tree._supervisors))
    flags = sim.tree._supervisors[path].flags
    names = list(sim.states(path)) + list(NAMES[:1])
    name = chance.choice(names)
    stop = Stop("asked", sim.now() + chance.choice([-1.0, 0.0, 0.5, 3.0]))
    steps = [
        *[lambda: sim.pass_time(chance.choice([0.0, 0.01, 0.3, 1.0, 6.0]))] * 5,
        *[lambda: end_somebody(sim, chance)] * 4,
        *[lambda: sim.call("start_child", some_child(chance, "e", flags, len(path)), path=path)]
        * 2,
        *[lambda: sim.call("terminate_child", name, path=path, stop=stop)] * 2,
        lambda: sim.call("terminate_child", name, path=path),
        lambda: sim.call("restart_child", name, path=path),
        lambda: sim.call("wake_child", name, path=path),
        lambda: sim.call("delete_child", name, path=path),
        lambda: sim.call("hibernate_child", name, path=path, stop=stop),
        lambda: sim.kill_supervisor(path),
        lambda: sim.reconfigure(some_supervisor(chance, len(path)), path),
        sim.release,
    ]
    with contextlib.suppress(InvalidOptions):  # a change or a child that can't be
        chance.choice(steps)()


def end_somebody(sim, chance):
    if sim.audit.alive:
        *path, name = chance.choice(list(sim.audit.alive))
        sim.end(name, chance.choice(list(ENDS)), path=tuple(path))


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_broken_on_a_long_walk(seed):
    """Trees of any shape are given anything, and hold what they must; nobody is forgotten."""
    chance = random.Random(seed)
    sim = Recorder()
    sim.late_s = {kind: chance.choice([0.0, 0.0, 0.7]) for kind in TimerKind}
    spec = some_supervisor(chance)
    sim.open(type(spec)(flags=spec.flags, children=spec.children))
    for _ in range(STEPS):
        if sim.has_ended():
            break
        some_step(sim, chance)
        check(sim)

    sim.finish()


# --- what holds between any two steps -----------------------------------------------------------


def check(sim):
    """Every child is where its process is, and whatever waits is waited for by somebody."""
    for path, supervisor in sim.tree._supervisors.items():
        for name, one in supervisor.children.items():
            check_process(sim, supervisor, (*path, name), one)
            check_wait(supervisor, name, one)
        check_work(supervisor)
    for timer in sim.audit.timers:
        assert timer.kind in sim.tree._supervisors[timer.path].children[timer.child].timers, timer


def check_process(sim, supervisor, place, one):
    if one.spec.type == "worker":
        process = sim.audit.alive.get(place)
        found = None if process is None else process.generation
        has_one = one.state in ALIVE | {ChildState.UNKILLABLE}
        assert found == (one.generation if has_one else None), (place, one.state)
    else:
        assert (place[-1] in supervisor.below) == (one.state in ALIVE), (place, one.state)


def check_wait(supervisor, name, one):
    if one.state is ChildState.RESTARTING:
        work = supervisor.work
        is_next = work is not None and (work.failed == name or name in work.to_start)
        is_put_off = supervisor.put_off == name and work is not None
        waits = TimerKind.DELAY in one.timers or one.unjudged is not None
        assert waits or is_next or is_put_off, f"{name} is forgotten"
    assert not one.starts or one.state in {ChildState.STARTING, ChildState.STOPPING}
    assert not one.ends or one.state is ChildState.STOPPING


def check_work(supervisor):
    work = supervisor.work
    assert not (supervisor._waiting and not supervisor.is_busy), "calls wait for nothing"
    if supervisor.phase is SupervisorPhase.STOPPING:
        assert supervisor._to_stop[-1].state in ALIVE
    if work is None:
        return
    assert supervisor.phase in {SupervisorPhase.STARTING, SupervisorPhase.UP}
    if work.stage is GroupStage.STARTING:
        assert work.current.state is ChildState.STARTING
    else:
        assert supervisor.children[work.to_end[-1]].state is ChildState.STOPPING


def test_the_audit_notices_what_is_forgotten():
    """The checks above do find what they look for."""
    sim = scene(ChildState.RESTARTING, "one_for_one")
    sim.tree._supervisors[()].children["b"].timers.clear()
    with pytest.raises(AssertionError, match="b is forgotten"):
        check(sim)

    assert sim.down("b2").reason == KILLED
