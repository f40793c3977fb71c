"""``python -m scripts.matrix``: play every cell of the crash matrix and write its pages.

``--check`` writes nothing, and ``--only`` neither: it plays the situations of these names and shows
what came back of each cell. Exit status 1 where anything was wrong, with a line for each problem: a
cell that was not reached in any of its plays is one, unless ``cells.ABSENCES`` has the reason.
"""

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Collection, Sequence
from typing import NoReturn

import structlog

from scripts.matrix import page
from scripts.matrix.cells import Cell, Played, missed, unplayed
from scripts.matrix.play import stage
from scripts.matrix.situations import SITUATIONS, Situation

INTERRUPTED = 130


def main() -> int:
    """Do what the arguments say and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.matrix", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    names = [one.name for one in SITUATIONS]
    parser.add_argument("--only", nargs="*", default=[], choices=names, help="play these alone")
    arguments = parser.parse_args()
    # What the client logs is for people who watch; stdout has the result.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    signal.signal(signal.SIGTERM, _interrupt)
    started_s = time.monotonic()
    try:
        cells, played = asyncio.run(_play(chosen(arguments.only)))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    wrong = [f"{one.cell.name}: {problem}" for one in played for problem in one.problems]
    wrong += [f"{place}: not reached, and nothing says why" for place in sorted(missed(played))]
    wrong += [f"{cell.name}: not played" for cell in unplayed(cells, played)]
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    if arguments.only:
        sys.stdout.writelines(f"{one.cell.name}: {one.outcome}\n" for one in played)
    elif not wrong and not arguments.check:
        page.write(played)
    seconds = time.monotonic() - started_s
    counted = f"{len(cells)} cells were planned. {page.counted(played)}"
    sys.stdout.write(f"{counted}\n{seconds:.0f} s: {len(wrong)} problems\n")
    return 1 if wrong else 0


def chosen(names: Collection[str]) -> Sequence[Situation]:
    """Return the situations of these names; all of them where there is no name."""
    return [one for one in SITUATIONS if not names or one.name in names]


async def _play(situations: Sequence[Situation]) -> tuple[list[Cell], list[Played]]:
    """Return the cells that are planned, and what came of them."""
    async with stage() as found:
        cells = await found.rehearse(situations)
        return cells, await found.play(cells)


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
