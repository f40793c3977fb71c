"""What the stores in SQLite files have in common, and the one by the standard library.

Several processes share a file: it is in WAL mode, a writer waits for its turn up to ``BUSY_S``, and
each operation is one short transaction on a connection of its own, so that nothing is held between
operations, neither by a thread nor across a fork. Words are searched with FTS5 in a column that
holds them as ``_words`` takes text apart; an expression is made of such words in quotes alone, so
no text that a caller passes is read as FTS5's language.

In ``SqliteStore`` similar is what shares words.
"""

import contextlib
import errno
import hashlib
import os
import sqlite3
import stat
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from cmdc_runtime.beneath import NamedPath, file_in
from cmdc_runtime.clock import now_ms
from cmdc_runtime.extensions.memory import (
    LIMIT_DEFAULT,
    WORDS_MAX,
    Filters,
    Memory,
    MemoryStore,
    MemoryStoreError,
    Order,
    check_limit,
    check_name,
    check_order,
    check_text,
    matches,
    packed_data,
    unpacked_data,
)
from workers.builtin.stores._words import Phrase, features_of, phrases_of, spaced

# --- files and tables -----------------------------------------------------------------------------

BUSY_S: Final = 10.0
"""How long an operation waits for other writers before it fails."""
VERSION: Final = 1
"""Of the tables, in ``user_version``."""

Connection = Any
"""Any: the standard library's or apsw's, whose ``execute`` and ``close`` do the same."""

_TABLES: Final = (
    """CREATE TABLE memories (
        number INTEGER PRIMARY KEY,
        namespace TEXT NOT NULL,
        id TEXT NOT NULL,
        inserted_at_ms INTEGER NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (namespace, id)
    )""",
    "CREATE INDEX memories_by_age ON memories (namespace, number)",
    """CREATE VIRTUAL TABLE memory_words
        USING fts5 (space, words, tokenize = 'unicode61 remove_diacritics 0')""",
)
# The weight 0 keeps the namespace out of the score.
_FOUND: Final = """SELECT rowid, -bm25(memory_words, 0.0, 1.0) AS score FROM memory_words
    WHERE memory_words MATCH ? ORDER BY score DESC, rowid DESC"""
_BY_AGE: Final[Mapping[Order, str]] = {
    "desc": "SELECT number, NULL FROM memories WHERE namespace = ? ORDER BY number DESC",
    "asc": "SELECT number, NULL FROM memories WHERE namespace = ? ORDER BY number ASC",
}


class SqlStore(MemoryStore):
    """A store in a SQLite file."""

    application_id: int
    """What marks a file as one of this kind."""
    tables: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Statements, with their values, that make what the kind has besides."""
    errors: tuple[type[Exception], ...]
    """What the library raises, and ``OSError``."""

    def __init__(self, place: NamedPath) -> None:
        """Use the file, which is made at the first operation."""
        self.path = Path(place.whole)
        self._place = place

    @abstractmethod
    def connect(self, path: str) -> Connection:
        """Return a new connection in autocommit mode that waits ``BUSY_S`` for others."""

    def prepare(self, content: str) -> object:  # noqa: ARG002 - for the kinds that need it
        """Return what a kind keeps beside a text, made before the transaction."""
        return None

    def keep(self, connection: Connection, number: int, prepared: object) -> None:
        """Write what ``prepare`` returned."""

    def drop(self, connection: Connection, number: int) -> None:
        """Delete what ``keep`` wrote."""

    def check(self, connection: Connection) -> None:
        """Check that the file's tables fit this store.

        Raises:
            MemoryStoreError: they do not.
        """

    def store(self, id: str, data: Mapping[str, Any], *, namespace: str) -> Memory:  # noqa: A002 - its name by contract
        """Keep a memory; see ``MemoryStore``."""
        check_name("id", id)
        check_name("namespace", namespace)
        body, content = packed_data(data), data["content"]
        words, prepared, at_ms = spaced(content), self.prepare(content), now_ms()
        with self.transaction("IMMEDIATE") as connection:
            self._forget(connection, id, namespace)
            connection.execute(
                "INSERT INTO memories (namespace, id, inserted_at_ms, body) VALUES (?, ?, ?, ?)",
                (namespace, id, at_ms, body.decode()),
            )
            [(number,)] = connection.execute("SELECT last_insert_rowid()")
            connection.execute(
                "INSERT INTO memory_words (rowid, space, words) VALUES (?, ?, ?)",
                (number, _space(namespace), words),
            )
            self.keep(connection, number, prepared)
        return Memory(id=id, data=unpacked_data(body), inserted_at_ms=at_ms)

    def search(
        self,
        text: str,
        *,
        namespace: str,
        limit: int = LIMIT_DEFAULT,
        filters: Filters | None = None,
    ) -> tuple[Memory, ...]:
        """Return memories that have every word, by BM25; see ``MemoryStore``."""
        check_text(text)
        wanted = _expression(namespace, phrases_of(text), "AND")
        return self._found(wanted, limit, filters)

    def similarity_search(
        self,
        text: str,
        *,
        namespace: str,
        limit: int = LIMIT_DEFAULT,
        filters: Filters | None = None,
    ) -> tuple[Memory, ...]:
        """Return memories that have some of the words, by BM25; see ``MemoryStore``."""
        check_text(text)
        wanted = _expression(namespace, list(features_of(text))[:WORDS_MAX], "OR")
        return self._found(wanted, limit, filters)

    def list(
        self,
        *,
        namespace: str,
        limit: int = LIMIT_DEFAULT,
        order: Order = "desc",
        filters: Filters | None = None,
    ) -> tuple[Memory, ...]:
        """Return memories by age; see ``MemoryStore``."""
        check_name("namespace", namespace)
        check_order(order)
        check_limit(limit)
        with self.transaction() as connection:
            rows = connection.execute(_BY_AGE[order], (namespace,))
            return picked(connection, rows, limit, filters)

    def delete(self, id: str, *, namespace: str) -> None:  # noqa: A002 - its name by contract
        """Forget a memory; see ``MemoryStore``."""
        check_name("id", id)
        check_name("namespace", namespace)
        with self.transaction("IMMEDIATE") as connection:
            self._forget(connection, id, namespace)

    @contextlib.contextmanager
    def transaction(self, kind: str = "DEFERRED") -> Iterator[Connection]:
        """Open the file for one transaction; it is taken back if the block raises.

        Raises:
            MemoryStoreError: the file cannot be used, or the library failed in the block.
        """
        try:
            connection = self.connect(self._made_file())
            try:
                self._prepare_file(connection)
                connection.execute(f"BEGIN {kind}")
                yield connection
                connection.execute("COMMIT")
            finally:
                connection.close()
        except self.errors as error:
            raise self.error(str(error)) from error

    def error(self, problem: str) -> MemoryStoreError:
        """Return an error that names the file."""
        return MemoryStoreError(f"memory store {self.path}: {problem}")

    def _made_file(self) -> str:
        """Return the path of the file without links, which is made where it is missing.

        SQLite opens paths alone. So what is looked at here is what it opens unless somebody puts
        another thing there in between; it would have to be a store of this kind.
        """
        with self._folder() as (folder, name):
            # Others than the user shall not read it. A file that is there must not be opened here:
            # closing it again would take SQLite's locks on it away from this process.
            with contextlib.suppress(FileExistsError):
                os.close(file_in(folder, name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file")
            return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)  # noqa: PTH115, PTH118

    @contextlib.contextmanager
    def _folder(self) -> Iterator[tuple[int, str]]:
        with contextlib.ExitStack() as stack:
            try:
                found = stack.enter_context(self._place.folder(makes=True))
            except ValueError as error:
                raise self.error(str(error)) from error
            yield found

    def _prepare_file(self, connection: Connection) -> None:
        if _marks(connection) != (self.application_id, VERSION):
            connection.execute("BEGIN IMMEDIATE")
            self._make_tables(connection)
            connection.execute("COMMIT")
        [(mode,)] = connection.execute("PRAGMA journal_mode")
        if mode != "wal":
            # While others use the file the mode cannot change; then one of them has changed it, or
            # the next to come does.
            with contextlib.suppress(*self.errors):
                list(connection.execute("PRAGMA journal_mode = WAL"))
        self.check(connection)

    def _make_tables(self, connection: Connection) -> None:
        marks = _marks(connection)
        if marks == (self.application_id, VERSION):
            return  # another process was faster
        [(tables,)] = connection.execute("SELECT count(*) FROM sqlite_master")
        if marks != (0, 0) or tables:
            raise self.error(
                f"the file holds something else (application_id, user_version) = {marks}; a"
                f" {type(self).__name__} of this version has {(self.application_id, VERSION)}:"
                " give another path"
            )
        for statement in _TABLES:
            connection.execute(statement)
        for statement, values in self.tables:
            connection.execute(statement, values)
        connection.execute(f"PRAGMA application_id = {self.application_id}")
        connection.execute(f"PRAGMA user_version = {VERSION}")

    def _found(self, wanted: str, limit: int, filters: Filters | None) -> tuple[Memory, ...]:
        check_limit(limit)
        if not wanted:
            return ()
        with self.transaction() as connection:
            return picked(connection, connection.execute(_FOUND, (wanted,)), limit, filters)

    def _forget(self, connection: Connection, id_: str, namespace: str) -> None:
        mine = "SELECT number FROM memories WHERE namespace = ? AND id = ?"
        for (number,) in list(connection.execute(mine, (namespace, id_))):
            connection.execute("DELETE FROM memories WHERE number = ?", (number,))
            connection.execute("DELETE FROM memory_words WHERE rowid = ?", (number,))
            self.drop(connection, number)


def picked(
    connection: Connection,
    rows: Iterable[tuple[int, float | None]],
    limit: int,
    filters: Filters | None,
) -> tuple[Memory, ...]:
    """Return the first memories of ``rows``, numbers with scores, that pass ``filters``."""
    found: list[Memory] = []
    wanted = "SELECT id, inserted_at_ms, body FROM memories WHERE number = ?"
    for number, score in rows:
        [(id_, at_ms, body)] = connection.execute(wanted, (number,))
        data = unpacked_data(body)
        if matches(data, filters):
            found.append(Memory(id=id_, data=data, inserted_at_ms=at_ms, score=score))
        if len(found) == limit:
            break
    return tuple(found)


def _marks(connection: Connection) -> tuple[int, int]:
    [(application_id,)] = connection.execute("PRAGMA application_id")
    [(version,)] = connection.execute("PRAGMA user_version")
    return application_id, version


def _space(namespace: str) -> str:
    """Return a namespace as one word of the index, whatever characters it has."""
    return hashlib.sha256(namespace.encode()).hexdigest()


def _expression(namespace: str, phrases: Iterable[Phrase], joiner: str) -> str:
    """Return FTS5's expression for memories of a namespace; empty if nothing is looked for."""
    check_name("namespace", namespace)
    quoted = f" {joiner} ".join('"' + " ".join(phrase) + '"' for phrase in phrases)
    return f'space : "{_space(namespace)}" AND words : ({quoted})' if quoted else ""


# --- by the standard library ----------------------------------------------------------------------


class SqliteStore(SqlStore):
    """See ``cmdc_runtime.stores.Sqlite``."""

    application_id = 0x636D6471
    errors = (sqlite3.Error, OSError)

    def connect(self, path: str) -> Connection:
        """Return a new connection; see ``SqlStore``."""
        return sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
