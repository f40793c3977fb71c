"""How property tests run, and what tells whether a run has all of the end-to-end tests.

Property tests run at random where a person looks for bugs, the same way always in CI: a run on the
build machine must fail for a change and never for a draw; branch coverage of a random run varies
too. No deadline: a machine that is busy is not a bug.

A test that judges the run as a whole asks for ``whole_run``. It comes last, whatever its file is
called, and is skipped where end-to-end tests were left out or a test has failed. ``heard`` is what
such a test judges: ``tests/e2e/conftest.py`` fills it. End-to-end tests in several lanes are one
run: each lane leaves its part where ``LANE_PARTS`` says, and the judge is played behind them.
"""

import json
import os
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

EXAMPLES_MAX = 50
"""Of a property in CI, where a test names no number of its own. They are the same each time: what
they find they have found at the first; a run elsewhere has 100 new ones, and ``make fuzz`` more."""

settings.register_profile("here", deadline=None)
settings.register_profile(
    "ci", derandomize=True, database=None, deadline=None, max_examples=EXAMPLES_MAX
)
settings.load_profile("ci" if os.environ.get("CI") else "here")

PARTS = "LANE_PARTS"
"""The variable that names the directory for what lanes leave: ``scripts/lanes.py``."""
PART_NAME = "heard-{pid}.json"
END_TO_END = Path(__file__).parent / "e2e"
_HEARD = pytest.StashKey()
_DESELECTED = pytest.StashKey()


def pytest_configure(config):
    """Begin with what other lanes have heard, and nothing left out."""
    config.stash[_HEARD] = {}
    for part in _parts():
        config.stash[_HEARD] |= {session: set(names) for session, names in part["heard"].items()}
    config.stash[_DESELECTED] = []


def pytest_deselected(items):
    """Note what ``-k``, ``-m`` and the like leave out."""
    for item in items:
        item.config.stash[_DESELECTED].append(item)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Put the tests that judge the run behind all others."""
    items.sort(key=lambda item: "whole_run" in getattr(item, "fixturenames", ()))


def pytest_sessionfinish(session):
    """Leave to the judge of all lanes what this one has of the end-to-end tests."""
    files = _played(session)
    if files and PARTS in os.environ:
        heard = {one: sorted(names) for one, names in session.config.stash[_HEARD].items()}
        part = {"files": sorted(files), "heard": heard, "flaw": _flaw(session)}
        place = Path(os.environ[PARTS], PART_NAME.format(pid=os.getpid()))
        place.write_text(json.dumps(part))


@pytest.fixture(autouse=True)
def _logs_are_as_they_were():
    """Let no test leave its log behind: the next one may find its stream closed."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def heard(pytestconfig):
    """The names of the events that were published in this run, for each session."""
    return pytestconfig.stash[_HEARD]


@pytest.fixture
def whole_run(request):
    """Skip the test unless every end-to-end test was run before it, and none has failed."""
    reason = _missing(request.session)
    if reason is not None:
        pytest.skip(f"this judges a run of all end-to-end tests, but {reason}")


def _missing(session):
    parts = _parts()
    files = {path.name for path in END_TO_END.glob("test_*.py")} - _played(session)
    files = files.difference(*(part["files"] for part in parts))
    if files:
        return f"{min(files)} was not run"
    return next(filter(None, [_flaw(session), *(part["flaw"] for part in parts)]), None)


def _parts():
    folder = os.environ.get(PARTS)
    found = Path(folder).glob(PART_NAME.format(pid="*")) if folder else ()
    return [json.loads(path.read_text()) for path in found]


def _played(session):
    return {item.path.name for item in session.items if item.path.parent == END_TO_END}


def _flaw(session):
    if any(item.path.parent == END_TO_END for item in session.config.stash[_DESELECTED]):
        return "some were deselected"
    if any("::" in argument for argument in session.config.args):
        return "single tests were chosen"
    return "a test has failed" if session.testsfailed else None
