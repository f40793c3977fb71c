"""Which of the named cases of a table were played and passed, told at the end of a run.

The table is a TOML file of names and what they mean; a test says by a marker which ones it plays.
A case has passed when all of its tests have, and in part when some of them were skipped. A run with
every test of every case, in all folders beside that of the table, fails where a case is missing.
"""

import tomllib
from dataclasses import dataclass

import pytest


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


class Tally:
    """The count of one table's cases; a plugin of pytest."""

    def __init__(self, what, marker, table):
        self._what, self._marker, self._table = what, marker, table
        self._plays, self._outcomes = {}, {}
        self._files = set()
        self._is_whole = True

    def pytest_deselected(self, items):
        """Record that a test of a case was left out."""
        if any(self._names(item) for item in items):
            self._is_whole = False

    def pytest_collection_finish(self, session):
        """Record what is to be played, and whether that is all."""
        for item in session.items:
            if names := self._names(item):
                self._plays[item.nodeid] = names
                self._files.add(item.path)
        if any("::" in argument for argument in session.config.args):
            self._is_whole = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        """Keep what became of a test and its audit."""
        report = yield
        if item.nodeid in self._plays:
            has_ended = report.when == "call" or not report.passed
            if has_ended and self._outcomes.get(item.nodeid) != "failed":
                self._outcomes[item.nodeid] = report.outcome
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        """Let a run of all cases fail where one is missing."""
        is_judged = session.exitstatus == pytest.ExitCode.OK and self._outcomes and self._has_all()
        if is_judged and self._count().missing:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        """Tell the count, what was played in part, and what is missing."""
        if "passed" in self._outcomes.values() or "failed" in self._outcomes.values():
            terminalreporter.line(self._count().line(self._what))

    def _names(self, item):
        return {name for marker in item.iter_markers(self._marker) for name in marker.args}

    def _has_all(self):
        mark = f"mark.{self._marker}("
        paths = self._table.parents[1].rglob("test_*.py")
        files = {path for path in paths if mark in path.read_text(encoding="utf-8")}
        return self._is_whole and files <= self._files

    def _count(self):
        known = tomllib.loads(self._table.read_text(encoding="utf-8"))
        return count(known, self._plays, self._outcomes)
