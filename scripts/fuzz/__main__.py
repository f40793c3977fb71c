"""``python -m scripts.fuzz``: give every decoder of the product inputs that are nearly right.

The table has a line for each target. The exit status is 1 where anything was found; then each kind
of problem is shown once, with the seed of its input, which ``--again TARGET SEED`` plays alone.
"""

import argparse
import json
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Final

import structlog

from benchmarks.report import append
from scripts.fuzz import guided
from scripts.fuzz.run import Found, Target, play, try_seed
from scripts.fuzz.targets import TARGETS

SUBJECT: Final = "fuzz"
WHOLE: Final = 1_000
"""What the shares of all targets add up to."""
GUIDED_SHARE: Final = 4
"""One in so many inputs of a target is bred, where that can be."""
SHOWN_CHARS: Final = 1_500
INTERRUPTED: Final = 130


def main() -> int:
    """Do what the arguments say and return the exit status."""
    arguments = _arguments()
    _be_quiet()
    targets = [one for one in TARGETS if arguments.only in (None, one.name)]
    if arguments.again is not None:
        return _again(*arguments.again)
    load = os.getloadavg()[0]
    is_guided = guided.is_installed() and not arguments.unguided
    engines = "seeded and coverage-guided" if is_guided else "seeded"
    sys.stdout.write(f"{arguments.inputs:,} inputs, {engines}, seed {arguments.seed}\n")
    try:
        found = [_play(one, arguments, is_guided=is_guided) for one in targets]
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    if not arguments.no_save and arguments.only is None:
        append(SUBJECT, _record(found, arguments), load)
    wrong = sum(one.problems.total() for one in found) + sum(not one.is_flat for one in found)
    inputs = sum(one.inputs for one in found)
    sys.stdout.write(f"{inputs:,} inputs: {wrong} problems\n")
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=[one.name for one in TARGETS], help="one target alone")
    parser.add_argument("--again", nargs=2, metavar=("TARGET", "SEED"), help="one input, aloud")
    parser.add_argument("--unguided", action="store_true", help="by seeds alone")
    parser.add_argument("--no-save", action="store_true", help="leave no record")
    return parser.parse_args()


def _be_quiet() -> None:
    """Have libraries keep to themselves what they think of such inputs; findings are ours."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _play(target: Target, arguments: argparse.Namespace, *, is_guided: bool) -> Found:
    share = WHOLE if arguments.only else target.share
    inputs = max(1, arguments.inputs * share // WHOLE)
    bred = inputs // GUIDED_SHARE if is_guided and target.is_guidable else 0
    found = play(target, inputs - bred, f"{arguments.seed}.{target.name}")
    if bred:
        status, said = guided.guide(target.name, bred, arguments.seed)
        found.inputs += bred
        if status != 0:
            found.add("coverage-guided", str(arguments.seed), said[-SHOWN_CHARS:])
    _show(found)
    return found


def _show(found: Found) -> None:
    growth = f"{found.growth_bytes / 2**20:.1f} MiB"
    flat = "" if found.is_flat else "  MEMORY GROWS"
    sys.stdout.write(
        f"{found.name:<20} {found.inputs:>9,} inputs {found.seconds:>7} s  +{growth:<9}"
        f" {found.problems.total():>5} problems{flat}\n"
    )
    for problem, example in found.examples.items():
        sys.stdout.write(f"  {found.problems[problem]} x {problem}\n    ")
        sys.stdout.write(_shortened(example).replace("\n", "\n    ") + "\n")
    sys.stdout.flush()


def _shortened(example: str) -> str:
    """Return what went wrong, which is said first, and the last of what led to it."""
    left_out = len(example) - 2 * SHOWN_CHARS
    if left_out <= 0:
        return example
    return f"{example[:SHOWN_CHARS]}\n[{left_out} characters]\n{example[-SHOWN_CHARS:]}"


def _record(found: Sequence[Found], arguments: argparse.Namespace) -> dict[str, object]:
    return {
        "seed": arguments.seed,
        "inputs": sum(one.inputs for one in found),
        "targets": [
            {
                "name": one.name,
                "inputs": one.inputs,
                "seconds": one.seconds,
                "growth_bytes": one.growth_bytes,
                "problems": dict(one.problems),
            }
            for one in found
        ],
    }


def _again(name: str, seed: str) -> int:
    """Give a target one input, and show what comes of it."""
    target = next(one for one in TARGETS if one.name == name)
    found = Found(name)
    with target.open() as try_one:
        try_seed(try_one, seed, found)
    sys.stdout.write(json.dumps(found.examples, indent=1).replace("\\n", "\n") + "\n")
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
