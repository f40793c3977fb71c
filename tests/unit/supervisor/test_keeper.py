"""The tree in a real loop: its timers go off, its posts are asked, and inputs wait their turn."""

import asyncio

from cmdc_runtime.reasons import RestartIntensityExceeded, Shutdown, Signal
from supervisor import keeper as keeper_module
from supervisor.core.tree import roster
from supervisor.core.tree.specs import ChildSpec, Flags, Strategy, SupervisorSpec
from supervisor.core.tree.words import Ending, Kind, Outcome
from supervisor.keeper import Keeper, unheeded

KILLED = Signal(number=9, name="SIGKILL")
WAIT_S = 10.0
STUBBORN = False


class Scripted:
    """A post that does at once what it is told to, and writes down what it was asked."""

    def __init__(self, *, obeys=True, fails=0):
        self.said = []
        self.obeys, self.fails = obeys, fails
        self.refs = []

    def launch(self, ref):
        self.said.append(("launch", ref.generation))
        self.refs.append(ref)
        if len(self.refs) <= self.fails:
            self.keeper.exited(ref, KILLED, Ending.CRASH)
        else:
            self.keeper.up(ref, 1000 + ref.generation)

    def ask(self, ref, reason):
        self.said.append((f"ask: {reason}", ref.generation))
        if self.obeys:
            self.keeper.exited(ref, Shutdown(detail=reason), Ending.NORMAL)

    def terminate(self, ref):
        self.said.append(("terminate", ref.generation))

    def kill(self, ref, _blamed):
        self.said.append(("kill", ref.generation))
        self.keeper.exited(ref, KILLED, Ending.CRASH)

    def departed(self, departed):
        restarting = "restarting" if departed.restarting else "gone"
        self.said.append((restarting, departed.ref.generation))


def play(work, post, *, flags=None, **spec):
    """Return what ``work`` returns, given a keeper of one child with this post."""

    async def main():
        async with asyncio.timeout(WAIT_S):
            child = ChildSpec(id="a", start=post, **spec)
            keeper = Keeper(
                SupervisorSpec(flags=flags or Flags(resumes=True), children=(child,)),
                lambda _report: None,
            )
            post.keeper = keeper
            keeper.begin()
            return await work(keeper)

    return asyncio.run(main())


def test_answer_within_an_effect_is_heard_when_the_step_is_over():
    """A post that answers at once does not come between a decision and its effects."""

    async def nothing(keeper):
        return keeper.tree.child((), "a").handle

    post = Scripted(fails=2)
    handle = play(nothing, post)

    assert post.said == [
        ("launch", 1),
        ("restarting", 1),
        ("launch", 2),
        ("restarting", 2),
        ("launch", 3),
    ]
    assert handle == 1003


def test_a_back_off_lasts_longer_by_chance():
    """Up to a fifth, and never less than it says: who fell together does not come back so."""

    async def die_twice(keeper):
        keeper._chance = lambda: 1.0
        for _ in range(2):
            keeper.exited(post.refs[-1], KILLED, Ending.CRASH)
        (timer,) = keeper._timers
        return timer.kind, keeper._timers[timer].when() - asyncio.get_running_loop().time()

    post = Scripted()
    kind, left_s = play(die_twice, post, restart_delay=(100.0, 100.0))

    assert kind is Kind.DELAY
    assert 119.0 < left_s <= 120.0


def test_rungs_of_an_end_come_by_the_clock():
    """Who does not obey is terminated and then killed, and who waits for it is told."""

    async def stop(keeper):
        keeper.stop("enough", 0.1)
        return await keeper.ended

    post = Scripted(obeys=STUBBORN)
    reason = play(stop, post)

    assert reason == Shutdown(detail="enough")
    assert post.said == [
        ("launch", 1),
        ("ask: enough", 1),
        ("terminate", 1),
        ("kill", 1),
        ("gone", 1),
    ]


def test_who_is_gone_is_not_called_unkillable(monkeypatch):
    """However late its end is told: very many may have ended with it, or the daemon was stopped."""
    monkeypatch.setattr(roster, "UNKILLABLE_AFTER_S", 0.01)
    monkeypatch.setattr(keeper_module, "BURIAL_LOOK_S", 0.01)

    again = asyncio.Event()

    class Slow(Scripted):
        looks = 0

        def launch(self, ref):
            super().launch(ref)
            if ref.generation == 2:
                again.set()

        def kill(self, ref, _blamed):
            self.said.append(("kill", ref.generation))

        def is_over(self):
            self.looks += 1
            if self.looks == 3:
                self.keeper.exited(self.refs[-1], KILLED, Ending.CRASH)
            return True

    async def hang(keeper):
        keeper.condemn(post.refs[-1], KILLED)
        await again.wait()

    post = Slow()
    play(hang, post)

    assert post.said == [("launch", 1), ("kill", 1), ("restarting", 1), ("launch", 2)]


def test_back_off_is_waited_for_and_too_many_crashes_end_the_root():
    """The delay comes from the clock; the root says why it gave up."""

    async def wait(keeper):
        return await keeper.ended

    post = Scripted(fails=9)
    flags = Flags(resumes=True, max_restarts=2, max_seconds=5.0)
    reason = play(wait, post, flags=flags, restart_delay=(0.01, 0.01))

    assert reason == RestartIntensityExceeded(restarts=2, seconds=5.0, last=KILLED)
    assert [generation for what, generation in post.said if what == "launch"] == [1, 2, 3]


def test_calls_are_answered_and_supervisors_that_end_are_told():
    """A dynamic supervisor's child is started, ended and heard of."""

    async def calls(keeper):
        answers, ended = [], []
        below = Scripted()
        below.keeper = keeper
        spec = SupervisorSpec(children=(ChildSpec(id="b", start=below),))
        child = ChildSpec(id="s", start=spec, restart="temporary", shutdown=None)
        group = ChildSpec(
            id="g",
            start=SupervisorSpec(flags=Flags(strategy=Strategy.DYNAMIC)),
            shutdown=None,
        )
        keeper.start_child((), group, unheeded)
        keeper.start_child(("g",), child, answers.append, ended.append)
        keeper.terminate_child(("g",), "s", answers.append, "bye", 1.0)
        keeper.start_child(("nowhere",), child, answers.append, ended.append)
        return [one.outcome for one in answers], [one.path for one in ended], below.said

    outcomes, paths, said = play(calls, Scripted())

    assert outcomes == [Outcome.OK, Outcome.OK, Outcome.NO_PROCESS]
    assert paths == [("g", "s")]
    assert said == [("launch", 1), ("ask: bye", 1), ("gone", 1)]


def test_bug_of_one_post_takes_nothing_from_the_others():
    """An effect that raises is logged; those behind it are performed all the same."""

    class Broken(Scripted):
        def departed(self, departed):
            super().departed(departed)
            raise RuntimeError("a bug")

    async def stop(keeper):
        keeper.stop("enough", 5.0)
        return keeper.ended.done()

    post = Broken()

    assert play(stop, post)
    assert post.said[-1] == ("gone", 1)
