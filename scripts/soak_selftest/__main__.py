"""``python -m scripts.soak_selftest``: plant bugs one by one and see that a soak finds each.

Each has a number of lives within which some check must find it; the exit status is 1 where one is
not found. ``--short`` plays the few that are found soonest, ``--only`` those with these words in
their names. A new kind of record is played as soon as it is there.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from benchmarks.report import append
from scripts.soak.__main__ import interrupt
from scripts.soak.run import Result, Settings, soak
from scripts.soak_selftest import bugs
from workers.core.records import RECORDS

SUBJECT: Final = "soak-selftest"
PARALLEL: Final = 12
DAEMON_KILLED_EVERY: Final = 12
LIVES_MAX: Final = 150
"""Within which a record that is not written must be missed, unless ``_RARE`` says otherwise."""
TEXT_CHARS_MAX: Final = 200
"""Of what was found, in the record."""
_RARE: Final = {
    "noted": 600,
    "user_answered": 600,
    "steered": 400,
    "user_asked": 400,
    "subagent_spent": 300,
    "tool_told": 300,
}
"""Records that matter only to a process that dies in the milliseconds behind them."""
UNSEEN: Final = {
    "record set_aside is dropped": (
        "only where two processes die at the same step of rebuilding, as in two of 4,000 lives: too"
        " few for a number of lives; tests/fault/cases/test_poison.py fails without the record"
    ),
    "record code_taken is dropped": (
        "no life has other code put under its session; the next process notes the same code again."
        " tests/fault/cases/test_changed_code.py, where code changes, fails without the record"
    ),
    **{
        f"record {kind} is dropped": (
            f"no life {what}; {test} dies before and after its write, and fails without the record"
        )
        for kind, what, test in (
            ("mcp_servers_changed", "attaches a server", "tests/fault/test_mcp_deaths.py"),
            ("mcp_tools_seen", "has a server", "tests/fault/test_mcp_deaths.py"),
            ("call_kept", "has a tool that keeps something", "tests/fault/test_mcp_deaths.py"),
            ("answer_retracted", "has guardrails", "tests/fault/test_guardrail_deaths.py"),
            ("handed_off", "hands over", "tests/fault/test_handoff_deaths.py"),
            ("handoff_failed", "hands over", "tests/fault/test_handoff_deaths.py"),
        )
    },
    "the fence of incarnations is not checked": (
        "the daemon itself names the incarnation of a write, by the connection that it came over,"
        " and that is closed before the next process begins: no one check in front of the fence"
        " can be taken away to let an old write through (ADR 0025); tests/contract/journal fails"
        " without the fence"
    ),
}
"""Bugs that no soak can see, and why. They are played only by ``--only``."""


@dataclass(frozen=True, slots=True)
class Bug:
    """One bug: what it is, the words that plant it, and within how many lives it must be found."""

    name: str
    words: tuple[str, ...]
    lives: int = LIVES_MAX
    is_quick: bool = False
    """Found in seconds: played in the short form."""


NOTHING: Final = Bug("nothing is planted", (), lives=60)
"""Played first: whatever is found then is no bug's doing, and the table would mean nothing."""


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a bug; ``lives`` are those begun until it was found, or all."""

    bug: Bug
    lives: int
    by: str
    """The check that found it, "" where none did."""
    text: str
    seconds: float


def _planted(module: str, function: str, *argument: str) -> str:
    return f"{module}={':'.join((bugs.__name__, function, *argument))}"


def all_bugs() -> Iterator[Bug]:
    """Yield every bug: one for each kind of record, then the others."""
    for record in RECORDS:
        kind = str(record.__struct_config__.tag)
        yield Bug(
            f"record {kind} is dropped",
            (_planted(_WRITES, "drop_record", kind),),
            _RARE.get(kind, LIVES_MAX),
            is_quick=kind == "turn_spent",
        )
    yield from _OTHERS


_WRITES: Final = "supervisor.adapters.journal.sql_store"
_ANY_BATCH: Final = _planted("supervisor.adapters.hub", "take_any_batch")
_OTHERS: Final = (
    Bug(
        "a write tool begins before its record is written",
        (_planted("workers.link", "skip_write_ahead"),),
        lives=1500,
    ),
    Bug(
        "an index is repeated",
        (_planted("supervisor.sessions.assignment", "shift_indexes", "-1"), _ANY_BATCH),
    ),
    Bug(
        "an index is skipped",
        (_planted("supervisor.sessions.assignment", "shift_indexes", "1"), _ANY_BATCH),
    ),
    Bug(
        "a write tool runs twice",
        (_planted("workers.core.recovery", "run_writes_again"),),
    ),
    Bug(
        "a late result is taken",
        (
            _planted("workers.performers.model", "leave_requests"),
            _planted("workers.core.results", "take_late_results"),
        ),
        lives=600,
    ),
    Bug("a Down is lost", (_planted("supervisor.sessions.monitors", "lose_downs"),), is_quick=True),
    Bug("a Down is sent twice", (_planted("supervisor.core.monitors", "double_downs"),)),
    Bug(
        "an ack comes before its commit",
        (
            _planted("supervisor.sessions.agent", "ack_early"),
            _planted("supervisor.daemon", "accept_late"),
        ),
        lives=1500,
    ),
    Bug(
        "a write that is sent again is stored again",
        (_planted(_WRITES, "store_writes_again"),),
        lives=1500,
    ),
    Bug("the fence of incarnations is not checked", (_planted(_WRITES, "ignore_fence"),)),
)


def play(bug: Bug, seed: int) -> Played:
    """Have a soak look for a bug until it has found it, or has played all lives."""
    started_s = time.monotonic()
    settings = Settings(
        scenarios=bug.lives,
        seed=seed,
        parallel=PARALLEL,
        daemon_killed_every=DAEMON_KILLED_EVERY,
        planted=bug.words,
    )
    result = soak(settings)
    seconds = round(time.monotonic() - started_s, 1)
    return Played(bug, result.counts["begun"], *_found(result), seconds)


def _found(result: Result) -> tuple[str, str]:
    first = next(iter(result.violations), None)
    return ("", "") if first is None else (first.problem.kind.value, first.problem.text)


def chosen(only: Sequence[str], *, is_short: bool) -> list[Bug]:
    """Return the bugs to plant; those that cannot be seen only where they are named."""
    if only:
        return [bug for bug in (NOTHING, *all_bugs()) if any(word in bug.name for word in only)]
    found = [bug for bug in all_bugs() if bug.name not in UNSEEN]
    return [bug for bug in found if bug.is_quick] if is_short else [NOTHING, *found]


def main() -> int:
    """Do what the arguments say and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.soak_selftest", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--no-save", action="store_true", help="leave no record")
    arguments = parser.parse_args()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    signal.signal(signal.SIGTERM, interrupt)
    load = os.getloadavg()[0]
    played = []
    for bug in chosen(arguments.only, is_short=arguments.short):
        one = play(bug, arguments.seed)
        played.append(one)
        sys.stdout.write(f"{row(one)}\n")
        sys.stdout.flush()
    if not arguments.no_save and not arguments.only:
        append(SUBJECT, _record(played, arguments.seed), load)
    wrong = [f"not found: {one.bug.name}" for one in played if is_missed(one)]
    wrong += [
        f"found where nothing is: {one.text}" for one in played if one.by and not one.bug.words
    ]
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    found = sum(bool(one.by and one.bug.words) for one in played)
    sys.stdout.write(f"{found} bugs found of {sum(bool(one.bug.words) for one in played)}\n")
    return 1 if wrong else 0


def is_missed(one: Played) -> bool:
    """Say whether a bug was not found that can be."""
    return bool(one.bug.words) and not one.by and one.bug.name not in UNSEEN


def row(one: Played) -> str:
    """Return a line of the table: bug, lives until it was found, the check that did."""
    lives = f"{one.lives:>4} of {one.bug.lives:>4}"
    return (
        f"{one.bug.name:<52} {lives} {one.seconds:>6} s  {one.by or 'not found'}: {one.text[:90]}"
    )


def _record(played: Sequence[Played], seed: int) -> dict[str, object]:
    rows = [
        {
            "bug": one.bug.name,
            "lives": one.lives,
            "lives_max": one.bug.lives,
            "by": one.by,
            "text": one.text[:TEXT_CHARS_MAX],
            "seconds": one.seconds,
        }
        for one in played
    ]
    unseen = [{"bug": name, "why": why} for name, why in UNSEEN.items()]
    return {"seed": seed, "bugs": rows, "bugs_unseen": unseen}


if __name__ == "__main__":
    sys.exit(main())
