"""``python -m scripts.matrix``: play every cell of the crash matrix and write its pages.

``--check`` writes nothing. Exit status 1 where anything was wrong, with a line for each problem.
"""

import argparse
import asyncio
import signal
import sys
import time
from typing import NoReturn

import structlog

from scripts.matrix import page
from scripts.matrix.play import NOT_REACHED, Played, stage

INTERRUPTED = 130


def main() -> int:
    """Do what the arguments say and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.matrix", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    is_check = parser.parse_args().check
    # What the client logs is for people who watch; stdout has the result.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    signal.signal(signal.SIGTERM, _interrupt)
    started_s = time.monotonic()
    try:
        played = asyncio.run(_play())
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    wrong = [f"{one.cell.name}: {problem}" for one in played for problem in one.problems]
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    if not wrong and not is_check:
        page.write(played)
    reached = sum(one.outcome != NOT_REACHED for one in played)
    seconds = time.monotonic() - started_s
    sys.stdout.write(
        f"{len(played)} cells in {seconds:.0f} s, {reached} deaths: {len(wrong)} problems\n"
    )
    return 1 if wrong else 0


async def _play() -> list[Played]:
    async with stage() as found:
        return await found.play(await found.rehearse())


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
