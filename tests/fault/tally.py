"""Which of the named cases of a table were played and passed, told at the end of a run.

The table is a TOML file of names and what they mean; a test says by a marker which ones it plays.
"""

import tomllib

import pytest


class Tally:
    """The count of one table's cases; a plugin of pytest."""

    def __init__(self, what, marker, table):
        self._what, self._marker, self._table = what, marker, table
        self._passed, self._failed = set(), set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        """Count a case by all of its tests and their audits."""
        report = yield
        names = {name for marker in item.iter_markers(self._marker) for name in marker.args}
        if report.failed:
            self._failed |= names
        elif report.passed and report.when == "call":
            self._passed |= names
        return report

    def pytest_terminal_summary(self, terminalreporter):
        """Tell the count, and what is missing."""
        if not self._passed | self._failed:
            return
        known = tomllib.loads(self._table.read_text(encoding="utf-8"))
        missing = sorted(known.keys() - (self._passed - self._failed))
        told = f"; without {', '.join(missing)}" if missing else ""
        count = len(known) - len(missing)
        terminalreporter.line(f"{self._what} cases: {count} of {len(known)} passed{told}")
