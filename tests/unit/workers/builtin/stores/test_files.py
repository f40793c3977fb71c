"""What the stores in files promise beyond the contract of all stores, about the files."""

import contextlib
import sqlite3
import stat

import pytest

from cmdc_runtime import stores
from cmdc_runtime.extensions.memory import MemoryStoreError
from workers.builtin.stores import _sql
from workers.builtin.stores.opening import opened

KINDS = {"sqlite": stores.Sqlite, "vector": stores.Vector}


@pytest.fixture(params=KINDS)
def kind(request):
    """The class of a reference to a file."""
    return KINDS[request.param]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "memory.db"


def run(path, *statements):
    """Change a file behind the store's back."""
    connection = sqlite3.connect(path, isolation_level=None)
    found = [list(connection.execute(statement)) for statement in statements]
    connection.close()
    return found[-1]


def test_memories_outlive_the_store(kind, path):
    """Another one with the same file has them."""
    stored = opened(kind(path=str(path))).store("a", {"content": "apples"}, namespace="n")
    again = opened(kind(path=str(path)))

    assert again.list(namespace="n") == (stored,)
    assert [one.id for one in again.similarity_search("apples", namespace="n")] == ["a"]


def test_a_file_is_for_its_owner(kind, tmp_path):
    """Folders that are made are, too; nothing is left open or beside the file."""
    path = tmp_path / "made" / "memory.db"
    opened(kind(path=str(path))).store("a", {"content": ""}, namespace="n")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) & 0o077 == 0
    assert [one.name for one in path.parent.iterdir()] == ["memory.db"]


def test_a_file_is_shared_by_a_log(kind, path):
    """Readers and a writer do not wait for each other."""
    store = opened(kind(path=str(path)))
    store.store("a", {"content": ""}, namespace="n")
    with store.transaction("IMMEDIATE"):
        found = opened(kind(path=str(path))).list(namespace="n")

    assert run(path, "PRAGMA journal_mode") == [("wal",)]
    assert [one.id for one in found] == ["a"]


def test_what_fails_is_taken_back(kind, path):
    """All of an operation or nothing."""
    store = opened(kind(path=str(path)))
    store.store("a", {"content": "old"}, namespace="n")
    with contextlib.suppress(ZeroDivisionError), store.transaction("IMMEDIATE") as connection:
        connection.execute("DELETE FROM memories")
        raise ZeroDivisionError

    assert [one.content for one in store.list(namespace="n")] == ["old"]


def test_a_writer_that_never_ends_is_waited_for_within_bounds(kind, path, monkeypatch):
    """Then it is an error that names the file."""
    monkeypatch.setattr("workers.builtin.stores._sql.BUSY_S", 0.05)
    monkeypatch.setattr("workers.builtin.stores.vector.BUSY_S", 0.05)
    store = opened(kind(path=str(path)))
    store.store("a", {"content": ""}, namespace="n")
    with store.transaction("IMMEDIATE"), pytest.raises(MemoryStoreError) as caught:
        opened(kind(path=str(path))).store("b", {"content": ""}, namespace="n")

    assert str(caught.value).startswith(f"memory store {path}: ")
    assert "locked" in str(caught.value)


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE notes (text)"],
        ["PRAGMA application_id = 7"],
        ["PRAGMA user_version = 3"],
    ],
    ids=["tables", "application", "version"],
)
def test_a_file_of_somebody_else_is_not_touched(kind, path, statements):
    """The error names it."""
    run(path, *statements)
    before = path.read_bytes()
    with pytest.raises(MemoryStoreError, match="the file holds something else"):
        opened(kind(path=str(path))).store("a", {"content": ""}, namespace="n")

    assert path.read_bytes() == before


def test_a_file_of_a_newer_version_is_not_touched(kind, path):
    """What its tables are is not known here."""
    store = opened(kind(path=str(path)))
    store.store("a", {"content": ""}, namespace="n")
    run(path, f"PRAGMA user_version = {_sql.VERSION + 1}")
    with pytest.raises(MemoryStoreError, match="give another path"):
        store.list(namespace="n")


def test_two_kinds_do_not_share_a_file(path):
    """Vectors would be missing for what the other one stored."""
    opened(stores.Sqlite(path=str(path))).store("a", {"content": ""}, namespace="n")
    with pytest.raises(MemoryStoreError, match="the file holds something else"):
        opened(stores.Vector(path=str(path))).list(namespace="n")


def test_what_is_no_database_is_an_error(kind, path):
    """And stays as it is."""
    path.write_bytes(b"no database at all " * 100)
    with pytest.raises(MemoryStoreError, match="not a database"):
        opened(kind(path=str(path))).list(namespace="n")

    assert path.read_bytes() == b"no database at all " * 100


def test_a_place_that_cannot_be_is_an_error(kind, path):
    """A file stands where a folder is wanted."""
    path.write_text("")
    with pytest.raises(MemoryStoreError, match=r"memory store .*Not a directory|File exists"):
        opened(kind(path=str(path / "memory.db"))).list(namespace="n")
