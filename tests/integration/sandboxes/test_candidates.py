"""Searches with ripgrep and without: they find the same, and the shortcut is one."""

import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cmdc_runtime.extensions.sandbox import GrepSettings, SandboxPlace
from workers.builtin.sandboxes import _candidates, _search
from workers.builtin.sandboxes._candidates import required_text
from workers.builtin.sandboxes.local import Local
from workers.builtin.tools._files import FILE_BYTES_MAX, whole

needs_ripgrep = pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")

NAMES = st.sampled_from(["a.py", "b", ".hidden", "tmp", "vendor", ".git", "é", "-x", "src", "n\n"])
MARK = b"\xef\xbb\xbf"
WORDS = st.sampled_from(
    [
        b"foo",
        b"bar",
        b"Foo",
        b"foo.bar",
        b"\n",
        b"\r\n",
        b" ",
        b"\0",
        b"\xff",
        "é".encode(),
        b"x",
        MARK,
    ]
)
CONTENT = st.lists(WORDS, max_size=8).map(b"".join)
TREE = st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map("/".join), CONTENT, max_size=8)
PATTERNS = st.sampled_from(
    [
        "foo", "bar$", "^foo", "fo+", "foo.?bar", r"foo\.bar", "(foo)", "foo|bar", "(?i)foo",
        "[f]oo", "fo{1,2}", "foo *bar", r"\x66oo", r"foo\s", "é", "x", "foo\ufffd", "foo*", "o b",
    ]
)  # fmt: skip


# fmt: off
REQUIRED = [
    ("foo",            "foo"),
    ("foo.*quux",      "quux"),
    (r"^\d+: error$",  ": error"),
    (r"\.py\b",        ".py"),
    ("def (x|yy)",     None),
    (r"def (\w+)",     "def "),
    ("ab+cd",          "ab"),
    ("abc+de",         "abc"),
    ("abc*de",         "ab"),
    ("abc?de",         "ab"),
    ("fooo{2}bar",     "foo"),
    ("fo{2,33}bar",    None),
    ("[ab]cd",         None),
    (r"\x41bcd",       None),
    (r"foo\101bcd",    "foo"),
    (r"(a)\1234",      None),
    ("(?i)foo",        None),
    ("foo|bar",        None),
    ("a",              None),
    ("été vu",         " vu"),
    (r"a\ b\-c",       "a b-c"),
]
# fmt: on


@pytest.mark.parametrize(("pattern", "text"), REQUIRED)
def test_a_text_is_required_only_where_that_is_sure(pattern, text):
    """What may be left out, repeated or meant otherwise is no part of it."""
    assert required_text(pattern) == text


def begun(folder):
    sandbox = Local()
    sandbox.begin(SandboxPlace(session_id="s-1", working_dir=str(folder)))
    return sandbox


def make(folder, tree):
    """Make the files of a tree that have room beside each other."""
    for name, content in tree.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except (FileExistsError, IsADirectoryError, NotADirectoryError):
            continue


def plain(folder, pattern, chosen, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(_search, "candidates", lambda *_: None)
        return begun(folder).grep(pattern, settings=chosen)


@needs_ripgrep
@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[*HealthCheck])
@given(tree=TREE, pattern=PATTERNS, most=st.sampled_from([1, 3, 100]))
def test_ripgrep_changes_no_result(tmp_path_factory, monkeypatch, tree, pattern, most):
    """Whatever lies in the tree, and whatever is looked for."""
    folder = tmp_path_factory.mktemp("tree")
    make(folder, tree)
    chosen = GrepSettings(context_lines=1, max_results=most)

    assert begun(folder).grep(pattern, settings=chosen) == plain(
        folder, pattern, chosen, monkeypatch
    )


@needs_ripgrep
def test_files_without_the_text_are_not_read(tmp_path, monkeypatch):
    """That is what the shortcut is for; what can't be searched is counted all the same."""
    make(tmp_path, {"a": b"foo", "b": b"bar", "c/d": b"foo", "node_modules/e": b"foo"})
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(FILE_BYTES_MAX + 1)
    read = []

    def counted(text):
        read.append(text.name)
        return whole(text)

    monkeypatch.setattr(_search, "whole", counted)
    found = begun(tmp_path).grep("foo")

    assert [one.file for one in found.matches] == ["a", "c/d"]
    assert len(read) == 2
    assert found.notes == ("[1 files or folders could not be searched]",)


@needs_ripgrep
def test_a_link_in_the_place_of_a_file_shows_nothing(tmp_path, monkeypatch):
    """It names candidates alone: what it may have read elsewhere is in no result."""
    make(tmp_path, {"work/a": b"foo", "secret": b"foo hunter2"})
    (tmp_path / "work/link").symlink_to("../secret")
    monkeypatch.setattr(_search, "candidates", lambda *_: frozenset({"a", "link", "../secret"}))

    assert [one.file for one in begun(tmp_path / "work").grep("foo").matches] == ["a"]


def test_a_search_that_ripgrep_does_not_end_well_reads_every_file(tmp_path, monkeypatch):
    """One that fails, or prints without end, is no list of candidates."""
    make(tmp_path, {"work/a": b"foo"})
    for script in ("echo nothing; exit 2", "head -c 100 /dev/zero"):
        (tmp_path / "rg").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "rg").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setattr(_candidates, "OUTPUT_BYTES_MAX", 50)

        assert [one.file for one in begun(tmp_path / "work").grep("foo").matches] == ["a"]
