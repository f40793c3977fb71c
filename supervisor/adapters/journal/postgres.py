"""The journal in PostgreSQL: the same statements and the same writer's thread, over a connection.

A daemon has a schema of its own in the database. docs/adr/0021 says what it promises and why.
"""

import os
import socket
from pathlib import Path
from typing import ClassVar, Final

import psycopg

from cmdc_runtime.errors import CmdcError, UsageError
from supervisor.adapters.journal.base import Durability, JournalFailed, JournalUnsettled
from supervisor.adapters.journal.postgres_connection import (
    PostgresConnection,
    RolledBack,
    Superseded,
)
from supervisor.adapters.journal.schema import Bounds, Database
from supervisor.adapters.journal.sql_store import SqlStore
from supervisor.adapters.journal.store import Copying
from supervisor.adapters.journal.writer import GroupWriter
from supervisor.core.storage import Level, Trouble

SCHEMA = "cmdc"
"""Where the tables are, if nothing else is said."""
_HELD_UP: Final = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.QueryCanceled,
    psycopg.errors.DeadlockDetected,
)
"""Somebody works on the tables, or the server is slow: it passes, and what is done is undone."""


class PostgresStore(SqlStore):
    """The operations over one connection, and what its errors mean.

    A server that is away is like a disk without room: what is under way waits until it is back, in
    order, and what is new is refused. So is one whose tables somebody has locked, and one that is
    too slow. A daemon that was superseded has to end.
    """

    failures: ClassVar = (
        *(psycopg.OperationalError, psycopg.InterfaceError),
        *(Superseded, JournalUnsettled),
    )

    def __init__(
        self, url: str, schema: str, durability: Durability, bounds: Bounds | None = None
    ) -> None:
        """Prepare; ``open`` connects."""
        super().__init__(bounds)
        self._schema = schema
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        self._connection = PostgresConnection(url, schema, durability, holder)
        self._level = Level.PLENTY
        self._cause = ""

    @property
    def db(self) -> Database:
        """The connection, which is made again when it is lost."""
        return self._connection

    def open(self) -> None:
        """Connect, take the journal, and bring an older one up to date."""
        try:
            self._connection.open()
        except psycopg.Error as error:
            raise JournalFailed(f"cannot open the journal in PostgreSQL: {error}") from error

    def begin_copy(self, path: Path) -> Copying:
        """Refuse: PostgreSQL makes its backups itself."""
        del path
        raise UsageError(
            f"the journal is in PostgreSQL, which makes its backups itself, while sessions work: "
            f"pg_dump --format=custom --schema={self._schema} --file=FILE DATABASE; "
            "docs/howto/backup.md says how to check and to restore one"
        )

    def begin(self) -> None:
        """Begin a transaction; connect again if the connection was lost."""
        self._connection.begin()

    def commit(self) -> None:
        """Make the transaction durable, or raise where it is not."""
        self._connection.commit()

    def rollback(self) -> None:
        """Undo, and forget what the transaction had taught us."""
        self.heads.forget()
        self._connection.rollback()

    def close(self) -> None:
        """Let go of the journal; never raises."""
        self.heads.forget()
        self._connection.close()

    # --- room and errors ------------------------------------------------------------------------

    @property
    def level(self) -> Level:
        """Whether the server is there."""
        return self._level

    @property
    def cause(self) -> str:
        """Why it can't be written to, and what helps."""
        return self._cause

    def judge(self, error: Exception) -> Trouble:
        """Say what an error means."""
        if isinstance(error, Superseded):
            return Trouble.BROKEN
        is_away = isinstance(error, psycopg.OperationalError) and self._connection.is_lost
        passes = (RolledBack, psycopg.errors.DiskFull, *_HELD_UP)
        if not is_away and not isinstance(error, passes):
            return Trouble.PASSING
        self._explain(error)
        return Trouble.NO_ROOM

    def spend(self) -> None:
        """Wait for the server from now on."""
        self._level = Level.AWAY

    def regain(self, wanted_bytes: int) -> bool:
        """Connect again, and see that the tables can be had."""
        del wanted_bytes
        try:
            self._connection.probe()
        except psycopg.OperationalError as error:
            self._explain(error)
            return False
        except (Superseded, CmdcError, psycopg.Error):
            pass  # the next transaction meets it, too
        self._level = Level.PLENTY
        return True

    def abandon(self) -> None:
        """Let go of the journal, which is another's."""
        self._connection.close()

    def _explain(self, error: Exception) -> None:
        why = str(error).partition("\n")[0]
        self._cause = (
            f"the journal's database cannot be written to ({why}): what is under way waits for it, "
            "nothing new is taken; see that PostgreSQL runs and has room, "
            "and that nobody keeps a lock on its tables"
        )


class PostgresJournal(GroupWriter):
    """The journal in one schema of a database; ``url`` is as libpq takes it."""

    def __init__(
        self,
        url: str,
        *,
        schema: str = SCHEMA,
        durability: Durability = "process",
        bounds: Bounds | None = None,
    ) -> None:
        """Prepare; ``open`` connects."""
        super().__init__(PostgresStore(url, schema, durability, bounds))
