"""``write_file`` on a real folder."""

import os
import resource
import stat
import threading

import pytest

from cmdc_runtime.extensions import ToolError
from workers.builtin.tools import _files, write_file


def test_file_is_created_with_its_folders(workplace):
    """A new file is there afterwards, with the mode that any new file gets."""
    result = workplace.call(write_file.create(), path="a/b/c.txt", content="one\ntwo é")
    (workplace.folder / "plain").touch()

    assert result == "Created a/b/c.txt: 2 lines, 10 bytes"
    assert (workplace.folder / "a/b/c.txt").read_text() == "one\ntwo é"
    assert mode(workplace.folder / "a/b/c.txt") == mode(workplace.folder / "plain")


def mode(path):
    """Return the permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


def test_file_is_replaced_and_keeps_its_mode(workplace):
    """A script stays executable, a secret stays secret."""
    workplace.write({"run.sh": "old and longer"})
    (workplace.folder / "run.sh").chmod(0o710)
    result = workplace.call(write_file.create(), path="run.sh", content="new\n")

    assert result == "Replaced run.sh: 1 lines, 4 bytes"
    assert (workplace.folder / "run.sh").read_text() == "new\n"
    assert mode(workplace.folder / "run.sh") == 0o710
    assert [path.name for path in workplace.folder.iterdir()] == ["run.sh"]


def test_empty_content_is_content(workplace):
    """A file can be emptied, and line ends are written as they were given."""
    workplace.call(write_file.create(), path=str(workplace.folder / "f"), content="a\r\nb\r\n")
    before = (workplace.folder / "f").read_bytes()
    result = workplace.call(write_file.create(), path="f", content="")

    assert before == b"a\r\nb\r\n"
    assert result == "Replaced f: 0 lines, 0 bytes"


@pytest.mark.parametrize("target", ["target", "absent"])
def test_link_stays_a_link(workplace, target):
    """What a link points to is written, and made where it is not there yet."""
    workplace.write({"target": "old"})
    (workplace.folder / "link").symlink_to(target)
    workplace.call(write_file.create(), path="link", content="new")

    assert (workplace.folder / "link").is_symlink()
    assert (workplace.folder / target).read_text() == "new"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("folder", "it is a folder"),
        ("", "it is a folder"),
        ("pipe", "it is a device, socket or pipe"),
        ("socket", "it is a device, socket or pipe"),
        ("file/below", "Not a directory"),
        ("file/far/below", "Not a directory"),
        ("loop", "Too many levels of symbolic links"),
        ("n" * 256, "File name too long"),
        ("nul\0", "embedded null byte"),
    ],
)
def test_what_is_no_file_is_left_alone(workplace, path, reason):
    """Folders, devices and impossible paths are errors, and nothing else changes."""
    workplace.write({"folder/inside": "", "file": "kept"})
    os.mkfifo(workplace.folder / "pipe")
    os.mknod(workplace.folder / "socket", stat.S_IFSOCK | 0o600)
    (workplace.folder / "loop").symlink_to("loop")
    text = workplace.failure(write_file.create(), path=path, content="x")

    assert text.startswith(f"Cannot write {path}: ")
    assert reason in text
    assert (workplace.folder / "file").read_text() == "kept"
    assert len(list(workplace.folder.iterdir())) == 5


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_write_protection_counts(workplace):
    """Replacing asks the folder only; the mode of the file is respected all the same."""
    workplace.write({"file": "kept"})
    (workplace.folder / "file").chmod(0o444)

    assert "write-protected" in workplace.failure(write_file.create(), path="file", content="x")


def test_text_that_is_none_is_refused(workplace):
    """Half of a character cannot be written, and is reported before the file is touched."""
    workplace.write({"file": "kept"})

    assert "surrogates" in workplace.failure(write_file.create(), path="file", content="\ud800")
    assert (workplace.folder / "file").read_text() == "kept"


def test_failed_write_leaves_the_old_file(workplace):
    """A disk that takes only a part leaves what was there, and no part of the new."""
    workplace.write({"file": "kept"})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        text = workplace.failure(write_file.create(), path="file", content="x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert text == "Cannot write file: File too large"
    assert (workplace.folder / "file").read_text() == "kept"
    assert [path.name for path in workplace.folder.iterdir()] == ["file"]


def test_readers_see_old_or_new(workplace):
    """Whoever reads while the file is replaced gets one content, never a mixture."""
    workplace.write({"file": "a" * 100_000})
    seen = set()
    is_over = threading.Event()

    def read():
        while not is_over.is_set():
            seen.add((workplace.folder / "file").read_text())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for letter in "bcdefgh":
            workplace.call(write_file.create(), path="file", content=letter * 100_000)
    finally:
        is_over.set()
        reader.join()

    assert {(len(content), len(set(content))) for content in seen} == {(100_000, 1)}


def test_content_is_bounded():
    """More than a model can have written is refused."""
    with pytest.raises(ToolError, match="Invalid arguments for write_file"):
        write_file.create().check({"path": "f", "content": "x" * (write_file.CHARS_MAX + 1)})


def test_change_that_does_not_end_holds_up_nobody(workplace, monkeypatch):
    """The wait for an earlier change has a bound, and reaching it is reported."""
    monkeypatch.setattr(_files, "CHANGE_WAIT_S", 0.01)
    with _files.one_at_a_time():
        text = workplace.failure(write_file.create(), path="file", content="x")

    assert text == "An earlier change of a file has not ended within 0.01 s."


def test_what_a_killed_writer_has_left_goes_with_the_next_write(tmp_path):
    """A draft whose writer lives is locked, and stays."""
    folder = os.open(tmp_path, os.O_PATH)
    dead, descriptor = _files.draft(folder)
    os.close(descriptor)
    living, descriptor = _files.draft(folder)
    _files.put(folder, "a.txt", b"x")

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([living, "a.txt"])
    assert dead != living
    os.close(descriptor)
    _files.put(folder, "a.txt", b"y")
    os.close(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
