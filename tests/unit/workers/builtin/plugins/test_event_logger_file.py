"""A file of lines: appended to by several, renamed when it is full, private."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from cmdc_runtime.beneath import named_path
from workers.builtin.plugins import event_logger as module
from workers.builtin.plugins.event_logger import LineFile


@pytest.fixture
def file_of(tmp_path):
    """Make files ``a`` of at most 10 bytes, which are closed at the test's end."""
    made = []

    def make(name="a", *, max_bytes=10, backups=2, working_dir=tmp_path):
        path = named_path(str(name), str(working_dir), folder_mode=0o700)
        file = LineFile(path, max_bytes=max_bytes, backups=backups)
        made.append(file)
        return file

    yield make
    for file in made:
        file.close()


def write(file, *lines):
    for line in lines:
        file.append(f"{line}\n".encode())


def contents(folder):
    """Return the lines of each file by its name."""
    return {path.name: path.read_text().split() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("backups", "found"),
    [
        (0, {"a": ["four"]}),
        (1, {"a": ["four"], "a.1": ["two", "three"]}),
        (2, {"a": ["four"], "a.1": ["two", "three"], "a.2": ["zero", "one"]}),
        (9, {"a": ["four"], "a.1": ["two", "three"], "a.2": ["zero", "one"]}),
    ],
)
def test_a_full_file_becomes_an_older_one(file_of, tmp_path, backups, found):
    """So many are kept; each has its lines whole."""
    file = file_of(backups=backups)
    write(file, "zero", "one", "two", "three", "four")

    assert contents(tmp_path) == found


def test_the_oldest_file_gives_way(file_of, tmp_path):
    """What is kept is bounded."""
    write(file_of(backups=2), *"abcdefgh", "123456789", "i", "987654321")

    assert contents(tmp_path) == {"a": ["987654321"], "a.1": ["i"], "a.2": ["123456789"]}


def test_a_line_that_is_larger_than_a_file_has_one_of_its_own(file_of, tmp_path):
    """It is written all the same."""
    write(file_of(backups=9), "a", "x" * 20, "b")

    assert contents(tmp_path) == {"a": ["b"], "a.1": ["x" * 20], "a.2": ["a"]}


def test_who_shares_a_file_follows_its_renaming(file_of, tmp_path):
    """Nobody goes on with a file that another one has renamed."""
    one, other = file_of(), file_of()
    write(other, "zero")
    write(one, "one", "two")
    write(other, "six")

    assert contents(tmp_path) == {"a": ["two", "six"], "a.1": ["zero", "one"]}


def test_a_file_that_another_one_is_renaming_is_left_to_it(file_of, tmp_path):
    """It gets a line more than its bound, and nobody waits."""
    file = file_of()
    write(file, "zero", "one")
    with (tmp_path / "a").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        write(file, "two")

    assert contents(tmp_path) == {"a": ["zero", "one", "two"]}


def test_a_file_that_was_renamed_while_its_lock_was_taken_is_renamed_once(
    file_of, tmp_path, monkeypatch
):
    """Whoever gets the lock looks whether there is anything left to do."""
    file, other = file_of(), file_of()
    write(file, "zero", "one")
    lock = fcntl.flock

    def late(fd, operation):
        if operation & fcntl.LOCK_EX:
            monkeypatch.setattr(module.fcntl, "flock", lock)
            write(other, "two")
        lock(fd, operation)

    monkeypatch.setattr(module.fcntl, "flock", late)
    write(file, "three")

    assert contents(tmp_path) == {"a": ["two", "three"], "a.1": ["zero", "one"]}


def test_a_removed_file_is_made_again(file_of, tmp_path):
    """Also with its folder: a person may clear old logs away."""
    file = file_of("logs/a")
    write(file, "one")
    (tmp_path / "logs" / "a").unlink()
    (tmp_path / "logs").rmdir()
    write(file, "two")

    assert contents(tmp_path / "logs") == {"a": ["two"]}


def test_a_cut_line_is_ended_before_the_next_one(file_of, tmp_path):
    """A disk that was full cost one line and not two."""
    (tmp_path / "a").write_text("hal")
    write(file_of(), "two")

    assert contents(tmp_path) == {"a": ["hal", "two"]}


def test_lines_of_several_writers_do_not_mix(file_of, tmp_path):
    """Each is one write behind all others."""
    one, other = file_of(max_bytes=10**6), file_of(max_bytes=10**6)
    for _ in range(50):
        write(one, "a" * 100)
        write(other, "b" * 100)

    assert contents(tmp_path) == {"a": ["a" * 100, "b" * 100] * 50}


def modes(folder, *names):
    return [oct((folder / name).stat().st_mode & 0o777) for name in names]


def test_a_file_and_its_new_folders_are_private(file_of, tmp_path):
    """A folder that was there stays as it was, and so does a file."""
    tmp_path.chmod(0o755)
    (tmp_path / "old").touch(0o644)
    write(file_of("x/y/a"), "one")
    write(file_of("old"), "one")

    assert modes(tmp_path, "", "x", "x/y", "x/y/a", "old") == [
        "0o755", "0o700", "0o700", "0o600", "0o644",
    ]  # fmt: skip


def test_a_closed_file_is_opened_again(file_of, tmp_path):
    """Closing gives the descriptor back, once."""
    file = file_of()
    before = len(list(Path("/proc/self/fd").iterdir()))
    write(file, "one")
    file.close()
    file.close()

    assert len(list(Path("/proc/self/fd").iterdir())) == before
    write(file, "two")
    assert contents(tmp_path) == {"a": ["one", "two"]}


@pytest.mark.parametrize("linked", ["a", "logs"])
def test_no_link_of_the_working_folder_leads_out_of_it(file_of, tmp_path, linked):
    """Neither at the file nor at its folder; one that stays is followed, at a full file too."""
    work, out = tmp_path / "work", tmp_path / "out"
    work.mkdir()
    out.mkdir()
    name = "a" if linked == "a" else "logs/a"
    (work / linked).symlink_to(out / "a" if linked == "a" else out)
    with pytest.raises(ValueError, match="leads out of the working folder"):
        write(file_of(name, working_dir=work), "one")
    assert list(out.iterdir()) == []

    (work / linked).unlink()
    (work / "in").mkdir()
    (work / linked).symlink_to("in/a" if linked == "a" else "in")
    write(file_of(name, working_dir=work), "one", "two", "three")
    assert contents(work / "in") == {"a": ["three"], "a.1": ["one", "two"]}


def test_a_link_outside_of_the_working_folder_is_followed(file_of, tmp_path):
    """Whoever names it wants it so; no tool in there could have made it."""
    (tmp_path / "work").mkdir()
    (tmp_path / "a").symlink_to(tmp_path / "target")
    write(file_of(tmp_path / "a", working_dir=tmp_path / "work"), "one")

    assert (tmp_path / "target").read_text() == "one\n"


def test_what_is_no_file_is_refused(file_of, tmp_path):
    """A pipe that nobody reads is an error, and not a wait."""
    os.mkfifo(tmp_path / "a")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="no regular file"):
        write(file_of(), "one")

    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_line_that_is_cut_is_an_error(file_of, monkeypatch):
    """A disk is full."""
    monkeypatch.setattr(module.os, "write", lambda _fd, line: len(line) - 1)
    with pytest.raises(OSError, match="only 3 of 4 bytes were written") as raised:
        write(file_of(), "one")

    assert raised.value.errno == errno.ENOSPC
