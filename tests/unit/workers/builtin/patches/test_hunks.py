"""Hunks on contents: places, line ends, and what is not guessed."""

import pytest

from workers.builtin.patches.hunks import (
    FileChange,
    Hunk,
    PatchError,
    PatchLine,
    applied,
    changed,
)

KINDS = {" ": "keep", "-": "remove", "+": "add"}
TEXT = b"one\ntwo\nthree\nfour\n"


def hunk(*lines, at=1, **more):
    """Return a hunk of lines as a patch has them."""
    read = tuple(PatchLine(KINDS[line[0]], line[1:].encode()) for line in lines)
    return Hunk(read, at, **more)


def refused(content, *hunks):
    """Return why hunks are not applied."""
    with pytest.raises(PatchError) as caught:
        applied(content, hunks)
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "content"),
    [
        ([hunk(" one", "-two", "+2")], b"one\n2\nthree\nfour\n"),
        ([hunk("-one")], b"two\nthree\nfour\n"),
        ([hunk(" four", "+five")], b"one\ntwo\nthree\nfour\nfive\n"),
        ([hunk("-two", "+2"), hunk("-four", "+4")], b"one\n2\nthree\n4\n"),
        ([hunk("+0", line=0)], b"0\none\ntwo\nthree\nfour\n"),
        ([hunk("+2b", line=2)], b"one\ntwo\n2b\nthree\nfour\n"),
        ([hunk("+five", is_last=True)], b"one\ntwo\nthree\nfour\nfive\n"),
        ([hunk("+1b", anchors=(b"one",))], b"one\n1b\ntwo\nthree\nfour\n"),
        ([hunk("+2b", anchors=(b"one", b"tw"))], b"one\ntwo\n2b\nthree\nfour\n"),
        ([hunk("-one", "-two", "-three", "-four")], b""),
    ],
    ids=[
        "changed",
        "first",
        "grown",
        "two",
        "before all",
        "behind a line",
        "at the end",
        "behind an anchor",
        "anchors",
        "all",
    ],
)
def test_hunks_are_applied(given, content):
    """Each at its place, and all else stays."""
    assert applied(TEXT, given) == content


def test_lines_that_are_there_twice_are_not_chosen_from():
    """Which are meant has to be said: by a line, an anchor, or more lines around them."""
    content = b"a\nx\nb\nx\n"

    assert refused(content, hunk("-x", "+y", at=3)) == (
        "the hunk at line 3 of the patch fits more than once, at lines 2, 4;"
        " give more lines around the place"
    )
    assert "at lines 1, 2, 3, 4, 5 and others;" in refused(b"x\n" * 9, hunk("-x"))
    assert applied(content, [hunk("-x", "+y", anchors=(b"b",))]) == b"a\nx\nb\ny\n"
    assert applied(content, [hunk("-x", "+y", line=4)]) == b"a\nx\nb\ny\n"
    assert applied(content, [hunk(" b", "-x", "+y")]) == b"a\nx\nb\ny\n"
    assert applied(content, [hunk("-x", "+y", is_last=True)]) == b"a\nx\nb\ny\n"


def test_a_line_number_counts_where_it_is_right_and_with_the_drift():
    """Lines that were added before the first hunk are before the second one, too."""
    content = b"new\nnew\na\nx\nb\nx\nc\nx\n"
    first, second = hunk("-a", "+A", line=1), hunk("-x", "+X", line=4)

    assert applied(content, [first, second]) == b"new\nnew\nA\nx\nb\nX\nc\nx\n"
    assert applied(content, [first, hunk("+z", line=3)]) == b"new\nnew\nA\nx\nb\nz\nx\nc\nx\n"


def test_a_file_that_is_not_so_is_reported():
    """With the first line that it does not have, and nothing where all are there."""
    assert refused(TEXT, hunk(" one", "-2", at=7)) == (
        "the hunk at line 7 of the patch does not fit: the file has no line '2'; read it again"
    )
    assert refused(TEXT, hunk("-one", "-three")) == (
        "the hunk at line 1 of the patch does not fit: its lines do not stand together;"
        " read the file again"
    )
    assert "behind line 3; read" in refused(TEXT, hunk("-three"), hunk("-one"))
    assert "do not end the file" in refused(TEXT, hunk("-two", is_last=True))
    assert "no line 'five' stands in the file" in refused(TEXT, hunk("-one", anchors=(b"five",)))
    assert "does not say where" in refused(TEXT, hunk("+x"))
    assert "behind line 9, which is none of the file's 4" in refused(TEXT, hunk("+x", line=9))


def test_the_file_keeps_its_line_ends():
    """Those that are added have what most of the others have; kept ones stay as they are."""
    windows = b"one\r\ntwo\r\nthree\r\n"

    assert applied(windows, [hunk(" one", "-two", "+2")]) == b"one\r\n2\r\nthree\r\n"
    assert applied(windows, [hunk(" one\r", "-two\r", "+2\r")]) == b"one\r\n2\r\nthree\r\n"
    assert applied(b"a\nb\r\nc\n", [hunk(" a", " b", "+d")]) == b"a\nb\r\nd\nc\n"


def test_a_last_line_without_an_end():
    """It gets one where something comes behind it, and keeps none where nothing does."""
    assert applied(b"a\nb", [hunk("-a", "+A")]) == b"A\nb"
    assert applied(b"a\nb", [hunk(" b", "+c")]) == b"a\nb\nc\n"
    assert applied(b"a\nb", [hunk("-b", "+c")]) == b"a\nc\n"
    ended = Hunk((PatchLine("remove", b"b"), PatchLine("add", b"c", is_open=True)), 1)
    assert applied(b"a\nb\n", [ended]) == b"a\nc"


def test_bytes_elsewhere_stay():
    """Whatever their encoding; a byte order mark is no part of the first line."""
    assert applied(b"caf\xe9\nb\n", [hunk("-b", "+c")]) == b"caf\xe9\nc\n"
    assert applied(b"\xef\xbb\xbfa\n", [hunk("-a", "+b")]) == b"\xef\xbb\xbfb\n"
    assert applied(b"a\r", [hunk("-a\r", "+b")]) == b"b\n"


def test_white_space_at_ends_is_looked_past_at_last():
    """What fits as it is comes first; lines that stay keep theirs."""
    assert applied(b"a  \nb\n", [hunk(" a", "-b", "+c")]) == b"a  \nc\n"
    assert applied(b"b \nb\n", [hunk("-b", "+c")]) == b"b \nc\n"


def test_what_becomes_of_files():
    """An addition needs that nothing is there, the others that something is."""
    add = FileChange("add", "f", (hunk("+a\r"),))
    update = FileChange("update", "f", (hunk("-a", "+a"),))
    delete = FileChange("delete", "f", (hunk("-a"),))

    assert changed(add, None) == b"a\r\n"
    assert changed(delete, b"a\n") is changed(FileChange("delete", "f"), b"x") is None
    assert changed(FileChange("move", "f", to="g"), b"a\r\nb\r") == b"a\r\nb\r"
    for change, content, why in (
        (add, b"", "it is there already; update it, or delete it first"),
        (update, None, "there is no such file"),
        (update, b"a\n", "the patch changes nothing in it"),
        (delete, b"a\nb\n", "it holds more than the patch deletes"),
    ):
        with pytest.raises(PatchError, match=why):
            changed(change, content)


@pytest.mark.parametrize("is_found", [True, False])
def test_a_large_file_is_searched_in_little_time(is_found):
    """Lines that nearly fit everywhere do not make it slow: it is a second, not an hour."""
    content = b"x\n" * 1_000_000 + b"end\n"
    lines = [" x"] * 2000 + ["-end" if is_found else "-other", "+new"]

    if is_found:
        assert applied(content, [hunk(*lines)]).endswith(b"x\nnew\n")
    else:
        assert "no line 'x'" not in refused(content, hunk(*lines))
