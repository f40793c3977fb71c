"""The contract of backends, part two: listings, searches, files as they are, and bounds."""

from pathlib import Path

import pytest

from cmdc_runtime.extensions.backend import (
    FILE_BYTES_MAX,
    FILE_NOT_FOUND,
    INVALID_PATH,
    IS_DIRECTORY,
    MATCH_CHARS_MAX,
    TRANSFER_FILES_MAX,
)
from workers.builtin.backends import _stored, composite

# --- listings and searches ----------------------------------------------------------------------


def test_a_folder_is_listed(place):
    """Files with their sizes, folders with "/" behind them, sorted, and nothing further down."""
    backend, at = place.fill(d_b="12", d_a="1", d_c_x="", d_c_y="")
    listed = backend.ls(at("/d"))

    assert place.names(listed.entries) == ["/d/a", "/d/b", "/d/c/"]
    assert [(entry.size_bytes, entry.is_dir) for entry in listed.entries] == [
        (1, False), (2, False), (0, True),
    ]  # fmt: skip
    assert not listed.is_cut


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("*", "/d", ["/d/a.md", "/d/b.txt"]),
        ("**", "/d", ["/d/a.md", "/d/b.txt", "/d/c/a.md", "/d/c/e/a.md"]),
        ("**/*.md", "/d", ["/d/a.md", "/d/c/a.md", "/d/c/e/a.md"]),
        ("**/*.md", "/d/c", ["/d/c/a.md", "/d/c/e/a.md"]),
        ("c/*.md", "/d", ["/d/c/a.md"]),
        ("/c/*.md", "/d", ["/d/c/a.md"]),
        ("*.{md,txt}", "/d", ["/d/a.md", "/d/b.txt"]),
        ("?.md", "/d", ["/d/a.md"]),
        ("c", "/d", []),
        ("nothing", "/d", []),
    ],
)
def test_files_are_found_by_their_paths(place, pattern, path, found):
    """From the folder that is asked about, sorted, and folders are not files."""
    backend, at = place
    for name in ("d/a.md", "d/b.txt", "d/c/a.md", "d/c/e/a.md", "other/a.md"):
        backend.write(at(f"/{name}"), name)
    result = backend.glob(pattern, at(path))

    assert result.error is None
    assert place.names(result.entries) == found


@pytest.mark.parametrize(
    ("pattern", "path", "glob", "found"),
    [
        ("needle", "/d", None, [("/d/a.md", 2), ("/d/c/a.md", 1), ("/d/c/b.txt", 1)]),
        ("needle", "/d", "*.md", [("/d/a.md", 2), ("/d/c/a.md", 1)]),
        ("needle", "/d", "c/*.md", [("/d/c/a.md", 1)]),
        ("needle", "/d", "**/*.md", [("/d/a.md", 2), ("/d/c/a.md", 1)]),
        ("^needle$", "/d/a.md", None, [("/d/a.md", 2)]),
        ("needle", "/d/a.md", "*.txt", []),
        ("NEEDLE", "/d", None, []),
        ("(?i)NEEDLE", "/d/c/b.txt", None, [("/d/c/b.txt", 1)]),
        ("n.*e\\b", "/d/c", "a.*", [("/d/c/a.md", 1)]),
    ],
)
def test_lines_are_found_by_a_regular_expression(place, pattern, path, glob, found):
    """In files chosen by name or by path, in order."""
    backend, at = place.fill(d_other="hay\n")
    backend.write(at("/d/a.md"), "hay\nneedle\nhay\n")
    backend.write(at("/d/c/a.md"), "a needle")
    backend.write(at("/d/c/b.txt"), "needle\r\n")
    backend.upload_files([(at("/d/bin"), b"needle\0")])
    result = backend.grep(pattern, at(path), glob)
    matches = [(match.path.removeprefix(at("")), match.line) for match in result.matches]

    assert (result.error, matches) == (None, found)
    assert not any(match.text.endswith("\r") for match in result.matches)


def test_a_long_line_is_shown_around_the_match(place):
    """Not as a whole."""
    backend, at = place.fill(f="x" * 5000 + "needle" + "y" * 5000)
    [match] = backend.grep("needle", at("/f")).matches

    assert "needle" in match.text
    assert len(match.text) == MATCH_CHARS_MAX


@pytest.mark.parametrize(
    ("pattern", "glob", "words"),
    [
        ("(", None, "no regular expression"),
        ("a" * 501, None, "longer than"),
        ("a", "{a", "has no }"),
        ("a", "", "characters"),
        ("a", "a" * 501, "characters"),
    ],
)
def test_a_bad_pattern_is_an_error(place, pattern, glob, words):
    """Which says what is wrong with it."""
    backend, at = place.fill(d_f="a")

    assert words in backend.grep(pattern, at("/d"), glob).error
    if glob is not None:
        assert words in backend.glob(glob, at("/d")).error


def test_a_search_without_end_is_ended(place, monkeypatch):
    """Whatever the pattern does."""
    monkeypatch.setattr(_stored, "SEARCH_TIMEOUT_S", 0.05)
    backend, at = place.fill(f="a" * 4000 + "b")

    assert "took longer" in backend.grep("(?:x*)*y|(a|aa)+$", at("/f")).error


# --- as they are --------------------------------------------------------------------------------


def test_files_are_moved_as_they_are(place):
    """Each has an answer of its own, in the order of the question."""
    backend, at = place
    content = bytes(range(256))
    uploads = backend.upload_files([(at("/d/b"), content), (at("/.."), b""), (at("/a"), b"")])
    downloads = backend.download_files([at("/a"), at("/no"), at("/d/b")])

    assert [upload.error for upload in uploads][::2] == [None, None]
    assert uploads[1].error in {INVALID_PATH, IS_DIRECTORY}
    assert [upload.path for upload in uploads] == [at("/d/b"), at("/.."), at("/a")]
    assert [(done.path, done.content, done.error) for done in downloads] == [
        (at("/a"), b"", None), (at("/no"), None, FILE_NOT_FOUND), (at("/d/b"), content, None),
    ]  # fmt: skip


def test_no_command_runs(place):
    """A backend of files runs nothing, and says so."""
    backend, _ = place
    done = backend.execute("true")

    assert "runs no commands" in done.error
    assert done.exit_code is None


def test_a_path_on_the_disk_is_the_file(place):
    """Where there is one at all; a folder and a missing file have none."""
    backend, at = place.fill(d_f="here")
    local = backend.local_path(at("/d/f"))
    if local is not None:
        assert Path(local).read_text(encoding="utf-8") == "here"
    assert backend.local_path(at("/d")) is None
    assert backend.local_path(at("/no")) is None


# --- bounds -------------------------------------------------------------------------------------


def test_a_file_has_a_size_at_most(place, monkeypatch):
    """Written at once, by an edit or as bytes."""
    monkeypatch.setattr(_stored, "FILE_BYTES_MAX", 10)
    monkeypatch.setattr(_stored, "FILE_BYTES_MAX", 10)
    backend, at = place
    assert backend.write(at("/f"), "1234567890").error is None

    assert str(FILE_BYTES_MAX) in backend.write(at("/g"), "12345678901").error
    assert backend.read(at("/g")).error == FILE_NOT_FOUND
    assert str(FILE_BYTES_MAX) in backend.edit(at("/f"), "1", "11").error
    assert str(FILE_BYTES_MAX) in backend.upload_files([(at("/f"), b"12345678901")])[0].error
    assert backend.read(at("/f")).content == "1234567890"


def test_so_many_files_are_moved_at_once(place, monkeypatch):
    """Those behind are reported, and the others are there."""
    monkeypatch.setattr(_stored, "TRANSFER_FILES_MAX", 2)
    monkeypatch.setattr(_stored, "TRANSFER_BYTES_MAX", 5)
    backend, at = place
    uploads = backend.upload_files([(at(f"/{n}"), b"123") for n in range(3)])
    downloads = backend.download_files([at("/0"), at("/1")])
    many = backend.download_files([at("/no"), at("/no"), at("/0")])

    assert [upload.error is None for upload in uploads] == [True, True, False]
    assert [done.content for done in downloads] == [b"123", None]
    assert "bytes at once" in downloads[1].error
    assert f"more than {TRANSFER_FILES_MAX} files" in many[2].error


def test_results_are_bounded(place, monkeypatch):
    """What is left out is the end, and is reported."""
    for module in (_stored, composite):
        monkeypatch.setattr(module, "ENTRIES_MAX", 3)
        monkeypatch.setattr(module, "MATCHES_MAX", 3)
    backend, at = place.fill(d_0="x", d_1="x", d_2="x")

    def asked():
        return backend.ls(at("/d")), backend.glob("*", at("/d")), backend.grep("x", at("/d"))

    whole = asked()
    place.fill(d_3="x")
    listed, found, matched = asked()

    assert [result.is_cut for result in whole] == [False] * 3
    assert [result.is_cut for result in (listed, found, matched)] == [True] * 3
    assert place.names(listed.entries) == place.names(found.entries) == ["/d/0", "/d/1", "/d/2"]
    assert place.names(matched.matches) == ["/d/0", "/d/1", "/d/2"]
