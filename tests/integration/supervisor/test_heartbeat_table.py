"""The heartbeat table's memory: a slot for each worker that no other one reaches."""

import errno
import fcntl
import mmap
import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from cmdc_runtime.errors import Overloaded
from cmdc_runtime.heartbeats import SLOT_BYTES, SLOT_MEMORY_BYTES, Activity
from supervisor.adapters.heartbeats import HeartbeatTable
from workers.heartbeat import Heartbeat as WorkerHeartbeat

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@contextmanager
def new_table(path, slots=4):
    """Yield a heartbeat table, and see that nothing of it is left."""
    before = open_fds()
    heartbeats = HeartbeatTable(path, slots)
    try:
        yield heartbeats
    finally:
        heartbeats.close()
    assert open_fds() == before
    assert not os.path.lexists(path)


def open_fds():
    return len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def writing(fd):
    """Yield the heartbeat of a worker that has this memory."""
    heartbeat = WorkerHeartbeat(fd)
    try:
        yield heartbeat
    finally:
        heartbeat._slot.release()
        heartbeat._page.close()
        os.close(fd)


@contextmanager
def by_path(path, slot):
    """Yield the heartbeat of a worker that looks for its slot in a file at a path."""
    fd = os.memfd_create("own")
    os.ftruncate(fd, SLOT_MEMORY_BYTES)
    with writing(fd) as heartbeat:
        heartbeat.move(path, slot)
        yield heartbeat


def memory(size=SLOT_MEMORY_BYTES, seals=SEALS):
    """Return memory as a process brings it."""
    fd = os.memfd_create("brought", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def test_what_each_worker_writes_is_read_in_its_slot(tmp_path):
    """Beside others, and by the order of the numbers in one look."""
    with new_table(tmp_path / "board", 20) as heartbeats:
        slots = [heartbeats.take() for _ in range(20)]
        for slot in slots:
            with writing(heartbeats.lend(slot)) as heartbeat:
                heartbeat.note("running", slot, (f"shell call_{slot}",), 10 * slot)
                heartbeat.write(slot + 100)
        found, beats = [heartbeats.read(slot) for slot in slots], heartbeats.times()

    assert slots == list(range(20))
    assert [beat.activity for beat in found] == [
        Activity("running", slot, (f"shell call_{slot}",)) for slot in slots
    ]
    assert [beat.last_index for beat in found] == [10 * slot for slot in slots]
    assert beats == [slot + 100 for slot in slots]


def test_a_worker_reaches_no_slot_but_its_own(tmp_path):
    """Its memory is one page, and whatever it writes there changes nobody else's."""
    with new_table(tmp_path / "board") as heartbeats:
        mine, others = heartbeats.take(), heartbeats.take()
        with writing(heartbeats.lend(others)) as heartbeat:
            heartbeat.note("running", 7, (), 70)
        before = heartbeats.read(others)
        fd = heartbeats.lend(mine)
        with mmap.mmap(fd, 0) as whole:
            size = len(whole)
            whole[:] = b"\xff" * size
        with pytest.raises(ValueError, match="size"):
            mmap.mmap(fd, SLOT_BYTES, offset=SLOT_MEMORY_BYTES)
        os.close(fd)

        assert size == SLOT_MEMORY_BYTES
        assert heartbeats.read(others).activity == before.activity == Activity("running", 7)
        assert heartbeats.read(mine).activity == Activity()
        assert not os.path.lexists(tmp_path / "board")


def test_a_slot_is_lent_once(tmp_path):
    """Then its memory is the worker's alone to hand on, and the daemon has no descriptor of it."""
    with new_table(tmp_path / "board") as heartbeats:
        slot = heartbeats.take()
        before = open_fds()
        os.close(heartbeats.lend(slot))

        assert open_fds() == before - 1
        with pytest.raises(KeyError):
            heartbeats.lend(slot)


def test_a_slot_is_taken_by_one_and_zeros_for_the_next(tmp_path):
    """What a dead process left is read before its slot is released, and never after."""
    with new_table(tmp_path / "board", 2) as heartbeats:
        first, _ = heartbeats.take(), heartbeats.take()
        with writing(heartbeats.lend(first)) as heartbeat:
            heartbeat.write(1)
            with pytest.raises(Overloaded, match="2 processes have a slot"):
                heartbeats.take()
            heartbeats.release(first)
            again = heartbeats.take()
            heartbeat.write(2)
            fresh = heartbeats.read(again)

    assert (again, fresh.heartbeat_ns, fresh.activity) == (first, 0, Activity())


def test_a_slot_is_released_once(tmp_path):
    """A second time would give it to two processes."""
    with new_table(tmp_path / "board") as heartbeats:
        slot = heartbeats.take()
        heartbeats.release(slot)
        with pytest.raises(KeyError):
            heartbeats.release(slot)


def test_nobody_can_cut_the_memory_short(tmp_path):
    """A page that is gone would end the daemon with its next look."""
    with new_table(tmp_path / "board") as heartbeats:
        fd = heartbeats.lend(heartbeats.take())
        for size in (0, 2**20):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)
        mode = os.fstat(fd).st_mode
        os.close(fd)

    assert oct(mode & 0o777) == "0o600"


@pytest.mark.parametrize(("by", "error"), [("take", OSError), ("take_by_path", Overloaded)])
def test_memory_that_is_not_there_is_an_error_and_no_signal(tmp_path, monkeypatch, by, error):
    """The slot stays free for when there is memory again."""

    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with new_table(tmp_path / "board") as heartbeats:
        with monkeypatch.context() as patch:
            patch.setattr(os, "posix_fallocate", refuse)
            with pytest.raises(error, match="No space left"):
                getattr(heartbeats, by)()

        assert heartbeats.take() == 0


# --- of an agent that outlives its daemon -------------------------------------------------------


def test_memory_that_a_process_brings_is_its_slot(tmp_path):
    """With what stands there; until it comes there are zeros."""
    last = HeartbeatTable(tmp_path / "board", 1)
    with (
        writing(last.lend(last.take())) as heartbeat,
        new_table(tmp_path / "next") as heartbeats,
    ):
        heartbeat.note("running", 3, (), 30)
        slot = heartbeats.take_empty()
        nothing, beats = heartbeats.read(slot), heartbeats.times()
        heartbeats.attach(slot, os.dup(heartbeat.fd))
        heartbeat.use_own_memory()
        found = heartbeats.read(slot)
    last.close()

    assert (nothing.heartbeat_ns, nothing.activity, beats) == (0, Activity(), [0])
    assert (found.activity, found.last_index) == (Activity("running", 3), 30)
    assert found.heartbeat_ns > 0


BROUGHT = {
    "that can be cut short": lambda: memory(seals=0),
    "that is too small": lambda: memory(size=SLOT_BYTES),
    "that is too large": lambda: memory(size=2 * SLOT_MEMORY_BYTES),
    "that is no memory": lambda: os.open(os.devnull, os.O_RDWR),
    "that nobody may map": lambda: os.open("/", os.O_PATH),
}


@pytest.mark.parametrize("bring", BROUGHT.values(), ids=BROUGHT)
def test_memory_that_could_end_the_daemon_is_refused(tmp_path, bring):
    """And what the slot has stays."""
    with new_table(tmp_path / "board") as heartbeats:
        slot = heartbeats.take_empty()
        with pytest.raises((OSError, ValueError)):
            heartbeats.attach(slot, bring())
        heartbeats.attach(slot, memory())

        assert heartbeats.times() == [0]


def test_an_agent_of_an_earlier_release_finds_its_slot_at_the_path(tmp_path):
    """Beside others, of which it may be on one page; the file is there as long as they are."""
    path = tmp_path / "board"
    with new_table(path, 20) as heartbeats:
        own = heartbeats.take()
        slots = [heartbeats.take_by_path() for _ in range(10)]
        for slot in slots:
            with by_path(path, slot) as heartbeat:
                heartbeat.note("running", slot, (), slot)
                heartbeat.write(slot + 100)
        found, beats = [heartbeats.read(slot) for slot in slots], heartbeats.times()
        mode = path.stat().st_mode
        for slot in slots:
            assert path.exists()
            heartbeats.release(slot)

        assert not path.exists()
    assert own == 0
    assert [beat.activity for beat in found] == [Activity("running", slot) for slot in slots]
    assert beats == [0, *(slot + 100 for slot in slots)]
    assert oct(mode & 0o777) == "0o600"


def test_a_file_that_is_cut_short_ends_nobody_here(tmp_path):
    """What stood there is zeros."""
    with new_table(tmp_path / "board") as heartbeats:
        slot = heartbeats.take_by_path()
        with by_path(tmp_path / "board", slot) as heartbeat:
            heartbeat.write(1)
            assert heartbeats.times() == [1]
            heartbeat.use_own_memory()
        os.truncate(tmp_path / "board", 0)

        assert heartbeats.times() == [0]
        assert heartbeats.read(slot).activity == Activity()


@pytest.mark.parametrize("what", ["a link to nowhere", "a file"])
def test_what_an_earlier_daemon_left_at_the_path_is_removed(tmp_path, what):
    """And replaced where agents look for it."""
    path = tmp_path / "board"
    for _ in range(2):
        path.write_bytes(b"a file") if what == "a file" else path.symlink_to("/proc/0/fd/99")
        with new_table(path) as heartbeats:
            assert not os.path.lexists(path)
            path.unlink(missing_ok=True)
            with by_path(path, heartbeats.take_by_path()):
                pass


def test_a_table_without_slots_is_refused(tmp_path):
    """It could hold nobody."""
    with pytest.raises(ValueError, match="empty"):
        HeartbeatTable(tmp_path / "board", 0)


def test_a_table_is_closed_once(tmp_path):
    """A second time does nothing, also when the path is another heartbeats's by then."""
    heartbeats = HeartbeatTable(tmp_path / "board", 1)
    heartbeats.take_by_path()
    heartbeats.close()
    path = tmp_path / "board"
    with new_table(path) as other, by_path(path, other.take_by_path()):
        heartbeats.close()

        assert path.exists()


def test_a_slot_that_the_table_does_not_have_is_refused(tmp_path):
    """An agent that was given a wrong number writes nowhere."""
    with new_table(tmp_path / "board", 8) as heartbeats:
        heartbeats.take_by_path()
        with pytest.raises(ValueError, match="size"), by_path(tmp_path / "board", 10_000):
            pass
