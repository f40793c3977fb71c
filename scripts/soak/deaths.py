"""The last kill of each life, and the deaths of the daemon: a round of lives at a time.

A life that has come to rest waits here. When a round is full the agents of all who wait are killed,
and the daemon with them: some of the agents before it, the others while nobody watches over them.
So all that the next daemon knows of these sessions is what was written down. The lives that run
then are hit in the middle; some of their agents die with the daemon. Where a plan can do it, it is
one of them that has the daemon die, at a write.
"""

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random
from typing import Final

from cmdc_runtime.faults import FaultStep
from scripts.soak.chance import dice
from scripts.soak.house import House
from scripts.soak.life import Life
from supervisor.processes.worker import BOTH, DAEMON

AT_A_WRITE: Final = (
    FaultStep("append.*tool_started*.before", 1, BOTH),
    FaultStep("append.*outcome*.before", 1, BOTH),
    FaultStep("append.*said*.before", 1, BOTH),
    FaultStep("accept.before", 1, BOTH),
    FaultStep("accept.after", 1, BOTH),
    FaultStep("append.*.after", 1, BOTH),
    FaultStep("append.*.after", 1, DAEMON),
)
"""Deaths of the daemon, mostly with the agent whose write it is. One that lives on cannot know that
it is stored, and sends it again."""
AT_A_WRITE_SHARE: Final = 0.7
"""Of deaths that a write is waited for, where lives run."""
AT_A_WRITE_S: Final = 1.0
"""For one of them to come there; then the daemon is killed wherever it is."""
BEFORE_SHARE: Final = 0.5
"""Of the agents of lives at rest that are killed before the daemon."""
TOGETHER_SHARE: Final = 0.4
"""Of the agents of running lives that die with the daemon."""


@dataclass(slots=True)
class Deaths:
    """Kills whoever waits, with the daemon, whenever there are enough of them.

    ``living`` are all lives under way. ``is_last`` is set when no other life will come.
    """

    house: House
    seed: int
    every: int
    living: Collection[Life]
    counts: Counter[str]
    is_last: bool = False
    is_down: bool = False
    _waiting: dict[Life, asyncio.Future[None]] = field(default_factory=dict)
    _is_due: asyncio.Event = field(default_factory=asyncio.Event)
    _number: int = 0

    async def last_kill(self, life: Life) -> None:
        """Return when the agent of a life at rest, and the daemon, were killed since."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[life] = over
        self.look()
        await over

    def look(self) -> None:
        """See whether a round is full: called when a life comes or goes."""
        waiting = len(self._waiting)
        if waiting and (waiting >= self.every or (self.is_last and waiting == len(self.living))):
            self._is_due.set()

    async def run(self) -> None:
        """Play round after round, until cancelled."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            self._number += 1
            await self._play(dice(self.seed, "daemon", self._number))
            self.look()

    async def _play(self, draw: Random) -> None:
        round_, self._waiting = self._waiting, {}
        running = [life for life in self.living if life not in round_]
        first = {life.plan.name for life in round_ if draw.random() < BEFORE_SHARE}
        await asyncio.to_thread(self.house.kill_agents, first)
        if running and draw.random() < AT_A_WRITE_SHARE:
            await self._die_at_a_write(running, draw.choice(AT_A_WRITE))
        self.is_down = True
        for life in self.living:
            life.daemon_died()
        await asyncio.to_thread(self.house.kill)
        self.counts["daemon_kills"] += 1
        together = {life.plan.name for life in running if draw.random() < TOGETHER_SHARE}
        rest = {life.plan.name for life in round_}
        await asyncio.to_thread(self.house.kill_agents, rest | together)
        self.house.start_again()
        await asyncio.to_thread(self.house.wait_warm)
        self.is_down = False
        for life in self.living:
            life.daemon_is_back()
        for over in round_.values():
            if not over.done():
                over.set_result(None)

    async def _die_at_a_write(self, running: Collection[Life], death: FaultStep) -> None:
        """Have the daemon die at the next such write of any of these lives."""
        for life in running:
            life.plan_death(death)
        died = await asyncio.to_thread(self.house.wait_dead, AT_A_WRITE_S)
        self.counts["daemon_kills_at_a_write"] += died
        self.house.kill()
        for life in running:
            life.forget_death(death)
