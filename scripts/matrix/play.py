"""Plays the cells of the crash matrix: finds the points that a situation passes, and dies at each.

One daemon serves the cells in which only agents die, several at a time. Where a daemon dies, the
next one takes its place at once, and all cells that run then go on with it. Each life ends with a
last death, of its agent and the daemon, when all that run beside it have come to rest.
"""

import asyncio
import shutil
import tempfile
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import cmdc_runtime as cmdc
from cmdc_runtime.faults import RECORD
from cmdc_runtime.testing import ScriptedModel
from scripts.matrix.cells import NOT_REACHED, Cell, Played, branches_wrong, cells_of, merged, missed
from scripts.matrix.situations import DYING, SITUATIONS, Situation
from scripts.soak.house import House
from scripts.soak.life import Life, Place
from scripts.soak.model import Mind
from scripts.soak.wrongs import Problem, Wrong
from supervisor.processes.worker import ALL, CHILDREN_AND_DAEMON, HOST_AND_DAEMON, ZYGOTE

PARALLEL: Final = 12
DAEMON_CELLS_PARALLEL: Final = 4
"""Cells in which the daemon dies, at a time: each of them is hit by the deaths of all."""
LOOK_S: Final = 0.1
MEETING: Final = frozenset({ALL, HOST_AND_DAEMON, CHILDREN_AND_DAEMON})
"""Who has to be there together, which a death beside them would prevent."""
AGAIN_MAX: Final = 3
"""How often what should have been reached is played again."""
UNBORN: Final = "not started, which is reported"
GOES_ON: Final = "goes on"
GIVEN_UP: Final = "given up"
UNCERTAIN: Final = "uncertain"


_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


@dataclass(slots=True)
class Stage:
    """A daemon, its models and a client, for as many cells as there are."""

    house: House
    place: Place
    mind: Mind
    passed: dict[str, list[str]] = field(default_factory=dict)
    """The points that each situation passes when nobody dies, in order."""
    ends: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """The conversation that each comes to then."""
    _living: set[Life] = field(default_factory=set)
    _number: int = 0
    _is_renewed: asyncio.Event = field(default_factory=asyncio.Event)
    _may_start: asyncio.Event = field(default_factory=asyncio.Event)
    """The next daemon may begin."""
    _at_rest: dict[Life, asyncio.Future[None]] = field(default_factory=dict)
    """Lives that wait for their last death."""
    _rounds: set[asyncio.Task[None]] = field(default_factory=set)
    _deaths: int = 0
    """Of the daemon, those of a round left out."""

    async def rehearse(self, situations: Sequence[Situation] = SITUATIONS) -> list[Cell]:
        """Play each situation without the death of a cell, and return the cells that it has."""

        async def one(situation: Situation) -> list[Cell]:
            life = self._life(situation, (RECORD,), is_rehearsal=True)
            passed = self.house.faults / f"{life.plan.name}.passed"
            await self._live(life)
            if problems := [*life.problems, *life.ledger.problems]:
                raise RuntimeError(f"{situation.name}, where nobody dies: {problems}")
            self.passed[situation.name] = passed.read_text(encoding="utf-8").splitlines()
            passed.unlink()
            self.ends[situation.name] = life.conversation
            return cells_of(situation, self.passed[situation.name])

        return [cell for cells in await _at_once(one, situations, PARALLEL) for cell in cells]

    async def play(self, cells: Iterable[Cell]) -> list[Played]:
        """Play cells and return what came of them: first those in which the daemon stays.

        Where nobody died at a write, the daemon or the agent may have been late or gone for the
        death of another cell: that is played again, alone.
        """
        wanted = list(cells)
        # Of these each waits for the next zygote, and so would all that run beside it; or a death
        # beside it would take what it waits for.
        alone = [
            cell
            for cell in wanted
            if ZYGOTE in cell.victim.split("+")
            or cell.victim in MEETING
            or (cell.victim in DYING and cell.situation.is_early)
        ]
        dying = [cell for cell in wanted if cell.victim in DYING and cell not in alone]
        staying = [cell for cell in wanted if cell not in alone and cell not in dying]
        played = await _at_once(self.play_one, staying, PARALLEL)
        if self._deaths:
            raise RuntimeError("the daemon died where nobody has killed it")
        played += await self._play_alone(alone)
        for first in range(0, len(dying), DAEMON_CELLS_PARALLEL):
            played += await self._play_together(dying[first : first + DAEMON_CELLS_PARALLEL])
        for _ in range(AGAIN_MAX):
            places = missed(played)
            again = [cell for cell in wanted if cell.place in places]
            played = merged(played, await self._play_alone(again))
        return played

    async def _play_alone(self, cells: Iterable[Cell]) -> list[Played]:
        """Play cells one after the other: nobody dies of another cell's death."""
        played = []
        for cell in cells:
            if ZYGOTE in cell.victim.split("+"):
                await self._renew_daemon()
            await asyncio.to_thread(self.house.wait_warm)
            played.append(await self.play_one(cell))
        return played

    async def _renew_daemon(self, agents: Collection[str] = ()) -> None:
        """Put another daemon in place; these ``agents`` die while there is none.

        One that loses its zygote again and again waits longer for each, and gives up in the end.
        """
        self._is_renewed.clear()
        self._may_start.clear()
        self._deaths -= 1
        await asyncio.to_thread(self.house.kill)
        await asyncio.to_thread(self.house.kill_agents, agents)
        self._may_start.set()
        await self._is_renewed.wait()
        await asyncio.to_thread(self.house.wait_warm)

    async def _play_together(self, cells: Sequence[Cell]) -> list[Played]:
        """Play cells in which the daemon dies: all sessions are up before the first death."""
        await asyncio.to_thread(self.house.wait_warm)
        up = asyncio.Barrier(len(cells))
        return list(await asyncio.gather(*(self.play_one(cell, up.wait) for cell in cells)))

    async def play_one(
        self, cell: Cell, gate: Callable[[], Awaitable[object]] | None = None
    ) -> Played:
        """Play one cell; ``gate`` is awaited when its session is up."""
        life = self._life(cell.situation, cell.lines, gate)
        await self._live(life)
        problems = [*life.problems, *life.ledger.problems]
        outcome = outcome_of(life, cell)
        end = self.ends.get(cell.situation.name)
        is_whole = life.conversation and not life.counts["unacknowledged"]
        is_other = is_whole and end is not None and life.conversation != end
        if cell.situation.comes_to_the_same and is_other:
            problems.append(
                Problem(Wrong.OTHER, f"it comes to {life.conversation} in place of {end}")
            )
        wrong = branches_wrong(cell.situation.branches, life.ledger.counts)
        problems += [wrong] if wrong is not None else []
        return Played(cell, outcome, tuple(problems))

    def _life(
        self,
        situation: Situation,
        lines: tuple[str, ...],
        gate: Callable[[], Awaitable[object]] | None = None,
        *,
        is_rehearsal: bool = False,
    ) -> Life:
        """Return a life; what comes behind the points of a rehearsal is no part of it."""
        self._number += 1
        plan = situation.plan(f"matrix-{self._number}", *lines)
        return Life(self.place, plan, gate, None if is_rehearsal else self._last_kill)

    async def _last_kill(self, life: Life) -> None:
        """Return when the agent of a life at rest, and the daemon, were killed."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._at_rest[life] = over
        self._end_round()
        await over

    def _end_round(self) -> None:
        """Have all die that are at rest, once no other life runs."""
        if not self._at_rest or len(self._at_rest) < len(self._living):
            return
        round_, self._at_rest = self._at_rest, {}

        async def die() -> None:
            error = None
            try:
                await self._renew_daemon([life.plan.name for life in round_])
            except Exception as caught:  # noqa: BLE001 - it is the problem of each of them
                error = caught
            for over in round_.values():
                if not over.done():
                    over.set_result(None) if error is None else over.set_exception(error)

        task = asyncio.create_task(die())
        self._rounds.add(task)
        task.add_done_callback(self._rounds.discard)

    async def _live(self, life: Life) -> None:
        self._living.add(life)
        try:
            await life.run()
        except Exception:  # noqa: BLE001 - whatever it is, it is this cell's problem
            life.problems.append(Problem(Wrong.OTHER, traceback.format_exc()))
        self._living.discard(life)
        self._end_round()
        await asyncio.to_thread(shutil.rmtree, life.folder, ignore_errors=True)

    @asynccontextmanager
    async def kept_daemon(self) -> AsyncIterator[None]:
        """Put the next daemon in the place of each that is killed, as long as cells are played."""
        self._may_start.set()

        async def keep() -> None:
            while True:
                if await asyncio.to_thread(self.house.wait_dead, LOOK_S):
                    self._deaths += 1
                    for life in self._living:
                        life.daemon_died()
                    await self._may_start.wait()
                    self.house.start_again()
                    for life in self._living:
                        life.daemon_is_back()
                    self._is_renewed.set()

        keeping = asyncio.create_task(keep())
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            if self.house.wait_dead(0):
                self.house.start_again()


def outcome_of(life: Life, cell: Cell) -> str:
    """Say in a few words what came back."""
    if life.lines_left > len(cell.situation.then):
        return NOT_REACHED
    if life.counts["unborn"]:
        return UNBORN
    counts = life.ledger.counts
    kinds = [kind for kind in ("idle", "stream", "tools") if counts[f"recovered_{kind}"]]
    words = kinds or [GOES_ON]
    if any("may or may not have taken effect" in text for _, text in life.conversation):
        words.append(UNCERTAIN)
    if life.ledger.given_up:
        words.append(GIVEN_UP)
    return ", ".join(words)


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """Lend a stage with a daemon that is warm; check at the end that nothing of it is left."""
    mind = Mind()
    folder = Path(tempfile.mkdtemp(prefix="cmdc-matrix-"))
    try:
        with ScriptedModel([], default=mind) as one, ScriptedModel([], default=mind) as other:
            house = House()
            try:
                async with cmdc.AsyncClient(house.address) as client:
                    found = Stage(house, Place(client, (one, other), folder, house), mind)
                    async with found.kept_daemon():
                        yield found
            finally:
                await asyncio.to_thread(house.close)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _at_once(
    do: Callable[[_Item], Awaitable[_Found]], items: Iterable[_Item], parallel: int
) -> list[_Found]:
    gate = asyncio.Semaphore(parallel)

    async def one(item: _Item) -> _Found:
        async with gate:
            return await do(item)

    return list(await asyncio.gather(*map(one, items)))
