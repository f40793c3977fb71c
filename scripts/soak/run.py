"""One whole soak: a daemon of its own, all scenarios, and what is left when it has ended.

Everything it starts is gone when ``soak`` returns, and what is not is a violation.
"""

import asyncio
import re
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
import structlog

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ScriptedModel
from scripts.soak.deaths import Deaths
from scripts.soak.house import House
from scripts.soak.life import Life, Place
from scripts.soak.model import NOBODY, Mind
from scripts.soak.plan import name_of, plan
from scripts.soak.wrongs import Problem, Wrong

log = structlog.get_logger()

PARALLEL: Final = 24
"""Scenarios at a time; more than cores, so that their processes get in each other's way."""
DAEMON_KILLED_EVERY: Final = 100
"""Lives that come to rest from one end of the daemon to the next; those that run are all hit."""
DAEMON: Final = "daemon"
"""Whose violation it is where it is no session's."""
SAID_EVERY: Final = 1_000
"""Scenarios from one word about how far it is to the next."""
_LINE: Final = re.compile(r"^\d{4}-\d\d-\d\dT\S+ \[(\w+)\s*\] ([\w.]+)")
_PYTHON: Final = re.compile(
    r"Exception ignored|Task (exception|was)|Future exception|Fatal Python|.*Warning: .* never"
)
"""How Python complains of what nobody has caught, awaited or closed."""
_LEVELS: Final = frozenset({"error", "critical"})
_EXPECTED: Final = frozenset({"child.terminated", "child.not_started"})
"""Errors that are the ends of what a soak kills."""
_NEVER: Final = frozenset({"frame.refused"})
"""Lines that say that a part of ours misunderstood another one."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How much is done, and by which seed; ``only`` are scenarios to play in place of all."""

    scenarios: int
    seed: int
    parallel: int = PARALLEL
    only: tuple[str, ...] = ()
    daemon_killed_every: int = DAEMON_KILLED_EVERY
    planted: tuple[str, ...] = ()
    """Changes of the product's code, as words of ``AFTER_IMPORT``; one violation is enough then."""

    @property
    def names(self) -> Sequence[str]:
        """The scenarios' seeds."""
        return self.only or [name_of(self.seed, one) for one in range(1, self.scenarios + 1)]


@dataclass(frozen=True, slots=True)
class Violation:
    """What was wrong, in which scenario, and the last that was heard of its session."""

    scenario: str
    problem: Problem
    tail: tuple[str, ...] = ()


@dataclass(slots=True)
class Result:
    """What came of a run."""

    settings: Settings
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_enough(self) -> bool:
        """Whether no further scenario has to be played."""
        return bool(self.settings.planted and self.violations)

    def wrong(self) -> dict[str, int]:
        """Return how often each promise was broken."""
        found = Counter(one.problem.kind for one in self.violations)
        return {kind.value: found[kind] for kind in Wrong}


def soak(settings: Settings) -> Result:
    """Run it and return what came of it.

    Raises:
        KeyboardInterrupt: by SIGTERM, too; what was started is gone.
    """
    result = Result(settings)
    mind = Mind()
    folder = Path(tempfile.mkdtemp(prefix="cmdc-soak-"))
    started_s = time.monotonic()
    try:
        with ScriptedModel([], default=mind) as one, ScriptedModel([], default=mind) as other:
            house = House(settings.planted)
            try:
                _until_interrupted(_Run(result, house, (one, other), folder))
            finally:
                _close(house, result)
            _check_models(mind, (one, other), result)
    finally:
        shutil.rmtree(folder)
    result.seconds = round(time.monotonic() - started_s, 1)
    return result


def _until_interrupted(run: "_Run") -> None:
    """Play it all; SIGTERM cancels it.

    An exception that a signal's handler raises wherever it happens to be called can be lost there:
    while an object is finalized, for one.
    """

    async def work() -> None:
        if (task := asyncio.current_task()) is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await run.all()

    before = signal.getsignal(signal.SIGTERM)
    try:
        asyncio.run(work())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGTERM, before)


class _EnoughError(Exception):
    """What was planted is found."""


@dataclass(slots=True)
class _Run:
    result: Result
    house: House
    models: tuple[ScriptedModel, ScriptedModel]
    folder: Path
    living: set[Life] = field(default_factory=set)
    finished: int = 0

    async def all(self) -> None:
        """Play all scenarios, some at a time, and kill the daemon now and then."""
        settings = self.result.settings
        async with cmdc.AsyncClient(self.house.address) as client:
            place = Place(client, self.models, self.folder, self.house)
            every = settings.daemon_killed_every
            deaths = Deaths(self.house, settings.seed, every, self.living, self.result.counts)
            async with asyncio.TaskGroup() as group:  # without the deaths no life comes to its end
                ends = group.create_task(deaths.run())
                await self._play_all(place, deaths)
                ends.cancel()
            left = await client.list_sessions()
        for status in () if self.result.is_enough else left:
            problem = Problem(Wrong.OTHER, f"session {status.session_id} is left")
            self.result.violations.append(Violation(status.session_id, problem))

    async def _play_all(self, place: Place, deaths: Deaths) -> None:
        """Play each scenario; one that waits for its last kill leaves its place to the next."""
        places = asyncio.Semaphore(self.result.settings.parallel)
        try:
            async with asyncio.TaskGroup() as group:
                for name in self.result.settings.names:
                    await places.acquire()
                    self.result.counts["begun"] += 1
                    group.create_task(self._play(place, name, deaths, places))
                deaths.is_last = True
                deaths.look()
        except* _EnoughError:
            pass

    async def _play(
        self, place: Place, name: str, deaths: Deaths, places: asyncio.Semaphore
    ) -> None:
        is_waiting = False

        async def last_kill(life: Life) -> None:
            nonlocal is_waiting
            is_waiting = True
            places.release()
            await deaths.last_kill(life)

        life = Life(place, plan(name), last_kill=last_kill)
        self.living.add(life)
        if deaths.is_down:
            life.daemon_died()
        try:
            await life.run()
        except Exception:  # noqa: BLE001 - whatever it is, it is this scenario's violation
            life.problems.append(Problem(Wrong.OTHER, traceback.format_exc()))
        self.living.discard(life)
        self.finished += 1
        self._take(life)
        if self.result.is_enough:
            raise _EnoughError
        if not is_waiting:
            places.release()
        deaths.look()
        await asyncio.to_thread(shutil.rmtree, life.folder, ignore_errors=True)

    def _take(self, life: Life) -> None:
        result = self.result
        result.counts += life.counts + life.ledger.counts
        result.counts["scenarios"] += 1
        tail = tuple(f"{one.at_ms} {one.index} {one.event}" for one in life.ledger.tail)
        problems = (*life.problems, *life.ledger.problems)
        result.violations += [Violation(life.plan.name, one, tail) for one in problems]
        for one in problems:
            log.warning("soak.violation", scenario=life.plan.name, problem=str(one))
        if self.finished % SAID_EVERY == 0:
            log.info("soak.played", scenarios=self.finished, violations=len(result.violations))


def _close(house: House, result: Result) -> None:
    try:
        house.close()
    except pytest.fail.Exception as failed:
        result.violations.append(_of_daemon(str(failed)))
    for level, name, text in records_of(house.log_to_end):
        result.counts[f"log_{level}"] += 1
        if name in _NEVER or (level in _LEVELS and name not in _EXPECTED):
            result.violations.append(_of_daemon(f"its log says: {text}"))


def _of_daemon(text: str) -> Violation:
    return Violation(DAEMON, Problem(Wrong.OTHER, text))


def records_of(log: str) -> list[tuple[str, str, str]]:
    """Return level, event and text of what a log has.

    A traceback belongs to the error above it; whatever else Python itself has to say is an error.
    """
    found: list[tuple[str, str, str]] = []
    for line in log.splitlines():
        head = _LINE.match(line)
        if head is not None:
            found.append((head[1], head[2], line))
        elif _PYTHON.match(line) or not found or found[-1][0] not in _LEVELS:
            found.append(("error", "", line))
        else:
            level, name, text = found[-1]
            found[-1] = (level, name, f"{text}\n{line}")
    return [record for record in found if record[2].strip()]


def _check_models(mind: Mind, models: Iterable[ScriptedModel], result: Result) -> None:
    result.counts["requests_of_nobody"] = mind.requests[NOBODY]
    result.violations += [
        Violation(who, Problem(Wrong.HISTORY, f"asked wrongly: {what}"))
        for who, what in mind.problems
    ]
    for model in models:
        try:
            model.assert_complete()
        except AssertionError as error:
            result.violations.append(Violation("model", Problem(Wrong.OTHER, str(error))))
