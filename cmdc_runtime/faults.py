"""Fault points: named places at which a test has a process die, exactly there.

They are off, at the price of one test of a flag, unless ``CMDC_FAULTS`` names a folder when the
process starts. Then each pass looks there for the plan of its session, ``<session id>.plan``: one
step a line, ``<point>:<pass>=<victim>``, such as ``append.*tool_started*.before:2=agent``, where
``*`` stands for anything: a write is called by the kinds of all its records. Only the first step
counts down, at passes where its victim is there; at the last one it is taken out of the plan, and
the victim is killed by SIGKILL. So a plan goes on where it stopped, in the next process too. A plan
``record`` kills nobody: the names that are passed are added to ``<session id>.passed``. The plan
``_every.plan`` is for all sessions that have none of their own, and counts the passes of all.

What runs besides is noted there, too: each call of a tool that begins, in ``<session id>.calls``.

A plan is found at the pass, and not when the process starts, because a worker is forked before it
is anybody's, and one daemon serves the cases of a whole matrix. To add a point, call
``fault_point``; what is written to the journal has its points already (``journal/opening.py``).
"""

import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sized
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

VARIABLE: Final = "CMDC_FAULTS"
RECORD: Final = "record"
"""The plan that writes down what is passed."""
OUTCOME: Final = "outcome"
"""Stands beside the kinds of records where commands get their outcomes."""
NOTHING: Final = "nothing"
"""Stands in place of them in a write that holds neither."""
AGENT: Final = "agent"
MOMENTS: Final = ("before", "after")
DAEMON_ITSELF: Final = "_daemon"
"""The session id of what is no session's."""
EVERY: Final = "_every"
"""Stands in place of a session's id in the plan for all sessions."""
PLAN: Final = ".plan"
CALLS: Final = ".calls"

Victims: TypeAlias = Mapping[str, Callable[[], Iterable[int]]]
"""Who can be killed at a point, and the pids to kill."""

_folder: Final = Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


class HasKind(Protocol):
    """A record as it goes over the wire."""

    @property
    def kind(self) -> str:
        """The record's tag."""


class PlanError(ValueError):
    """A step of a plan is no step."""


class FaultStep(NamedTuple):
    """One step of a plan: ``victim`` is killed at pass number ``passes`` of ``point``."""

    point: str
    passes: int
    victim: str

    def __str__(self) -> str:
        """Return the line of a plan."""
        return f"{self.point}:{self.passes}={self.victim}"


def is_armed() -> bool:
    """Say whether this process looks for plans."""
    return _folder is not None


def fault_point(session_id: str, records: Iterable[HasKind], outcomes: Sized, moment: str) -> None:
    """Have an agent die here, before or after it hands a write over, if the plan says so."""
    if _folder is None:
        return
    kinds = written_kinds((record.kind for record in records), outcomes)
    pass_point(session_id, f"{AGENT}.{kinds}.{moment}", {AGENT: lambda: (os.getpid(),)})


def rebuild_point(session_id: str, step: int) -> None:
    """Have an agent die here, before it takes this step of rebuilding, if the plan says so."""
    if _folder is not None:
        pass_point(session_id, f"{AGENT}.rebuild.{step}", {AGENT: lambda: (os.getpid(),)})


def note_call(session_id: str, call_id: str, effects: str) -> None:
    """Remember that a call begins to run in this process; a retry of it here is no second call."""
    if _folder is not None:
        _record(_folder / f"{session_id}{CALLS}", json.dumps([call_id, effects]))


def written_kinds(records: Iterable[str], outcomes: Sized) -> str:
    """Return what one write is called by: the kinds of its records, each once, in their order."""
    kinds = [*dict.fromkeys(records), *([OUTCOME] if outcomes else ())]
    return "+".join(kinds or [NOTHING])


def pass_point(session_id: str, name: str, victims: Victims) -> None:
    """Pass a point as the plan of the session says.

    A step whose victim is not among ``victims`` belongs to the points of another process.

    Raises:
        PlanError: the plan can't be read.
    """
    if _folder is not None:
        _pass(_folder / session_id, name, victims)


def parse(line: str) -> FaultStep:
    """Return the step that a line of a plan holds.

    Raises:
        PlanError: it holds none; says what one looks like.
    """
    rest, _, victim = line.rpartition("=")
    point, _, passes = rest.rpartition(":")
    if not point or not victim or not passes.isdecimal() or int(passes) < 1:
        raise PlanError(f"a step is <point>:<pass>=<victim>, with passes from 1, got {line!r}")
    return FaultStep(point, int(passes), victim)


def _pass(base: Path, name: str, victims: Victims) -> None:
    plan = base.with_name(f"{base.name}{PLAN}")
    if plan.exists():
        _take(plan, base, name, victims)
        return
    plan = base.with_name(f"{EVERY}{PLAN}")
    if plan.exists():
        with plan.with_suffix(".lock").open("wb") as lock:  # processes of several sessions pass
            fcntl.flock(lock, fcntl.LOCK_EX)
            _take(plan, base, name, victims)


def _take(plan: Path, base: Path, name: str, victims: Victims) -> None:
    line, _, rest = plan.read_text(encoding="utf-8").partition("\n")
    if line == RECORD:
        _record(base.with_name(f"{base.name}.passed"), name)
        return
    if not line:
        return
    step = parse(line)
    if step.victim not in victims or not fnmatchcase(name, step.point):
        return
    pids = tuple(victims[step.victim]())
    if not pids:
        return  # nobody is there to be killed
    left = step._replace(passes=step.passes - 1)
    _replace(plan, f"{left}\n{rest}" if left.passes else rest)
    if not left.passes:
        for pid in pids:
            with suppress(ProcessLookupError):  # it died of something else meanwhile
                os.kill(pid, signal.SIGKILL)


def _record(passed: Path, name: str) -> None:
    file = os.open(passed, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, f"{name}\n".encode())  # one call: lines of two processes never mix
    finally:
        os.close(file)


def _replace(plan: Path, text: str) -> None:
    other = plan.with_name(f"{plan.name}.{os.getpid()}")
    other.write_text(text, encoding="utf-8")
    other.replace(plan)
