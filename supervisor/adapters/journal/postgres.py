"""The journal in PostgreSQL: the same statements and the same writer's thread, over a connection.

A daemon has a schema of its own in the database. docs/adr/0021 says what it promises and why. The
steps of its tables are those of the SQLite journal, with two names of types changed, so that a
table is described once. Each table gets a ``rowid``, which SQLite has of itself. ``journal`` is a
table of one row: the version, and who has the journal.

The connection is this daemon's alone, and made again when it is lost. Whoever writes has the
advisory lock of the schema, which ends with the connection, and every transaction checks under a
row lock that the epoch is the one that this daemon began. So a daemon that lost its connection goes
on only if no other one has had the journal meanwhile, and no transaction of it is committed behind
another's back, even through a pooler.

A commit whose answer was lost is asked for by its number: the server remembers. Where it does not
come back to say so, the outcome is ``JournalUndecided``, and nobody may do it again.
"""

import hashlib
import os
import re
import socket
import time
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn, TypeAlias

import psycopg
import structlog
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from cmdc_runtime.errors import CmdcError, UsageError
from supervisor.adapters.journal.base import (
    Durability,
    JournalFailed,
    JournalRefused,
    JournalUndecided,
)
from supervisor.adapters.journal.schema import MIGRATIONS, VERSION, Bounds, Database, Found
from supervisor.adapters.journal.sql_store import SqlStore
from supervisor.adapters.journal.writer import GroupWriter
from supervisor.core.limits import (
    JOURNAL_CONNECT_PAUSE_S,
    JOURNAL_LOCK_WAIT_S,
    JOURNAL_OUTCOME_PAUSE_S,
    JOURNAL_OUTCOME_S,
    JOURNAL_STATEMENT_S,
    JOURNAL_TABLE_WAIT_S,
)
from supervisor.core.storage import Level, Trouble

# --- tables ---------------------------------------------------------------------------------------

_TYPES: Final = {"BLOB": "BYTEA", "INTEGER": "BIGINT"}
_TYPE: Final = re.compile(rf"\b({'|'.join(_TYPES)})\b")
_TABLE_END: Final = re.compile(r"\)\s*$")
_TABLES: Final = "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace(%s)::oid"
_OWN: Final = """
    CREATE TABLE journal (version BIGINT NOT NULL, epoch BIGINT NOT NULL, holder TEXT NOT NULL)
"""


def in_postgres(statement: str) -> str:
    """Return a statement of ``schema.MIGRATIONS`` as PostgreSQL takes it."""
    statement = _TYPE.sub(lambda found: _TYPES[found[1]], statement).strip()
    if not statement.startswith("CREATE TABLE"):
        return statement
    return _TABLE_END.sub(", rowid BIGINT GENERATED ALWAYS AS IDENTITY)", statement)


def migrate(connection: "psycopg.Connection[tuple[object, ...]]", schema: str, holder: str) -> int:
    """Bring the tables to ``VERSION`` and return the new epoch, of which ``holder`` is the owner.

    All of it or nothing. The caller has the lock, and ``schema`` is its search path.

    Raises:
        JournalRefused: the schema holds somebody else's tables, or a newer journal.

    """
    with connection.transaction():
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}".encode())
        found = version_of(connection, schema)
        if found is None:
            tables = connection.execute(_TABLES, (schema,)).fetchone()
            if tables is None or tables[0] != 0:
                raise _refused(schema, "belongs to another program")
            connection.execute(_OWN)
            connection.execute("INSERT INTO journal VALUES (0, 0, '')")
        version = found or 0
        if version > VERSION:
            why = f"has format {version}, and this program knows formats up to {VERSION}"
            raise _refused(schema, why)
        for step in MIGRATIONS[version:]:
            for statement in step:
                connection.execute(in_postgres(statement).encode())
        row = connection.execute(
            "UPDATE journal SET version = %s, epoch = epoch + 1, holder = %s RETURNING epoch",
            (VERSION, holder),
        ).fetchone()
    assert row is not None  # noqa: S101 - there is one row
    return int(str(row[0]))


def version_of(connection: "psycopg.Connection[tuple[object, ...]]", schema: str) -> int | None:
    """Return the format of the journal in a schema, None where there is none."""
    table = connection.execute("SELECT to_regclass(%s)::text", (f"{schema}.journal",)).fetchone()
    if table is None or table[0] is None:
        return None
    row = connection.execute(f"SELECT version FROM {schema}.journal".encode()).fetchone()  # noqa: S608 - a checked name
    return None if row is None else int(str(row[0]))


def _refused(schema: str, why: str) -> JournalRefused:
    return JournalRefused(
        f"the schema {schema} of the journal's database {why}; it was left untouched: "
        "start the newer program, or choose another journal_schema"
    )


# --- the connection -------------------------------------------------------------------------------

log = structlog.get_logger(__name__)

Wire: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"  # Any: what the columns hold

# Committed is on the server's disk either way: what is only in its memory would be lost with its
# process. ``local`` does not wait for a standby, where the server is set to have one.
_SYNCHRONOUS: Final[dict[Durability, str]] = {"process": "local", "power": "on"}
# Unless the URL says otherwise: a server that is out of reach is noticed in seconds.
_CONNECTION: Final = {
    "connect_timeout": "3",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "application_name": "cmdc-runtime",
}
_VALUE: Final = re.compile(r"\?|:(\w+)")
_BEGIN: Final = b"BEGIN; SELECT epoch, pg_current_xact_id()::text FROM journal FOR SHARE"
_STATE: Final = """
    SELECT pg_is_in_recovery(), current_setting('fsync'), current_setting('server_version_num')::int
"""
_SERVER_VERSION_MIN: Final = 130_000
# As strong as what a write needs, so that it shows whether one would have to wait.
_PROBE: Final = b"""
    LOCK TABLE journal, sessions, commands, records, events, downs, snapshots, marks, checkpoints,
        blobs, holds
    IN ROW EXCLUSIVE MODE NOWAIT
"""
_WAIT: Final = "SELECT set_config('lock_timeout', %s, false)"


class Superseded(Exception):
    """Another daemon has had the journal since: this one must not write any more."""


class RolledBack(psycopg.OperationalError):
    """The connection was lost in a commit, and nothing of the transaction is there."""


@lru_cache(maxsize=256)
def _sent(statement: str) -> bytes:
    """Return a statement with its values marked as the driver wants them."""
    return _VALUE.sub(lambda found: f"%({found[1]})s" if found[1] else "%s", statement).encode()


class PostgresConnection:
    """A ``schema.Database``, and the transactions on it."""

    def __init__(self, url: str, schema: str, durability: Durability, holder: str) -> None:
        """Prepare; ``holder`` is shown to whoever finds the journal taken."""
        self._url = url
        self._schema = schema
        self._durability: Durability = durability
        self._holder = holder
        self._wire: Wire | None = None
        self._epoch: int | None = None
        """What was begun when the journal was opened; None before that."""
        self._transaction: str | None = None
        """The number of the one that is open."""
        self._retry_s = 0.0
        self._failure: psycopg.OperationalError | None = None
        """Why the last try to connect failed; there is no other before ``_retry_s``."""

    def open(self) -> None:
        """Connect, and take the journal.

        Raises:
            JournalRefused: its tables are no journal, or a newer one; they were left untouched.
            JournalFailed: another daemon has it.
            psycopg.Error: the server refuses, or is not there.

        """
        self._wire = self._take()

    def close(self) -> None:
        """Let go of the journal."""
        wire, self._wire, self._transaction = self._wire, None, None
        if wire is not None:
            wire.close()

    @property
    def is_lost(self) -> bool:
        """Whether there is no connection."""
        return self._wire is None or self._wire.closed

    def probe(self) -> None:
        """See that there is a connection and no table is locked; raises where it is otherwise."""
        wire = self._connected()
        with wire.transaction():
            wire.execute(_PROBE)

    def begin(self) -> None:
        """Begin a transaction, on a new connection if the old one is gone."""
        try:
            self._begin()
        except psycopg.OperationalError:
            if not self.is_lost:
                raise
            self._begin()

    def commit(self) -> None:
        """Commit; where the answer is lost, ask for it on a new connection."""
        wire, number = self._wire, self._transaction
        assert wire is not None  # noqa: S101 - a transaction is open
        try:
            wire.execute(b"COMMIT")
        except psycopg.OperationalError:
            if number is None or not self.is_lost:
                raise
            self._ask_outcome(number)
        self._transaction = None

    def rollback(self) -> None:
        """Undo what is not committed; never raises."""
        self._transaction = None
        wire = self._wire
        if wire is None or wire.closed:
            return
        try:
            wire.execute(b"ROLLBACK")
        except psycopg.Error as error:
            log.warning("journal.rollback_failed", error=str(error))
            wire.close()

    def execute(self, statement: str, values: Any = (), /) -> Found:
        """Carry out one statement; outside of a transaction also on a new connection."""
        query = _sent(statement)
        try:
            return self._current().execute(query, values, binary=True)
        except psycopg.OperationalError:
            if self._transaction is not None or not self.is_lost:
                raise
            return self._connected().execute(query, values, binary=True)

    def executemany(self, statement: str, values: Iterable[Any], /) -> None:
        """Carry out one statement for each of ``values``, in one round trip."""
        with self._current().cursor() as cursor:
            cursor.executemany(_sent(statement), values)

    def _current(self) -> Wire:
        """Return the connection: within a transaction the one that it began on, dead or alive."""
        if self._transaction is not None and self._wire is not None:
            return self._wire
        return self._connected()

    def _begin(self) -> None:
        cursor = self._connected().execute(_BEGIN)
        cursor.nextset()
        row = cursor.fetchone()
        self._check(row)
        self._transaction = row[1] if row is not None else None

    def _ask_outcome(self, number: str) -> None:
        """Ask what became of a transaction, for as long as the server may take to restart."""
        until_s = time.monotonic() + JOURNAL_OUTCOME_S
        status: str | None = None
        while True:
            try:
                status = self._status_of(number)
                break
            except psycopg.OperationalError as error:
                if time.monotonic() > until_s:
                    raise JournalUndecided(f"a commit may be there or not: {error}") from error
                time.sleep(JOURNAL_OUTCOME_PAUSE_S)
        log.info("journal.commit_decided", status=status)
        if status == "aborted":
            raise RolledBack("the connection was lost before the commit")
        if status != "committed":
            raise JournalUndecided(f"a commit may be there or not: the server says {status}")

    def _status_of(self, number: str) -> str | None:
        # Whoever has the lock knows that the connection before is gone, and so that its transaction
        # is decided.
        asked = self._connected().execute("SELECT pg_xact_status(%s::xid8)", (number,))
        found: tuple[str | None] | None = asked.fetchone()
        return None if found is None else found[0]

    def _connected(self) -> Wire:
        """Return the connection, made again if it was lost, unless that has just failed."""
        if self._wire is not None and not self._wire.closed:
            return self._wire
        if self._failure is not None and time.monotonic() < self._retry_s:
            raise self._failure
        try:
            self._wire = self._take()
        except psycopg.OperationalError as error:
            self._failure = error
            self._retry_s = time.monotonic() + JOURNAL_CONNECT_PAUSE_S
            raise
        self._failure = None
        log.info("journal.reconnected")
        return self._wire

    def _take(self) -> Wire:
        """Connect, lock the journal, and see that nobody else has had it since ``open``."""
        wire = connect(self._url)
        try:
            self._prepare(wire)
            self._lock(wire)
            if self._epoch is None:
                self._epoch = migrate(wire, self._schema, self._holder)
            else:
                self._check(wire.execute("SELECT epoch FROM journal").fetchone())
        except BaseException:
            wire.close()
            raise
        return wire

    def _prepare(self, wire: Wire) -> None:
        for kind in (Int8Dumper, Int8BinaryDumper):  # every column of numbers is a BIGINT
            wire.adapters.register_dumper(int, kind)
        state = wire.execute(_STATE).fetchone()
        assert state is not None  # noqa: S101 - one row
        is_standby, fsync, version = state
        if version < _SERVER_VERSION_MIN:
            raise JournalRefused("the journal needs PostgreSQL 13 or newer")
        if is_standby:
            raise psycopg.OperationalError("the server is a standby, which takes no writes")
        if fsync != "on" and self._durability == "power":
            raise JournalRefused(
                "durability is power, and the server does not wait for its disk: "
                "set its fsync to on, or durability to process"
            )
        settings = {
            "search_path": self._schema,
            "synchronous_commit": _SYNCHRONOUS[self._durability],
            "statement_timeout": f"{JOURNAL_STATEMENT_S * 1000:.0f}",
        }
        for name, value in settings.items():
            wire.execute("SELECT set_config(%s, %s, false)", (name, value))

    def _lock(self, wire: Wire) -> None:
        digest = hashlib.blake2b(f"cmdc journal {self._schema}".encode(), digest_size=8).digest()
        key = int.from_bytes(digest, "big", signed=True)
        try:
            wire.execute(_WAIT, (f"{JOURNAL_LOCK_WAIT_S * 1000:.0f}",))
            wire.execute("SELECT pg_advisory_lock(%s)", (key,))
            wire.execute(_WAIT, (f"{JOURNAL_TABLE_WAIT_S * 1000:.0f}",))
        except psycopg.errors.LockNotAvailable as error:
            if self._epoch is not None:
                self._check(wire.execute("SELECT epoch FROM journal").fetchone())
                raise psycopg.OperationalError(
                    "the server still holds the connection of before, and so the journal's lock"
                ) from error
            raise JournalFailed(
                f"another daemon has the journal in the schema {self._schema}{_holder(wire)}: "
                "stop that one, or choose another journal_schema"
            ) from error

    def _check(self, row: tuple[Any, ...] | None) -> None:
        """Compare the epoch in the first column with ours."""
        if row is None or row[0] != self._epoch:
            raise Superseded(
                f"another daemon has taken over the journal in the schema {self._schema}; "
                "this one writes no more: end it"
            )


def connect(url: str) -> Wire:
    """Connect, with our defaults where the URL has none; no error shows the URL."""
    try:
        given: dict[str, Any] = conninfo_to_dict(url)  # Any: a text or a number
    except psycopg.ProgrammingError:
        raise JournalRefused(
            "the journal's URL cannot be read: it is postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        ) from None
    return psycopg.connect(make_conninfo(**{**_CONNECTION, **given}), autocommit=True)


def _holder(wire: Wire) -> str:
    """Return who has the journal, as far as it says so."""
    try:
        row = wire.execute("SELECT holder FROM journal").fetchone()
    except psycopg.Error:
        return ""
    return "" if row is None else f" ({row[0]})"


# --- the store and the journal --------------------------------------------------------------------

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
        *(Superseded, JournalUndecided),
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

    def begin_copy(self, path: Path) -> NoReturn:
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
