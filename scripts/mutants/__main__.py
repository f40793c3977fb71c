"""``python -m scripts.mutants``: plant small wrongs, and count those that the tests notice.

``--sample N`` takes N of all, by a seed. A survivor is either in ``survivors.toml``, with the
reason why it may live, or a hole in the tests. Exit status 1: the share of killed mutants is below
``KILLED_MIN``, or a survivor has no reason; or a reason is told of a mutant that does not live.
"""

import argparse
import os
import random
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.report import append
from scripts.mutants.belongs import ROOT, Module, modules
from scripts.mutants.operators import Mutant, mutants_of
from scripts.mutants.run import Verdict, judge

KILLED_MIN: Final = 0.9
SUBJECT: Final = "mutants"
SURVIVORS: Final = Path(__file__).parent / "survivors.toml"


def main() -> int:
    """Do what the arguments say and return the exit status."""
    arguments = _arguments()
    load = os.getloadavg()[0]
    pairs = [
        (module, mutant)
        for module in modules()
        if arguments.name in module.path
        for mutant in mutants_of((ROOT / module.path).read_text(encoding="utf-8"))
        if arguments.match in mutant.name
    ]
    total = len(pairs)
    if arguments.sample:
        chance = random.Random(arguments.seed)  # noqa: S311 - a sample that can be drawn again
        pairs = chance.sample(pairs, min(arguments.sample, total))
    if arguments.list:
        sys.stdout.writelines(f"{module.path}:{one.line}: {one.name}\n" for module, one in pairs)
        return 0
    sys.stdout.write(f"{len(pairs)} of {total} mutants\n")
    return _judge(pairs, arguments, load)


def _judge(
    pairs: Sequence[tuple[Module, Mutant]], arguments: argparse.Namespace, load: float
) -> int:
    reasons = tomllib.loads(SURVIVORS.read_text(encoding="utf-8"))
    verdicts = []
    for verdict in judge(pairs):
        verdicts.append(verdict)
        if not verdict.by:
            why = reasons.get(verdict.name, "NO REASON")
            place = f"{verdict.module.path}:{verdict.mutant.line}"
            sys.stdout.write(f"survived: {place}: {verdict.mutant.name}: {why}\n")
            sys.stdout.flush()
    wrong = [f"a hole in the tests: {one.name}" for one in _holes(verdicts, reasons)]
    wrong += [f"it does not live: {one.name}" for one in verdicts if one.by and one.name in reasons]
    wrong += list(_table(verdicts))
    if not arguments.no_save and not arguments.name:
        append(SUBJECT, _record(verdicts, arguments.seed), load)
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


def _holes(verdicts: Sequence[Verdict], reasons: dict[str, str]) -> list[Verdict]:
    return [one for one in verdicts if not one.by and one.name not in reasons]


def _table(verdicts: Sequence[Verdict]) -> list[str]:
    """Print a line for each module, and return those in which too many live."""
    found: defaultdict[str, Counter[bool]] = defaultdict(Counter)
    for one in verdicts:
        found[one.module.path][bool(one.by)] += 1
    for path, counts in sorted(found.items()):
        sys.stdout.write(f"{path:<48} {counts[True]:>4} of {counts.total():>4} killed\n")
    killed = sum(counts[True] for counts in found.values())
    sys.stdout.write(f"{killed} of {len(verdicts)} killed ({killed / max(1, len(verdicts)):.1%})\n")
    is_enough = killed >= KILLED_MIN * len(verdicts)
    return [] if is_enough else [f"fewer than {KILLED_MIN:.0%} of all mutants are killed"]


def _record(verdicts: Sequence[Verdict], seed: int) -> dict[str, object]:
    return {
        "seed": seed,
        "mutants": len(verdicts),
        "killed": sum(bool(one.by) for one in verdicts),
        "seconds": round(sum(one.seconds for one in verdicts), 1),
        "survivors": [one.name for one in verdicts if not one.by],
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=0, help="0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", default="", help="only modules with this in their path")
    parser.add_argument("--match", default="", help="only mutants with this in their name")
    parser.add_argument("--list", action="store_true", help="only name them")
    parser.add_argument("--no-save", action="store_true", help="leave no record")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
