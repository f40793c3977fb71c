"""Which of the named cases of a table were played and passed, written at the end of a run.

The table is a TOML file of names and what they mean; a test says by a marker which ones it plays.
A case has passed when all of its tests have, and in part when some of them were skipped. A run with
every test of every case, in all folders beside that of the table, fails where a case is missing.

A run in lanes is one run: with ``LANE_PARTS=DIR`` each lane writes its part of a tally there, and
``python -m tests.fault.tally``, when all have ended, writes what they make together.
"""

import os
import sys
import tomllib
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import msgspec
import pytest

PARTS = "LANE_PARTS"
"""The variable that names the directory for the parts: ``scripts/lanes.py``."""
PART_NAME = "tally-{what}-{pid}.json"


@dataclass(frozen=True)
class Count:
    """The names of the cases by how far they were shown, each in its order."""

    passed: tuple[str, ...]
    partly: tuple[str, ...]
    missing: tuple[str, ...]

    def line(self, what):
        """Return the count in words."""
        known = len(self.passed) + len(self.partly) + len(self.missing)
        parts = [f"{what} cases: {len(self.passed)} of {known} passed"]
        if self.partly:
            parts.append(f"{', '.join(self.partly)} in part")
        if self.missing:
            parts.append(f"without {', '.join(self.missing)}")
        return "; ".join(parts)


def count(known, plays, outcomes):
    """Count the cases ``known``.

    ``plays`` has the names of the cases for each collected test, ``outcomes`` one of "passed",
    "skipped" and "failed" for each that ran. A case without a test that passed, or with one that
    failed or did not come to run, is missing.
    """
    found = {"passed": [], "partly": [], "missing": []}
    for name in sorted(known):
        of_case = {outcomes.get(test, "failed") for test, names in plays.items() if name in names}
        if of_case == {"passed"}:
            found["passed"].append(name)
        elif of_case == {"passed", "skipped"}:
            found["partly"].append(name)
        else:
            found["missing"].append(name)
    return Count(**{kind: tuple(names) for kind, names in found.items()})


class Part(msgspec.Struct):
    """What one run has of the cases of a table."""

    what: str
    marker: str
    table: Path
    plays: dict[str, set[str]] = {}
    """The names of the cases of each test."""
    outcomes: dict[str, str] = {}
    files: set[Path] = set()
    is_whole: bool = True
    """No test of a case was left out."""

    def has_all(self):
        """Say whether every file with tests of cases was played, and all of it."""
        mark = f"mark.{self.marker}("
        paths = self.table.parents[1].rglob("test_*.py")
        files = {path for path in paths if mark in path.read_text(encoding="utf-8")}
        return self.is_whole and files <= self.files

    def count(self):
        """Count the cases of the table."""
        known = tomllib.loads(self.table.read_text(encoding="utf-8"))
        return count(known, self.plays, self.outcomes)

    def has_run(self):
        """Say whether there is anything to count."""
        return "passed" in self.outcomes.values() or "failed" in self.outcomes.values()

    def has_failed(self):
        """Say whether a run of all cases is without one."""
        return bool(self.outcomes) and self.has_all() and bool(self.count().missing)

    def with_part(self, other):
        """Return what two lanes have together."""
        return msgspec.structs.replace(
            self,
            plays=self.plays | other.plays,
            outcomes=self.outcomes | other.outcomes,
            files=self.files | other.files,
            is_whole=self.is_whole and other.is_whole,
        )


class Tally:
    """The count of one table's cases; a plugin of pytest."""

    def __init__(self, what, marker, table):
        self._part = Part(what, marker, table)
        self._parts = os.environ.get(PARTS)

    def pytest_deselected(self, items):
        """Record that a test of a case was left out."""
        if any(self._names(item) for item in items):
            self._part.is_whole = False

    def pytest_collection_finish(self, session):
        """Record what is to be played, and whether that is all."""
        for item in session.items:
            if names := self._names(item):
                self._part.plays[item.nodeid] = names
                self._part.files.add(item.path)
        if any("::" in argument for argument in session.config.args):
            self._part.is_whole = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        """Keep what became of a test and its audit."""
        report = yield
        outcomes = self._part.outcomes
        if item.nodeid in self._part.plays:
            has_ended = report.when == "call" or not report.passed
            if has_ended and outcomes.get(item.nodeid) != "failed":
                outcomes[item.nodeid] = report.outcome
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        """Let a run of all cases fail where one is missing; a lane leaves that to who joins all."""
        if self._parts:
            path = Path(self._parts, PART_NAME.format(what=self._part.what, pid=os.getpid()))
            path.write_bytes(msgspec.json.encode(self._part, enc_hook=str))
        elif session.exitstatus == pytest.ExitCode.OK and self._part.has_failed():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        """Write the count, what was played in part, and what is missing."""
        if self._part.has_run() and not self._parts:
            terminalreporter.line(self._part.count().line(self._part.what))

    def _names(self, item):
        return {name for marker in item.iter_markers(self._part.marker) for name in marker.args}


def joined(parts):
    """Return the whole of each tally of which there are parts in a directory."""
    found = [
        msgspec.json.decode(path.read_bytes(), type=Part, dec_hook=lambda kind, text: kind(text))
        for path in sorted(Path(parts).glob(PART_NAME.format(what="*", pid="*")))
    ]
    for _, of_one in groupby(found, key=lambda part: part.what):
        whole, *others = of_one
        for other in others:
            whole = whole.with_part(other)
        yield whole


def main():
    """Write what the lanes have made together; 1 where a case is missing."""
    tallies = list(joined(os.environ[PARTS]))
    sys.stdout.writelines(f"{one.count().line(one.what)}\n" for one in tallies if one.has_run())
    return int(any(one.has_failed() for one in tallies))


if __name__ == "__main__":
    sys.exit(main())
