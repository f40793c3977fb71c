"""Memories in a SQLite file, by the standard library; similar is what shares words."""

import sqlite3

from workers.builtin.stores._sql import BUSY_S, Connection, SqlStore


class SqliteStore(SqlStore):
    """See ``cmdc_runtime.stores.Sqlite``."""

    application_id = 0x636D6471
    errors = (sqlite3.Error, OSError)

    def connect(self) -> Connection:
        """Return a new connection; see ``SqlStore``."""
        return sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
