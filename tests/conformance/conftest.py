"""The two performers as fixtures, and the count of the cases that passed.

``stage`` plays a case on the engine and again with real processes, ``sim`` and ``proc`` only one of
the two. With ``--conformance`` (``make conformance``) the last line of the run is the count, and a
case that was not played, or failed, fails the run; how each test ended is kept in ``played.json``.
"""

import asyncio
import contextlib
import tomllib
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
import pytest

from benchmarks.report import commit
from cmdc_runtime.testing import ScriptedModel
from scripts.reference.conformance import PLAYED, PLAYERS, Run
from supervisor.core.cgroups import Version
from tests.conformance.proc_stage import ProcStage
from tests.conformance.sim_stage import SimStage
from tests.conformance.stage_services import ForkServer, containments_at
from tests.fault.conftest import OwnDaemon

FOLDER = Path(__file__).parent
_TALLY = pytest.StashKey()
KINDS = ("C", "D", "X")


def cases():
    """Return all cases by name."""
    rows = tomllib.loads((FOLDER / "cases.toml").read_text(encoding="utf-8"))["case"]
    return {row["name"]: row for row in rows}


class Tally:
    """Which cases were played, by what, and which of them failed; a plugin for the whole run."""

    def __init__(self, *, is_judged):
        self.cases = cases()
        self.is_judged = is_judged
        self._played = {}
        self._failed = set()
        self._ended = {}
        """Of each item how it ended: a phase that failed outweighs one that passed."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        """Count each phase of each test."""
        report = yield
        names = self._names(item)
        if names and (report.when == "call" or not report.passed):
            self._ended[item.nodeid] = _player(item), report.outcome
        if report.failed:
            self._failed.update(names)
        elif report.passed and report.when == "call":
            for name in names:
                self._played.setdefault(name, set()).add(_player(item))
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        """Let the run fail for a case that did not pass, where that is asked for."""
        if self.is_judged and self._open():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.is_judged and self._ended:
            self._record()

    def _record(self):
        """Keep how each test ended, for the page."""
        tests = {}
        for nodeid, (player, outcome) in sorted(self._ended.items()):
            found = tests.setdefault(nodeid.partition("[")[0], {}).setdefault(player, Counter())
            found[outcome] += 1
        run = Run(commit=commit(), day=f"{datetime.now(UTC):%Y-%m-%d}", tests=tests)
        PLAYED.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")

    def pytest_terminal_summary(self, terminalreporter):
        """Write the count in an ordinary run, and what is missing in one that is judged."""
        if self.is_judged:
            for name in self._open():
                terminalreporter.line(f"{name} did not pass: {self.cases[name]['title']}")
        elif self._played:
            terminalreporter.line(self._line())

    def write_count(self, terminal):
        """Write the count as the last line of a run that is judged."""
        if self.is_judged:
            terminal.line(self._line())

    def _names(self, item):
        marker = item.get_closest_marker("conformance")
        test = item.nodeid.partition("[")[0]
        others = [name for name, row in self.cases.items() if test in elsewhere(row)]
        return [*(marker.args if marker else ()), *others]

    def _passed(self, kind):
        names = [name for name in self.cases if name.startswith(kind)]
        return [name for name in names if name in self._played and name not in self._failed]

    def _open(self):
        passed = {name for kind in KINDS for name in self._passed(kind)}
        return [name for name in self.cases if name not in passed]

    def _line(self):
        good = {kind: self._passed(kind) for kind in KINDS}
        counts = [
            f"{len(good[kind])} of {sum(name.startswith(kind) for name in self.cases)} {kind} cases"
            for kind in KINDS
        ]
        played = [self._played[name] for names in good.values() for name in names]
        by = ", ".join(f"{name} {sum(name in one for one in played)}" for name in PLAYERS)
        return f"conformance: {', '.join(counts)} ({by})"


def _player(item):
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    if parameters.get("stage") == "proc" or {"proc", "proc_in_cells"} & set(item.fixturenames):
        return "runtime"
    if item.get_closest_marker("process"):
        return "daemon"
    return "engine" if FOLDER in item.path.parents else "client"


def pytest_addoption(parser):
    """Let a run be judged by the cases."""
    parser.addoption("--conformance", action="store_true", help="every case has to pass")


def pytest_configure(config):
    """Know the marker of ``@case``, and count from now on; a run that is judged has all cases."""
    config.addinivalue_line("markers", "conformance(*names): which cases a test plays")
    tally = Tally(is_judged=config.getoption("--conformance", default=False))
    config.stash[_TALLY] = tally
    config.pluginmanager.register(tally)
    if tally.is_judged:
        config.args.extend(
            sorted({test for one in tally.cases.values() for test in elsewhere(one)})
        )


def elsewhere(row):
    """Return the tests outside of this folder that play a case."""
    return row.get("elsewhere", ())


def pytest_unconfigure(config):
    """Write the count behind everything else."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        config.stash[_TALLY].write_count(terminal)


@pytest.fixture(scope="session")
def real_stage(tmp_path_factory):
    """Make stages of processes that are all forked from one fork server."""
    fork_server, containments = ForkServer(), containments_at(tmp_path_factory.mktemp("w"))
    yield partial(ProcStage, fork_server, containments)
    asyncio.run(containments.close())
    fork_server.close()


@pytest.fixture(params=["sim", pytest.param("proc", marks=pytest.mark.process)])
def stage(request):
    """Play the case on the engine, and again with real processes."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def sim():
    """Play the case on the engine alone."""
    found = SimStage()
    yield found
    found.close()


@pytest.fixture
def proc(real_stage):
    """Play the case with real processes alone."""
    found = real_stage()
    yield found
    found.close()


@pytest.fixture
def proc_in_cells(tmp_path):
    """Play the case with real processes in cgroups, where the machine has them."""
    containments = containments_at(tmp_path, tuple(Version))
    (kill,) = [layer for layer in containments.layers if layer.what == "kill"]
    fork_server = ForkServer()
    if containments.cgroups.roots:
        found = ProcStage(fork_server, containments)
        yield found
        found.close()
    asyncio.run(containments.close())
    fork_server.close()
    if not kill.by.startswith("cgroup"):
        pytest.skip(kill.why)


@pytest.fixture
def own_daemon():
    """A daemon that the test may kill; the test starts it."""
    found = OwnDaemon()
    yield found
    found.close()


@pytest.fixture
def scripted():
    """Make scripted models that are closed at the test's end."""
    with contextlib.ExitStack() as stack:
        yield lambda *steps, **more: stack.enter_context(ScriptedModel(steps, **more))
