"""The tables of the PostgreSQL journal: those of ``schema``, in one PostgreSQL schema for a daemon.

The steps are those of the SQLite journal, with two names of types changed, so that a table is
described once. Each table gets a ``rowid``, which SQLite has of itself. ``journal`` is a table of
one row: the version, and who has the journal.
"""

import re
from typing import Final

import psycopg

from supervisor.adapters.journal.base import JournalRefused
from supervisor.adapters.journal.schema import MIGRATIONS, VERSION

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
