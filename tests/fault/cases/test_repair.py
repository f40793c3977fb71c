"""Repair of a journal's files, or bringing them back: killed in its midst, and without room."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.adapters.journal.base import JournalFailed, JournalRefused
from supervisor.adapters.journal.operations import AppendRecords
from supervisor.adapters.journal.repair import repairing, restoring, salvage, sums, volume
from supervisor.adapters.journal.repair.repairing import Repairer
from supervisor.adapters.journal.repair.restoring import RESTORED
from supervisor.adapters.journal.repair.sums import PAGE_BYTES, PageSums
from supervisor.adapters.journal.repair.volume import RESERVE_FILE, wal_of
from supervisor.adapters.journal.repair.wal import FRAME, HEADER, read_log
from supervisor.adapters.journal.sqlite import JOURNAL_FILE, SUMS_FILE, SqliteStore
from tests.fault.cases.journals import SESSIONS, damage, fill, flip, look, name_of, with_journal

pytestmark = [pytest.mark.fault, pytest.mark.slow]

KILLED = 9
STRANGER = b"not ours"
TRACED = {
    *(module.__file__ for module in (repairing, restoring, salvage, sums, volume)),
    shutil.__file__,
    *map(str, Path(os.__file__).parent.glob("pathlib*")),
    *map(str, Path(os.__file__).parent.glob("pathlib/*")),
}
"""Where the files are changed: a kill comes between two lines of these."""
FRAME_BYTES = FRAME.size + PAGE_BYTES


@pytest.fixture(autouse=True)
def audit():
    """No daemon is needed here."""


async def late(journal):
    """Write once more, so that the last writes are in the log only."""
    for number in range(SESSIONS):
        await journal.write(AppendRecords(name_of(number), 0, [("said", b"late")], [], number=5))


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """A journal that a crash left, with a part in the file and a part in the log."""
    state = tmp_path_factory.mktemp("made") / "left"
    with_journal(state, fill)
    with_journal(state, late, is_crash=True)
    return state


def flip_in_log(state):
    """Make one bit of the log wrong, in the midst of it."""
    wal = wal_of(state / JOURNAL_FILE)
    frames = len(read_log(wal.read_bytes()).frames)
    flip(wal, HEADER.size + frames // 2 * FRAME_BYTES + FRAME.size + 5, 2)


def ruin_a_page(state):
    """Overwrite a page that the log does not have."""
    path = state / JOURNAL_FILE
    in_log = read_log(wal_of(path).read_bytes()).pages(10**9)
    page = max(set(range(1, path.stat().st_size // PAGE_BYTES + 1)) - set(in_log))
    damage(path, (page - 1) * PAGE_BYTES, b"\xaa" * PAGE_BYTES)


def tear(state):
    """Cut the log in its last frame."""
    wal = wal_of(state / JOURNAL_FILE)
    end = HEADER.size + len(read_log(wal.read_bytes()).frames) * FRAME_BYTES
    os.truncate(wal, end - 100)


def replace_by_a_stranger(path):
    """Put another file in the place of the journal."""
    path.with_name("other").write_bytes(STRANGER)
    path.with_name("other").replace(path)


def repair(state):
    """Repair as a start of the daemon does."""
    path = state / JOURNAL_FILE
    return Repairer(path, PageSums(state / SUMS_FILE, path)).repair()


class Killer:
    """Counts the lines of a repair; notes at which the files differ, or ends the process at one."""

    def __init__(self, state, at):
        self._state, self._at = state, at
        self._count, self._seen = 0, None
        self.changes = []

    def trace(self, frame, event, _argument):
        """Follow what is in ``TRACED``."""
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line":
            self._count += 1
            if self._at == self._count:
                os._exit(KILLED)
            if self._at is None and (looks := self._look()) != self._seen:
                self._seen = looks
                self.changes.append(self._count)
        return self.trace

    def _look(self):
        found = ((one.name, one.stat()) for one in sorted(self._state.iterdir()))
        return [(name, one.st_ino, one.st_size, one.st_mtime_ns) for name, one in found]


def repair_until(state, at=None, begin=lambda state: functools.partial(repair, state)):
    """Repair in another process, which dies at a line; with None return the lines to die at.

    ``begin`` returns what is done then.
    """
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            act = begin(state)
            killer = Killer(state, at)
            sys.settrace(killer.trace)
            act()
            sys.settrace(None)
            os.write(writable, " ".join(map(str, killer.changes)).encode())
        finally:
            os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as file:
        written = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, [int(one) for one in written.split()]


@pytest.mark.fault_case("F37")
@pytest.mark.parametrize("harm", [flip_in_log, ruin_a_page])
def test_repair_may_be_killed_at_any_moment(left, tmp_path, harm):
    """The next start comes to the same: nothing that the damage did not take is missing."""
    harmed, state = tmp_path / "harmed", tmp_path / "state"
    shutil.copytree(left, harmed)
    harm(harmed)
    (right, over), repaired = with_journal(shutil.copytree(harmed, state), look)
    shutil.rmtree(state)
    code, moments = repair_until(shutil.copytree(harmed, state))
    assert (code, len(right) + len(over)) == (0, SESSIONS)
    assert right
    assert len(moments) > 5
    for moment in moments:
        shutil.rmtree(state)
        shutil.copytree(harmed, state)
        assert repair_until(state, moment)[0] == KILLED
        (found, gone), _ = with_journal(state, look)
        assert found == right, moment
        assert gone.keys() == over.keys(), moment
        names = {one.name.partition("-")[0] for one in state.iterdir()}
        assert not names & {"journal.salvage", "journal.salvage.new", "journal.salvaged"}, moment
    assert repaired.kept_at is not None


@pytest.mark.fault_case("F38")
@pytest.mark.parametrize("harm", [Path.unlink, replace_by_a_stranger])
def test_a_journal_may_be_killed_while_it_is_brought_back(left, tmp_path, harm):
    """The next start goes on with the copy if it is whole; else nothing passes for the journal."""
    right, _ = with_journal(shutil.copytree(left, tmp_path / "right"), look)
    state = tmp_path / "state"

    def begin(state):
        store = SqliteStore(state, "process")
        store.open()
        harm(state / JOURNAL_FILE)
        return store.begin

    code, moments = repair_until(shutil.copytree(left, state), begin=begin)
    assert (code, with_journal(state, look)[0]) == (0, right)
    outcomes = []
    for moment in moments:
        shutil.rmtree(state)
        assert repair_until(shutil.copytree(left, state), moment, begin)[0] == KILLED
        is_whole = (state / RESTORED).exists()
        try:
            assert with_journal(state, look)[0] == right, moment
        except JournalRefused:
            assert not is_whole, moment
            outcomes.append(False)
        else:
            strangers = [one.read_bytes() for one in state.glob("*.stranger-*")]
            assert (STRANGER in strangers) == (harm is not Path.unlink), moment
            outcomes.append(True)
    assert outcomes == sorted(outcomes)
    assert outcomes.count(True) > 3


@pytest.fixture
def small(tmp_path):
    """Return a function that makes a disk of a few MiB without a byte of room, with files on it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "none", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")

    def give(source):
        state = shutil.copytree(source, folder / "state")
        os.truncate(state / RESERVE_FILE, 0)  # it was spent
        with (folder / "ballast").open("wb", buffering=0) as file:
            for size in (2**20, PAGE_BYTES):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    pass
        return state

    yield give
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.fault_case("F36")
def test_a_torn_log_on_a_full_disk_keeps_no_daemon_away(left, small, tmp_path, capsys):
    """Nothing of it was acknowledged: what cannot be kept is reported, and the rest is there."""
    torn = shutil.copytree(left, tmp_path / "torn")
    tear(torn)
    state = small(torn)
    (found, over), repaired = with_journal(state, look)
    right, kept = with_journal(torn, look)

    assert (found, over) == right
    assert repaired.torn_bytes == kept.torn_bytes > 0
    assert repaired.kept_at is None
    assert "journal.tail_not_kept" in capsys.readouterr().out
    assert list(state.glob(f"{JOURNAL_FILE}.*")) == []
    assert kept.kept_at.stat().st_size == kept.torn_bytes  # not the file, however large it is


def contents(state):
    """Return the files but the reserve, which has none."""
    return {one.name: one.read_bytes() for one in state.iterdir() if one.name != RESERVE_FILE}


@pytest.mark.fault_case("F37")
@pytest.mark.parametrize("harm", [flip_in_log, ruin_a_page])
def test_damage_that_there_is_no_room_to_repair_is_left(left, small, tmp_path, harm):
    """It is said how much room it takes, and a try leaves nothing behind."""
    harmed = shutil.copytree(left, tmp_path / "harmed")
    harm(harmed)
    state = small(harmed)
    before = contents(state)
    for _ in range(2):
        with pytest.raises(JournalFailed, match=r"free up to \d+ MiB"):
            with_journal(state, look)
    after = contents(state)
    (state.parent / "ballast").unlink()
    (found, over), repaired = with_journal(state, look)

    assert after == before
    assert len(found) + len(over) == SESSIONS
    assert repaired.kept_at is not None
