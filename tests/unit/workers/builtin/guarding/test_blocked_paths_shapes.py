"""Paths with wildcards: what two of them have in common, and how names are folded."""

import fnmatch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.builtin.guarding.blocked_paths import (
    NAME_CHARS_MAX,
    STARS_MAX,
    fold,
    likeness,
    shape_of,
    shared_letters,
    wildcards,
)


@pytest.mark.parametrize(
    ("name", "other", "letters"),
    [
        (".env", ".env", 4), (".e*", ".env", 2), (".??v", ".env", 2), ("*", ".env", -1),
        ("?env", ".env", -1), ("[.]env", ".env", 4), (".[a-f]nv", ".env", 3),
        (".[!x]nv", ".env", 3), (".[a-c]nv", ".env", -1), ("*.pem", "*.pem", 4),
        ("*.py", "*.pem", -1), ("*", "*.pem", 0),
        ("a.p*", "*.pem", 2), ("", "a", -1), (".env", "*", 0), ("*a*b*", "*b", 1),
    ],
)  # fmt: skip
def test_shared_letters(name, other, letters):
    """As many as stand in the same place of both."""
    assert shared_letters(wildcards(name), wildcards(other)) == letters


@settings(max_examples=200, deadline=None)
@given(st.text("ab.*?", max_size=7), st.text("ab.", min_size=1, max_size=6))
def test_sharing_agrees_with_globbing(name, text):
    """Names that a shell's pattern matches, and no others, meet it."""
    matches = fnmatch.fnmatchcase(text, name) and (text[0] != "." or name[0] == ".")

    assert (shared_letters(wildcards(name), wildcards(text)) >= 0) == matches


def test_a_whole_path_needs_letters_in_each_name():
    """What could be anything speaks for nothing."""
    assert likeness(shape_of("/x/**/a"), shape_of("/x/secret")) == -1
    assert likeness(shape_of("/x/s*/a"), shape_of("/x/secret")) == 2
    assert likeness(shape_of("/x/*/a"), shape_of("/x/secret")) == -1
    assert likeness(shape_of("/a/.ssh/b"), shape_of("/**/.ssh")) == 4
    assert likeness(shape_of("/a"), shape_of("/a/**")) == 1


def test_patterns_with_many_stars_end():
    """No name and no pattern makes the comparison take for ever."""
    name = "a" * NAME_CHARS_MAX
    assert shared_letters(wildcards("*a" * (STARS_MAX + 20) + "b"), wildcards(name)) == -1


def test_folding():
    """Ways to write a name that look alike are alike."""
    assert {fold(text) for text in (".ENV", ".\uff45nv", ".e\u200bnv", "\u2024\u0435nv")} == {
        ".env"
    }
