"""The tree in a real loop: timers go off, child handlers are asked, and inputs wait their turn."""

import asyncio

import pytest

from cmdc_runtime.reasons import RestartIntensityExceeded, Shutdown, Signal
from supervisor.core.tree import children
from supervisor.core.tree.messages import Begin, Ending, Outcome, TimerKind
from supervisor.core.tree.recording import replay
from supervisor.core.tree.specs import ChildSpec, Flags, Strategy, SupervisorSpec
from supervisor.sessions import tree_runtime as runtime_module
from supervisor.sessions.tree_runtime import TreeRuntime, ignored

KILLED = Signal(number=9, name="SIGKILL")
WAIT_S = 10.0
STUBBORN = False


class Scripted:
    """A child handler that does at once what it is asked to, and writes down what it was asked."""

    def __init__(self, *, obeys=True, fails=0):
        self.said = []
        self.obeys, self.fails = obeys, fails
        self.refs = []

    def launch(self, ref):
        self.said.append(("launch", ref.generation))
        self.refs.append(ref)
        if len(self.refs) <= self.fails:
            self.runtime.exited(ref, KILLED, Ending.CRASH)
        else:
            self.runtime.up(ref, 1000 + ref.generation)

    def ask(self, ref, reason):
        self.said.append((f"ask: {reason}", ref.generation))
        if self.obeys:
            self.runtime.exited(ref, Shutdown(detail=reason), Ending.NORMAL)

    def terminate(self, ref):
        self.said.append(("terminate", ref.generation))

    def kill(self, ref, _fail_reason):
        self.said.append(("kill", ref.generation))
        self.runtime.exited(ref, KILLED, Ending.CRASH)

    def on_ended(self, ended):
        restarting = "restarting" if ended.restarting else "gone"
        self.said.append((restarting, ended.ref.generation))


def play(work, handler, *, flags=None, **spec):
    """Return what ``work`` returns, given a runtime of one child with this handler."""

    async def main():
        async with asyncio.timeout(WAIT_S):
            child = ChildSpec(id="a", start=handler, **spec)
            runtime = TreeRuntime(
                SupervisorSpec(flags=flags or Flags(resumes=True), children=(child,)),
                lambda _report: None,
            )
            handler.runtime = runtime
            runtime.begin()
            return await work(runtime)

    return asyncio.run(main())


def test_answer_within_an_effect_is_heard_when_the_step_is_over():
    """A handler that answers at once does not come between a decision and its effects."""

    async def nothing(runtime):
        return runtime.tree.child((), "a").handle

    handler = Scripted(fails=2)
    handle = play(nothing, handler)

    assert handler.said == [
        ("launch", 1),
        ("restarting", 1),
        ("launch", 2),
        ("restarting", 2),
        ("launch", 3),
    ]
    assert handle == 1003


def test_a_back_off_lasts_longer_by_chance():
    """Up to a fifth, and never less than it says: who fell together does not come back so."""

    async def die_twice(runtime):
        runtime._chance = lambda: 1.0
        for _ in range(2):
            runtime.exited(handler.refs[-1], KILLED, Ending.CRASH)
        (timer,) = runtime._timers
        return timer.kind, runtime._timers[timer].when() - asyncio.get_running_loop().time()

    handler = Scripted()
    kind, left_s = play(die_twice, handler, restart_delay=(100.0, 100.0))

    assert kind is TimerKind.DELAY
    assert 119.0 < left_s <= 120.0


def test_rungs_of_an_end_come_by_the_clock():
    """Who does not obey is terminated and then killed, and who waits for it hears of it."""

    async def stop(runtime):
        runtime.stop("enough", 0.1)
        return await runtime.ended

    handler = Scripted(obeys=STUBBORN)
    reason = play(stop, handler)

    assert reason == Shutdown(detail="enough")
    assert handler.said == [
        ("launch", 1),
        ("ask: enough", 1),
        ("terminate", 1),
        ("kill", 1),
        ("gone", 1),
    ]


def test_who_is_gone_is_not_called_unkillable(monkeypatch):
    """However late one hears of it: very many may have ended with it, or the daemon was stopped."""
    monkeypatch.setattr(children, "UNKILLABLE_AFTER_S", 0.01)
    monkeypatch.setattr(runtime_module, "REAP_LOOK_S", 0.01)

    again = asyncio.Event()

    class Slow(Scripted):
        looks = 0

        def launch(self, ref):
            super().launch(ref)
            if ref.generation == 2:
                again.set()

        def kill(self, ref, _fail_reason):
            self.said.append(("kill", ref.generation))

        def is_over(self):
            self.looks += 1
            if self.looks == 3:
                self.runtime.exited(self.refs[-1], KILLED, Ending.CRASH)
            return True

    async def hang(runtime):
        runtime.fail(handler.refs[-1], KILLED)
        await again.wait()

    handler = Slow()
    play(hang, handler)

    assert handler.said == [("launch", 1), ("kill", 1), ("restarting", 1), ("launch", 2)]


def test_back_off_is_waited_for_and_too_many_crashes_end_the_root():
    """The delay comes from the clock; the root says why it gave up."""

    async def wait(runtime):
        return await runtime.ended

    handler = Scripted(fails=9)
    flags = Flags(resumes=True, max_restarts=2, max_seconds=5.0)
    reason = play(wait, handler, flags=flags, restart_delay=(0.01, 0.01))

    assert reason == RestartIntensityExceeded(restarts=2, seconds=5.0, last=KILLED)
    assert [generation for what, generation in handler.said if what == "launch"] == [1, 2, 3]


def test_calls_are_answered_and_supervisors_that_end_are_reported():
    """A dynamic supervisor's child is started, ended and heard of."""

    async def calls(runtime):
        answers, ended = [], []
        below = Scripted()
        below.runtime = runtime
        spec = SupervisorSpec(children=(ChildSpec(id="b", start=below),))
        child = ChildSpec(id="s", start=spec, restart="temporary", shutdown=None)
        group = ChildSpec(
            id="g",
            start=SupervisorSpec(flags=Flags(strategy=Strategy.DYNAMIC)),
            shutdown=None,
        )
        runtime.start_child((), group, ignored)
        runtime.start_child(("g",), child, answers.append, ended.append)
        runtime.terminate_child(("g",), "s", answers.append, "bye", 1.0)
        runtime.start_child(("nowhere",), child, answers.append, ended.append)
        is_over = runtime.ended.done()
        assert ("g", "s") not in runtime._handlers
        return [one.outcome for one in answers], [one.path for one in ended], below.said, is_over

    outcomes, paths, said, is_over = play(calls, Scripted())

    assert outcomes == [Outcome.OK, Outcome.OK, Outcome.NO_PROCESS]
    assert paths == [("g", "s")]
    assert said == [("launch", 1), ("ask: bye", 1), ("gone", 1)]
    assert not is_over


def test_who_asked_for_what_was_refused_hears_nothing_of_the_next_one():
    """It had its answer; a supervisor in the same place later is somebody else's."""

    async def again(runtime):
        refused, ended = [], []
        below = Scripted()
        below.runtime = runtime
        spec = SupervisorSpec(children=(ChildSpec(id="b", start=below),))
        child = ChildSpec(id="s", start=spec, restart="temporary", shutdown=None)
        group = ChildSpec(
            id="g", start=SupervisorSpec(flags=Flags(strategy=Strategy.DYNAMIC)), shutdown=None
        )
        runtime.start_child(("g",), child, ignored, refused.append)
        runtime.start_child((), group, ignored)
        runtime.start_child(("g",), child, ignored)
        runtime.terminate_child(("g",), "s", ended.append, "bye", 1.0)
        return refused, [one.outcome for one in ended]

    assert play(again, Scripted()) == ([], [Outcome.OK])


@pytest.mark.parametrize("grace_s", [None, 5.0])
def test_a_child_that_rests_is_woken(grace_s):
    """By another process; its place was kept. However long it takes, where no time was given."""

    async def rest(runtime):
        answers = []
        runtime.hibernate_child(handler.refs[-1], answers.append, "sleep", 5.0)
        runtime.wake_child(handler.refs[-1], answers.append)
        runtime.terminate_child((), "a", answers.append, "bye", grace_s)
        return [one.outcome for one in answers], live(runtime)

    handler = Scripted()

    assert play(rest, handler) == ([Outcome.OK] * 3, [])
    assert [said for said, _ in handler.said] == [
        *("launch", "ask: sleep", "gone"),
        *("launch", "ask: bye", "gone"),
    ]


def test_a_child_that_rests_has_its_time():
    """It is not terminated at once."""

    async def rest(runtime):
        runtime.hibernate_child(handler.refs[-1], ignored, "sleep", 100.0)
        loop = asyncio.get_running_loop()
        return [runtime._timers[one].when() - loop.time() > 10.0 for one in runtime._timers]

    handler = Scripted(obeys=STUBBORN)

    assert play(rest, handler) == [True, True]
    assert handler.said == [("launch", 1), ("ask: sleep", 1)]


def live(runtime):
    """Return the timers of a runtime that would still go off, and those that it remembers."""
    timers = asyncio.get_running_loop()._scheduled
    return [
        *(one for one in timers if one._callback == runtime._due and not one.cancelled()),
        *runtime._timers,
    ]


def test_no_timer_outlives_what_it_is_for():
    """A more impatient end has timers of its own, in the place of the first ones'."""

    async def stop_twice(runtime):
        runtime.terminate_child((), "a", ignored, "enough", 100.0)
        first = len(live(runtime))
        runtime.terminate_child((), "a", ignored, "enough", 50.0)
        second = len(live(runtime))
        runtime.exited(handler.refs[-1], KILLED, Ending.CRASH)
        return first, second, live(runtime)

    handler = Scripted(obeys=STUBBORN)

    assert play(stop_twice, handler) == (4, 4, [])


def test_a_timer_that_went_off_is_forgotten():
    """There is one for each restart of each session."""

    async def come_back(runtime):
        is_back = asyncio.Event()
        handler.launch = lambda ref: (Scripted.launch(handler, ref), is_back.set())
        runtime.exited(handler.refs[-1], KILLED, Ending.CRASH)
        await is_back.wait()
        return live(runtime)

    handler = Scripted()

    assert play(come_back, handler, restart_delay=(0.01, 0.01)) == []


def test_an_answer_comes_between_no_two_effects_of_a_step():
    """All children of one step are asked before any of them is heard."""
    said = []

    class Named(Scripted):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def ask(self, ref, reason):
            said.append(f"{self.name} is asked")
            super().ask(ref, reason)

        def on_ended(self, ended):
            said.append(f"{self.name} is gone")

    async def stop(runtime):
        group = SupervisorSpec(flags=Flags(strategy=Strategy.DYNAMIC))
        runtime.start_child((), ChildSpec(id="g", start=group, shutdown=None), ignored)
        for name in "bc":
            child = Named(name)
            child.runtime = runtime
            runtime.start_child(("g",), ChildSpec(id=name, start=child), ignored)
        runtime.terminate_child((), "g", ignored, "enough", 5.0)

    play(stop, Scripted())

    assert said == ["b is asked", "c is asked", "b is gone", "c is gone"]


def test_what_the_tree_says_is_reported_and_recorded():
    """Its reports go on, and its inputs can be played again."""
    reports = []

    async def main():
        handler = Scripted()
        spec = SupervisorSpec(children=(ChildSpec(id="a", start=handler),))
        handler.runtime = runtime = TreeRuntime(spec, reports.append)
        runtime.begin()
        runtime.exited(handler.refs[-1], KILLED, Ending.CRASH)
        return runtime.record("why")

    lines = asyncio.run(main())

    assert any(one.reason == KILLED for one in reports)
    assert next(replay(lines)).recorded.input == Begin()


def test_bug_of_one_post_takes_nothing_from_the_others():
    """An effect that raises is logged; those behind it are performed all the same."""

    class Broken(Scripted):
        def on_ended(self, ended):
            super().on_ended(ended)
            raise RuntimeError("a bug")

    async def stop(runtime):
        runtime.stop("enough", 5.0)
        return runtime.ended.done()

    handler = Broken()

    assert play(stop, handler)
    assert handler.said[-1] == ("gone", 1)
