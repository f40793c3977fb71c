"""The supervision engine beside a small ``supervisor`` after OTP's contract, input by input.

Specifications and moves take their numbers from ``choose``, which is hypothesis where a failure is
to be made small, and a seed where many lives are to be played. To add a move: a function and its
row in ``MOVES``.

``SUPERVISION_STEPS=1000000 pytest --timeout 0`` plays as many inputs from ``SUPERVISION_SEED``; an
idle machine needs a minute.
"""

import os
from dataclasses import replace
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from cmdc_runtime.ids import Incarnation
from cmdc_runtime.reasons import Exception as Raised
from cmdc_runtime.reasons import MaxTurnsExceeded, Normal, Shutdown
from supervisor.core.tree.messages import Ending, Timer, TimerKind
from supervisor.core.tree.specs import AutoShutdown, ChildSpec, Flags, Strategy, SupervisorSpec
from tests.model.supervision_pair import KILLED, Pair

pytestmark = pytest.mark.slow

# fmt: off
ENDS = (
    (KILLED,                                   Ending.CRASH),
    (Raised(type="RuntimeError", message="x"), Ending.CRASH),
    (Normal(),                                 Ending.NORMAL),
    (Shutdown(detail="planned"),               Ending.NORMAL),
    (MaxTurnsExceeded(max_turns=7),            Ending.FINAL),
)
# fmt: on
"""How a process ends, as it likes."""
NUMBERS = st.lists(st.integers(0, 2**10), max_size=30)
MOVES_MADE = (10, 80)
"""In one life: at least, and fewer than."""
STEPS = int(os.environ.get("SUPERVISION_STEPS", "50000"))
SEED = os.environ.get("SUPERVISION_SEED", "1")


# --- specifications ---------------------------------------------------------------------------


def pick_one(choose, options):
    """Return one of them."""
    return options[choose(len(options))]


def a_supervisor(choose, depth):
    """Return a random supervisor: every strategy, restart type and intensity."""
    is_dynamic = depth > 1 and choose(4) == 0
    auto = AutoShutdown.NEVER if is_dynamic else pick_one(choose, list(AutoShutdown))
    flags = Flags(
        strategy=Strategy.DYNAMIC if is_dynamic else pick_one(choose, list(Strategy)[:3]),
        max_restarts=pick_one(choose, (3, 0, 1, 10)),
        max_seconds=pick_one(choose, (4.0, 1.0)),
        auto_shutdown=auto,
        max_children=pick_one(choose, (None, 2)) if is_dynamic else None,
        resumes=choose(5) == 1,
    )
    if is_dynamic:
        return SupervisorSpec(flags=flags)
    names = "abcd"[: 1 + choose(4)]
    return SupervisorSpec(
        flags=flags, children=tuple(a_child(choose, name, flags, depth) for name in names)
    )


def a_child(choose, name, flags, depth):
    restart = pick_one(choose, ("permanent", "transient", "temporary"))
    may_matter = flags.auto_shutdown is not AutoShutdown.NEVER and restart != "permanent"
    is_tree = depth < 3 and choose(4) == 1
    return ChildSpec(
        id=name,
        start=a_supervisor(choose, depth + 1) if is_tree else "handler",
        restart=restart,
        shutdown=pick_one(choose, (4.0, 0.0, None)),
        significant=may_matter and choose(2) == 1,
        restart_delay=pick_one(choose, ((0.0, 0.0), (0.5, 2.0))),
        start_timeout=None if is_tree else pick_one(choose, (None, 2.0)),
    )


# --- moves: what may happen; each takes numbers from ``choose`` --------------------------------


def get_up(pair, choose):
    """Have a process be ready, now and then one that was before or is to end."""
    starting = [ref for ref in pair.live if pair.state_of(ref) == "starting"]
    refs = list(pair.live) if choose(8) == 1 else starting
    if refs:
        pair.up(pick_one(choose, refs))


def ignore(pair, choose):
    """Have a process say that it does not want to run, in time or too late."""
    ref = pick_one(choose, list(pair.live) or [None])
    if (
        ref is not None
        and ref not in pair.killed
        and pair.state_of(ref) in ("starting", "stopping")
    ):
        pair.ignore(ref)


def end(pair, choose):
    """Have a process end, whatever it was doing."""
    if pair.live:
        pair.exit(pick_one(choose, list(pair.live)), pick_one(choose, ENDS))


def burst(pair, choose):
    """Have several end at one instant."""
    for ref in [one for one in pair.live if choose(2)]:
        pair.exit(ref, pick_one(choose, ENDS))


def calm(pair, choose):
    """Have everything that is under way come to its end."""
    for _ in range(50):
        pending = [ref for ref in pair.live if pair.state_of(ref) in ("starting", "stopping")]
        if not pending:
            return
        if pair.state_of(pending[0]) == "starting":
            pair.up(pending[0])
        else:
            pair.exit(pending[0], (Shutdown(), Ending.NORMAL))


def late_news(pair, choose):
    """Report once more the end of a process, which may be of long ago."""
    if pair.old:
        ref = pick_one(choose, pair.old[-5:])
        pair.exit_again(ref, pick_one(choose, ENDS))


def wait(pair, choose):
    pair.pass_time(pick_one(choose, (0.25, 0.5, 1.0, 4.0, 12.0)))


def stray_timer(pair, choose):
    pair.stray(Timer(*pick_one(choose, pair.places), pick_one(choose, list(TimerKind))))


def terminate(pair, choose):
    grace = pick_one(choose, (None, 0.0, 2.0))
    deadline = None if grace is None else pair.now + grace
    pair.call("terminate_child", *pick_one(choose, pair.places), deadline)


def rest(pair, choose):
    grace = pick_one(choose, (None, 0.0, 2.0))
    deadline = None if grace is None else pair.now + grace
    pair.call("hibernate_child", *pick_one(choose, pair.places), deadline)


def restart(pair, choose):
    pair.call("restart_child", *pick_one(choose, pair.places))


def wake(pair, choose):
    pair.call("wake_child", *pick_one(choose, pair.places))


def delete(pair, choose):
    pair.call("delete_child", *pick_one(choose, pair.places))


def add(pair, choose):
    """Add a child, now and then one whose id is taken."""
    path = pick_one(choose, pair.hosts)
    spec = a_child(choose, "x", Flags(), 2)
    is_tree = isinstance(spec.start, SupervisorSpec)
    name = f"n{pair.calls}" if is_tree or choose(3) else pick_one(choose, pair.places)[1]
    if any((path, name) == key for _, key in pair.audit.calls.values()):
        return
    generation = Incarnation(pair.audit.generation((path, name)))
    pair.start_child(path, replace(spec, id=name, generation=generation))


def reconfigure(pair, choose):
    """Change how a supervisor keeps its children; while nothing is under way also who and where."""
    path = pick_one(choose, pair.hosts)
    boss = pair.otp.bosses.get(path)
    if boss is None or boss.phase == "stopping" or boss.dynamic:
        return
    flags = replace(boss.flags, max_restarts=pick_one(choose, (3, 0, 10)))
    children = [kid.spec for kid in boss.kids.values() if kid.spec.start is not None]
    if not boss.busy and all(kid.state in ("up", "down") for kid in boss.kids.values()):
        flags = replace(flags, strategy=pick_one(choose, list(Strategy)[:3]))
        children = children[choose(2) :][:: pick_one(choose, (1, -1))]
        if "m" not in boss.kids and choose(2):
            children.append(a_child(choose, "m", Flags(), 3))
    pair.reconfigure(path, SupervisorSpec(flags=flags, children=tuple(children)))


def stop(pair, choose):
    if choose(2):
        pair.stop(pick_one(choose, (None, 0.0, 5.0)))


def kill(pair, choose):
    if choose(2):
        pair.kill(pick_one(choose, pair.hosts))


MOVES = {
    get_up: 10,
    end: 6,
    calm: 4,
    wait: 6,
    add: 3,
    burst: 2,
    terminate: 2,
    restart: 1,
    wake: 1,
    rest: 1,
    delete: 1,
    reconfigure: 1,
    ignore: 1,
    late_news: 1,
    stray_timer: 1,
    stop: 2,
    kill: 1,
}
"""How often each is made, in parts, where nothing chooses better."""


def life(seed):
    """Play the random life of a seed and return how many inputs it had."""
    chance = Random(seed)
    try:
        pair = Pair(a_supervisor(chance.randrange, 1))
        moves = chance.choices(list(MOVES), list(MOVES.values()), k=chance.randrange(*MOVES_MADE))
        for move in moves:
            move(pair, chance.randrange)
        pair.finish()
    except Exception as error:
        error.add_note(f"played by life({seed!r})")
        raise
    return pair.steps


def test_engine_and_reference_decide_alike_in_many_lives():
    """As many inputs as are asked for, in random lives: nothing is decided otherwise."""
    steps, number = 0, 0
    while steps < STEPS:
        number += 1
        steps += life(f"{SEED}/{number}")

    assert steps >= STEPS


class Machine(RuleBasedStateMachine):
    """The same moves, chosen so that a failure becomes small."""

    pair = None

    @initialize(numbers=NUMBERS)
    def begin(self, numbers):
        self.pair = Pair(a_supervisor(chooser(numbers), 1))

    def teardown(self):
        if self.pair is not None:
            self.pair.finish()


def chooser(numbers):
    """Return ``choose``, which takes one number after the other, and 0 when there are no more."""
    left = iter(numbers)
    return lambda bound: next(left, 0) % bound


def as_rule(move):
    """Return a rule that makes a move."""

    def made(self, numbers):
        move(self.pair, chooser(numbers))

    made.__name__ = move.__name__
    return rule(numbers=NUMBERS)(made)


for _move in MOVES:
    setattr(Machine, _move.__name__, as_rule(_move))

TestEngineAndReference = Machine.TestCase
TestEngineAndReference.settings = settings(max_examples=100, stateful_step_count=40)
