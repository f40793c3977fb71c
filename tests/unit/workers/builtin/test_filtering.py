"""Redaction of a text in pieces: what comes out is what would come out of the whole text."""

import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cmdc_runtime.plugins.guards import problem_of
from workers.builtin import filtering as module
from workers.builtin.filtering import (
    AS_SEEN,
    WORDS,
    Bounds,
    Redaction,
    Rule,
    UndecidedError,
    stretches_of,
)

BOUNDS = Bounds(held_chars_max=100_000, search_s_max=5.0)
# What hangs on the text around a match, what tries several ways, and what has no end.
PATTERNS = [
    r"ab", r"a|ab", r"ab|a", r"a+b", r"a*?b", r"a++b", r"(?>a+)b", r"a(?:ba)?", r"[ab]{2,}",
    r"(?:ab){2,3}", r"(?:ab|b-)+a", r"(a)\1", r"(a|b)-\1", r"(?|(a)-|(b)a)\1",
    r"(?:(a)|b)(?(1)-|a)",
    r"a.*b", r"a.*?b", r"(?s)a.*b", r"(?s)a.*?b", r"(?s:a.b)?-", r".+", r"[^\n]+", r"a[^b]*b|b",
    r"a(?!b)", r"a(?=b)", r"a(?!-*b)", r"a(?=-*$)", r"a(?=-*\b)", r"a(?=(b+))", r"(?=(a+))a\1?",
    r"(?!ab)a", r"(?:a(?!b)|ab-)", r"a{2}(?!a)", r"(?<![ab])a(?![ab])", r"(?<!a)b", r"(?<=a-)b",
    r"a(?<!b.*)", r"\bb(?<=$|b)", r"\bab\b", r"-\bb", r"a\b-", r"a\B", r"\ma", r"a\M-?", r"\w+-\w+",
    r"^a", r"(?m)^-", r"(?m)^\w", r"(?m)^$\n", r"(?m)-\n^", r"a$", r"b+$", r"a(?!$)", r"(?m)a$",
    r"a\Z", r"a(?=$)\n?", r"a(?!\n\Z)", r"(?m)a(?!\n^)", r"(?:a|b)(?:-|$)", r"\Xb", r"a\R",
    r"(?i)AB", r"(?i:A)b", r"a(*PRUNE)b|-b", r"(?(?=a)ab|-b)", r"[$\]a-]b", r"[]a]b", r"\$|a",
    "(?x) a # [ $ \\b\n b # end", r"a(?#[$\b)b", r"(?<n>a|b)(?&n)-", r"(?(DEFINE)(?<n>a+))(?&n)b",
]  # fmt: skip
PIECES = st.lists(st.text("ab-\n", max_size=6), max_size=12)
STRANGE = [
    "\u200b",
    "\u00ad",
    "é",
    "\u0301",
    "e",
    "\uff22",
    "ﬁ",
    "*",
    "ß",
    "a",
    "B",
    "f",
    "s",
    " ",
    "\n",
]


def shown(redaction, pieces):
    """Return what was given out for each piece, and at the end."""
    return [*map(redaction.feed, pieces), redaction.close()]


def redaction(*patterns, bounds=BOUNDS, **more):
    rules = [Rule(f"patterns[{at}]", pattern) for at, pattern in enumerate(patterns)]
    return Redaction(rules, bounds, "#", **more)


def union(patterns, text):
    """Return what all patterns find, each by itself, in the whole text."""
    return merged(
        match.span()
        for pattern in patterns
        for match in regex.finditer(pattern, text)
        if match.end() > match.start()
    )


def merged(spans):
    """Return spans in order, those that overlap as one."""
    found = []
    for start, stop in sorted(spans):
        if found and start < found[-1][1]:
            found[-1][1] = max(found[-1][1], stop)
        else:
            found.append([start, stop])
    return found


def replaced(text, stretches):
    parts, at = [], 0
    for start, stop in stretches:
        parts += [text[at:start], "#"]
        at = stop
    return "".join([*parts, text[at:]])


@pytest.mark.parametrize("pattern", PATTERNS)
def test_samples_can_be_streamed(pattern):
    """None of the patterns below is one that is refused."""
    assert problem_of(pattern) is None


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=60, deadline=None)
@given(pieces=PIECES, at_once=st.sampled_from([2, 256]))
def test_a_pattern_replaces_what_it_replaces_in_the_whole(pattern, pieces, at_once):
    """However the text is cut, and whether each piece is searched: as ``regex.sub`` does."""
    text = "".join(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SEARCHED_AT_ONCE", at_once)
        patch.setattr(module, "SLICE", at_once)
        one = redaction(pattern)
        out = shown(one, pieces)

    assert ("".join(out), one.count) == regex.subn(pattern, "#", text)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(patterns=st.lists(st.sampled_from(PATTERNS), min_size=2, max_size=4), pieces=PIECES)
@example(patterns=["ab", "b-"], pieces=["a", "b", "-a"])
def test_several_patterns_replace_all_that_each_finds(patterns, pieces):
    """Each as if it were alone; their order makes no difference."""
    text = "".join(pieces)
    found = union(patterns, text)
    one = redaction(*patterns)
    out = "".join(shown(one, pieces))

    assert (out, one.count) == (replaced(text, found), len(found))
    assert "".join(shown(redaction(*reversed(patterns)), pieces)) == out


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(patterns=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3), pieces=PIECES)
def test_nothing_that_was_given_out_is_ever_part_of_a_match(patterns, pieces):
    """With a redaction that stops at its first match, all that comes out stands before that."""
    text = "".join(pieces)
    one = redaction(*patterns, stops=True)
    given_out = ""
    for piece in pieces:
        given_out += one.feed(piece)
        assert text.startswith(given_out)
    given_out += one.close()
    found = union(patterns, text)

    assert given_out == text[: found[0][0] if found else None]
    assert one.count == bool(found)


@settings(max_examples=300, deadline=None)
@given(
    pieces=st.lists(st.text(st.sampled_from(STRANGE), max_size=5), max_size=10),
    pattern=st.sampled_from(["ab", r"bé?b?", r"\bfi", r"s+s", r"a\s+b", r"e(?!b)", r"b$"]),
    folds=st.sampled_from([(None, AS_SEEN), (WORDS,), (None, AS_SEEN, WORDS)]),
)
def test_folded_text_is_replaced_where_it_comes_from(pieces, pattern, folds):
    """In pieces as in the whole, and what is not replaced stays as it was written."""
    rules = [Rule("one", pattern, folds)]
    text = "".join(pieces)
    found = stretches_of(rules, text, 5.0)
    one = Redaction(rules, BOUNDS, "#")

    assert "".join(shown(one, pieces)) == replaced(text, found)
    assert one.count == len(found)


@pytest.mark.parametrize(
    ("folds", "pattern", "text", "stretches"),
    [
        ((None,), "ab", "a\u200bb ab", [(4, 6)]),
        ((None, AS_SEEN), "ab", "a\u200bb ab", [(0, 3), (4, 6)]),
        ((None, AS_SEEN), "\u200b", "a\u200bb", [(1, 2)]),
        ((None, AS_SEEN), r"\d{4}-\d", "١٢٣٤-\uff15", [(0, 6)]),
        ((AS_SEEN,), "ink", "ﬁnk", [(0, 3)]),
        ((AS_SEEN,), "in", "ﬁn", [(0, 2)]),
        ((AS_SEEN,), "fi", "ﬁﬁ", [(0, 1), (1, 2)]),
        ((AS_SEEN,), "if", "ﬁﬁ", [(0, 2)]),
        ((WORDS,), "strasse", "die STRA\u00adẞE", [(4, 11)]),
    ],
)
def test_a_match_in_folded_text_is_whole_characters(folds, pattern, text, stretches):
    """Of the text as it was written, with what is invisible inside."""
    assert stretches_of([Rule("one", pattern, folds)], text, 5.0) == stretches


@given(
    pieces=PIECES, words=st.lists(st.text("ab-", min_size=1, max_size=4), min_size=1, max_size=4)
)
def test_words_that_overlap_are_all_found(pieces, words):
    """By one rule, longest first, as by one rule for each."""
    text = "".join(pieces)
    both = "|".join(sorted(map(regex.escape, words), key=len, reverse=True))
    one = Redaction([Rule("one", both, overlaps=True)], BOUNDS, "#")
    covered = [
        (at, at + len(word))
        for word in words
        for at in range(len(text))
        if text.startswith(word, at)
    ]

    assert "".join(shown(one, pieces)) == replaced(text, merged(covered))


def test_a_match_that_is_not_accepted_stays():
    """And the search goes on behind its first character."""
    rule = Rule("one", "a.", accepts=lambda found: found != "aa")

    assert stretches_of([rule], "aab ab", 5.0) == [(1, 3), (4, 6)]


@pytest.mark.parametrize(
    ("pattern", "pieces", "out"),
    [
        ("secret", ["the s", "ecret it"], ["the ", "# it", ""]),
        ("secret", ["the s", "eal"], ["the ", "seal", ""]),
        ("secret", ["no", "thing"], ["no", "thing", ""]),
        (r"\d+", ["a1", "2", "3 b"], ["a", "", "# b", ""]),
        (r"\d+", ["a1", "2"], ["a", "", "#"]),
        ("a|ab", ["a", "b"], ["", "#b", ""]),
        (r"key=\S+", ["key", "=x", "y", "\nz"], ["", "", "", "#\nz", ""]),
        (r"(?s)<.*?>", ["a<b", "c", ">d>"], ["a", "", "#d>", ""]),
        (r"\bno\b", ["no", "de no"], ["", "node ", "#"]),
    ],
)
def test_only_what_could_become_a_match_is_kept_back(pattern, pieces, out):
    """The rest is shown at once."""
    assert shown(redaction(pattern), pieces) == out


def test_touching_matches_stay_two():
    """Overlapping ones are one."""
    assert shown(redaction("ab"), ["abab "]) == ["## ", ""]
    assert shown(redaction("ab", "bc"), ["xabcx"]) == ["x#x", ""]


def test_a_stop_gives_nothing_out_from_the_match_on():
    """Not even the replacement."""
    one = redaction("no", stops=True)

    assert shown(one, ["yes n", "o, yes", "no"]) == ["yes ", "", "", ""]
    assert one.count == 1


def test_a_lookbehind_sees_what_was_given_out():
    """As far as is remembered."""
    far = "x" * module.BEFORE_CHARS
    assert shown(redaction(r"(?<=id: )\d+"), ["id", ": ", "7 8"]) == ["id", ": ", "# 8", ""]
    assert shown(redaction(r"^a"), ["b", far, "a"])[2:] == ["a", ""]


def test_an_empty_match_replaces_nothing():
    """There is nothing in it."""
    assert shown(redaction(r"(?=b)"), ["a", "b"]) == ["a", "b", ""]


def test_too_much_to_keep_back_is_an_error():
    """It says how much, and what to do."""
    one = redaction(r"(?s)a.*b", bounds=Bounds(held_chars_max=10, search_s_max=1.0))
    one.feed("a" * 10)
    with pytest.raises(
        UndecidedError, match=r"^11 characters would have to be kept back, more than 10: "
    ):
        one.feed("a")


def test_a_slow_pattern_is_an_error():
    """It names the rule and the time."""
    one = redaction("z", "(?:a|aa)+c", bounds=Bounds(held_chars_max=1000, search_s_max=0.01))
    with pytest.raises(UndecidedError, match=r"the search for patterns\[1\] took longer than 0.01"):
        one.feed("a" * 100)


@pytest.mark.slow
def test_work_grows_with_the_length_of_what_is_kept_back():
    """Four times the text is no more than a few times the work, where all of it is kept back."""

    def searched(chars):
        seen = []
        one = redaction(r"(?s)<.*?>")
        rule = one._watches[0]._rule
        rule.probe = Counting(rule.probe, seen)
        one.feed("<")
        for _ in range(chars // 4):
            one.feed("aaaa")
        return sum(seen)

    assert searched(80_000) < 6 * searched(20_000)


class Counting:
    """A compiled pattern that notes how much it is asked to search."""

    def __init__(self, pattern, seen):
        self._pattern, self._seen = pattern, seen

    def search(self, text, at, **more):
        self._seen.append(len(text) - at)
        return self._pattern.search(text, at, **more)
