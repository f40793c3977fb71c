"""``edit_file`` on a real folder."""

import asyncio
import os

import pytest

from cmdc_runtime.extensions import ToolError
from workers.builtin.tools import edit_file
from workers.builtin.tools._files import FILE_BYTES_MAX


def edit(workplace, old, new, path="file"):
    """Return the result of an edit and the content afterwards."""
    result = workplace.call(edit_file.create(), path=path, old_string=old, new_string=new)
    return result, (workplace.folder / path).read_bytes()


def refused(workplace, old, new="new", path="file"):
    """Return the error of an edit without the path."""
    text = workplace.failure(edit_file.create(), path=path, old_string=old, new_string=new)
    start, _, reason = text.partition(": ")
    assert start == f"Cannot edit {path}"
    return reason


@pytest.mark.parametrize(
    ("old", "new", "content", "line"),
    [
        ("two", "2", b"one\n2\nthree\n", 2),
        ("one\ntwo\n", "", b"three\n", 1),
        ("three\n", "three\nfour\n", b"one\ntwo\nthree\nfour\n", 3),
        ("one\ntwo\nthree\n", "é", "é".encode(), 1),
    ],
    ids=["replaced", "deleted", "grown", "all"],
)
def test_passage_is_replaced(workplace, old, new, content, line):
    """The passage is exchanged, all else stays, and the line of it is reported."""
    workplace.write({"file": "one\ntwo\nthree\n"})

    assert edit(workplace, old, new) == (f"Edited file at line {line}", content)


def test_strings_are_text_not_patterns(workplace):
    """No character has a meaning of its own, neither in the old passage nor in the new."""
    workplace.write({"file": "a.*(b) \\1"})

    assert edit(workplace, ".*(b)", "\\1\\g<0>")[1] == b"a\\1\\g<0> \\1"


def test_passage_must_be_there(workplace):
    """A text that does not occur is an error that says what to do."""
    workplace.write({"file": "one\n"})

    assert refused(workplace, "One") == (
        "old_string does not occur in it; read the file and copy the passage"
    )


def test_passage_must_be_the_only_one(workplace):
    """A text that occurs several times is an error with the places, a few of many."""
    workplace.write({"file": "x\ny\nx\n", "many": "x\n" * 9})

    assert refused(workplace, "x") == (
        "old_string occurs more than once, at lines 1, 3; give more of the text around the passage"
    )
    assert "at lines 1, 2, 3, 4, 5 and others;" in refused(workplace, "x", path="many")


def test_overlapping_passages_are_several(workplace):
    """Where it is not clear which letters are meant, nothing is changed."""
    workplace.write({"file": "aaa"})

    assert "more than once, at lines 1, 1" in refused(workplace, "aa")


def test_no_change_is_reported(workplace):
    """An edit that leaves everything as it was is a mistake."""
    workplace.write({"file": "one"})

    assert refused(workplace, "one", "one") == "old_string and new_string are the same"


def test_line_ends_of_windows_are_kept(workplace):
    """In a file with CR LF a model's LF stands for them, in what it gives for both."""
    workplace.write({"file": "one\r\ntwo\r\nthree\r\n"})

    assert edit(workplace, "one\ntwo", "1\n2\r\n2b")[1] == b"1\r\n2\r\n2b\r\nthree\r\n"


def test_what_is_no_utf8_stays(workplace):
    """Bytes elsewhere in the file are not touched, whatever they are."""
    workplace.write({"file": b"caf\xe9 \xff one"})

    assert edit(workplace, "one", "two")[1] == b"caf\xe9 \xff two"


def test_mode_and_link_stay(workplace):
    """An edit changes the content of the file that a link leads to, and nothing else."""
    workplace.write({"file": "one"})
    (workplace.folder / "file").chmod(0o750)
    (workplace.folder / "link").symlink_to("file")
    edit(workplace, "one", "two", path="link")

    assert (workplace.folder / "link").is_symlink()
    assert (workplace.folder / "file").read_text() == "two"
    assert (workplace.folder / "file").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("absent", "No such file or directory"),
        ("folder", "it is a folder; list_dir shows what is in it"),
        ("pipe", "it is a device, socket or pipe"),
        ("binary", "it is a binary file of 3 bytes"),
        ("large", f"it is larger than {FILE_BYTES_MAX} bytes"),
    ],
)
def test_what_is_no_text_is_refused(workplace, path, reason):
    """An edit never creates a file, and never touches one that is no text."""
    workplace.write({"folder/inside": "", "binary": b"a\0b", "large": "x" * (FILE_BYTES_MAX + 1)})
    os.mkfifo(workplace.folder / "pipe")

    assert refused(workplace, "a", path=path) == reason
    assert not (workplace.folder / "absent").exists()


def test_edits_of_one_batch_do_not_lose_each_other(workplace):
    """Calls run side by side in threads; each finds what the others have done."""
    workplace.write({"file": "".join(f"<{number}>\n" for number in range(16))})
    tool = edit_file.create()

    async def batch():
        edits = (
            workplace.called(tool, path="file", old_string=f"<{at}>", new_string=f"[{at}]")
            for at in range(16)
        )
        await asyncio.gather(*edits)

    asyncio.run(batch())

    assert (workplace.folder / "file").read_text() == "".join(f"[{at}]\n" for at in range(16))


@pytest.mark.parametrize(
    "strings",
    [
        {"old_string": "", "new_string": "x"},
        {"old_string": "x" * (edit_file.CHARS_MAX + 1), "new_string": ""},
        {"old_string": "x", "new_string": "x" * (edit_file.CHARS_MAX + 1)},
    ],
    ids=["empty", "long old", "long new"],
)
def test_strings_are_bounded(strings):
    """An empty passage is everywhere, and a huge one in no model's output."""
    with pytest.raises(ToolError, match="Invalid arguments for edit_file"):
        edit_file.create().check({"path": "f", **strings})
