"""The daemon's side of what workers write, with a socket for each test; a PostgreSQL server."""

import itertools

import pytest
from structlog.testing import capture_logs

from supervisor.adapters.output import Outputs
from tests.postgres import lend_server

NUMBERS = itertools.count(1)


@pytest.fixture
def path(tmp_path_factory):
    """Return a short path: that of a socket may have 107 bytes."""
    return tmp_path_factory.mktemp("o") / "output.sock"


@pytest.fixture
def entries():
    """Return the log records of this process."""
    with capture_logs() as captured:
        yield captured


@pytest.fixture
def outputs(path, entries):  # the thread is to end before its log is given back
    """Return the listener of a daemon at ``path``."""
    outputs = Outputs(path)
    outputs.start()
    yield outputs
    outputs.close()


server = pytest.fixture(lend_server, scope="module")


@pytest.fixture
def schema():
    """A name of a schema that nobody has used."""
    return f"daemon_{next(NUMBERS)}"
