"""Which journal a daemon has, by its configuration."""

import sys
from pathlib import Path

import pytest

from supervisor.adapters.journal.base import JournalRefused
from supervisor.adapters.journal.opening import MemoryJournal, open_journal
from supervisor.adapters.journal.postgres import PostgresJournal
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.config import load_config


def config(**given):
    """Return a configuration with these options."""
    return load_config(given, {}, uid=1000, home=Path("/home"))


@pytest.mark.parametrize(
    ("journal", "right"),
    [("", SqliteJournal), ("memory", MemoryJournal), ("postgresql://h/d", PostgresJournal)],
)
def test_the_journal_is_the_one_that_was_chosen(journal, right):
    """Nothing is opened yet."""
    assert isinstance(open_journal(config(journal=journal)), right)


def test_a_missing_driver_is_reported(monkeypatch):
    """With what to install."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "supervisor.adapters.journal.postgres")

    with pytest.raises(JournalRefused, match=r"pip install 'cmdc-runtime\[postgres\]'"):
        open_journal(config(journal="postgresql://h/d"))
