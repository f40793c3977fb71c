"""One whole soak: a daemon of its own, all sessions, and what is left when it has ended.

Everything it starts is gone when ``soak`` returns, and what is not is a violation. A part of the
sessions is left to the daemon's own end.
"""

import asyncio
import re
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ScriptedModel
from cmdc_runtime.testing.fixtures import DaemonProcess
from scripts.soak.driver import Driver, Place, StuckError
from scripts.soak.model import NOBODY, Mind
from scripts.soak.plan import Plan, plan

PARALLEL: Final = 12
"""Sessions at a time; more than cores, so that their processes get in each other's way."""
LEFT_EVERY: Final = 8
"""Each such session is not stopped: it ends with its daemon."""
DAEMON: Final = "daemon"
"""Whose violation it is where it is no session's."""
_LINE: Final = re.compile(r"^\d{4}-\d\d-\d\dT\S+ \[(\w+)\s*\] ([\w.]+)")
_PYTHON: Final = re.compile(
    r"Exception ignored|Task (exception|was)|Future exception|Fatal Python|.*Warning: .* never"
)
"""How Python complains of what nobody has caught, awaited or closed."""
_LEVELS: Final = frozenset({"error", "critical"})
_EXPECTED: Final = frozenset({"tool.crashed", "plugin.crashed", "child.terminated"})
"""Errors that tools and plugins of a soak make on purpose, and the ends of what it kills."""
_NEVER: Final = frozenset({"frame.refused"})
"""Lines that say that a part of ours misunderstood another one."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How much is done, and by which seed."""

    sessions: int
    prompts: int
    seed: int
    parallel: int = PARALLEL


@dataclass(frozen=True, slots=True)
class Violation:
    """What was wrong, with whom, and the last that was heard of that session."""

    session: str
    problem: str
    tail: tuple[str, ...] = ()


@dataclass(slots=True)
class Result:
    """What came of a run."""

    settings: Settings
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    seconds: float = 0.0


class SoakDaemon(DaemonProcess):
    """A daemon whose log can still be read when it has ended."""

    log_to_end = ""

    def _end(self) -> list[str]:
        problems = super()._end()
        self.log_to_end = self.log_text()
        return problems


def soak(settings: Settings) -> Result:
    """Run it and return what came of it."""
    plans = [
        plan(settings.seed, number, settings.prompts) for number in range(1, settings.sessions + 1)
    ]
    mind = Mind(settings.seed, {one.name for one in plans if one.is_careless})
    result = Result(settings)
    folder = Path(tempfile.mkdtemp(prefix="cmdc-soak-"))
    started_s = time.monotonic()
    try:
        with ScriptedModel([], default=mind) as one, ScriptedModel([], default=mind) as other:
            daemon = SoakDaemon()
            try:
                asyncio.run(_all_of(plans, _Run(result, daemon, (one, other), folder)))
            finally:
                _close(daemon, result)
            _check_mind(mind, (one, other), result)
    finally:
        shutil.rmtree(folder)
    result.seconds = round(time.monotonic() - started_s, 1)
    return result


@dataclass(frozen=True, slots=True)
class _Run:
    result: Result
    daemon: SoakDaemon
    models: tuple[ScriptedModel, ScriptedModel]
    folder: Path


async def _all_of(plans: Iterable[Plan], run: _Run) -> None:
    settings = run.result.settings
    gate = asyncio.Semaphore(settings.parallel)
    async with cmdc.AsyncClient(run.daemon.address) as client:
        place = Place(client, run.models, run.folder, settings.seed)

        async def one(number: int, plan_: Plan) -> None:
            async with gate:
                await _drive(Driver(place, plan_), plan_, number, run.result)

        await asyncio.gather(*(one(number, plan_) for number, plan_ in enumerate(plans, 1)))
        left = {status.session_id for status in await client.list_sessions()}
    expected = {plan_.name for number, plan_ in enumerate(plans, 1) if not number % LEFT_EVERY}
    for name in left ^ expected:
        run.result.violations.append(Violation(name, f"is left: {name in left}, against the plan"))


async def _drive(driver: Driver, plan_: Plan, number: int, result: Result) -> None:
    try:
        await driver.run(stops=bool(number % LEFT_EVERY))
    except StuckError as stuck:
        driver.problems.append(f"stuck: {stuck}")
    except Exception:  # noqa: BLE001 - whatever it is, it is this session's violation
        driver.problems.append(traceback.format_exc())
    result.counts += driver.counts + driver.ledger.counts
    result.counts["sessions"] += 1
    tail = tuple(f"{one.at_ms} {one.index} {one.event}" for one in driver.ledger.tail)
    problems = (*driver.problems, *driver.ledger.problems)
    result.violations += [Violation(plan_.name, problem, tail) for problem in problems]


def _close(daemon: SoakDaemon, result: Result) -> None:
    try:
        daemon.close()
    except pytest.fail.Exception as failed:
        result.violations.append(Violation(DAEMON, str(failed)))
    for level, name, text in records_of(daemon.log_to_end):
        result.counts[f"log_{level}"] += 1
        if name in _NEVER or (level in _LEVELS and name not in _EXPECTED):
            result.violations.append(Violation(DAEMON, f"its log says: {text}"))


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


def _check_mind(mind: Mind, models: Iterable[ScriptedModel], result: Result) -> None:
    result.counts["summaries"] = mind.requests[NOBODY]
    result.violations += [Violation(who, f"asked wrongly: {what}") for who, what in mind.problems]
    for model in models:
        try:
            model.assert_complete()
        except AssertionError as error:
            result.violations.append(Violation("model", str(error)))
