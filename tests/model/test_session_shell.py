"""Sessions in the real tree, with whatever may happen between two awaits drawn at random.

Workers come up, hibernate and die when they like, to acquire one takes time or fails, callers stop
and ask, timers go off. In the end everything is stopped. However it went: each session is over, its
end was reported once and last, as the journal has it, nobody waits for it, and nothing is left.
"""

import asyncio
import random
from collections import Counter, defaultdict
from types import SimpleNamespace

import msgspec
import pytest

from cmdc_runtime.errors import CmdcError
from cmdc_runtime.reasons import MaxTurnsExceeded
from cmdc_runtime.wire.frames import ExitNotice, IdleNotice, Started, Terminate
from supervisor.adapters.journal.operations import FindSession, ListDowns
from supervisor.adapters.zygote import ZygoteLost
from supervisor.core.session_phase import Phase
from supervisor.sessions.tree_runtime import TreeRuntime
from tests.unit.supervisor.services import (
    CLIENT,
    NO_PROCESS,
    PID_FIRST,
    PlayedPool,
    PlayedWorker,
    Services,
    begin,
    begun_runtime,
    play,
    session_of,
    settle,
)

STEPS = 150
SESSIONS_MAX = 8
WIND_DOWN_ROUNDS = 400
SIGKILL = 9
NIL = msgspec.Raw(b"\xc0")
RESTARTS = ("permanent", "transient", "temporary")


class ByHand(TreeRuntime):
    """A runtime whose timers go off when they are asked to, earliest first."""

    now_s = 0.0

    def _now_s(self):
        return self.now_s

    def _set(self, timer, delay_s):
        self._timers[timer] = self.now_s + delay_s

    def _cancel(self, timer):
        self._timers.pop(timer, None)

    def _try(self, effect):
        self._perform(effect)  # a bug fails the test

    def go_off(self):
        """Have the next timer go off, if there is one."""
        if self._timers:
            timer = min(self._timers, key=self._timers.get)
            self.now_s = max(self.now_s, self._timers[timer])
            self._due(timer)


class Chancy(PlayedPool):
    """A pool whose worker may come late, or not at all."""

    def __init__(self, chance):
        super().__init__()
        self.chance, self.acquired = chance, 0
        self.living, self.pending = [], []

    async def acquire(self, _is_waiting, *, has_litellm=False):
        drawn = self.chance.random()
        if drawn < 0.3:
            self.pending.append(asyncio.get_running_loop().create_future())
            await self.pending[-1]
        elif drawn > 0.9:
            raise ZygoteLost("it died") if drawn > 0.95 else CmdcError("no")
        self.acquired += 1
        self.living.append(PlayedWorker(PID_FIRST + self.acquired))
        return self.living[-1]

    def release(self, worker):
        self.living.remove(worker)

    def let_all_go_on(self):
        while self.pending:
            self.pending.pop().set_result(None)

    def reap(self, worker, *, crashes):
        """Have a worker end as it was asked to, or of itself."""
        self.living.remove(worker)
        worker.ends(-SIGKILL if crashes or SIGKILL in worker.signals else 0)


def is_ending(worker):
    """Say whether a worker was asked to end, or killed."""
    return SIGKILL in worker.signals or any(isinstance(one, Terminate) for one in worker.sent)


class Watched(Services):
    """Services that count what was reported of each session."""

    def __init__(self, runtime, pool):
        super().__init__(runtime, pool)
        self.ends, self.downs_of = Counter(), defaultdict(list)

    def forget(self, session, reason):
        self.ends[session] += 1
        super().forget(session, reason)

    def notify(self, session, ended):
        self.downs_of[session].append((ended.ref.generation, ended.restarting))
        super().notify(session, ended)


class Play:
    """One game: services, its sessions, and what has been reported of them."""

    def __init__(self, chance):
        self.chance = chance
        self.runtime, self.force = begun_runtime(ByHand), Chancy(chance)
        self.services = Watched(self.runtime, self.force)
        self.sessions, self.parents = [], {}
        self.commands = 0
        self.in_journal = {}
        """Of each session: whether it is over there, and of each Down whether a process follows."""

    @property
    def live(self):
        return [one for one in self.sessions if one.phase is not Phase.ENDED]

    # --- what may happen --------------------------------------------------------------------

    def start(self, parent=None):
        if len(self.live) >= SESSIONS_MAX:
            return
        session = session_of(
            self.services,
            f"s{len(self.sessions)}",
            parent,
            restart=self.chance.choice(RESTARTS),
            shutdown=self.chance.choice([None, 0.0, 5.0]),
            max_restarts=self.chance.choice([0, 1, 3]),
        )
        self.sessions.append(session)
        self.parents[session] = parent
        if parent is not None:
            parent.children.add(session)
        elif self.chance.random() < 0.1:  # of an earlier daemon
            session.incarnation, session.was_up = 3, True
        if self.chance.random() < 0.05:  # it was stopped while it was written down
            session.stop("early", 1.0)
            session.begun(NO_PROCESS)
        else:
            begin(session)

    def child(self):
        parents = [one for one in self.live if one.phase is Phase.UP]
        if parents:
            self.start(self.chance.choice(parents))

    def speak(self, frame):
        if self.force.living:
            worker = self.chance.choice(self.force.living)
            if worker.owner is not None:
                worker.says(frame)

    def up(self):
        self.speak(Started())

    def idle(self):
        self.speak(IdleNotice())

    def die(self):
        if not self.force.living:
            return
        worker = self.chance.choice(self.force.living)
        if worker.owner is not None and (is_ending(worker) or self.chance.random() < 0.4):
            if self.chance.random() < 0.1:
                worker.says(ExitNotice(reason=MaxTurnsExceeded(max_turns=1)))
            self.force.reap(worker, crashes=self.chance.random() < 0.5)

    def stop(self):
        if self.live:
            grace_s = self.chance.choice([0.0, 1.0, 10.0])
            self.chance.choice(self.live).stop(self.chance.choice(["normal", "x"]), grace_s)

    def deliver(self):
        if self.live:
            self.commands += 1
            is_durable = self.chance.random() < 0.5
            session = self.chance.choice(self.live)
            session.deliver(CLIENT, f"c-{self.commands}", NIL, durable=is_durable)

    def answer(self):
        for session in self.live:
            if session.phase is Phase.UP:
                for command_id in list(session.pending._pending):
                    session.reply(command_id, SimpleNamespace(id=command_id))

    def time(self):
        self.runtime.go_off()

    def acquire(self):
        if self.force.pending:
            acquire = self.force.pending.pop(self.chance.randrange(len(self.force.pending)))
            if self.chance.random() < 0.8:
                acquire.set_result(None)
            else:
                acquire.set_exception(ZygoteLost("it died"))

    # --- the end ----------------------------------------------------------------------------

    async def wind_down(self):
        """Stop everything, and have every process do as it is asked."""
        for number in range(WIND_DOWN_ROUNDS):
            self.force.let_all_go_on()
            await settle()
            if not self.live:
                break
            for session in self.live:
                # One that is about to end needs nobody to end it.
                if self.parents[session] is None and session.phase is not Phase.ENDING:
                    session.stop("end", 5.0)
            for worker in [one for one in self.force.living if is_ending(one)]:
                self.force.reap(worker, crashes=False)
            await settle()
            if number % 3 == 2:
                self.runtime.go_off()
        self.force.let_all_go_on()
        await settle()
        journal = self.services.journal
        self.in_journal = {
            one: (
                (await journal.read(FindSession(one.id))).ended_ms is not None,
                [down.restarting for down in await journal.read(ListDowns(one.id, 0, 10_000))],
            )
            for one in self.sessions
        }


MOVES = {
    "start": 2, "child": 2, "up": 4, "idle": 2, "die": 4, "stop": 1, "deliver": 4, "answer": 3,
    "time": 2, "acquire": 3,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(24))
def test_whatever_happens_every_session_ends_once_and_is_reported(seed):
    """One last Down, one answer for each command, and nothing left in the tree's shell."""

    async def scenario():
        chance = random.Random(seed)
        game = Play(chance)
        for _ in range(STEPS):
            (move,) = chance.choices(list(MOVES), weights=list(MOVES.values()))
            getattr(game, move)()
            if chance.random() < 0.3:
                await settle()
            asleep = [one for one in game.live if one.phase is Phase.HIBERNATED]
            assert sum(len(one.pending) for one in asleep) == 0
        await game.wind_down()
        return game

    game = play(scenario)

    assert game.live == []
    assert set(game.services.ends.values()) <= {1}
    for session in game.sessions:
        notices = game.services.downs_of[session]
        assert sorted(set(notices), key=lambda down: (down[0], not down[1])) == notices
        assert [restarting for _, restarting in notices].count(False) == 1
        assert not notices[-1][1]
        assert session.ended.done()
        assert session.started.done()
        assert len(session.pending) == 0
        is_over, downs = game.in_journal[session]
        assert is_over != session.is_parked
        assert downs.count(False) == 1
        assert not downs[-1]
    answers = Counter(frame.id for _, frame in game.services.answers)
    assert answers == Counter(f"c-{number + 1}" for number in range(game.commands))
    runtime = game.runtime
    assert (list(runtime._handlers), runtime._on_end, runtime._timers) == ([()], {}, {})
    assert [worker for worker in game.force.living if not is_ending(worker)] == []
