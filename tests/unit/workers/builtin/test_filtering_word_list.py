"""A list of words as one pattern: what it looks like, and that it finds what the list says."""

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.builtin import filtering as module
from workers.builtin.filtering import pattern_of


@pytest.mark.parametrize(
    ("phrases", "pattern"),
    [
        ([], ""),
        ([()], ""),
        ([("ab",)], "ab"),
        ([("ab",), ("ab",)], "ab"),
        ([("ab",), ("ac",), ("acd",)], "a(?:b|c(?:d)?)"),
        ([("b",), ("a",)], "a|b"),
        ([("a", "b"), ("a",)], r"a(?:\s+b)?"),
        ([("a.",), ("a(",)], r"a(?:\(|\.)"),
    ],
)
def test_beginnings_are_shared(phrases, pattern):
    """Each letter stands for itself."""
    assert pattern_of(phrases) == pattern


@pytest.mark.parametrize("shared", [0, 1, 2, 8])
@settings(max_examples=100, deadline=None)
@given(words=st.lists(st.text("ab.", min_size=1, max_size=4), min_size=1), text=st.text("ab."))
def test_the_longest_word_at_a_place_is_found(shared, words, text):
    """As a search for the words themselves finds it, however much is shared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SHARED_MAX", shared)
        found = regex.compile(pattern_of((word,) for word in words))
    for at in range(len(text) + 1):
        match = found.match(text, at)
        longest = max((word for word in words if text.startswith(word, at)), key=len, default=None)
        assert (match and match[0]) == longest


def test_many_words_alike_are_no_deep_pattern():
    """Each the beginning of the next one."""
    words = ["a" * length for length in range(1, 201)]

    assert regex.fullmatch(pattern_of((word,) for word in words), "a" * 200)
