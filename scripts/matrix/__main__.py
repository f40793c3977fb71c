"""``python -m scripts.matrix``: play every cell of the crash matrix and write its pages.

``--check`` writes nothing. Exit status 1 where anything was wrong, with a line for each problem: a
cell that was not reached in any of its plays is one, unless ``cells.ABSENCES`` has the reason.
"""

import argparse
import asyncio
import signal
import sys
import time
from typing import NoReturn

import structlog

from scripts.matrix import page
from scripts.matrix.cells import Cell, Played, missed, unplayed
from scripts.matrix.play import stage

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
        cells, played = asyncio.run(_play())
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    wrong = [f"{one.cell.name}: {problem}" for one in played for problem in one.problems]
    wrong += [f"{place}: not reached, and nothing says why" for place in sorted(missed(played))]
    wrong += [f"{cell.name}: not played" for cell in unplayed(cells, played)]
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    if not wrong and not is_check:
        page.write(played)
    seconds = time.monotonic() - started_s
    told = f"{len(cells)} cells were planned. {page.counted(played)}"
    sys.stdout.write(f"{told}\n{seconds:.0f} s: {len(wrong)} problems\n")
    return 1 if wrong else 0


async def _play() -> tuple[list[Cell], list[Played]]:
    """Return the cells that are planned, and what came of them."""
    async with stage() as found:
        cells = await found.rehearse()
        return cells, await found.play(cells)


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
