"""``glob`` on a real folder."""

import os
from pathlib import Path

import pytest

from workers.builtin.sandboxes import _walk
from workers.builtin.sandboxes._walk import DEPTH_MAX
from workers.builtin.tools import glob

FILES = (
    "a.py", "b.txt", ".hidden.py", "src/c.py", "src/d.pyi", "src/deep/er/e.py", "src/[id].tsx",
    "src/deep/f.md", ".git/config", "node_modules/x/index.js", "src/tmp/g.py",
)  # fmt: skip


@pytest.fixture
def project(workplace):
    """Return a folder with sources and what surrounds them."""
    workplace.write(dict.fromkeys(FILES, "x"))
    return workplace


def found(workplace, pattern, **arguments):
    """Return the lines of a result."""
    return workplace.call(glob.create(), pattern=pattern, **arguments).splitlines()


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("*.py", [".hidden.py", "a.py"]),
        ("?.py", ["a.py"]),
        ("**/*.py", [".hidden.py", "a.py", "src/c.py", "src/deep/er/e.py"]),
        ("src/**", ["src/[id].tsx", "src/c.py", "src/d.pyi", "src/deep/f.md", "src/deep/er/e.py"]),
        ("src/*.{py,pyi}", ["src/c.py", "src/d.pyi"]),
        ("{a.py,src/deep/*}", ["a.py", "src/deep/f.md"]),
        ("src/**/e.py", ["src/deep/er/e.py"]),
        ("src/**/er/*", ["src/deep/er/e.py"]),
        ("src/[id].tsx", ["src/[id].tsx"]),
        ("./src/c.py", ["src/c.py"]),
        ("*/c.py", ["src/c.py"]),
        ("node_modules/**/*.js", ["node_modules/x/index.js"]),
        ("src/tmp/*", ["src/tmp/g.py"]),
        ("*/", ["src/"]),
        ("src/**/", ["src/deep/", "src/deep/er/"]),
        ("*.rs", ["(nothing matches)"]),
        ("src", ["(nothing matches)"]),
    ],
)
def test_pattern_finds_paths(project, pattern, paths):
    """Paths that fully match are shown from the working directory, folder by folder."""
    assert found(project, pattern) == paths


def test_pattern_begins_in_the_path(project):
    """What is found can be given to the other tools as it is shown."""
    absolute = str(project.folder / "src")

    assert found(project, "*.py", path="src") == ["src/c.py"]
    assert found(project, "**/e.py", path="src/deep") == ["src/deep/er/e.py"]
    assert found(project, "*.py", path=absolute) == [f"{absolute}/c.py"]
    assert found(project, f"{absolute}/*.py") == [f"{absolute}/c.py"]
    assert "outside of the working folder" in project.failure(glob.create(), pattern="/et?/passwd")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"pattern": "absent/*.py"}, "Cannot search absent: No such file or directory"),
        ({"pattern": "*", "path": "a.py"}, "Cannot search a.py: Not a directory"),
        ({"pattern": "*.{py"}, "Cannot search .: a { in the pattern has no }"),
        ({"pattern": "*", "path": "\0"}, "Cannot search \0: embedded null byte"),
        ({"pattern": ""}, "Invalid arguments for glob: "),
        ({"pattern": "x" * 501}, "Invalid arguments for glob: "),
    ],
)
def test_what_cannot_be_searched_is_reported(project, arguments, text):
    """A folder that is not there and a pattern that means nothing are errors."""
    assert project.failure(glob.create(), **arguments).startswith(text)


def test_links_are_found_and_not_followed(project):
    """A folder that links to itself does not make an endless tree."""
    (project.folder / "src" / "again").symlink_to("..")

    assert found(project, "**/a.py") == ["a.py"]
    assert found(project, "src/*/") == ["src/again/", "src/deep/"]


def test_odd_names_break_no_line(project):
    """One path is one line of text, whatever the file system holds."""
    Path(os.fsdecode(os.fsencode(project.folder) + b"/z\xff\n.log")).touch()

    assert found(project, "*.log") == ["z\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}.log"]


def test_results_are_bounded(workplace):
    """Shown and left out are all that there is."""
    workplace.write(dict.fromkeys((f"{number:04}" for number in range(1_200)), ""))
    *shown, last = found(workplace, "*")

    assert len(shown) == glob.RESULTS_MAX
    assert last == "[200 more are left out: narrow the pattern]"


def test_long_results_are_bounded_too(workplace):
    """Few paths can be long; the bytes have a bound of their own."""
    workplace.write(dict.fromkeys((f"{number:03}{'n' * 200}" for number in range(400)), ""))
    result = workplace.call(glob.create(), pattern="*")

    assert len(result.encode()) <= glob.BYTES_MAX + 100
    assert result.endswith(f"[{400 - result.count(chr(10))} more are left out: narrow the pattern]")


def test_depth_is_bounded_and_reported(workplace):
    """A tree without end is searched to a depth, and the model hears of the rest."""
    workplace.write({"d/" * DEPTH_MAX + "last": "", "d/" * (DEPTH_MAX + 1) + "beyond": ""})

    assert found(workplace, "**/{last,beyond}") == [
        "d/" * DEPTH_MAX + "last",
        f"[folders deeper than {DEPTH_MAX} are left out]",
    ]
    assert found(workplace, "d/*") == ["(nothing matches)"]


def test_entries_are_bounded_and_reported(project, monkeypatch):
    """A search ends after so many entries, with what it has and a word about it."""
    monkeypatch.setattr(_walk, "ENTRIES_MAX", 9)

    assert found(project, "**/*.py") == [
        ".hidden.py",
        "a.py",
        "src/c.py",
        "[ended after 9 files and folders: begin further down]",
    ]
