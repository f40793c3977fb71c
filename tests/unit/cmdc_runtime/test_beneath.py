"""Paths that applications name: what stays below the working folder, and what is as it is given.

The corpus of paths and the races are in ``tests/integration/sandboxes``.
"""

import contextlib
import os
import stat
from pathlib import Path

import pytest

from cmdc_runtime import beneath
from cmdc_runtime.beneath import HIDDEN, LEADS_OUT, OutsideError, file_in, named_path

READING = os.O_RDONLY
APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A working folder with a file, beside another folder with one and a home."""
    for folder in ("work/d", "out", "home"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "work/kept").write_text("kept")
    (tmp_path / "out/secret").write_text("secret")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "work"


def read(name, work):
    """Return what is read of a named file."""
    with os.fdopen(named_path(name, str(work)).open(READING)) as file:
        return file.read()


def append(name, work):
    """Write to a named file, behind what is there."""
    with os.fdopen(named_path(name, str(work)).open_in_folder(APPENDING), "w") as file:
        file.write("more")


def outside(work):
    """Return what lies beside the working folder."""
    beside = [one for one in work.parent.rglob("*") if not one.is_relative_to(work)]
    return {one: one.read_text() if one.is_file() else None for one in beside}


# fmt: off
LINKS_OUT = {
    "a file":            ("link", "../out/secret", "link"),
    "an absolute one":   ("link", "{out}/secret", "link"),
    "a folder":          ("link", "../out", "link/secret"),
    "an absolute folder":("link", "{out}", "link/secret"),
    "a folder's folder": ("link", "..", "link/out/secret"),
    "a root":            ("link", "/", "link{out}/secret"),
    "a magic one":       ("link", "/proc/self/root", "link{out}/secret"),
    "a new file":        ("link", "../out/new", "link"),
    "a new folder":      ("link", "../out/new", "link/a/b"),
}
LINKS_IN = {
    "a file":            ("link", "kept", "link"),
    "an absolute one":   ("link", "{work}/kept", "link"),
    "from below":        ("d/link", "../kept", "d/link"),
    "a folder":          ("link", ".", "link/kept"),
    "an absolute folder":("link", "{work}", "link/kept"),
    "by the root":       ("d/link", "{work}/d/../kept", "d/link"),
}
# fmt: on


def linked(row, work):
    """Make the link of a row, and return the name that goes by it."""
    name, target, path = row
    places = {"out": work.parent / "out", "work": work}
    (work / name).symlink_to(target.format(**places))
    return path.format(**places)


@pytest.mark.parametrize("row", LINKS_OUT.values(), ids=LINKS_OUT)
@pytest.mark.parametrize("whole", [False, True], ids=["relative", "absolute"])
def test_a_link_that_leads_out_leads_nowhere(work, row, whole):
    """However the path is named; the error says what would help."""
    before, name = outside(work), linked(row, work)
    name = str(work / name) if whole else name
    for use in (read, append):
        with pytest.raises(OutsideError) as caught:
            use(name, work)
        assert str(caught.value) == LEADS_OUT

    assert outside(work) == before


@pytest.mark.parametrize("row", LINKS_IN.values(), ids=LINKS_IN)
def test_a_link_that_stays_is_followed(work, row):
    """An absolute one too: people make links like that."""
    name = linked(row, work)

    assert read(name, work) == "kept"
    append(name, work)
    assert (work / "kept").read_text() == "keptmore"


@pytest.mark.parametrize("target", [".git/hooks/pre-commit", ".git"])
def test_no_link_leads_a_write_into_what_is_hidden(work, target):
    """Programs outside take orders from there; what names it itself is as it is written."""
    (work / ".git/hooks").mkdir(parents=True)
    (work / ".git/hooks/pre-commit").write_text("exit 0\n")
    (work / "link").symlink_to(target)
    name = "link" if target.endswith("commit") else "link/hooks/pre-commit"
    with pytest.raises(PermissionError, match="hidden folder"):
        append(name, work)

    assert (work / ".git/hooks/pre-commit").read_text() == "exit 0\n"
    assert HIDDEN.startswith("a link")
    append(".git/hooks/pre-commit", work)
    assert (work / ".git/hooks/pre-commit").read_text() == "exit 0\nmore"


@pytest.mark.parametrize(
    "name",
    ["../out/secret", "../alias", "{out}/secret", "{out}/../alias", "~/link", "d/../../out/secret"],
)
def test_what_lies_outside_is_as_it_is_given(work, name):
    """Links and all: no tool of the session could have made them."""
    (work.parent / "alias").symlink_to("out/secret")
    (work.parent / "home/link").symlink_to(work.parent / "out/secret")
    name = name.format(out=work.parent / "out")

    assert read(name, work) == "secret"
    append(name, work)
    assert (work.parent / "out/secret").read_text() == "secretmore"


@pytest.mark.parametrize("name", ["../work/link", "{alias}/link", "{work}/d/../link"])
def test_the_working_folder_counts_under_every_name(work, name):
    """A path of the machine that leads there stays there."""
    (work / "link").symlink_to("../out/secret")
    (work.parent / "alias").symlink_to("work")
    name = name.format(alias=work.parent / "alias", work=work)

    with pytest.raises(OutsideError):
        read(name, work)


def test_a_working_folder_may_be_given_by_a_link(work):
    """What is below it is the same, and is called as it was given."""
    (work.parent / "alias").symlink_to("work")
    path = named_path("d/new", str(work.parent / "alias"))
    os.close(path.open_in_folder(APPENDING))

    assert path.whole == str(work.parent / "alias/d/new")
    assert (work / "d/new").exists()
    assert named_path("../x", str(work.parent / "alias")).whole == str(work.parent / "alias/../x")


def test_a_pinned_folder_stays_what_it_was(work, monkeypatch):
    """A link that takes its place later leads nowhere."""
    monkeypatch.setattr(beneath, "_pinned", {})
    beneath.pin(str(work), str(work))
    work.rename(work.with_name("away"))
    work.symlink_to("out")
    with pytest.raises((OutsideError, NotADirectoryError)):
        read("secret", work)


@pytest.mark.parametrize("is_held", [False, True])
def test_a_pipe_is_no_file_and_nobody_waits(work, is_held):
    """Whether somebody reads it or not."""
    os.mkfifo(work / "pipe")
    reader = os.open(work / "pipe", os.O_RDONLY | os.O_NONBLOCK) if is_held else None
    with pytest.raises(OSError, match=r"no regular file|No such device"):
        append("pipe", work)
    os.close(named_path("pipe", str(work)).open(READING))

    if reader is not None:
        os.close(reader)


def test_folders_are_made_with_their_mode(work):
    """All that are missing, below the working folder and outside, and none that is there."""
    for name in ("a/b/file", "../new/b/file"):
        path = named_path(name, str(work), folder_mode=0o700)
        os.close(path.open_in_folder(APPENDING, 0o600))
    made = [work / "a", work / "a/b", work.parent / "new", work.parent / "new/b"]

    assert {stat.S_IMODE(one.stat().st_mode) for one in made} == {0o700}
    assert stat.S_IMODE((work / "a/b/file").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", [".", "d", "new/folder", "../out", "../new/folder", "/"])
def test_a_folder_is_opened_as_one(work, name):
    """With those above it, where it is to be made."""
    path = named_path(name, str(work))
    descriptor = path.open_as_folder(makes=name != "/")
    real = Path(f"/proc/self/fd/{descriptor}").readlink()
    os.close(descriptor)

    assert real == Path(work, name).resolve()


@pytest.mark.parametrize("makes", [False, True])
def test_a_folder_that_leads_out_is_none(work, makes):
    """And what is in the way of one is not."""
    (work / "link").symlink_to("../out")
    with pytest.raises(OutsideError):
        named_path("link", str(work)).open_as_folder(makes=makes)
    with pytest.raises(NotADirectoryError):
        named_path("kept", str(work)).open_as_folder(makes=makes)


@pytest.mark.parametrize("name", ["", ".", "d/..", "a\0b", "\ud800"])
def test_what_is_no_path_of_a_file_is_refused(work, name):
    """By an error, whatever it is."""
    with pytest.raises(ValueError, match=r"folder|null|surrogates"):
        append(name, work)


def test_without_a_home_a_tilde_is_a_name(work, monkeypatch):
    """As it was before."""
    monkeypatch.setattr(beneath.os.path, "expanduser", lambda path: path)
    append("~/a", work)

    assert (work / "~/a").read_text() == "more"


def test_nothing_is_left_open(work):
    """Whatever happens."""
    (work / "link").symlink_to("../out/secret")
    os.mkfifo(work / "pipe")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("kept", "link", "pipe", "new/a", "~/a", "no/thing"):
        for use in (read, append):
            with contextlib.suppress(OSError, ValueError):
                use(name, work)
    top = os.open(work, os.O_RDONLY)
    with pytest.raises(OSError, match="symbolic links"):
        file_in(top, "link", READING)
    os.close(top)

    assert len(list(Path("/proc/self/fd").iterdir())) == before
