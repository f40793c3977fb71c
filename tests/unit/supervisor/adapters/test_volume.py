"""What the errors of SQLite mean for the journal."""

import sqlite3

import pytest

from supervisor.adapters.journal.repair.volume import trouble_of
from supervisor.core.storage import Trouble


@pytest.mark.parametrize(
    ("code", "has_room", "trouble"),
    [
        (sqlite3.SQLITE_FULL, True, Trouble.NO_ROOM),
        (sqlite3.SQLITE_IOERR_WRITE, False, Trouble.NO_ROOM),
        (sqlite3.SQLITE_IOERR_WRITE, True, Trouble.BROKEN),
        (sqlite3.SQLITE_IOERR_FSYNC, False, Trouble.BROKEN),
        (sqlite3.SQLITE_IOERR_READ, True, Trouble.BROKEN),
        (sqlite3.SQLITE_IOERR_NOMEM, True, Trouble.PASSING),
        (sqlite3.SQLITE_CORRUPT, True, Trouble.BROKEN),
        (sqlite3.SQLITE_BUSY, True, Trouble.PASSING),
        (None, True, Trouble.PASSING),
    ],
)
def test_errors_of_sqlite_have_a_meaning(code, has_room, trouble):
    """A lack of room passes, a failed sync never does, and a busy moment is nothing."""
    assert trouble_of(code, has_room=has_room) is trouble
