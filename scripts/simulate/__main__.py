"""``python -m scripts.simulate``: play random lives of supervision trees and check every step.

The last line has the counts. The exit status is 1 where anything was wrong; then each such schedule
is written down as a file, and named with the command that plays it again.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from cmdc_runtime.errors import InvalidOptions
from scripts.simulate.incident import shown
from scripts.simulate.run import Result, Simulation, incident

SCHEDULES: Final = 100_000
INTERRUPTED: Final = 130
WRONG: Final = 1
UNREADABLE: Final = 2


def main() -> int:
    """Do what the arguments say and return the exit status."""
    arguments = _arguments()
    if arguments.replay is not None:
        return _replay(arguments.replay)
    simulation = Simulation(arguments.seed)
    try:
        result = simulation.run(range(arguments.first, arguments.first + arguments.schedules))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    for line in _lines(simulation, result, arguments.incidents):
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(msgspec.json.encode(_found(result)).decode() + "\n")
    return WRONG if result.wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.simulate", description=__doc__)
    parser.add_argument("--schedules", type=int, default=SCHEDULES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="number of the first schedule")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="play a record again, aloud")
    parser.add_argument(
        "--incidents",
        type=Path,
        metavar="FOLDER",
        default=Path(tempfile.gettempdir()),
        help="where to write down what was wrong",
    )
    return parser.parse_args()


def _lines(simulation: Simulation, result: Result, folder: Path) -> Iterator[str]:
    for violation in result.violations:
        yield f"seed {result.seed}, schedule {violation.number}:"
        yield from (f"    {problem}" for problem in violation.problems)
        yield f"    python -m scripts.simulate --replay {incident(simulation, violation, folder)}"


def _found(result: Result) -> dict[str, object]:
    return {
        "seed": result.seed,
        "schedules": result.schedules,
        "inputs": result.inputs,
        "seconds": round(result.seconds, 1),
        "schedules_per_minute": round(result.per_minute),
        "violations": result.wrong,
    }


def _replay(path: Path) -> int:
    """Play a record again and print its steps."""
    status = 0
    try:
        for is_right, line in shown(path.read_bytes().splitlines()):
            sys.stdout.write(f"{line}\n" if is_right else f"!!! {line.strip()}\n")
            status = status if is_right else WRONG
    except (OSError, InvalidOptions) as error:
        sys.stderr.write(f"{path}: {error}\n")
        return UNREADABLE
    return status


if __name__ == "__main__":
    sys.exit(main())
