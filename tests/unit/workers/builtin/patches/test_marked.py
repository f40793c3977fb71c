"""Patches from "*** Begin Patch" to "*** End Patch" as changes, and what is refused."""

import pytest

from workers.builtin.patches.hunks import PatchError, changed
from workers.builtin.patches.marked import marked

FILE = b"class A:\n    def f(self):\n        pass\n\nclass B:\n    def f(self):\n        pass\n"


def patch(*lines):
    """Return a patch with these lines."""
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch", ""])


def refused(text):
    """Return why a patch is not read."""
    with pytest.raises(PatchError) as caught:
        marked(text)
    return str(caught.value)


def test_what_a_patch_says_of_files():
    """One line for each file, and hunks where it is changed."""
    changes = marked(
        patch(
            "*** Add File: n.txt",
            "+a",
            "",
            "+b",
            "*** Delete File: o.txt",
            "",
            "*** Update File: p.txt",
            "*** Move to: q.txt",
            "@@",
            "-x",
            "+y",
            "*** Update File: r.txt",
            " a",
            "-b",
            "*** End of File",
        )
    )

    assert [(one.kind, one.path, one.to) for one in changes] == [
        ("add", "n.txt", None),
        ("delete", "o.txt", None),
        ("move", "p.txt", "q.txt"),
        ("update", "r.txt", None),
    ]
    assert changed(changes[0], None) == b"a\n\nb\n"
    assert changes[3].hunks[0].is_last


def test_anchors_lead_to_a_place():
    """Line by line; the class decides which of two methods is meant."""
    [change] = marked(
        patch(
            "*** Update File: f",
            "@@ class B:",
            "@@     def f(self):",
            "-        pass",
            "+        x",
        )
    )

    assert changed(change, FILE) == FILE.replace(b"pass", b"x").replace(b"x", b"pass", 1)


def test_hunks_may_have_empty_lines_and_numbers():
    """An empty line inside stands for itself, one behind a hunk for nothing."""
    [change] = marked(
        patch(
            "*** Update File: f", "@@ -3,3 +3,3 @@", "-        pass", "", "-class B:", "+C", "", ""
        )
    )

    assert change.hunks[0].line == 3
    assert changed(change, FILE) == FILE.replace(b"        pass\n\nclass B:", b"\nC", 1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("*** Begin Patch\n*** Add File: a\n+x", "may have been cut off"),
        (patch("*** Add File: a", "x"), "each line of the new file a begins with"),
        (patch("*** Update File: a"), "says nothing of what is to change in a"),
        (patch("*** Update File: a", "@@ x"), "has no lines"),
        (
            patch("*** Update File: a", "@@", "-x", "y"),
            'line 5 of the patch: expected a space, "+"',
        ),
        (patch("*** Add File:  "), "names no file"),
        (patch("*** Rename File: a"), "line 2 of the patch: expected"),
        (patch("*** Delete File: a") + "more", 'something stands behind "*** End Patch"'),
    ],
)
def test_what_is_no_such_patch_is_refused(text, why):
    """With the line, and what would have been right."""
    assert why in refused(text)


def test_many_blank_lines_take_little_time():
    """They are looked through once."""
    changes = marked(patch("*** Update File: a", "-x", *[""] * 200_000, "+y", *[""] * 200_000))

    assert len(changes[0].hunks[0].lines) == 200_002
