"""``python -m scripts.soak``: play seeded lives of sessions with seeded kills, and count.

The last line has the counts. The exit status is 1 where anything was wrong; then each violation is
printed with the scenario's seed, which ``--only`` plays alone, and the last events of its session.
However a run ends, what it started is gone.
"""

import argparse
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Final, NoReturn

import structlog

from benchmarks.report import append
from scripts.soak.run import PARALLEL, Result, Settings, soak
from scripts.soak.wrongs import Wrong

SCENARIOS: Final = 1_000
SUBJECT: Final = "soak"
SHOWN_MAX: Final = 20
"""Violations of each kind that are shown; all are counted."""
EVENT_CHARS_MAX: Final = 300
INTERRUPTED: Final = 130


def main() -> int:
    """Do what the arguments say and return the exit status."""
    arguments = _arguments()
    # What the client logs is for people who watch; the last line on stdout is the counts.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    signal.signal(signal.SIGTERM, interrupt)
    load = os.getloadavg()[0]
    settings = Settings(
        scenarios=arguments.scenarios,
        seed=arguments.seed,
        parallel=arguments.parallel,
        only=tuple(arguments.only),
    )
    try:
        result = soak(settings)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    sys.stdout.writelines(f"{line}\n" for line in _shown(result))
    if not arguments.no_save and not settings.only:
        append(SUBJECT, _found(result), load)
    sys.stdout.write(summary(result) + "\n")
    return 1 if result.violations else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.soak", description=__doc__)
    parser.add_argument("--scenarios", type=int, default=SCENARIOS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--only", nargs="*", default=[], help="play these scenarios, by their seeds"
    )
    parser.add_argument("--parallel", type=int, default=PARALLEL, help="scenarios at a time")
    parser.add_argument("--no-save", action="store_true", help="leave no record")
    return parser.parse_args()


def summary(result: Result) -> str:
    """Return the counts in one line."""
    counts, wrong = result.counts, result.wrong()
    done = (
        f"seed {result.settings.seed}: {counts['scenarios']} scenarios in {result.seconds} s,"
        f" {counts['kills']} kills and {counts['daemon_kills']} of the daemon"
    )
    found = (f"{wrong[kind]} {kind.replace('_', ' ')}" for kind in Wrong)
    return f"{done}: {', '.join(found)}"


def _shown(result: Result) -> Iterator[str]:
    shown = Counter[Wrong]()
    for violation in result.violations:
        shown[violation.problem.kind] += 1
        if shown[violation.problem.kind] <= SHOWN_MAX:
            yield f"{violation.scenario}: {violation.problem}"
            yield from (f"    {event[:EVENT_CHARS_MAX]}" for event in violation.tail)
    for name in dict.fromkeys(one.scenario for one in result.violations):
        yield f"to play it alone: make soak ONLY={name}"


def _found(result: Result) -> dict[str, object]:
    settings = result.settings
    return {
        "seed": settings.seed,
        "scenarios": settings.scenarios,
        "parallel": settings.parallel,
        "seconds": result.seconds,
        **result.wrong(),
        "counts": dict(sorted(result.counts.items())),
    }


def interrupt(_number: int, _frame: object) -> NoReturn:
    """End as ctrl-C does."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
