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


def test_both_forms_are_told_apart():
    """By the first line; line ends of Windows all through are those of the way here."""
    diff = "--- f\n+++ f\n@@\n-a\n+b\n"
    [change] = changes_of(diff.replace("\n", "\r\n"))

    assert [line.text for line in change.hunks[0].lines] == [b"a", b"b"]
    assert changes_of("\n" + DELETED.format("*** Delete File: f\n"))[0].kind == "delete"
    assert "it changes no file" in refused("Change it, please.")
    assert "it changes no file" in refused(DELETED.format(""))


def test_a_file_is_changed_once():
    """Under whatever path it is named."""
    twice = "*** Delete File: a/f\n*** Delete File: a/./f\n"

    assert refused(DELETED.format(twice)) == (
        "it changes a/./f twice; put all hunks of a file together"
    )


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
