"""A PostgreSQL server for the tests of a module, a run or one test: as a fixture of that scope."""

import pytest

from scripts.postgres import Server, missing


def lend_server():
    """Yield a server; who kills it leaves it to the next test, which finds it up."""
    if reason := missing():
        pytest.skip(reason)
    with Server() as server:
        yield server
