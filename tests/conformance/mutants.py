"""Bugs of the tree's runtime and of a child's handlers, planted one at a time.

Each is a change of the product's own code, and names a test of this folder that it must fail.
"""

import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from unittest import mock

from cmdc_runtime.reasons import Shutdown
from supervisor.core.tree.messages import (
    Ask,
    CancelTimer,
    Ending,
    Kill,
    Launch,
    ProcessEnded,
    Replied,
    SetTimer,
    SupervisorEnded,
    Terminate,
)
from supervisor.core.tree.supervisor import Supervisor
from supervisor.processes import worker
from supervisor.processes.pool import WorkerPool
from supervisor.sessions import tree_runtime
from supervisor.sessions.agent import Agent
from supervisor.sessions.session import Session
from supervisor.sessions.start_attempt import StartAttempt
from supervisor.sessions.tree_runtime import TreeRuntime
from tests.conformance import (
    test_intensity,
    test_monitors,
    test_robustness,
    test_start,
    test_stop,
    test_strategies,
)
from tests.conformance.script import one_for_all

DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug, and the test that has to notice: ``given`` is what that takes beside its stage."""

    name: str
    owner: object
    attribute: str
    replaced: Callable
    """Gets what stands there, and returns what is to stand there."""
    test: Callable
    given: tuple = ()

    @contextmanager
    def planted(self):
        """Have the bug in the product."""
        with mock.patch.object(
            self.owner, self.attribute, self.replaced(getattr(self.owner, self.attribute))
        ):
            yield


def without(kind):
    """Leave an effect out."""

    def replaced(perform):
        def mutated(self, effect):
            if not isinstance(effect, kind):
                perform(self, effect)

        return mutated

    return replaced


def twice(kind):
    """Perform an effect twice."""

    def replaced(perform):
        def mutated(self, effect):
            perform(self, effect)
            if isinstance(effect, kind):
                perform(self, effect)

        return mutated

    return replaced


def too_early(perform):
    """Take a process that is asked to end for ended."""

    def mutated(self, effect):
        perform(self, effect)
        if isinstance(effect, Ask):
            self.exited(effect.ref, Shutdown(detail=effect.reason), Ending.NORMAL)

    return mutated


def late(set_timer):
    """Set each timer a tenth too late."""
    return lambda self, timer, delay_s: set_timer(self, timer, delay_s * 1.1)


def at_once(_take):
    """Take an input in the midst of a step."""

    def mutated(self, given):
        for effect in self._step(given):
            self._try(effect)

    return mutated


def by_time_of_day(asyncio):
    """Have the runtime follow the jumps of the time of day."""
    begun_s = time.time()
    seen = SimpleNamespace(**{name: getattr(asyncio, name) for name in dir(asyncio)})

    def loop():
        real = asyncio.get_running_loop()

        def now_s():
            return real.time() + round((time.time() - begun_s) / DAY_S) * DAY_S

        return SimpleNamespace(time=now_s, call_later=real.call_later)

    seen.get_running_loop = loop
    return seen


def nothing(_was):
    """Do nothing."""
    return lambda *_given, **_more: None


def doubled(was):
    """Do it twice."""

    def mutated(*given):
        was(*given)
        was(*given)

    return mutated


def given_up(ask):
    """Report to the tree the end of a process that was only asked to end."""

    def mutated(self, ref, reason):
        ask(self, ref, reason)
        self._give_up(ref, Shutdown(detail=reason), Ending.NORMAL)

    return mutated


def speechless(conclude):
    """Judge an end without what the process has said of it."""

    def mutated(self, record):
        self.said = None
        return conclude(self, record)

    return mutated


def one_by_one(acquire):
    """Let no process be started while another one starts."""
    busy = set()

    async def mutated(self):
        while any(one._is_awaited() for one in busy):
            await tree_runtime.asyncio.sleep(1.0)  # tidy: of the stage's clock
        busy.add(self)
        await acquire(self)

    return mutated


def kept_bystander(stopped):
    """Start a temporary member of a group again."""

    def mutated(self, child, reason):
        restart = child.spec.restart
        if self._is_to_be_stopped(child) and restart == "temporary":
            object.__setattr__(child.spec, "restart", "permanent")
        stopped(self, child, reason)

    return mutated


ASKED = (test_stop.test_children_end_in_reverse_order, ("one_for_one",))
GROUP = (test_robustness.test_a_stop_during_a_group_restart_ends_it, (one_for_all,))
STUBBORN = (test_stop.test_a_child_that_ignores_is_killed_at_its_grace, ())
DEAF = (test_stop.test_sigterm_ends_who_is_deaf_to_words, ())
BYSTANDER = (test_strategies.test_a_temporary_bystander_is_gone, (one_for_all,))
ONE_DOWN = (test_monitors.test_each_end_has_one_down, ())
FAILING = (test_start.test_starts_fail_in_three_ways, ())
BY_CLOCK = (test_stop.test_a_wall_clock_that_jumps_changes_nothing, ())

MUTANTS = [
    Mutant("ignores Launch", TreeRuntime, "_perform", without(Launch), *ASKED),
    Mutant("ignores Ask", TreeRuntime, "_perform", without(Ask), *ASKED),
    Mutant("ignores Terminate", TreeRuntime, "_perform", without(Terminate), *DEAF),
    Mutant("ignores Kill", TreeRuntime, "_perform", without(Kill), *STUBBORN),
    Mutant("sets no timer", TreeRuntime, "_perform", without(SetTimer), *STUBBORN),
    Mutant("ignores CancelTimer", TreeRuntime, "_perform", without(CancelTimer), *ASKED),
    Mutant("delivers no Down", TreeRuntime, "_perform", without(ProcessEnded), *ONE_DOWN),
    Mutant("drops Replied", TreeRuntime, "_perform", without(Replied), *FAILING),
    Mutant("forgets SupervisorEnded", TreeRuntime, "_perform", without(SupervisorEnded), *ASKED),
    Mutant("launches twice", TreeRuntime, "_perform", twice(Launch), *ASKED),
    Mutant("delivers a Down twice", TreeRuntime, "_perform", twice(ProcessEnded), *ONE_DOWN),
    Mutant("replies twice", TreeRuntime, "_perform", twice(Replied), *FAILING),
    Mutant("starts before the old one is gone", TreeRuntime, "_perform", too_early, *GROUP),
    Mutant("is late by a tenth", TreeRuntime, "_set", late, *STUBBORN),
    Mutant("lets a timer run on", TreeRuntime, "_cancel", nothing, *ASKED),
    Mutant("reads the time of day", tree_runtime, "asyncio", by_time_of_day, *BY_CLOCK),
    Mutant("a process is not asked", Agent, "ask", nothing, *ASKED),
    Mutant("SIGTERM is not sent", Agent, "terminate", nothing, *DEAF),
    Mutant("SIGKILL is not sent", Agent, "kill", nothing, *STUBBORN),
    Mutant("its words do not count", Agent, "_conclude", speechless, *FAILING),
    Mutant("a session asks nobody", Session, "ask", nothing, *ASKED),
    Mutant("an end is reported before it is there", Session, "ask", given_up, *GROUP),
    Mutant("a Down is lost", Session, "on_ended", nothing, *ONE_DOWN),
    Mutant("a Down is doubled", Session, "on_ended", doubled, *ONE_DOWN),
    Mutant("an end is not reported", Session, "process_ended", nothing, *ASKED),
    Mutant("a start is not reported", Session, "process_up", nothing, *ASKED),
    Mutant("nonsense is put up with", WorkerPool, "refused", nothing, *FAILING),
    Mutant("an end is reported twice", TreeRuntime, "exited", doubled, *ONE_DOWN),
    Mutant(
        "starts hold up each other",
        StartAttempt,
        "_acquire",
        one_by_one,
        test_robustness.test_a_slow_start_delays_nobody,
        ("one_for_one",),
    ),
    Mutant("a bystander comes back", Supervisor, "_stopped", kept_bystander, *BYSTANDER),
    Mutant("a bystander is kept", Supervisor, "forget_if_done", nothing, *BYSTANDER),
    Mutant(
        "what is left is not swept",
        worker,
        "sweep",
        lambda _was: lambda *_given: 0,
        test_stop.test_a_killed_child_takes_its_group_with_it,
        (0,),
    ),
    Mutant(
        "back-offs end at once",
        TreeRuntime,
        "_set",
        lambda was: lambda self, timer, _delay_s: was(self, timer, 0.0),
        test_intensity.test_a_restarting_child_is_counted_but_not_active,
    ),
]
