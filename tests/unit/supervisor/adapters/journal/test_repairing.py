"""What a repair does with pages that are not as they were noted, and how much it takes."""

import shutil
import sqlite3
import sys
import zlib
from collections import Counter
from contextlib import closing

import pytest

from supervisor.adapters.journal.progress import Progress
from supervisor.adapters.journal.repair.repairing import Repairer
from supervisor.adapters.journal.repair.sums import PAGE_BYTES, PageSums

ROWS = 120
BODY_BYTES = 3000


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A file with a row on each page, with its checksums."""
    folder = tmp_path_factory.mktemp("made")
    with closing(sqlite3.connect(folder / "journal")) as db:
        db.execute("CREATE TABLE sessions (number INTEGER PRIMARY KEY, is_over, body)")
        rows = ((number, 0, bytes(BODY_BYTES)) for number in range(ROWS))
        db.executemany("INSERT INTO sessions VALUES (?, ?, ?)", rows)
        db.commit()
    with (folder / "journal").open("rb") as file:
        PageSums(folder / "sums", folder / "journal").rebuild(file)
    return folder


@pytest.fixture
def path(made, tmp_path):
    """The journal of a copy, with the time of change that was noted."""
    state = shutil.copytree(made, tmp_path / "state")
    return state / "journal"


def edit(path, statement):
    """Change the file as a person does who has stopped the daemon."""
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement)
        db.commit()


def flip(path, page, at=PAGE_BYTES - BODY_BYTES // 2):
    """Turn a bit of a page, in the body of its row unless asked otherwise."""
    data = bytearray(path.read_bytes())
    data[(page - 1) * PAGE_BYTES + at] ^= 1
    path.write_bytes(data)


def repaired(path):
    """Repair; return what was done, and how often a checksum was computed and SQLite asked."""
    counts = Counter()

    def count(frame, event, called):
        if event == "c_call" and called is zlib.crc32:
            counts["crc32"] += 1
        elif event == "call":
            counts[frame.f_code.co_name] += 1

    repairer = Repairer(path, PageSums(path.with_name("sums"), path))
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        found = repairer.repair()
    finally:
        sys.setprofile(before)
    return found, counts


def test_an_edited_file_costs_a_checksum_of_each_page_and_one_more_of_each_wrong_one(path):
    """SQLite is asked once, however many pages differ; no bit is looked for one after the other."""
    edit(path, "UPDATE sessions SET body = randomblob(3000)")
    found, counts = repaired(path)
    pages = path.stat().st_size // PAGE_BYTES

    assert found.edited_pages >= ROWS
    assert found.bits == 0
    assert (counts["_was_edited"], counts["_is_consistent"]) == (1, 1)
    assert counts["crc32"] <= pages + found.edited_pages + 10


def test_an_edit_of_one_bit_of_a_page_is_believed_with_the_rest_of_it(path):
    """SQLite keeps 0 and 1 as two kinds that differ in one bit: turned back, half of it is gone."""
    edit(path, "UPDATE sessions SET is_over = 1 WHERE number = 50")
    edit(path, "UPDATE sessions SET body = randomblob(3000) WHERE number = 80")
    found, _ = repaired(path)
    with closing(sqlite3.connect(path)) as db:
        ((is_over,),) = db.execute("SELECT is_over FROM sessions WHERE number = 50")

    assert is_over == 1
    assert (found.bits, found.kept_at) == (0, None)


def test_flipped_bits_of_a_copied_file_are_turned_back(path):
    """Its time of change says nothing then; that each page has one wrong bit says it all."""
    before = path.read_bytes()
    flip(path, 20)
    flip(path, 40)
    found, counts = repaired(path)

    assert path.read_bytes() == before
    assert (found.bits, found.edited_pages) == (2, 0)
    assert counts["_is_consistent"] == 0


def test_a_flipped_bit_beside_an_edit_is_turned_back_where_sqlite_minds_it(path):
    """The edit is believed all the same, and nothing has to be taken out of the file."""
    edit(path, "UPDATE sessions SET body = randomblob(3000) WHERE number = 80")
    before = path.read_bytes()
    flip(path, 20, at=0)  # the kind of the page
    found, _ = repaired(path)

    assert path.read_bytes() == before
    assert (found.bits, found.edited_pages, found.salvaged) == (1, 2, None)


def test_each_long_piece_of_work_is_named(path):
    """What reads or copies the whole file says which it is."""
    begun = []

    class Noted(Progress):
        """Keeps what was begun."""

        def begin(self, doing, total_bytes=0):
            """Keep it."""
            begun.append((doing, total_bytes))
            super().begin(doing, total_bytes)

    edit(path, "UPDATE sessions SET body = randomblob(3000) WHERE number = 80")
    size = path.stat().st_size
    progress = Noted()
    Repairer(path, PageSums(path.with_name("sums"), path, progress), progress).repair()

    assert begun == [
        ("reading the log", 0),
        ("checking all pages", size),
        ("copying the file for SQLite to check it", 0),
        ("having SQLite check all of the copy", 0),
    ]
    assert progress.done_bytes == 0
