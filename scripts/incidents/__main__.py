"""``python -m scripts.incidents``: play every incident and write the page of them.

``--check`` writes nothing and says what is different from the page; the exit status is 1 then.
``--only NAME`` plays one of them; it may be repeated. ``--prose`` plays none: that is for who has
edited the prose. What this machine cannot stage stays as it is on the page, and is named. However
a run ends, what it started is gone.
"""

import argparse
import difflib
import signal
import sys
from collections.abc import Collection, Iterable
from itertools import groupby
from typing import NoReturn

from scripts.incidents import page
from scripts.incidents.place import NotHere, Place
from scripts.incidents.playbill import PLAYS, Key, check_setting, play
from scripts.incidents.stage import Stage


def main() -> int:
    """Do what the arguments say and return the exit status."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, _interrupt)
    old = page.read_back()
    chosen = [] if arguments.prose else arguments.only or PLAYS
    new = page.blocks(played(chosen))
    if arguments.check:
        found = page.differences(old, new)
        sys.stdout.writelines(line for one in found for line in _lines(one))
        if page.is_stale():
            sys.stdout.write(f"the page is not made of its prose: run `{page.WRITE} --prose`\n")
        return 1 if found or page.is_stale() else 0
    try:
        text = page.composed(old | new)
    except page.PageError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    page.PAGE.parent.mkdir(exist_ok=True)
    page.PAGE.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{page.PAGE.relative_to(page.ROOT)}: written\n")
    return 0


def played(names: Collection[str]) -> dict[Key, str]:
    """Play incidents, those that need the same kind of daemon one after the other."""
    new: dict[Key, str] = {}
    chosen = [name for name in PLAYS if name in names]
    for setting, group in groupby(chosen, lambda name: PLAYS[name].setting):
        try:
            check_setting(setting)
        except NotHere as problem:
            _say_skipped(group, problem)
            continue
        with Place(setting) as place:
            stage = Stage.of(place)
            for name in group:
                sys.stderr.write(f"{name}\n")
                try:
                    new |= play(name, stage)
                except NotHere as problem:
                    _say_skipped([name], problem)
    return new


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=page.WRITE, description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--prose", action="store_true", help="play nothing, take the blocks there")
    parser.add_argument("--only", action="append", choices=list(PLAYS), help="play this one")
    return parser.parse_args()


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _say_skipped(names: Iterable[str], problem: NotHere) -> None:
    for name in names:
        sys.stderr.write(f"{name} is left out: {problem}\n")


def _lines(one: page.Difference) -> Iterable[str]:
    yield from difflib.unified_diff(
        one.old.splitlines(keepends=True),
        one.new.splitlines(keepends=True),
        f"{one.place} on the page",
        f"{one.place} today",
    )
    yield "\n"


if __name__ == "__main__":
    sys.exit(main())
