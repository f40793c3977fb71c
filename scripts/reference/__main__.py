"""``python -m scripts.reference``: write the reference pages, or ``--check`` whether they are new.

The exit status of a check is 1 where a page is out of date.
"""

import argparse
import sys

from scripts.reference import pages
from scripts.reference.markdown import COMMAND


def main() -> int:
    """Do what the arguments say and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    if not parser.parse_args().check:
        _print("written", pages.write())
        return 0
    old = pages.stale()
    _print(f"out of date, so run {COMMAND}", old)
    return 1 if old else 0


def _print(what: str, names: list[str]) -> None:
    sys.stdout.writelines(f"{name}: {what}\n" for name in names)


if __name__ == "__main__":
    sys.exit(main())
