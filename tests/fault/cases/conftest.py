"""One daemon for the cases of a file, a session that no fault may touch, the audit after each.

A case says its name with ``@pytest.mark.fault_case("F11")``; the names and what they mean stand in
``cases.toml``. ``make fault`` runs all and says at its end how many passed of how many.
"""

import contextlib
from pathlib import Path

import pytest

from cmdc_runtime.testing import ScriptedModel
from tests.fault.audit import Audit
from tests.fault.tally import Tally

WARM_S = 120.0


@pytest.fixture(scope="module")
def place(shared_daemon):
    """A daemon that is warm; ``place.start()`` starts the next one where a case has ended it."""
    shared_daemon.start()
    with shared_daemon.client() as client:
        assert shared_daemon.poll(lambda: is_warm(client), WARM_S)
    return shared_daemon


@pytest.fixture(scope="module")
def client(place):
    """A client of that daemon, and of the next one in its place."""
    with place.client() as found:
        yield found


@pytest.fixture(scope="module")
def bystander(client):
    """A session that has nothing to do with any fault."""
    with ScriptedModel([], default="fine") as model, client.create_agent(model=model) as session:
        assert session.run("Are you there?", timeout=60.0).text == "fine"
        yield session


@pytest.fixture(autouse=True)
def audit(place, bystander, poll):
    """Check after the case that all is as before it; ``audit.daemon_died = True`` where it did."""
    found = Audit(place, poll, bystander)
    found.begin()
    yield found
    found.check()


@pytest.fixture
def agent(audit, client, scripted):
    """Make sessions that are stopped before the audit; without a model, one that says "fine"."""
    with contextlib.ExitStack() as stack:

        def create(model=None, **options):
            model = scripted(default="fine") if model is None else model
            return stack.enter_context(client.create_agent(model=model, **options))

        yield create


def is_warm(client):
    """Say whether the zygote forks at once."""
    return any(one.id == "nursery" and one.state == "ready" for one in client.tree().children)


def pytest_configure(config):
    """Begin to count."""
    tally = Tally("fault", "fault_case", Path(__file__).with_name("cases.toml"))
    config.pluginmanager.register(tally, "fault-tally")
