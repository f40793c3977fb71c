"""``apply_patch`` on a real folder."""

import asyncio
import os
import subprocess

import pytest

from workers.builtin.tools import apply_patch, edit_file

ALL = """*** Begin Patch
*** Add File: new/n.txt
+hello
*** Delete File: old.txt
*** Update File: kept.txt
@@
-two
+2
*** Update File: run.sh
*** Move to: bin/run.sh
@@
-echo a
+echo b
*** End Patch
"""


def files(workplace):
    """Return all files below the folder, by path."""
    found = (path for path in workplace.folder.rglob("*") if path.is_file())
    return {str(path.relative_to(workplace.folder)): path.read_bytes() for path in found}


def refused(workplace, patch):
    """Return the error of a patch that leaves everything as it was."""
    before = files(workplace)
    text = workplace.failure(apply_patch.create(), patch=patch)
    assert files(workplace) == before
    return text


def updated(path, *lines):
    """Return a patch of one file."""
    return "\n".join(["*** Begin Patch", f"*** Update File: {path}", *lines, "*** End Patch"])


@pytest.fixture
def place(workplace):
    """Return a folder with files that ``ALL`` changes."""
    workplace.write({"old.txt": "x\n", "kept.txt": "one\ntwo\n", "run.sh": "#!/bin/sh\necho a\n"})
    (workplace.folder / "run.sh").chmod(0o755)
    return workplace


def test_files_are_added_deleted_changed_and_moved(place):
    """With one call; a file that is moved keeps its mode."""
    result = place.call(apply_patch.create(), patch=ALL)

    assert result.splitlines() == [
        "Added new/n.txt: 1 lines",
        "Deleted old.txt",
        "Changed kept.txt: 1 lines added, 1 removed",
        "Moved run.sh to bin/run.sh: 1 lines added, 1 removed",
    ]
    assert files(place) == {
        "new/n.txt": b"hello\n",
        "kept.txt": b"one\n2\n",
        "bin/run.sh": b"#!/bin/sh\necho b\n",
    }
    assert (place.folder / "bin/run.sh").stat().st_mode & 0o777 == 0o755


def test_what_git_writes_is_done(place):
    """A diff of git's, with a rename, leads from one state of the folder to the other."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(place.folder)]

    def ran(*arguments):
        return subprocess.run([*git, *arguments], check=True, capture_output=True, text=True).stdout

    ran("init", "-q")
    ran("add", "-A")
    ran("commit", "-qm", "a")
    place.call(apply_patch.create(), patch=ALL)
    ran("add", "-A")
    wanted, diff = ran("write-tree"), ran("diff", "--cached", "-M10%")
    ran("reset", "-q", "--hard")
    place.call(apply_patch.create(), patch=diff)
    ran("add", "-A")

    assert "rename from run.sh" in diff
    assert ran("write-tree") == wanted


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        (ALL.replace("-two", "-zwei"), "Cannot change kept.txt: the hunk at line 6 of the patch"),
        (ALL.replace("old.txt", "gone.txt"), "Cannot change gone.txt: there is no such file"),
        (ALL.replace("new/n.txt", "old.txt").replace("Delete File: old", "Delete File: gone"),
         "it is there already"),
        (ALL.replace("new/n.txt", "../n.txt"), "it is outside of the working folder"),
        (ALL.replace("bin/run.sh", "bin"), "Cannot move run.sh to bin: something is there already"),
        (ALL.replace("bin/run.sh", "kept.txt/run.sh"), "kept.txt is a file in it, and the folder"),
        (ALL.replace("bin/run.sh", "binary/run.sh"), "change binary/run.sh: Not a directory"),
        (ALL.replace("bin/run.sh", "../run.sh"), "it is outside of the working folder"),
        (ALL.replace("old.txt", "new"), "new is a file in it, and the folder of new/n.txt"),
        (ALL.replace("kept.txt", "binary"), "it is a binary file of 3 bytes"),
        (ALL.replace("old.txt", "link"), "it is a symbolic link; only files are deleted and moved"),
        ("no patch", "Cannot read the patch: it changes no file"),
    ],
    ids=["stale", "missing", "there", "outside", "target", "below", "in the way", "target outside",
         "both", "binary", "link", "none"],
)  # fmt: skip
def test_nothing_is_done_where_one_file_is_not_so(place, patch, why):
    """And what is wrong is reported; the whole patch is looked at first."""
    place.write({"binary": b"a\0b", "bin/other": ""})
    (place.folder / "link").symlink_to("kept.txt")
    if "link" in patch:  # the file is asked for when it is its turn
        text = place.failure(apply_patch.create(), patch=patch)
        assert "Before that, this was done" in text
        assert (place.folder / "link").is_symlink()
        assert (place.folder / "kept.txt").read_text() == "one\ntwo\n"
    else:
        text = refused(place, patch)
        assert "Nothing is changed." in text

    assert why in text


def test_line_ends_of_windows_are_kept(workplace):
    """A patch with LF changes a file with CR LF, and what it adds has that, too."""
    workplace.write({"f": "one\r\ntwo\r\n"})
    workplace.call(apply_patch.create(), patch=updated("f", " one", "-two", "+2", "+3"))

    assert (workplace.folder / "f").read_bytes() == b"one\r\n2\r\n3\r\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_without_permission_is_reported_before_anything_is_done(place):
    """It is write-protected, or can't be read."""
    (place.folder / "kept.txt").chmod(0o444)

    assert "Cannot change kept.txt: it is write-protected" in refused(place, ALL)


def test_what_goes_wrong_on_the_way_is_reported_with_what_is_done(place):
    """Of a link that is to be moved, which only the change itself finds."""
    (place.folder / "link").symlink_to("run.sh")
    text = place.failure(apply_patch.create(), patch=ALL.replace("File: run.sh", "File: link"))

    assert text.splitlines()[0].startswith("Cannot change link: it is a symbolic link;")
    assert text.splitlines()[1:] == [
        "Added new/n.txt: 1 lines",
        "Deleted old.txt",
        "Changed kept.txt: 1 lines added, 1 removed",
    ]
    assert (place.folder / "run.sh").read_text() == "#!/bin/sh\necho a\n"


def test_patches_and_edits_of_one_batch_do_not_lose_each_other(workplace):
    """Calls run side by side in threads; each finds what the others have done."""
    workplace.write({"file": "".join(f"<{number}>\n" for number in range(16))})
    patch, edit = apply_patch.create(), edit_file.create()

    async def batch():
        for_all = (
            workplace.called(patch, patch=updated("file", f"-<{at}>", f"+[{at}]"))
            if at % 2
            else workplace.called(edit, path="file", old_string=f"<{at}>", new_string=f"[{at}]")
            for at in range(16)
        )
        await asyncio.gather(*for_all)

    asyncio.run(batch())

    assert (workplace.folder / "file").read_text() == "".join(f"[{at}]\n" for at in range(16))


def test_people_read_which_files_it_is_about():
    """A few of many."""
    many = "".join(f"*** Delete File: {at}\n" for at in range(5))
    meta = apply_patch.create().meta

    assert meta({"patch": ALL}) == "Patch new/n.txt, old.txt, kept.txt and 2 more"
    assert meta({"patch": f"*** Begin Patch\n{many}*** End Patch"}) == "Patch 0, 1, 2 and 2 more"
