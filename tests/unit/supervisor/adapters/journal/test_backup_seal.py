"""What stands behind the pages of a backup, and what of a changed file it finds."""

import io
import sqlite3
from contextlib import closing

import pytest

from supervisor.adapters.journal.backup import (
    copy_pages,
    damage_of,
    is_backup,
    open_to_read,
    read_seal,
    write_sealed,
)
from supervisor.adapters.journal.repair.sums import PAGE_BYTES

PAGES = 600
"""More than are read at a time."""


@pytest.fixture
def database(tmp_path):
    """A database of some hundred pages."""
    path = tmp_path / "database"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (body BLOB)")
        db.executemany(
            "INSERT INTO t VALUES (?)", [(bytes([n % 251]) * 4000,) for n in range(PAGES)]
        )
        db.commit()
    return path


@pytest.fixture
def backup(database, tmp_path):
    """A backup of it."""
    path = tmp_path / "backup"
    with database.open("rb") as source, path.open("wb") as target:
        write_sealed(source, target, made_ms=5)
    return path


def taken(path):
    """Return the seal of a backup, the pages that are damaged, and all of them."""
    with path.open("rb") as file:
        seal, pages = read_seal(file), io.BytesIO()
        return seal, copy_pages(file, seal, pages), pages.getvalue()


def flip(path, at):
    """Turn one bit."""
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def test_what_was_sealed_comes_out_as_it_was(database, backup):
    """Every page, and when it was made."""
    seal, damaged, pages = taken(backup)

    assert (seal.made_ms, damaged) == (5, [])
    assert seal.pages > PAGES
    assert pages == database.read_bytes()


def test_a_backup_can_be_looked_into(backup):
    """SQLite takes it for the database that it is: the seal is behind what belongs to that."""
    assert damage_of(backup) is None
    with closing(open_to_read(backup)) as db:
        assert db.execute("SELECT count(*) FROM t").fetchone() == (PAGES,)


@pytest.mark.parametrize("at", [100, PAGE_BYTES + 7, 400 * PAGE_BYTES])
def test_a_flipped_bit_of_a_page_is_found(backup, at):
    """Also one that SQLite could not find, inside a body."""
    flip(backup, at)

    assert taken(backup)[1] == [at // PAGE_BYTES + 1]


def test_a_broken_seal_is_none(backup):
    """Whatever part of it was changed, or is missing."""
    with backup.open("rb") as file:
        begin = read_seal(file).pages * PAGE_BYTES
    data = backup.read_bytes()
    for at in (begin, begin + 4, *range(len(data) - 24, len(data))):
        backup.write_bytes(data)
        flip(backup, at)
        assert not is_backup(backup), at
    for size in (0, 10, PAGE_BYTES, begin, len(data) - 1):
        backup.write_bytes(data[:size])
        assert not is_backup(backup), size


def test_another_file_is_none(database, tmp_path):
    """A database without a seal, and what is none."""
    (tmp_path / "text").write_text("no backup" * 100)

    assert not is_backup(database)
    assert not is_backup(tmp_path / "text")


def test_a_database_that_was_written_to_breaks_the_seal(backup):
    """The one that SQLite has grown is no backup any more."""
    with closing(sqlite3.connect(backup)) as db:
        db.execute("INSERT INTO t VALUES (zeroblob(9000))")
        db.commit()

    assert not is_backup(backup)


def test_damage_is_said_in_words_of_sqlite(database):
    """A page of the table's tree that is none."""
    with database.open("r+b") as file:
        file.seek(PAGE_BYTES)
        file.write(b"\xaa" * PAGE_BYTES)

    assert damage_of(database)
