"""The board's memory: one slot each, found by its path, and safe from those who map it."""

import errno
import mmap
import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from cmdc_runtime.board import SLOT_BYTES, Doing, Slot, Usage
from cmdc_runtime.errors import Overloaded
from supervisor.adapters.board import Board
from workers.pulse import Pulse


@contextmanager
def new_board(path, slots=4):
    """Yield a board, and see that nothing of it is left."""
    before = open_fds()
    board = Board.create(path, slots)
    try:
        yield board
    finally:
        board.close()
    assert open_fds() == before
    assert not path.is_symlink()


def open_fds():
    return len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def mapped(path):
    """Yield the whole memory of a board as another process finds it."""
    fd = os.open(path, os.O_RDWR)
    try:
        with mmap.mmap(fd, os.fstat(fd).st_size) as memory:
            yield memory
    finally:
        os.close(fd)


def test_what_a_worker_writes_by_path_and_number_is_read(tmp_path):
    """Also in a slot that is not the first one of its page, and beside others."""
    with new_board(tmp_path / "board", 20) as board:
        slots = [board.take() for _ in range(20)]
        for slot in slots:
            pulse = Pulse(str(tmp_path / "board"), slot)
            pulse.note("running", slot, (f"shell call_{slot}",), 10 * slot)
        found = [board.read(slot) for slot in slots]
        del pulse

    assert slots == list(range(20))
    assert [beat.doing for beat in found] == [
        Doing("running", slot, (f"shell call_{slot}",)) for slot in slots
    ]
    assert [beat.last_index for beat in found] == [10 * slot for slot in slots]


def test_one_scan_reads_the_beats_of_all_slots_that_were_ever_taken(tmp_path):
    """By the slots' numbers; the memory beyond them is not touched."""
    with new_board(tmp_path / "board", 1_000) as board, mapped(tmp_path / "board") as memory:
        for slot in [board.take() for _ in range(3)]:
            with memoryview(memory) as whole, whole[slot * SLOT_BYTES :] as part:
                writer = Slot(part)
                writer.beat(slot + 100, Usage())
                writer.release()
        beats = board.beats()
        blocks = (tmp_path / "board").stat().st_blocks

    assert beats == [100, 101, 102]
    assert blocks * 512 <= mmap.PAGESIZE


def test_a_slot_is_taken_by_one_and_zeroed_for_the_next(tmp_path):
    """What a dead process left is read before its slot is released, and never after."""
    with new_board(tmp_path / "board", 2) as board, mapped(tmp_path / "board") as memory:
        first, second = board.take(), board.take()
        memory[:] = b"\xff" * len(memory)
        with pytest.raises(Overloaded, match="2 processes have a slot"):
            board.take()
        board.release(first)
        again = board.take()
        fresh, other = board.read(again), board.read(second)

    assert (again, fresh.beat_ns, fresh.doing) == (first, 0, Doing())
    assert other.beat_ns > 0


def test_a_slot_is_released_once(tmp_path):
    """A second time would give it to two processes."""
    with new_board(tmp_path / "board") as board:
        slot = board.take()
        board.release(slot)
        with pytest.raises(KeyError):
            board.release(slot)


def test_nobody_can_cut_the_memory_short(tmp_path):
    """A page that is gone would end the daemon with its next look."""
    with new_board(tmp_path / "board") as board, mapped(tmp_path / "board"):
        fd = os.open(tmp_path / "board", os.O_RDWR)
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 0)
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 2**20)
        mode = os.fstat(fd).st_mode
        os.close(fd)
        board.take()

    assert oct(mode & 0o777) == "0o600"


def test_memory_that_is_not_there_is_an_error_and_no_signal(tmp_path, monkeypatch):
    """The slot stays free for when there is memory again."""

    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with new_board(tmp_path / "board") as board:
        with monkeypatch.context() as patch:
            patch.setattr(os, "posix_fallocate", refuse)
            with pytest.raises(Overloaded, match="No space left"):
                board.take()

        assert board.take() == 0


def test_a_new_board_replaces_what_a_dead_daemon_left(tmp_path):
    """A link to nowhere, and any file of that name."""
    path = tmp_path / "board"
    path.symlink_to("/proc/0/fd/99")
    with new_board(path) as board:
        board.take()
    path.write_bytes(b"a file")
    with new_board(path) as board:
        Pulse(str(path), board.take())


def test_a_board_that_cannot_be_linked_leaves_nothing(tmp_path):
    """No descriptor, and the error that tells why."""
    before = open_fds()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Board.create(tmp_path / "nowhere" / "board", 1)

    assert open_fds() == before


def test_a_board_without_slots_is_refused(tmp_path):
    """And its memory is given back."""
    before = open_fds()
    with pytest.raises(ValueError, match="empty"):
        Board.create(tmp_path / "board", 0)

    assert open_fds() == before


def test_a_board_is_closed_once(tmp_path):
    """A second time does nothing, also when the path is another board's by then."""
    board = Board.create(tmp_path / "board", 1)
    board.close()
    with new_board(tmp_path / "board") as other:
        board.close()

        assert Pulse(str(tmp_path / "board"), other.take())


def test_a_slot_that_the_board_does_not_have_is_refused(tmp_path):
    """A worker that was given a wrong number ends at once, and writes nowhere."""
    with new_board(tmp_path / "board", 8), pytest.raises(ValueError, match="size"):
        Pulse(str(tmp_path / "board"), 10_000)
