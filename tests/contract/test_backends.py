"""One contract over all backends, part one: files, pages, edits and errors.

What backends these are stands in ``conftest``.
"""

import threading

import pytest

from cmdc_runtime.extensions.backend import (
    DEPTH_MAX,
    FILE_NOT_FOUND,
    INVALID_PATH,
    IS_DIRECTORY,
    NAME_BYTES_MAX,
    NOT_A_DIRECTORY,
    PATH_BYTES_MAX,
    Backend,
)

BAD_PATHS = [
    "", "a", "./a", "~/a", "~", "../a", "/..", "/a/../b", "/../../etc/passwd", "/a\0b", "\0",
    "/\ud800", "/" + "n" * (NAME_BYTES_MAX + 1), "/ü" * (NAME_BYTES_MAX // 2 + 1),
    "/a" * (DEPTH_MAX + 1), ("/" + "n" * 200) * (PATH_BYTES_MAX // 200 + 1),
]  # fmt: skip
REAL_PATHS = {"", "a", "./a", "~/a", "~", "../a", "/..", "/a/../b", "/../../etc/passwd"}
"""Those that are paths of a machine, to a backend of real paths."""


# --- files --------------------------------------------------------------------------------------


def test_it_is_a_backend_with_a_name(place):
    """Which says what kind it is."""
    backend, _ = place

    assert isinstance(backend, Backend)
    assert backend.id.partition(":")[0] in {"state", "filesystem", "composite"}


def test_an_empty_backend_has_a_top(place):
    """It is a folder with nothing in it."""
    backend, at = place
    top = at("/")

    assert backend.glob("**", top).error is None
    assert backend.grep("x", top).error is None
    assert backend.read(top).error == IS_DIRECTORY
    assert backend.write(top, "x").error == IS_DIRECTORY


def test_what_is_written_is_read(place):
    """Folders are made, and the result names the file."""
    backend, at = place
    first = backend.write(at("/a/b/c.txt"), "one\ntwo\n")
    second = backend.write(at("/a/b/c.txt"), "three\n")

    assert (first.error, first.path, first.is_new) == (None, at("/a/b/c.txt"), True)
    assert (second.error, second.path, second.is_new) == (None, at("/a/b/c.txt"), False)
    assert backend.read(at("/a/b/c.txt")).content == "three\n"


@pytest.mark.parametrize("path", ["//a//b", "/./a/./b", "/a/b/", "/a//b//"])
def test_a_path_may_be_written_loosely(place, path):
    """Empty names and "." say nothing."""
    backend, at = place.fill(a_b="here")

    assert backend.read(at(path)).content == "here"


@pytest.mark.parametrize(
    "name", ["ü", "u\u0308", "名前", "a b", "a\nb", "~", "-x", "a*b", "...", "🜁"]
)
def test_names_are_kept_as_they_are(place, name):
    """No two names become one, whatever is in them."""
    backend, at = place
    backend.write(at(f"/d/{name}"), name)

    assert backend.read(at(f"/d/{name}")).content == name
    assert place.names(backend.ls(at("/d")).entries) == [f"/d/{name}"]


@pytest.mark.parametrize(
    ("text", "asked", "content", "next_offset"),
    [
        ("", (1, 10), "", None),
        ("\n", (1, 10), "\n", None),
        ("a", (1, 10), "a", None),
        ("a\nb\nc\n", (1, 3), "a\nb\nc\n", None),
        ("a\nb\nc\n", (1, 2), "a\nb\n", 3),
        ("a\nb\nc", (3, 1), "c", None),
        ("a\r\nb\r\n", (2, 1), "b\r\n", None),
        ("a\u2028b\fc\n", (1, 1), "a\u2028b\fc\n", None),
    ],
)
def test_a_file_is_read_in_pages(place, text, asked, content, next_offset):
    """Lines end at a line feed alone, and are counted from 1."""
    backend, at = place.fill(f=text)
    page = backend.read(at("/f"), *asked)

    assert (page.error, page.content, page.next_offset) == (None, content, next_offset)


@pytest.mark.parametrize(
    ("offset", "limit", "words"),
    [(4, 1, "3 lines"), (0, 1, "1 or more"), (1, 0, "1 or more"), (-1, -1, "1 or more")],
)
def test_a_page_that_is_not_there_is_an_error(place, offset, limit, words):
    """It says how far the file goes."""
    backend, at = place.fill(f="a\nb\nc\n")

    assert words in backend.read(at("/f"), offset, limit).error


def test_text_that_is_no_utf8_can_be_read(place):
    """What can't be decoded is shown as such; a binary file is reported as one."""
    backend, at = place
    backend.upload_files([(at("/latin"), b"caf\xe9\n"), (at("/bin"), b"a\0b")])

    assert backend.read(at("/latin")).content == "caf\N{REPLACEMENT CHARACTER}\n"
    assert "binary" in backend.read(at("/bin")).error
    assert "binary" in backend.edit(at("/bin"), "a", "b").error


def test_half_a_character_is_not_written(place):
    """It is no text, and there is no file afterwards."""
    backend, at = place

    assert "surrogate" in backend.write(at("/f"), "a\ud800").error
    assert backend.read(at("/f")).error == FILE_NOT_FOUND


def test_a_file_is_edited_where_the_text_is_unique(place):
    """Or everywhere, on request."""
    backend, at = place.fill(f="a b a\n")
    once = backend.edit(at("/f"), "b", "c")
    everywhere = backend.edit(at("/f"), "a", "ü", replace_all=True)

    assert (once.error, once.path, once.replaced) == (None, at("/f"), 1)
    assert (everywhere.error, everywhere.replaced) == (None, 2)
    assert backend.read(at("/f")).content == "ü c ü\n"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("x", "y", "does not occur"),
        ("a", "b", "occurs 2 times"),
        ("", "b", "empty"),
        ("a", "a", "equal"),
        ("a b a", "\ud800", "surrogate"),
    ],
)
def test_an_edit_that_cannot_be_done_changes_nothing(place, old, new, words):
    """And says why."""
    backend, at = place.fill(f="a b a\n")

    assert words in backend.edit(at("/f"), old, new).error
    assert backend.read(at("/f")).content == "a b a\n"


def test_edits_of_several_threads_are_all_kept(place):
    """Each sees what the one before left."""
    backend, at = place.fill(f="0 1 2 3 4 5 6 7 \n")
    edits = [
        threading.Thread(target=backend.edit, args=(at("/f"), f"{n} ", f"<{n}> ")) for n in range(8)
    ]
    for edit in edits:
        edit.start()
    for edit in edits:
        edit.join(20)

    assert backend.read(at("/f")).content == "<0> <1> <2> <3> <4> <5> <6> <7> \n"


# --- errors -------------------------------------------------------------------------------------


def answers(backend, path):
    """Return the errors of every operation on a path."""
    return {
        "ls": backend.ls(path).error,
        "read": backend.read(path).error,
        "write": backend.write(path, "x").error,
        "edit": backend.edit(path, "a", "b").error,
        "grep": backend.grep("x", path).error,
        "glob": backend.glob("*", path).error,
        "upload": backend.upload_files([(path, b"x")])[0].error,
        "download": backend.download_files([path])[0].error,
    }


@pytest.mark.parametrize("path", BAD_PATHS)
def test_a_bad_path_is_an_error_of_every_operation(place, path, tmp_path):
    """None raises, and none names a file for it."""
    backend, at = place
    if at("").startswith(str(tmp_path)) and path in REAL_PATHS:
        return
    path = at(path) if path.startswith("/") else path

    assert set(answers(backend, path).values()) == {INVALID_PATH}
    assert backend.local_path(path) is None


@pytest.mark.parametrize("path", ["/no", "/no/way", "/d/no"])
def test_a_missing_file_is_an_error(place, path):
    """Also below folders that are not there; asking makes none."""
    backend, at = place.fill(d_f="a")
    asked = [
        backend.read(at(path)),
        backend.edit(at(path), "a", "b"),
        backend.ls(at(path)),
        backend.grep("a", at(path)),
        backend.glob("*", at(path)),
        *backend.download_files([at(path)]),
    ]

    assert {result.error for result in asked} == {FILE_NOT_FOUND}
    assert place.names(backend.glob("**", at("/")).entries) == ["/d/f"]


def test_a_folder_is_no_file(place):
    """It can be listed and searched, and not be read or written."""
    backend, at = place.fill(d_f="a")
    found = answers(backend, at("/d"))

    assert {kind for kind, error in found.items() if error == IS_DIRECTORY} == {
        "read", "write", "edit", "upload", "download",
    }  # fmt: skip
    assert [found[kind] for kind in ("ls", "grep", "glob")] == [None] * 3


def test_a_file_is_no_folder(place):
    """Nothing is below it, and nothing can be put there."""
    backend, at = place.fill(f="a")

    assert set(answers(backend, at("/f/below")).values()) == {NOT_A_DIRECTORY}
    assert backend.ls(at("/f")).error == NOT_A_DIRECTORY
    assert backend.glob("*", at("/f")).error == NOT_A_DIRECTORY
    assert backend.read(at("/f")).content == "a"
