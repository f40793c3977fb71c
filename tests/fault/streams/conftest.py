"""Daemons behind a wire that may do what it likes, and the count of the cases that were shown."""

import contextlib
import functools
import tomllib
from pathlib import Path

import pytest

from cmdc_runtime.client import connection
from cmdc_runtime.client.mailbox import Mailbox
from tests.fault.streams.station import Station
from tests.fault.streams.wire import Wire

FOLDER = Path(__file__).parent
RESEND_S = 0.1


@pytest.fixture
def wire_of(monkeypatch, tmp_path_factory):
    """Make wires to daemons; what is lost on them is asked for again sooner than by default."""
    monkeypatch.setattr(connection, "Mailbox", functools.partial(Mailbox, resend_every_s=RESEND_S))
    with contextlib.ExitStack() as stack:

        def create(daemon, **faults):
            directory = tmp_path_factory.mktemp("w") / "run"
            return stack.enter_context(contextlib.closing(Wire(directory, daemon, **faults)))

        yield create


@pytest.fixture
def station(tmp_path_factory):
    """A desk, a hub and a journal, whose sessions the test plays."""
    with contextlib.closing(Station(tmp_path_factory.mktemp("st"))) as found:
        yield found


# --- the count --------------------------------------------------------------------------------


class Tally:
    """Which cases were played and passed."""

    def __init__(self):
        self.passed, self.failed = set(), set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        """Count a case by all of its tests."""
        report = yield
        names = {name for marker in item.iter_markers("stream_case") for name in marker.args}
        if report.failed:
            self.failed |= names
        elif report.passed and report.when == "call":
            self.passed |= names
        return report

    def pytest_terminal_summary(self, terminalreporter):
        """Tell the count, and what is missing."""
        if self.passed | self.failed:
            known = tomllib.loads((FOLDER / "cases.toml").read_text(encoding="utf-8"))
            missing = sorted(known.keys() - (self.passed - self.failed))
            told = f"; without {', '.join(missing)}" if missing else ""
            count = len(known) - len(missing)
            terminalreporter.line(f"stream cases: {count} of {len(known)} passed{told}")


def pytest_configure(config):
    """Begin to count."""
    config.pluginmanager.register(Tally(), "stream-tally")
