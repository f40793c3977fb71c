"""``grep`` on a real folder."""

import os

import pytest

from workers.builtin.sandboxes._search import LINE_CHARS_MAX
from workers.builtin.tools import grep
from workers.builtin.tools._files import FILE_BYTES_MAX

POEM = "".join(f"line {number}\n" for number in range(1, 21))


def found(workplace, pattern, **arguments):
    """Return the lines of a result."""
    return workplace.call(grep.create(), pattern=pattern, **arguments).splitlines()


def test_match_is_shown_with_the_lines_around_it(workplace):
    """A path, then numbered lines, two before and two after unless asked otherwise."""
    workplace.write({"src/poem.txt": POEM})

    assert found(workplace, "e 10$") == [
        "src/poem.txt", "8|line 8", "9|line 9", "10|line 10", "11|line 11", "12|line 12",
    ]  # fmt: skip
    assert found(workplace, "e 10$", context_lines=0) == ["src/poem.txt", "10|line 10"]


def test_passages_that_touch_are_one(workplace):
    """No line is shown twice, and a gap between passages is marked."""
    workplace.write({"poem": POEM})

    assert found(workplace, "e (1|3|6|20)$", context_lines=1) == [
        "poem", "1|line 1", "2|line 2", "3|line 3", "4|line 4", "5|line 5", "6|line 6", "7|line 7",
        "--", "19|line 19", "20|line 20",
    ]  # fmt: skip


def test_files_come_in_the_order_of_the_tree(workplace):
    """A folder's own files first, sorted; an empty line stands between files."""
    workplace.write({"b": "x", "a": "x", "c/d": "x"})

    assert found(workplace, "x") == ["a", "1|x", "", "b", "1|x", "", "c/d", "1|x"]


@pytest.mark.parametrize(
    ("include", "paths"),
    [
        ("*.py", ["a.py", "src/b.py"]),
        ("*.{py,md}", ["a.py", "c.md", "src/b.py"]),
        ("src/*", ["src/b.py"]),
        ("**/*.py", ["a.py", "src/b.py"]),
        ("*.rs", ["(nothing matches)"]),
    ],
)
def test_include_chooses_files(workplace, include, paths):
    """A pattern without "/" is one of names, any other one of paths below the path."""
    workplace.write({"a.py": "x", "src/b.py": "x", "c.md": "x"})
    lines = found(workplace, "x", include=include)

    assert [line for line in lines if line not in {"", "1|x"}] == paths


def test_path_is_a_folder_or_a_file(workplace):
    """What is shown begins as the path did, so that other tools find it."""
    workplace.write({"a/b": "x", "c": "x"})
    absolute = str(workplace.folder / "a")

    assert found(workplace, "x", path="a") == ["a/b", "1|x"]
    assert found(workplace, "x", path="./a/b", include="*.py") == ["a/b", "1|x"]
    assert found(workplace, "x", path=absolute) == [f"{absolute}/b", "1|x"]


@pytest.mark.parametrize(
    "folder",
    [
        ".git", ".hg", ".svn", "_build", "deps", "node_modules", ".elixir_ls", ".vscode", ".idea",
        "__pycache__", ".mypy_cache", "vendor", ".bundle", "tmp",
    ],
)  # fmt: skip
def test_folders_without_sources_are_skipped(workplace, folder):
    """They are passed by at any depth, and searched where the path leads into them."""
    workplace.write({f"{folder}/a": "x", f"src/{folder}/a": "x"})

    assert found(workplace, "x") == ["(nothing matches)"]
    assert found(workplace, "x", path=f"src/{folder}") == [f"src/{folder}/a", "1|x"]


def test_what_is_no_text_is_passed_by(workplace):
    """Binary files, pipes and links are none of a search's business."""
    workplace.write({"a": "x", "binary": b"x\0x", "empty": ""})
    (workplace.folder / "link").symlink_to("a")
    os.mkfifo(workplace.folder / "pipe")

    assert found(workplace, "x|^$") == ["a", "1|x"]


def test_what_cannot_be_searched_is_counted(workplace):
    """A file that is too large is left out, and the model hears of it."""
    workplace.write({"a": "x"})
    with (workplace.folder / "huge").open("wb") as huge:
        huge.truncate(FILE_BYTES_MAX + 1)

    assert found(workplace, "x") == ["a", "1|x", "[1 files or folders could not be searched]"]


def test_line_ends_are_not_part_of_lines(workplace):
    """CR LF and a missing end of the last line change neither matches nor numbers."""
    workplace.write({"a": b"one\r\ntwo\r\n\r\nfour"})

    assert found(workplace, "(e|o|r|^)$", context_lines=0) == [
        "a", "1|one", "2|two", "3|", "4|four",
    ]  # fmt: skip


def test_bytes_that_are_no_text_are_shown_as_such(workplace):
    """A file in another encoding can be searched for what it has in common with UTF-8."""
    workplace.write({"a": b"caf\xe9 x"})

    assert found(workplace, "x") == ["a", "1|caf\N{REPLACEMENT CHARACTER} x"]


def test_long_line_is_shown_around_the_match(workplace):
    """A file of one line cannot fill the conversation, and the match is in sight."""
    workplace.write({"a": "." * 5000 + "needle" + "." * 5000, "b": "needle" + "." * 5000})
    first, second = (found(workplace, "needle", path=path)[1] for path in ("a", "b"))

    assert len(first) <= LINE_CHARS_MAX + len("1|……")
    assert first.startswith("1|….")
    assert "needle" in first
    assert second.startswith("1|needle..")
    assert second.endswith(".…")


def test_results_are_bounded_by_count(workplace):
    """The search ends at the limit, and says that there is more only where there is."""
    workplace.write({"a": "x\n" * 3, "b": "x\n" * 2})
    more = "[more is found: narrow the pattern, the path or include]"

    assert found(workplace, "x", max_results=5)[-1] == "2|x"
    assert found(workplace, "x", max_results=4, context_lines=0)[-3:] == ["b", "1|x", more]
    assert found(workplace, "x", max_results=3, context_lines=0) == ["a", "1|x", "2|x", "3|x", more]


def test_results_are_bounded_by_bytes(workplace):
    """Few matches can have long lines around them."""
    workplace.write(dict.fromkeys("abcdefgh", f"{'é' * 300}\n" * 100))
    result = workplace.call(grep.create(), pattern="é", max_results=500)

    assert grep.BYTES_MAX - 1000 < len(result.encode()) < grep.BYTES_MAX + 100
    assert result.endswith("[more is found: narrow the pattern, the path or include]")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"pattern": "(x"}, "Cannot search .: the pattern is no regular expression: missing )"),
        ({"pattern": "x{99999999999}"}, "Cannot search .: the pattern is no regular expression"),
        ({"pattern": "x", "path": "absent"}, "Cannot search absent: No such file or directory"),
        ({"pattern": "x", "path": "binary"}, "Cannot search binary: it is a binary file"),
        ({"pattern": "x", "include": "{a"}, "Cannot search .: a { in the pattern has no }"),
        ({"pattern": ""}, "Invalid arguments for grep: "),
        ({"pattern": "x", "max_results": 0}, "Invalid arguments for grep: "),
        ({"pattern": "x", "max_results": 501}, "Invalid arguments for grep: "),
        ({"pattern": "x", "context_lines": 21}, "Invalid arguments for grep: "),
    ],
)
def test_what_cannot_be_searched_is_reported(workplace, arguments, text):
    """A pattern that means nothing and a place that is not there are errors."""
    workplace.write({"binary": b"x\0"})

    assert workplace.failure(grep.create(), **arguments).startswith(text)
