"""The journals that the contract is held to, each in a place of its own.

A backend of your own is one module: its ``Store``, and its journal::

    class MyStore(SqlStore):  # or Store, for what takes no SQL
        failures = (MyError,)

        @property
        def db(self): ...  # execute and executemany, as database.Database says

        def open(self): ...  # and begin, commit, rollback, close


    class MyJournal(GroupWriter):
        def __init__(self, place, *, bounds=None):
            super().__init__(MyStore(place, bounds))

It is held to the contract by a function here that makes the journal, and a row in ``LASTING``, or
in ``PLACES`` where it ends with its process.

``run`` opens a journal, runs a coroutine function with it, and closes it; one that is run again
finds what was there, but in memory.
"""

import asyncio
import itertools
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from supervisor.adapters.journal.opening import MemoryJournal
from supervisor.adapters.journal.postgres import PostgresJournal
from supervisor.adapters.journal.sqlite import SqliteJournal
from tests.postgres import lend_server

SCHEMAS = itertools.count(1)


@dataclass(frozen=True)
class Place:
    """Where one journal is."""

    make: Any
    """Returns it, unopened; takes ``bounds``."""

    def run(self, scenario, **options):
        """Run a coroutine function with the journal of this place, and return what it returns."""

        async def whole():
            journal = self.make(**options)
            await journal.open()
            try:
                return await scenario(journal)
            finally:
                await journal.close()

        return asyncio.run(whole())


postgres = pytest.fixture(lend_server, scope="session")


def in_file(request, durability):
    """A file in a folder of the test's own."""
    directory = request.getfixturevalue("tmp_path") / "state"
    return partial(SqliteJournal, directory, durability=durability)


def in_memory(_request):
    """Nowhere."""
    return MemoryJournal


def on_server(request):
    """A schema of its own on the server of the run."""
    server = request.getfixturevalue("postgres")
    return partial(PostgresJournal, server.url, schema=f"contract_{next(SCHEMAS)}")


LASTING = {
    "sqlite, process": partial(in_file, durability="process"),
    "sqlite, power": partial(in_file, durability="power"),
    "postgres": on_server,
}
PLACES = {**LASTING, "memory": in_memory}
MARKS = {"postgres": pytest.mark.process}


def rows(places):
    """Return the names of some places as parameters."""
    return [pytest.param(name, marks=MARKS.get(name, ())) for name in places]


@pytest.fixture(params=rows(PLACES))
def place(request):
    """Each place in turn."""
    return Place(PLACES[request.param](request))


@pytest.fixture(params=rows(LASTING))
def lasting(request):
    """Each place in turn whose journal is there when it is opened again."""
    return Place(LASTING[request.param](request))


@pytest.fixture
def run(place):
    """Run a coroutine function with the journal of each place in turn."""
    return place.run


@pytest.fixture
def rerun(lasting):
    """The same, where it can be done again."""
    return lasting.run
