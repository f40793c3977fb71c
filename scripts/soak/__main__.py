"""``python -m scripts.soak``: drive many sessions at random by a seed, and count what is wrong.

The last line has the counts. The exit status is 1 where anything was wrong; then each violation is
told with the seed, its session, and the last events that were heard of that session. However a run
ends, what it started is gone.
"""

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from typing import Final, NoReturn

import msgspec
import structlog

from benchmarks.report import append
from scripts.soak.run import PARALLEL, Result, Settings, soak

SESSIONS: Final = 200
PROMPTS: Final = 20
SUBJECT: Final = "soak"
SHOWN_MAX: Final = 20
"""Violations that are shown; all are counted."""
EVENT_CHARS_MAX: Final = 300
INTERRUPTED: Final = 130


def main() -> int:
    """Do what the arguments say and return the exit status."""
    arguments = _arguments()
    # What the client logs is for people who watch; the last line on stdout is for machines.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    signal.signal(signal.SIGTERM, _interrupt)
    load = os.getloadavg()[0]
    settings = Settings(
        sessions=arguments.sessions,
        prompts=arguments.prompts,
        seed=arguments.seed,
        parallel=arguments.parallel,
    )
    try:
        result = soak(settings)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    sys.stdout.writelines(f"{line}\n" for line in _shown(result))
    found = _found(result)
    if not arguments.no_save:
        append(SUBJECT, found, load)
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    return 1 if result.violations else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.soak", description=__doc__)
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--prompts", type=int, default=PROMPTS, help="of each session")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=PARALLEL, help="sessions at a time")
    parser.add_argument("--no-save", action="store_true", help="leave no record")
    return parser.parse_args()


def _shown(result: Result) -> Iterator[str]:
    for violation in result.violations[:SHOWN_MAX]:
        yield f"seed {result.settings.seed}, {violation.session}: {violation.problem}"
        for event in violation.tail:
            yield f"    {event[:EVENT_CHARS_MAX]}"


def _found(result: Result) -> dict[str, object]:
    settings = result.settings
    return {
        "seed": settings.seed,
        "sessions": settings.sessions,
        "prompts": settings.prompts,
        "parallel": settings.parallel,
        "seconds": result.seconds,
        "violations": len(result.violations),
        "counts": dict(sorted(result.counts.items())),
    }


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
