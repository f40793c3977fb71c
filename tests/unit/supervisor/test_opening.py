"""Which journal a daemon has, by its configuration; and fault points around its writes."""

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest

from cmdc_runtime import faults
from supervisor.adapters.journal.base import JournalFailed, JournalRefused
from supervisor.adapters.journal.opening import MemoryJournal, open_journal, with_fault_points
from supervisor.adapters.journal.operations import EndSession
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


class Done:
    """A journal that has written before anybody can wait for it."""

    open = close = copy = None

    def __init__(self, error=None):
        self.error = error

    def write(self, _operation):
        done = asyncio.get_running_loop().create_future()
        done.set_result("written") if self.error is None else done.set_exception(self.error)
        return done


def written(journal, tmp_path, monkeypatch):
    """Return what a write comes to, and what was known when its caller went on."""
    monkeypatch.setattr(faults, "_folder", tmp_path)
    (tmp_path / "s.plan").write_text("ended.after:1=daemon\n")
    passed = []

    async def main():
        armed = with_fault_points(journal, ["daemon"], lambda *_: passed.append("point") or ())
        return await armed.write(EndSession("s", b"", 0)), list(passed)

    with contextlib.suppress(JournalFailed):
        return asyncio.run(main())
    return "failed", passed


def test_nobody_knows_of_a_commit_before_its_fault_point_is_passed(tmp_path, monkeypatch):
    """Also where it is done when its caller begins to wait."""
    assert written(Done(), tmp_path, monkeypatch) == ("written", ["point"])


def test_a_write_that_fails_passes_no_point_behind_it(tmp_path, monkeypatch):
    """Who waits for it gets the error."""
    assert written(Done(JournalFailed("broken")), tmp_path, monkeypatch) == ("failed", [])
