"""Memories in a SQLite file with a vector each, by sqlite-vec; similar is what points the same way.

The standard library's ``sqlite3`` is often built without extensions, so ``apsw`` opens the file; it
brings a SQLite of its own. All vectors of a namespace are compared, which is exact; sqlite-vec has
no index that would do with fewer.

Without a model a vector is ``hashed``: lexical only.
"""

import hashlib
import importlib
import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, Final

from cmdc_runtime.beneath import NamedPath
from cmdc_runtime.extensions.memory import (
    LIMIT_DEFAULT,
    Filters,
    Memory,
    MemoryStoreError,
    check_limit,
    check_name,
    check_text,
)
from workers.builtin.stores._sql import BUSY_S, Connection, SqlStore, picked
from workers.builtin.stores._words import pairs_of, phrases_in

# --- vectors without a model ----------------------------------------------------------------------

PART_CHARS: Final = 3
PART_WEIGHT: Final = 0.3
"""Of a part of a word, where the word counts 1: a dozen of them shall not drown it."""
_HASH_BYTES: Final = 8


def hashed(text: str, dimensions: int) -> list[float]:
    """Return the vector of a text, of length 1; all zeros if it has no words.

    Words and parts of words are hashed into a fixed number of places: texts are near when they
    share words, or parts of them, as forms and misspellings of one word do; what words mean plays
    no role. The same text has the same vector in every process. The signed hashing is that of
    Weinberger et al. 2009, "Feature Hashing for Large Scale Multitask Learning".
    """
    vector = [0.0] * dimensions
    for (feature, weight), count in Counter(_features(text)).items():
        digest = hashlib.blake2b(feature.encode(), digest_size=_HASH_BYTES).digest()
        number = int.from_bytes(digest, "little")
        sign = 1.0 if number & 1 else -1.0
        # What occurs often counts more, but not in proportion.
        vector[(number >> 1) % dimensions] += sign * weight * (1.0 + math.log(count))
    length = math.hypot(*vector)
    return [value / length for value in vector] if length else vector


def _features(text: str) -> Iterator[tuple[str, float]]:
    for phrase in phrases_in(text):
        if len(phrase) > 1:
            yield from (("".join(pair), 1.0) for pair in pairs_of(phrase))
            yield from ((word, PART_WEIGHT) for word in phrase)
            continue
        yield phrase[0], 1.0
        edged = f"<{phrase[0]}>"
        for at in range(len(edged) - PART_CHARS + 1):
            yield edged[at : at + PART_CHARS], PART_WEIGHT


# --- the store ------------------------------------------------------------------------------------

Embed = Callable[[str], Iterable[float]]
_MS: Final = 1000
_NEAREST: Final = """SELECT vectors.number, 1.0 - vec_distance_cosine(vectors.vector, ?) AS score
    FROM memories JOIN vectors ON vectors.number = memories.number
    WHERE memories.namespace = ? ORDER BY score DESC, vectors.number DESC"""


def libraries() -> tuple[ModuleType, ModuleType]:
    """Return apsw and sqlite_vec.

    Raises:
        MemoryStoreError: they are not installed.
    """
    try:
        return importlib.import_module("apsw"), importlib.import_module("sqlite_vec")
    except ImportError as error:
        raise MemoryStoreError(
            f"a Vector store needs apsw and sqlite-vec ({error}): install them where the daemon"
            " runs, by pip install 'cmdc-runtime[vec]', or use a Sqlite store"
        ) from error


class VectorStore(SqlStore):
    """See ``cmdc_runtime.stores.Vector``."""

    application_id = 0x636D6476

    def __init__(self, place: NamedPath, dimensions: int, embed: Embed | None = None) -> None:
        """Use the file; without ``embed`` texts are hashed."""
        super().__init__(place)
        self._apsw: Any  # Any: a module that is loaded late, as the one below
        self._sqlite_vec: Any
        self._apsw, self._sqlite_vec = libraries()
        self.errors = (self._apsw.Error, OSError)
        self.tables = (
            ("CREATE TABLE vectors (number INTEGER PRIMARY KEY, vector BLOB NOT NULL)", ()),
            ("CREATE TABLE vector_size (dimensions INTEGER NOT NULL)", ()),
            ("INSERT INTO vector_size VALUES (?)", (dimensions,)),
        )
        self._dimensions = dimensions
        self._embed = embed

    def connect(self, path: str) -> Connection:
        """Return a new connection with sqlite-vec; see ``SqlStore``."""
        connection = self._apsw.Connection(path)
        try:
            connection.set_busy_timeout(round(BUSY_S * _MS))
            connection.enable_load_extension(True)  # noqa: FBT003 - positional in C
            connection.load_extension(self._sqlite_vec.loadable_path())
            connection.enable_load_extension(False)  # noqa: FBT003 - as above
        except BaseException:
            connection.close()
            raise
        return connection

    def prepare(self, content: str) -> object:
        """Return the vector of a text."""
        return self._vector_of(content)

    def keep(self, connection: Connection, number: int, prepared: object) -> None:
        """Write a vector; a text without one is found by its words alone."""
        if prepared is not None:
            connection.execute("INSERT INTO vectors VALUES (?, ?)", (number, prepared))

    def drop(self, connection: Connection, number: int) -> None:
        """Delete a vector."""
        connection.execute("DELETE FROM vectors WHERE number = ?", (number,))

    def check(self, connection: Connection) -> None:
        """Check the size of the vectors; who made the file said what it is."""
        [(dimensions,)] = connection.execute("SELECT dimensions FROM vector_size")
        if dimensions != self._dimensions:
            raise self.error(
                f"its vectors have {dimensions} dimensions, not {self._dimensions}: vectors of two"
                " kinds cannot be compared, give another path"
            )

    def similarity_search(
        self,
        text: str,
        *,
        namespace: str,
        limit: int = LIMIT_DEFAULT,
        filters: Filters | None = None,
    ) -> tuple[Memory, ...]:
        """Return memories by the cosine of their vectors; see ``MemoryStore``."""
        check_text(text)
        check_name("namespace", namespace)
        check_limit(limit)
        vector = self._vector_of(text)
        if vector is None:
            return ()
        with self.transaction() as connection:
            rows = connection.execute(_NEAREST, (vector, namespace))
            return picked(connection, rows, limit, filters)

    def _vector_of(self, text: str) -> bytes | None:
        """Return a vector as sqlite-vec takes it, None for one without a direction."""
        if self._embed is None:
            values = hashed(text, self._dimensions)
        else:
            try:
                values = [float(value) for value in self._embed(text)]
            except Exception as error:  # it is foreign code
                raise self.error(f"embed failed: {type(error).__name__}: {error}") from error
        length = math.hypot(*values)
        if len(values) != self._dimensions or not math.isfinite(length):
            raise self.error(
                f"embed must return {self._dimensions} finite numbers, as the option dimensions"
                f" says; it returned {len(values)} of length {length:g}"
            )
        return array("f", (value / length for value in values)).tobytes() if length else None
