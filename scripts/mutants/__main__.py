"""``python -m scripts.mutants``: plant small wrongs, and count those that the tests notice.

A module's mutants are played once: their record holds until the module or the tests that noticed
them change; ``--again`` plays them all the same. ``--sample N`` draws N, by a seed, from modules
whose last record has no hole. ``--own`` asks a module's own tests alone, those of its name or else
the quick ones, which is soon done; what they let live is played again without it. A survivor is
either in ``survivors.toml``, with the reason why it may live, or a hole in the tests. Exit status
1: a survivor has no reason, a reason is given for a mutant that does not live, or fewer than
``KILLED_MIN`` of all are killed.
"""

import argparse
import os
import random
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from scripts.mutants import records
from scripts.mutants.belongs import Module, modules
from scripts.mutants.operators import Mutant, mutants_of
from scripts.mutants.run import Bench

KILLED_MIN: Final = 0.9
SURVIVORS: Final = Path(__file__).parent / "survivors.toml"
_Pair = tuple[Module, int, Mutant]


def main() -> int:
    """Do what the arguments say and return the exit status."""
    arguments = _arguments()
    pairs = [
        (module, at, mutant)
        for module in modules()
        if arguments.name in module.path
        for at, mutant in enumerate(mutants_of(Path(module.file).read_text(encoding="utf-8")))
        if arguments.match in mutant.name
    ]
    reasons = reasons_of(SURVIVORS)
    if arguments.sample:
        pairs = _drawn(pairs, reasons, arguments)
    if arguments.list:
        sys.stdout.writelines(f"{_place(module, mutant)}\n" for module, _, mutant in pairs)
        return 0
    if arguments.sample or arguments.match:
        return _try_some(pairs, reasons)
    return _play_whole(pairs, reasons, arguments)


def reasons_of(path: Path) -> dict[str, str]:
    """Return by mutant, ``path: name``, why it may live."""
    groups = tomllib.loads(path.read_text(encoding="utf-8"))
    return {
        f"{module}: {name}": group["why"]
        for group in groups.get("group", ())
        for module, names in group["mutants"].items()
        for name in names
    }


def _drawn(
    pairs: Sequence[_Pair], reasons: dict[str, str], arguments: argparse.Namespace
) -> list[_Pair]:
    """Return a sample of the modules without a hole at their last run, without what may live."""
    whole = {
        path
        for path, record in records.newest().items()
        if all(f"{path}: {name}" in reasons for name in record.survivors)
    }
    drawn = [
        pair
        for pair in pairs
        if pair[0].path in whole and f"{pair[0].path}: {pair[2].name}" not in reasons
    ]
    chance = random.Random(arguments.seed)  # noqa: S311 - a sample that can be drawn again
    return sorted(
        chance.sample(drawn, min(arguments.sample, len(drawn))),
        key=lambda pair: (pair[0].path, pair[1]),
    )


def _try_some(pairs: Sequence[_Pair], reasons: dict[str, str]) -> int:
    bench = Bench()
    begun_s = time.monotonic()
    verdicts = [
        verdict
        for module, chosen in _by_module(pairs)
        for verdict in bench.judge(module, [mutant for _, mutant in chosen])
    ]
    wrong = [line for one in verdicts if (line := _wrong(one.module, one.mutant, one.by, reasons))]
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    killed = sum(bool(one.by) for one in verdicts)
    sys.stdout.write(f"{killed} of {len(verdicts)} killed, {time.monotonic() - begun_s:.0f} s\n")
    return 1 if wrong else 0


def _wrong(module: Module, mutant: Mutant, by: str, reasons: dict[str, str]) -> str:
    """Return what is wrong with a mutant's fate, or ""."""
    has_reason = f"{module.path}: {mutant.name}" in reasons
    if bool(by) is not has_reason:
        return ""
    word = "it does not live" if by else "a hole in the tests"
    return f"{word}: {_place(module, mutant)}"


def _place(module: Module, mutant: Mutant) -> str:
    return f"{module.path}:{mutant.line}: {mutant.name}"


def _play_whole(
    pairs: Sequence[_Pair], reasons: dict[str, str], arguments: argparse.Namespace
) -> int:
    """Play what no record has, and keep a record for each module."""
    bench = Bench(has_others=not arguments.own)
    known = {} if arguments.again else records.newest()
    wrong: list[str] = []
    total = killed = 0
    for module, chosen in _by_module(pairs):
        mutants = [mutant for _, mutant in chosen]
        by = _played(bench, module, mutants, known.get(module.path))
        noticed = sum(bool(one) for one in by.values())
        sys.stdout.write(f"{module.path:<48} {noticed:>4} of {len(by):>4} killed\n")
        here = [_wrong(module, mutant, by[at], reasons) for at, mutant in enumerate(mutants)]
        sys.stdout.writelines(f"  {line}\n" for line in here if line)
        sys.stdout.flush()
        wrong += filter(None, here)
        total, killed = total + len(by), killed + noticed
    is_enough = killed >= KILLED_MIN * total
    share = f"{killed / max(1, total):.1%}"
    sys.stdout.write(f"{killed} of {total} killed ({share}), {len(wrong)} without a reason\n")
    return 0 if is_enough and not wrong else 1


def _played(
    bench: Bench, module: Module, mutants: Sequence[Mutant], record: records.Record | None
) -> dict[int, str]:
    """Return what noticed each mutant of a module, from its record or by playing it."""
    by = record.holds((*module.own, *module.others)) if record else {}
    left = [at for at in range(len(mutants)) if at not in by]
    if left:
        load, begun_s = os.getloadavg()[0], time.monotonic()
        verdicts = bench.judge(module, [mutants[at] for at in left])
        by |= {at: one.killer for at, one in zip(left, verdicts, strict=True)}
        found = records.Found([mutant.name for mutant in mutants], by, time.monotonic() - begun_s)
        records.keep(module, found, load, bench.left_out(module))
    return by


def _by_module(pairs: Sequence[_Pair]) -> Iterator[tuple[Module, list[tuple[int, Mutant]]]]:
    found: defaultdict[Module, list[tuple[int, Mutant]]] = defaultdict(list)
    for module, at, mutant in pairs:
        found[module].append((at, mutant))
    yield from found.items()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=0, help="0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", default="", help="only modules with this in their path")
    parser.add_argument("--match", default="", help="only mutants with this in their name")
    parser.add_argument("--own", action="store_true", help="only by its own tests")
    parser.add_argument("--list", action="store_true", help="only name them")
    parser.add_argument("--again", action="store_true", help="whatever the records say")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
