"""Which regular expressions can be used on text that comes in pieces, and how they wait."""

import pytest

from cmdc_runtime.plugins.guards import probe_of, problem_of

WHOLE = "is for text that is there as a whole"


@pytest.mark.parametrize(
    "pattern",
    [
        "a", r"a{2,3}", r"\p{Ids}", r"\p{L}{2}\N{EURO SIGN}", r"\{e\}", r"[{e}]a", "(?i:a b)",
        "(?i)foo|(?i)bar", "(?-i:a)", r"a\\Gb", "(?<x>a)(?&x)", "[(?R)]", "(?x)a # (?R) [ {e}",
    ],
)  # fmt: skip
def test_patterns_that_can_be_used(pattern):
    """Nothing is said about them, and they have a probe."""
    assert problem_of(pattern) is None
    assert probe_of(pattern).search("", partial=True).partial


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "it is no regular expression: missing )"),
        ("[", "it is no regular expression: unterminated character set"),
        (r"\L<names>", "it is no regular expression: undefined named list"),
        ("a*", "it matches the empty text: make it match a character at least"),
        ("(?r)a", f"the flag (?r) {WHOLE}"),
        ("(?b)a", f"the flag (?b) {WHOLE}"),
        ("(?e)a", f"the flag (?e) {WHOLE}"),
        ("(?p)a", f"the flag (?p) {WHOLE}"),
        ("(?w)a", f"the flag (?w) {WHOLE}"),
        ("(?V1)a", f"the flag (?V1) {WHOLE}"),
        (r"\Ga", r"\G hangs on where a search began"),
        (r"a\Kb", r"\K moves the start of a match: use a lookbehind"),
        ("a(?R)?", "(?R) repeats the whole pattern: repeat a group by its number"),
        ("a(?0)?", "(?0) repeats the whole pattern: repeat a group by its number"),
        ("a(*SKIP)b", "(*SKIP) hangs on where a search began"),
        ("(?xi:a b)", "write (?x) at its start: it is for the pattern as a whole"),
        ("(?:ab){e<=1}", "{e<=1} allows for errors, and whether there are some shows at the end"),
        ("(?:ab){i}", "{i} allows for errors"),
        ("(?:ab){1<=e<=2}", "{1<=e<=2} allows for errors"),
        ("(?:ab){2i+1s<=4}", "{2i+1s<=4} allows for errors"),
        ("(?:ab){s<=2:[a-z]}", "{s<=2:[a-z]} allows for errors"),
    ],
)
def test_patterns_that_cannot_be_used(pattern, problem):
    """The error says what is wrong with each, and the way out where there is one."""
    assert problem_of(pattern).startswith(problem)


@pytest.mark.parametrize(
    ("pattern", "text", "place"),
    [
        ("secret", "the se", 4),
        ("secret", "the seal", None),
        ("secret", "secret", None),
        (r"\d+", "a12", 1),
        (r"\d+", "a12 ", None),
        ("a|ab", "a", None),
        ("ab|a", "a", 0),
        ("foo(?:bar)?", "foob", 0),
        ("(?s)a.*z|b", "a..b", 0),
        ("(?s)a.*?z", "a..z..", None),
        ("foo(?!bar)", "foob", 0),
        ("foo(?!bar)", "foox", None),
        (r"foo\b", "foo", 0),
        (r"foo\b", "foo ", None),
        (r"-\b\d", "-", 0),
        (r"a\B", "a", 0),
        ("a$", "a\n", 0),
        ("a$", "a\nb", None),
        (r"a\Z", "a", 0),
        ("(?x) a b # end", "a", 0),
        (r"[$]a", "$", 0),
        (r"\$a", "x$", 1),
    ],
)
def test_probe_finds_where_to_wait(pattern, text, place):
    """The first place from which matching runs into the end; the end itself is none."""
    found = probe_of(pattern).search(text, partial=True)

    assert (None if found is None or found.start() == len(text) else found.start()) == place
