"""Reading a write-ahead log of SQLite's own making."""

import random
import sqlite3
import zlib
from contextlib import closing
from io import BytesIO

import pytest

from supervisor.adapters.journal.repair.wal import FRAME, HEADER, read_log, sums_in

PAGE_BYTES = 4096
FRAME_BYTES = FRAME.size + PAGE_BYTES


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """The log of some small transactions."""
    path = tmp_path_factory.mktemp("log") / "db"
    chance = random.Random(1)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE t (a, b)")
        for number in range(12):
            db.execute("INSERT INTO t VALUES (?, ?)", (number, chance.randbytes(900)))
        return path.with_name("db-wal").read_bytes()


def test_whole_log_is_read_to_its_end(log):
    """Every frame is whole, and the last one is a commit."""
    found = read_log(log)

    assert found.page_size == PAGE_BYTES
    assert found.good == found.committed == len(found.frames) > 12
    assert found.lost_commits == 0
    newest = found.pages(found.good).values()
    pages = {one.page: log[one.offset : one.offset + PAGE_BYTES] for one in newest}
    sums = {page: zlib.crc32(data) for page, data in pages.items()}
    assert sums_in(BytesIO(log), len(log)) == (sums, found.good)
    assert sums_in(BytesIO(log), HEADER.size) == ({}, 0)


def test_nothing_is_no_log():
    """An empty file, and one that is none, hold no frames."""
    assert read_log(b"").frames == []
    assert read_log(bytes(10_000)).frames == []
    assert sums_in(BytesIO(), 0) == ({}, 0)


@pytest.mark.parametrize("at", range(HEADER.size))
def test_flipped_bit_of_the_logs_header_is_found(log, at):
    """Without it SQLite would take the whole log for nothing."""
    data = bytearray(log)
    data[at] ^= 1
    found = read_log(bytes(data))

    assert found.repairs == [(at, 0)]
    assert found.frames == read_log(log).frames


@pytest.mark.parametrize("at", range(FRAME.size))
def test_flipped_bit_of_a_frames_header_gives_up_nothing_behind_it(log, at):
    """It is found, or it is known that commits stand behind it."""
    place = HEADER.size + 5 * FRAME_BYTES + at
    data = bytearray(log)
    data[place] ^= 1
    found = read_log(bytes(data))

    assert found.repairs == [(place, 0)] or found.lost_commits > 0
    assert found.committed == len(found.frames)


def test_rubbish_in_the_midst_hides_nothing_behind_it(log):
    """The frames behind a ruined one go on from what is written in its header."""
    data = bytearray(log)
    begin = HEADER.size + 5 * FRAME_BYTES + FRAME.size
    data[begin : begin + PAGE_BYTES] = random.Random(2).randbytes(PAGE_BYTES)
    found = read_log(bytes(data))

    assert [one.number for one in found.frames if not one.is_whole] == [5]
    assert found.good <= 5
    assert found.committed == len(found.frames)
    assert found.lost_commits > 0
    assert found.repairs == []


@pytest.mark.parametrize("apart", [None, -1, -300, 1], ids=["zeros", "before", "long", "later"])
def test_log_ends_at_a_frame_that_was_never_written(log, apart):
    """The power was cut before it was, whatever of what follows has come to the disk."""
    begin = HEADER.size + 5 * FRAME_BYTES
    data = bytearray(log)
    head = bytes(FRAME.size)
    if apart is not None:
        salt = (HEADER.unpack_from(log)[4] + apart) % 2**32
        head = FRAME.pack(2, 0, salt, 7, 8, 9)
    data[begin : begin + FRAME_BYTES] = head + random.Random(3).randbytes(PAGE_BYTES)
    found = read_log(bytes(data))

    assert len(found.frames) == 5
    assert found.frames == read_log(log).frames[:5]
    assert (found.lost_commits, found.has_rest) == (0, True)


def test_ruined_header_of_a_frame_is_none_that_was_never_written(log):
    """What stands there names no generation of this log: commits are lost behind it."""
    begin = HEADER.size + 5 * FRAME_BYTES
    data = bytearray(log)
    data[begin : begin + FRAME.size] = random.Random(3).randbytes(FRAME.size)
    found = read_log(bytes(data))

    assert found.lost_commits > 0
    assert (found.committed, found.has_rest) == (len(found.frames), False)


def test_unfinished_commit_at_the_end_is_not_counted(log):
    """A frame without its commit is nothing, and loses no commit."""
    whole, found = read_log(log), read_log(log[:-1])

    assert 0 < found.good < whole.good
    assert found.committed == found.good
    assert found.lost_commits == 0
