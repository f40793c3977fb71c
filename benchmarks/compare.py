"""``python -m benchmarks.compare BASE [SUBJECT …]``: two revisions beside each other in one run.

The old one is ``BASE``, checked out into a temporary work tree; the new one is this work tree as it
is. Each plays its own benchmark, old and new in turns; ``pairs`` says what is reported. Both run
in this environment, each from its own sources; where they depend on different distributions, the
old one gets an environment of its own. However a run ends, what it made is gone. An exit status of
2 says that nothing could be compared.
"""

import argparse
import filecmp
import os
import signal
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from benchmarks.metrics import Metric
from benchmarks.pairs import Comparison, Play, compare, table
from benchmarks.processes import ROOT, environment
from benchmarks.report import append

SUBJECTS: Final = ("spawn", "roundtrip", "events", "restart", "journal")
PAIRS: Final = 5
REPEATS: Final = 10
"""Samples of a quick operation in one play; see ``settings``."""
PLAY_S: Final = 900.0
"""For one play of a subject; the longest takes about a minute where nobody else works."""
GIT_S: Final = 120.0
INSTALL_S: Final = 1_200.0
END_S: Final = 90.0
"""For a play that was asked to end: it ends its daemon first, which ends its sessions."""
EXTRA: Final = "test"
"""What a benchmark may need beyond the product: the journal's has a driver for PostgreSQL."""
NOTHING_COMPARED: Final = 2
INTERRUPTED: Final = 130
_PACKAGES: Final = ("benchmarks", "cmdc_runtime", "supervisor", "workers")
_WHERE: Final = f"import {', '.join(_PACKAGES)}; print(*({', '.join(_PACKAGES)}), sep='\\n')"


class CompareError(Exception):
    """Nothing can be compared; the text says why, for whoever asked."""


@dataclass(frozen=True, slots=True)
class Side:
    """One revision: where its files are, what plays them, and how people call it."""

    root: Path
    python: str
    name: str

    def has(self, subject: str) -> bool:
        """Say whether it has a benchmark of that name."""
        return self.file(subject).is_file()

    def file(self, subject: str) -> Path:
        """Return where a benchmark is, or would be."""
        return self.root / "benchmarks" / f"bench_{subject}.py"

    def play(self, subject: str, repeats: int) -> Play:
        """Return what one play of the subject reports, by metric.

        Raises:
            CompareError: it fails, or takes too long.
        """
        flags = ["--json", "--no-save", "--no-crowds", "--repeats", str(repeats)]
        printed = self.run(["-m", "benchmarks", subject, *flags], PLAY_S)
        metrics = [msgspec.json.decode(line, type=Metric) for line in printed.splitlines()]
        return {metric.metric: metric for metric in metrics}

    def run(self, arguments: Sequence[str], bound_s: float) -> bytes:
        """Return what Python prints, run with these arguments on this side's sources.

        Raises:
            CompareError: it fails, or takes longer than ``bound_s``.
        """
        variables = environment() | {"PYTHONPATH": str(self.root)}
        return _run([self.python, *arguments], self.root, bound_s, variables)

    def prove(self) -> None:
        """See that it is this side's sources that are played.

        Raises:
            CompareError: other sources lie in front of them.
        """
        places = self.run(["-P", "-c", _WHERE], GIT_S).decode().splitlines()
        strange = [place for place in places if f"{self.root}{os.sep}" not in place]
        if strange:
            raise CompareError(f"{self.name} is not played by its own sources: {strange[0]}")


def main() -> int:
    """Compare what the arguments say; return the exit status, which no ratio touches."""
    arguments = _arguments()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        with _checked_out(arguments.base) as old:
            new = Side(ROOT, sys.executable, "the work tree")
            old.prove()
            new.prove()
            shared = [subject for subject in arguments.subjects if _is_shared(subject, old)]
            for subject in shared:
                _compare(subject, old, new, arguments)
    except CompareError as error:
        sys.stderr.write(f"{error}\n")
        return NOTHING_COMPARED
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    return 0 if shared else NOTHING_COMPARED


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("base", help="the old revision")
    parser.add_argument(
        "subjects", nargs="*", default=list(SUBJECTS), help=f"by default {SUBJECTS}"
    )
    parser.add_argument("--pairs", type=_count, default=PAIRS)
    parser.add_argument("--repeats", type=_count, default=REPEATS)
    parser.add_argument("--no-save", action="store_true", help="leave no record")
    return parser.parse_args()


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


def _interrupt(_number: int, _frame: object) -> NoReturn:
    for number in (signal.SIGINT, signal.SIGTERM):  # once is enough: what was made has to go
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


# --- the old side ---------------------------------------------------------------------------------


@contextmanager
def _checked_out(base: str) -> Iterator[Side]:
    """Give a revision as a side, in a work tree that is removed behind it.

    Raises:
        CompareError: there is no such revision, or it can't be checked out or installed.
    """
    commit = _commit_of(base)
    with tempfile.TemporaryDirectory(prefix="cmdc-compare-") as folder:
        root = Path(folder, "old").resolve()
        try:
            # No hook of a person's: this work tree is nobody's place of work.
            hookless = ("-c", f"core.hooksPath={os.devnull}")
            _git(*hookless, "worktree", "add", "--quiet", "--detach", str(root), commit)
            python = _python(root, Path(folder, "venv"))
            yield Side(root, python, f"{base} ({commit[:12]})")
        finally:
            _remove(root)


def _commit_of(base: str) -> str:
    try:
        return _git("rev-parse", "--verify", "--end-of-options", f"{base}^{{commit}}").strip()
    except CompareError as error:
        raise CompareError(f"BASE={base!r} names no commit of this repository") from error


def _git(*arguments: str) -> str:
    return _run(["git", *arguments], ROOT, GIT_S).decode()


def _remove(root: Path) -> None:
    """Remove a work tree, as far as it came to be."""
    command = ["git", "worktree", "remove", "--force", "--force", str(root)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=GIT_S)


def _python(root: Path, place: Path) -> str:
    """Return the interpreter for a revision: this one, unless it depends on other things."""
    theirs, ours = (_text(folder / "pyproject.toml") for folder in (root, ROOT))
    if dependencies(theirs) == dependencies(ours):
        return sys.executable
    print("other dependencies: an environment of its own is installed, some minutes", flush=True)
    venv.create(place, with_pip=True)
    python = str(place / "bin" / "python")
    install = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-input"]
    _run([python, *install, "--editable", f"{root}[{EXTRA}]"], root, INSTALL_S)
    return python


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def dependencies(pyproject: str) -> object:
    """Return of the text of a ``pyproject.toml`` what has to be installed for a benchmark."""
    project = tomllib.loads(pyproject).get("project", {})
    needed = [*project.get("dependencies", [])]
    wanted, seen = [EXTRA], set()
    while wanted:
        extra = wanted.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for one in project.get("optional-dependencies", {}).get(extra, []):
            if one.startswith(f"{project.get('name')}["):
                wanted += one.partition("[")[2].rstrip("]").split(",")
            else:
                needed.append(one)
    return sorted(needed)


# --- the plays ------------------------------------------------------------------------------------


def _is_shared(subject: str, old: Side) -> bool:
    """Say whether both sides have a benchmark; one that is left out is named."""
    sides = {old.name: old.has(subject), "the work tree": Side(ROOT, "", "").has(subject)}
    lacking = [name for name, has in sides.items() if not has]
    if lacking:
        print(f"{subject}: left out, not in {' and '.join(lacking)}", flush=True)
    return not lacking


def _compare(subject: str, old: Side, new: Side, arguments: argparse.Namespace) -> None:
    """Play one subject in turns, print what came of it, and keep it."""
    load = os.getloadavg()[0]
    pairs: list[tuple[Play, Play]] = []
    for number in range(1, arguments.pairs + 1):
        before = old.play(subject, arguments.repeats)
        pairs.append((before, new.play(subject, arguments.repeats)))
        print(f"{subject}: pair {number} of {arguments.pairs}", file=sys.stderr, flush=True)
    found = compare(pairs)
    print(f"\n{subject}: {old.name} is old, {new.name} is new\n\n{table(found.metrics)}\n")
    is_same = filecmp.cmp(old.file(subject), new.file(subject), shallow=False)
    notes = found.left_out + ([] if is_same else ["the benchmark itself differs between the two"])
    print("\n".join(f"- {note}" for note in notes), end="\n" if notes else "", flush=True)
    if not arguments.no_save:
        _save(subject, old, arguments, (Comparison(found.metrics, notes), load))


def _save(
    subject: str, old: Side, arguments: argparse.Namespace, found: tuple[Comparison, float]
) -> None:
    comparison, load = found
    measured = {
        "base": _git("-C", str(old.root), "rev-parse", "--short=12", "HEAD").strip(),
        "repeats": arguments.repeats,
        "pairs": arguments.pairs,
        "metrics": comparison.metrics,
        "left_out": comparison.left_out,
    }
    append(f"compare-{subject}", measured, load)


# --- processes ------------------------------------------------------------------------------------


def _run(
    command: Sequence[str], cwd: Path, bound_s: float, variables: dict[str, str] | None = None
) -> bytes:
    """Return what a command prints; it is asked to end, and then ended, when we have to leave.

    Raises:
        CompareError: it fails, or takes too long.
    """
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C is for us, who end it
    ) as process:
        try:
            printed, problem = process.communicate(timeout=bound_s)
        except subprocess.TimeoutExpired as error:
            _end(process)
            shown = " ".join(command)
            raise CompareError(f"{shown} was not done within {bound_s:g} s") from error
        except BaseException:
            _end(process)
            raise
    if process.returncode:
        shown = f"{' '.join(command)} ended with status {process.returncode}"
        raise CompareError(f"{problem.decode(errors='replace')}{shown}, in {cwd}")
    return printed


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Interrupt a process, so that it ends what it started, and kill it if that takes too long."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=END_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


if __name__ == "__main__":
    sys.exit(main())
