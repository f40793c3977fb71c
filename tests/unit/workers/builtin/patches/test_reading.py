"""A patch in any form, its bounds, and the paths that it names."""

import pytest

from workers.builtin.patches.hunks import PatchError
from workers.builtin.patches.reading import FILES_MAX, HUNKS_MAX, changes_of, paths_of

DELETED = "*** Begin Patch\n{}*** End Patch\n"


def refused(text):
    """Return why a patch is not read."""
    with pytest.raises(PatchError) as caught:
        changes_of(text)
    return str(caught.value)


def test_both_forms_are_distinguished():
    """By the first line; line ends of Windows all through are those of the way here."""
    diff = "--- f\n+++ f\n@@\n-a\n+b\n"
    [change] = changes_of(diff.replace("\n", "\r\n"))

    assert [line.text for line in change.hunks[0].lines] == [b"a", b"b"]
    assert changes_of("\n" + DELETED.format("*** Delete File: f\n"))[0].kind == "delete"
    assert "it changes no file" in refused("Change it, please.")
    assert "it changes no file" in refused(DELETED.format(""))


ADDED = "*** Add File: {}\n+x\n"
MOVED = "*** Update File: {}\n*** Move to: {}\n"
DROPPED = "*** Delete File: {}\n"


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (DROPPED.format("a/f") + DROPPED.format("a/./f"), "a/./f"),
        (ADDED.format("f") + ADDED.format("f"), "f"),
        (ADDED.format("f") + ADDED.format("/work/f"), "/work/f"),
        (ADDED.format("f") + ADDED.format("//work//f/"), "//work//f/"),
        (MOVED.format("a", "c") + MOVED.format("b", "c"), "c"),
        (MOVED.format("a", "b") + MOVED.format("b", "c"), "b"),
        (MOVED.format("a", "a"), "a"),
        (DROPPED.format("a") + ADDED.format("b") + MOVED.format("c", "x/../a"), "x/../a"),
    ],
)
def test_a_file_is_changed_once(files, named):
    """Under whatever path it is named, and a move names two."""
    with pytest.raises(PatchError) as caught:
        changes_of(DELETED.format(files), "/work")

    assert str(caught.value) == f"it changes {named} twice; put all hunks of a file together"


@pytest.mark.parametrize(
    ("files", "file", "below"),
    [
        (ADDED.format("p") + ADDED.format("p/q"), "p", "p/q"),
        (ADDED.format("p/q/r") + ADDED.format("p.x") + ADDED.format("p"), "p", "p/q/r"),
        (ADDED.format("/work/p") + ADDED.format("./p/q"), "/work/p", "./p/q"),
        (MOVED.format("a", "p") + ADDED.format("p/q"), "p", "p/q"),
        (MOVED.format("a", "p/q") + MOVED.format("b", "p"), "p", "p/q"),
        (MOVED.format("p", "p/q"), "p", "p/q"),
        (DROPPED.format("p") + ADDED.format("p/q"), "p", "p/q"),
    ],
)
def test_a_file_is_no_folder_of_another_one(files, file, below):
    """In one patch, before or after it: whichever comes first would keep the other from being."""
    with pytest.raises(PatchError) as caught:
        changes_of(DELETED.format(files), "/work")

    assert str(caught.value).startswith(f"{file} is a file in it, and the folder of {below};")


def test_paths_that_only_look_alike_are_others():
    """A name that begins as another does is in no folder of that name."""
    files = "".join(map(ADDED.format, ("p", "p.q", "pq/r", "a/p", "b/p/q", "-", "p-/q")))

    assert len(changes_of(DELETED.format(files), "/work")) == 7


def test_a_patch_is_bounded():
    """In files and in hunks."""
    files = "".join(f"*** Delete File: {at}\n" for at in range(FILES_MAX + 1))
    hunks = "*** Update File: f\n" + "@@\n-x\n" * (HUNKS_MAX + 1)

    assert f"it has {FILES_MAX + 1} files" in refused(DELETED.format(files))
    assert f"{HUNKS_MAX + 1} hunks" in refused(DELETED.format(hunks))


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        (DELETED.format("*** Update File: a\n*** Move to: b\n"), ["a", "b"]),
        ("--- a/x\n+++ b/x\n@@\n+--- a/y\n", ["x"]),
        ("*** Add File: .env\n+x", [".env"]),
        ("--- a/x\nno diff", ["a/x"]),
        ("words", []),
    ],
)
def test_paths_are_those_that_would_be_changed(text, paths):
    """Of what can't be read, all that might be meant as one."""
    assert paths_of(text) == paths
