"""Attacks on a rooted folder, and what a folder of a real machine may hold."""

import contextlib
import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from cmdc_runtime.extensions.backend import (
    DEPTH_MAX,
    FILE_NOT_FOUND,
    IS_DIRECTORY,
    NOT_A_DIRECTORY,
    PERMISSION_DENIED,
)
from workers.builtin.backends import _tree
from workers.builtin.backends._tree import Filesystem

SECRET = "the secret"
SWAPS = 300


@pytest.fixture
def root(tmp_path):
    """The folder, with a secret beside it."""
    folder = tmp_path / "root"
    folder.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text(SECRET)
    return folder


@pytest.fixture
def files(root):
    """The backend."""
    return Filesystem(str(root))


def descriptors():
    """Return how many descriptors this process has open."""
    return len(listed(Path("/proc/self/fd")))


def listed(folder):
    """Return the names in a folder."""
    return sorted(path.name for path in folder.iterdir())


def errors(files, path):
    """Return the errors of all operations on one file."""
    return [
        files.read(path).error,
        files.write(path, "x").error,
        files.edit(path, "secret", "x").error,
        files.grep("secret", path).error,
        files.download_files([path])[0].error,
        files.upload_files([(path, b"x")])[0].error,
    ]


# --- links --------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["../outside", "{here}/outside", "/etc", ".", "loop"])
def test_no_link_to_a_folder_is_followed(files, root, tmp_path, target):
    """Wherever it leads, out or back in, nothing is read, written or made behind it."""
    (root / "loop").symlink_to(target.format(here=tmp_path))

    assert set(errors(files, "/loop/secret")) == {PERMISSION_DENIED}
    assert files.ls("/loop").error == PERMISSION_DENIED
    assert files.glob("**", "/loop").error == PERMISSION_DENIED
    assert files.local_path("/loop/secret") is None
    assert listed(tmp_path / "outside") == ["secret"]


@pytest.mark.parametrize("target", ["../outside/secret", "inside", "nowhere"])
def test_no_link_to_a_file_is_followed(files, root, tmp_path, target):
    """And none is replaced."""
    (root / "inside").write_text("a secret of its own")
    (root / "link").symlink_to(target)

    assert set(errors(files, "/link")) == {PERMISSION_DENIED}
    assert files.local_path("/link") is None
    assert (root / "link").is_symlink()
    assert (tmp_path / "outside" / "secret").read_text() == SECRET


def test_links_are_not_shown(files, root):
    """Neither to files nor to folders, and no search goes through them."""
    (root / "file").symlink_to("../outside/secret")
    (root / "folder").symlink_to("../outside")
    files.write("/d/f", "no secret")

    assert [entry.path for entry in files.ls("/").entries] == ["/d/"]
    assert [entry.path for entry in files.glob("**").entries] == ["/d/f"]
    assert [match.path for match in files.grep("secret").matches] == ["/d/f"]


def test_a_folder_that_is_swapped_all_the_time_leads_nowhere(files, root, tmp_path):
    """A read finds the file, nothing, or a link that it does not follow."""
    files.write("/d/secret", "mine")
    (tmp_path / "evil").symlink_to(tmp_path / "outside")
    done = threading.Event()

    def swap():
        while not done.is_set():
            (root / "d").rename(root / "kept")
            (tmp_path / "evil").rename(root / "d")
            (root / "d").rename(tmp_path / "evil")
            (root / "kept").rename(root / "d")

    attacker = threading.Thread(target=swap)
    attacker.start()
    try:
        read = [files.read("/d/secret") for _ in range(SWAPS)]
        found = [files.grep("secret") for _ in range(SWAPS // 10)]
    finally:
        done.set()
        attacker.join(20)

    assert {result.content for result in read} <= {"mine", ""}
    assert {result.error for result in read} <= {None, PERMISSION_DENIED, FILE_NOT_FOUND}
    assert [result.matches for result in found if result.matches] == []


@pytest.mark.parametrize("when", ["before it is opened", "after it is opened"])
def test_a_folder_that_is_swapped_for_a_link_leads_nowhere(
    files, root, tmp_path, monkeypatch, when
):
    """What was opened is what is used, and what comes in its place is refused."""
    files.write("/d/secret", "mine")
    opening = os.open

    def swapped(name, *args, **kwargs):
        if name != "d":
            return opening(name, *args, **kwargs)
        opened = opening(name, *args, **kwargs) if when.startswith("after") else None
        (root / "d").rename(root / "kept")
        (root / "d").symlink_to("../outside")
        return opening(name, *args, **kwargs) if opened is None else opened

    results = []
    for work in (
        lambda: files.read("/d/secret"),
        lambda: files.write("/d/secret", "mine"),
        lambda: files.write("/d/new", "mine"),
        lambda: files.glob("**", "/d"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(_tree.os, "open", swapped)
            results.append(work())
        (root / "d").unlink()
        (root / "kept").rename(root / "d")

    errors_found = {result.error for result in results}
    assert errors_found == ({PERMISSION_DENIED} if when.startswith("before") else {None})
    assert len(results[3].entries) == (0 if when.startswith("before") else 2)
    assert results[0].content == ("" if when.startswith("before") else "mine")
    assert listed(tmp_path / "outside") == ["secret"]
    assert (tmp_path / "outside" / "secret").read_text() == SECRET


def test_a_file_that_becomes_a_link_before_the_rename_is_replaced(
    files, root, tmp_path, monkeypatch
):
    """A rename takes the place of the link, and leaves what it leads to alone."""
    files.write("/f", "old")
    rename = os.rename

    def swapped(*args, **kwargs):
        (root / "f").unlink()
        (root / "f").symlink_to("../outside/secret")
        rename(*args, **kwargs)

    monkeypatch.setattr(_tree.os, "rename", swapped)

    assert files.write("/f", "new").error is None
    assert (tmp_path / "outside" / "secret").read_text() == SECRET
    assert files.read("/f").content == "new"


def test_the_folder_itself_may_be_a_link(root, tmp_path):
    """It is the application's own choice."""
    (tmp_path / "alias").symlink_to(root)
    files = Filesystem(str(tmp_path / "alias"))

    assert files.write("/a/f", "here").error is None
    assert (root / "a" / "f").read_text() == "here"
    assert files.local_path("/a/f") == str(tmp_path / "alias" / "a" / "f")


def test_a_path_of_the_machine_is_below_the_folder(files, root, tmp_path):
    """An absolute one too: "/" is the top, whatever else has that name."""
    secret = tmp_path / "outside" / "secret"

    assert files.read(str(secret)).error == FILE_NOT_FOUND
    assert files.write("/etc/passwd", "mine").error is None
    assert (root / "etc" / "passwd").read_text() == "mine"


# --- what is no file ----------------------------------------------------------------------------


@pytest.fixture
def oddities(root):
    """A named pipe and a socket in the folder."""
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        with contextlib.chdir(root):  # a socket's path is short
            server.bind("socket")
        yield


@pytest.mark.usefixtures("oddities")
@pytest.mark.parametrize("name", ["/pipe", "/socket"])
def test_what_is_no_file_is_neither_read_nor_waited_for(files, name):
    """Nor replaced, nor shown."""
    assert None not in errors(files, name)[:2]
    assert files.local_path(name) is None
    assert files.ls("/").entries == files.glob("**").entries == ()


def test_a_name_that_is_no_text_is_not_shown(files, root):
    """It could not be asked for."""
    (root / os.fsdecode(b"caf\xe9")).write_text("secret")

    assert files.ls("/").entries == files.grep("secret").matches == ()


def test_an_unfinished_write_is_not_shown(files, root):
    """It is the file that it will be, or nothing."""
    (root / ".cmdc-0123456789abcdef.part").write_text("secret")
    files.write("/f", "x")

    assert [entry.path for entry in files.ls("/").entries] == ["/f"]
    assert files.grep("secret").matches == ()


# --- writes -------------------------------------------------------------------------------------


def test_a_file_keeps_its_mode(files, root):
    """A new one has that of any new file."""
    files.write("/f", "x")
    (root / "f").chmod(0o640)
    files.write("/f", "y")

    assert stat.S_IMODE((root / "f").stat().st_mode) == 0o640


@pytest.mark.parametrize("failing", ["fsync", "rename"])
def test_a_write_that_fails_leaves_nothing(files, root, monkeypatch, failing):
    """The file is as it was, and no part of the new one is left."""
    files.write("/f", "old")
    before = descriptors()

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_tree.os, failing, fail)

    assert files.write("/f", "new").error == "No space left on device"
    assert listed(root) == ["f"]
    assert (root / "f").read_text() == "old"
    assert descriptors() == before


def test_the_folder_is_made_by_the_first_write(tmp_path):
    """Looking at it makes nothing."""
    files = Filesystem(str(tmp_path / "a" / "b"))
    looked = [files.ls("/").error, files.glob("**").error, files.grep("x").error]
    missing = [files.read("/f").error, files.ls("/d").error, files.edit("/f", "a", "b").error]

    assert looked == [None] * 3
    assert missing == [FILE_NOT_FOUND] * 3
    assert listed(tmp_path) == []
    assert files.write("/f", "x").error is None
    assert files.read("/f").content == "x"


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path):
    """It is left alone."""
    (tmp_path / "root").write_text("mine")
    files = Filesystem(str(tmp_path / "root"))

    assert files.write("/f", "x").error == NOT_A_DIRECTORY
    assert files.ls("/").error == NOT_A_DIRECTORY


def test_no_descriptor_is_left_open(files, root):
    """Whatever an operation ends with."""
    (root / "link").symlink_to("d")
    files.write("/d/e/f", "secret")
    before = descriptors()
    for path in ("/d/e/f", "/d/e/f/g", "/d", "/link/f", "/no", "/..", "/d/no", "/"):
        errors(files, path)
        files.ls(path)
        files.glob("**", path)
        files.local_path(path)

    assert descriptors() == before


# --- bounds -------------------------------------------------------------------------------------


def test_a_walk_ends_below_what_can_be_named(files, root):
    """Folders that are too deep are left out, and that is reported."""
    folder = root
    for _ in range(DEPTH_MAX + 3):
        folder /= "d"
        folder.mkdir()
        (folder / "f").write_text("x")
    found = files.glob("**")

    assert found.is_cut
    assert len(found.entries) == DEPTH_MAX - 1
    assert all(files.read(entry.path).error is None for entry in found.entries)


def test_a_walk_ends_after_so_many_entries(files, monkeypatch):
    """What it found until then is returned."""
    monkeypatch.setattr(_tree, "ENTRIES_SEEN_MAX", 3)
    for name in range(5):
        files.write(f"/d/{name}", "x")
    results = [files.ls("/d"), files.glob("*", "/d"), files.grep("x", "/d")]

    assert [result.is_cut for result in results] == [True] * 3
    assert len(results[0].entries) == 3


def test_a_file_that_is_too_large_is_not_read(files, root, monkeypatch):
    """However it came there; a search goes past it and says so."""
    monkeypatch.setattr(_tree, "FILE_BYTES_MAX", 5)
    (root / "large").write_text("secret")
    (root / "small").write_text("secr")
    found = files.grep("secr")

    assert "larger than" in files.read("/large").error
    assert [match.path for match in found.matches] == ["/small"]
    assert found.is_cut


# --- real paths ---------------------------------------------------------------------------------


@pytest.fixture
def real(root):
    """A backend of real paths that begins in the folder."""
    return Filesystem(str(root), virtual_mode=False)


@pytest.mark.parametrize("path", ["../outside/secret", "{here}/outside/secret", "link"])
def test_real_paths_reach_what_the_process_reaches(real, root, tmp_path, path):
    """Results name files by where they really are."""
    (root / "link").symlink_to("../outside/secret")
    path = path.format(here=tmp_path)
    real.edit(path, "the", "my")

    assert real.read(path).content == "my secret"
    assert real.local_path(path) == str(tmp_path.resolve() / "outside" / "secret")
    assert [match.path for match in real.grep("secret", "../outside").matches] == [
        str(tmp_path.resolve() / "outside" / "secret")
    ]
    assert (root / "link").is_symlink()


def test_relative_real_paths_begin_in_the_folder(real, root):
    """An empty one is the folder."""
    real.write("a/f", "x")

    assert (root / "a" / "f").read_text() == "x"
    assert [entry.path for entry in real.ls("").entries] == [f"{root.resolve()}/a/"]
    assert real.read("a").error == IS_DIRECTORY
