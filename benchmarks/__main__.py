"""``python -m benchmarks [SUBJECT]``: measure one subject, or all of them.

A subject is a module ``bench_<subject>.py`` with ``run(settings)``, which yields metrics. Flags
override the variables JSON, REPEATS and BIG, which serve ``make bench``. However a run ends, what
it started is gone.
"""

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from benchmarks.metrics import Metric
from benchmarks.report import json_line, save, table
from benchmarks.settings import CROWD_BIG, CROWDS, REPEATS, Settings

INTERRUPTED = 130


def main() -> int:
    """Run what the arguments say; return the exit status, which no bar touches."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, _interrupt)
    crowds = () if arguments.no_crowds else CROWDS + ((CROWD_BIG,) if arguments.big else ())
    settings = Settings(repeats=arguments.repeats, crowds=crowds)
    try:
        for subject in [arguments.subject] if arguments.subject else _subjects():
            _run(subject, settings, arguments)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    return 0


def _run(subject: str, settings: Settings, arguments: argparse.Namespace) -> None:
    load = os.getloadavg()[0]
    module = importlib.import_module(f"benchmarks.bench_{subject}")
    measure = module.run_pinned if arguments.one_core else module.run
    found: Iterator[Metric] = measure(settings)
    metrics: list[Metric] = []
    if not arguments.json:
        print(f"\n{subject}: {(module.__doc__ or '').splitlines()[0]}\n", flush=True)
    for metric in found:
        metrics.append(metric)
        if arguments.json:
            print(json_line(metric), flush=True)
    if not arguments.json:
        print(table(metrics), flush=True)
    if not arguments.no_save:
        save(subject, settings, metrics, load)


def _subjects() -> list[str]:
    files = Path(__file__).parent.glob("bench_*.py")
    return sorted(file.stem.removeprefix("bench_") for file in files)


def _arguments() -> argparse.Namespace:
    environ = os.environ
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("subject", nargs="?", choices=_subjects(), help="all without one")
    parser.add_argument("--json", action="store_true", default=_is_set("JSON"), help="JSON lines")
    parser.add_argument("--repeats", type=int, default=int(environ.get("REPEATS") or REPEATS))
    parser.add_argument("--big", action="store_true", default=_is_set("BIG"), help="crowd of 1,000")
    parser.add_argument("--no-crowds", action="store_true", help="no growth curves")
    parser.add_argument("--no-save", action="store_true", help="leave no record")
    parser.add_argument("--one-core", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _is_set(name: str) -> bool:
    return os.environ.get(name, "") not in {"", "0"}


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
