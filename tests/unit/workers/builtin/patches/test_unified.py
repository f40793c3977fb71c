"""Unified diffs as changes, and what is refused."""

import difflib
import random

import pytest

from workers.builtin.patches.hunks import PatchError, changed
from workers.builtin.patches.unified import unified

QUOTED = '"a/\\303\\251"', '"b/\\303\\251"'
SIMPLE = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"


def facts(text):
    """Return the kinds and paths of a diff."""
    return [(one.kind, one.path, one.to) for one in unified(text)]


def refused(text):
    """Return why a diff is not read."""
    with pytest.raises(PatchError) as caught:
        unified(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SIMPLE, [("update", "f", None)]),
        (SIMPLE.replace("a/", "").replace("b/", ""), [("update", "f", None)]),
        (
            SIMPLE.replace("a/f", "f\t2026-01-01 00:00:00").replace("b/", ""),
            [("update", "f", None)],
        ),
        ("Words.\n\n" + SIMPLE + "-- \n2.39\n", [("update", "f", None)]),
        ("--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n", [("add", "n", None)]),
        ("--- a/o\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", [("delete", "o", None)]),
        (
            "diff --git a/x y b/x y\nnew file mode 100644\nindex 0000000..e69de29\n",
            [("add", "x y", None)],
        ),
        ("diff --git a/e b/e\ndeleted file mode 100644\n", [("delete", "e", None)]),
        (
            "diff --git a/o b/n\nsimilarity index 100%\nrename from o\nrename to n\n",
            [("move", "o", "n")],
        ),
        (
            "diff --git {0} {1}\n--- {0}\n+++ {1}\n@@\n-a\n+b".format(*QUOTED),
            [("update", "é", None)],
        ),
        (SIMPLE + SIMPLE.replace("/f", "/g"), [("update", "f", None), ("update", "g", None)]),
    ],
    ids=[
        "plain",
        "without prefixes",
        "with a time",
        "among words",
        "added",
        "deleted",
        "empty",
        "empty deleted",
        "moved",
        "quoted",
        "two",
    ],
)
def test_what_a_diff_says_of_files(text, found):
    """Headers of diff and of git; prefixes, times and quotes are no part of a path."""
    assert facts(text) == found


def test_numbers_are_taken_at_their_word():
    """A line that looks like the header of a file is one of the hunk, if the hunk goes on."""
    text = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n x\n--- old\n+++ new\n@@ -9 +9 @@\n-a\n+b\n"
    [change] = unified(text)

    assert [line.text for line in change.hunks[0].lines] == [b"x", b"-- old", b"++ new"]
    assert len(change.hunks) == 2


def test_hunks_without_numbers_go_on_to_the_next_header():
    """Empty lines between them are none of the file; those inside are."""
    [change, other] = unified("--- f\n+++ f\n@@\n a\n\n-b\n\n@@ ... @@\n+c\n" + SIMPLE)

    assert [line.text for line in change.hunks[0].lines] == [b"a", b"", b"b"]
    assert [hunk.line for hunk in change.hunks] == [None, None]
    assert other.path == "f"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (SIMPLE.replace("1,2 +1,2", "1,3 +1,3"), "ends before it has the lines"),
        (SIMPLE.replace("1,2 +1,2", "1,1 +1,1"), "is no part of a hunk"),
        (SIMPLE.replace("1,2 +1,2", "1,1 +1,2"), "has other lines than its header says"),
        (SIMPLE.replace(" one", "one"), "ends before it has the lines"),
        ("--- f\n+++ f\n@@\none\n", "begins neither with a space nor with + or -"),
        (SIMPLE.replace("b/f", "b/g"), "names two files, f and g;"),
        ("diff --git a/f b/f\nold mode 100644\nnew mode 100755\n", "says nothing of what is to"),
        ("diff --git a/f b/f\nBinary files a/f and b/f differ\n", "a binary file"),
        ("diff --git a/f b/g\ncopy from f\ncopy to g\n", "it copies a file"),
        ("diff --git a/f b/g\nindex 1..2\n", "names no file"),
    ],
)
def test_what_is_no_such_diff_is_refused(text, why):
    """Nothing is guessed of a diff that says two things, or less than it promises."""
    assert why in refused(text)


def test_a_mode_is_said_not_to_be_set():
    """What nobody does is reported."""
    [change] = unified("diff --git a/f b/f\nnew file mode 100755\n--- /dev/null\n+++ b/f\n@@\n+a\n")

    assert change.notes == ("its mode, 100755, is not set",)


@pytest.mark.parametrize("seed", range(40))
def test_a_diff_of_two_texts_leads_from_one_to_the_other(seed):
    """The reference is the program that made the diff, over texts whose lines repeat."""
    chance = random.Random(seed)
    old = [f"{chance.choice('abc')}\n" for _ in range(chance.randrange(40))]
    new = [line for line in old if chance.random() > 0.2]
    for _ in range(chance.randrange(1, 6)):
        new.insert(chance.randrange(len(new) + 1), f"{chance.choice('abcd+- ')}\n")
    around = chance.randrange(4)
    diff = "".join(difflib.unified_diff(old, new, "a/f", "b/f", n=around))

    content = "".join(old).encode()
    for change in unified(diff):
        content = changed(change, content)
    assert content == "".join(new).encode()
