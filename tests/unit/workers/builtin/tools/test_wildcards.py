"""Patterns of paths."""

import pytest

from workers.builtin.tools._files import compiled, split


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*", ["a", ".a", ""], ["a/b"]),
        ("a?c", ["abc", "a.c"], ["ac", "a/c"]),
        ("**", ["a", "a/b/c"], []),
        ("**/a", ["a", "b/a", "b/c/a"], ["ba", "a/b"]),
        ("a/**/b", ["a/b", "a/c/b", "a/c/d/b"], ["ab", "a/cb"]),
        ("a**/b", ["a/b", "ac/b", "ac/d/b"], ["ab"]),
        ("{a,b}/c", ["a/c", "b/c"], ["ab/c", "{a,b}/c"]),
        ("{a{1,2},**/b}", ["a1", "a2", "b", "x/b"], ["a", "a1,a2"]),
        ("a,b}", ["a,b}"], ["a"]),
        ("[ab].(c|d)+$", ["[ab].(c|d)+$"], ["a.c"]),
        ("a\nb*", ["a\nb\n"], ["a"]),
    ],
)
def test_pattern_matches(pattern, matching, others):
    """Four wildcards have a meaning, and every other character stands for itself."""
    fits = compiled(pattern).fullmatch

    assert [path for path in matching if not fits(path)] == []
    assert [path for path in others if fits(path)] == []


def test_open_brace_is_refused():
    """A choice without an end has no meaning to guess."""
    with pytest.raises(ValueError, match="has no }"):
        compiled("a{b,{c}")


@pytest.mark.parametrize(
    ("pattern", "folder", "rest"),
    [
        ("*.py", "", "*.py"),
        ("a", "", "a"),
        ("a/b/*.py", "a/b", "*.py"),
        ("a/**/b/c", "a", "**/b/c"),
        ("{a/b,c}/d", "", "{a/b,c}/d"),
        ("/a/b*", "/a", "b*"),
        ("/b*", "/", "b*"),
        ("/*/b", "/", "*/b"),
        ("../a*", "..", "a*"),
        ("", "", ""),
    ],
)
def test_plain_part_is_split_off(pattern, folder, rest):
    """The folders before the first wildcard are where a search begins."""
    assert split(pattern) == (folder, rest)
