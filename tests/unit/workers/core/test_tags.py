"""Tags are taken out of streamed text, whatever the cuts of the stream."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.core.tags import (
    CONTENT_MAX_CHARS,
    FoundTag,
    Tag,
    TagState,
    feed,
    flush,
    invited_by,
)

HELD_MAX_CHARS = CONTENT_MAX_CHARS + max(len(f"<{tag}></{tag}>") for tag in Tag)


def parse(chunks):
    """Feed every chunk, then flush; return the clean text, the tags and the most held back."""
    state, clean, found, held_max = TagState(), "", (), 0
    for chunk in chunks:
        state, text, tags = feed(state, chunk)
        clean, found = clean + text, found + tags
        held_max = max(held_max, len(state.held))
    state, text, tags = flush(state)

    assert state == TagState()
    return clean + text, found + tags, held_max


def pieces_of(text, cuts):
    places = [0, *sorted(cuts), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(places)]


@pytest.mark.parametrize(
    ("text", "clean", "found"),
    [
        ("plain", "plain", ()),
        ("a<status>go</status>b", "ab", (FoundTag(Tag.STATUS, "go"),)),
        ("<title> T </title>x", "x", (FoundTag(Tag.TITLE, "T"),)),
        ("<title>" + "t" * 61 + "</title>", "", (FoundTag(Tag.TITLE, "t" * 60),)),
        ("<title>" + "t" * 59 + " t</title>", "", (FoundTag(Tag.TITLE, "t" * 59),)),
        ("<status></status>x", "x", ()),
        ("1 < 2, <b>bold</b> <stat", "1 < 2, <b>bold</b> <stat", ()),
        ("<status>never closed", "<status>never closed", ()),
        ("</status>", "</status>", ()),
        ("<Status>x</Status>", "<Status>x</Status>", ()),
        ("<status>a<title>b</title>", "<status>a", (FoundTag(Tag.TITLE, "b"),)),
        ("<status>a\nb</status>", "", (FoundTag(Tag.STATUS, "a\nb"),)),
        ("<<status>x</status>", "<", (FoundTag(Tag.STATUS, "x"),)),
    ],
)
def test_closed_tags_are_reported_and_everything_else_is_text(text, clean, found):
    """What is no whole tag reaches the reader unchanged."""
    assert parse([text])[:2] == (clean, found)


@pytest.mark.parametrize(("length", "is_tag"), [(CONTENT_MAX_CHARS, 1), (CONTENT_MAX_CHARS + 1, 0)])
def test_a_tag_that_is_too_long_is_text(length, is_tag):
    """Beyond ``CONTENT_MAX_CHARS`` nothing is held back for a closing tag."""
    text = f"<status>{'s' * length}</status>"

    assert parse([text])[:2] == (
        ("", (FoundTag(Tag.STATUS, "s" * length),)) if is_tag else (text, ())
    )


@pytest.mark.parametrize("tag", Tag)
def test_what_can_be_no_tag_any_more_is_shown_at_once(tag):
    """At the very character at which it can't close in time, and no earlier."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    text = opening + "s" * (CONTENT_MAX_CHARS + len(closing) - 1)
    state, before, _ = feed(TagState(), text)
    _, clean, found = feed(state, "s")

    assert (before, clean, found) == ("", f"{text}s", ())


TITLE = "<title>T</title>"
CODE = [
    f"```\n{TITLE}\n```\n",
    f"```html\n<head>\n{TITLE}\n",
    f"~~~\n{TITLE}\n~~~",
    f"  ````md\n```\n{TITLE}\n```\n````\n",
    f"- one\n  ```xml\n\n  {TITLE}\n  ```\n",
    f"> ~~~\n> {TITLE}\n> ~~~\n",
    f"Write `{TITLE}` there.",
    f"Write ``a ` {TITLE}`` there.",
    f"Write ```{TITLE}``` there.",
    f"Write `a\n{TITLE}` there.",
    f"~~~ ```\n{TITLE}\n```\n{TITLE}\n",
    f"<!doctype html>\n<html><head>\n{TITLE}</head></html>",
    f"<svg>\n  {TITLE}\n</svg>",
    f"<rss><channel>{TITLE}</channel></rss>",
    f"As in:\n\n    <head>\n    {TITLE}\n",
    f"\t{TITLE}",
    f"> - one\n>     {TITLE}",
]
PLAIN = [
    f"```\nx\n```\n{TITLE}",
    f"~~~\nx\n~~~~ \n\n{TITLE}",
    f"Call `x` {TITLE}",
    f"A stray ` is over\n\n{TITLE}",
    f"a ~~struck~~ {TITLE}",
    f"```x``` {TITLE}",
    f"1. {TITLE}",
    f"<status>S</status>{TITLE}",
]


@pytest.mark.parametrize("text", CODE)
def test_a_tag_in_code_or_in_markup_is_text(text):
    """Nothing is cut out of what the model shows."""
    assert parse([text])[:2] == (text, ())


@pytest.mark.parametrize("text", PLAIN)
def test_a_tag_behind_code_is_a_tag(text):
    """Once the code is over."""
    assert FoundTag(Tag.TITLE, "T") in parse([text])[1]


def test_only_invited_tags_are_read():
    """What the system prompt says nothing of is text."""
    text = f"<status>S</status> a{TITLE}"
    _, clean, found = feed(TagState(), text, frozenset({Tag.TITLE}))

    assert (clean, found) == ("<status>S</status> a", (FoundTag(Tag.TITLE, "T"),))
    assert feed(TagState(), text, frozenset())[1:] == (text, ())


def test_a_prompt_invites_what_it_names():
    """Whoever wrote it."""
    assert invited_by("You may write <title>a name</title>.") == {Tag.TITLE}
    assert invited_by("Give it a title.") == frozenset()


def test_text_goes_on_at_once_after_a_tag():
    """Only what may be a tag is held back; text before and after it is not."""
    state, before, _ = feed(TagState(), "one <sta")
    state, during, _ = feed(state, "tus>go</status")
    state, after, found = feed(state, "> two")

    assert (before, during, after) == ("one ", "", " two")
    assert found == (FoundTag(Tag.STATUS, "go"),)
    assert state.held == ""


CODE_PARTS = ("`", "``", "```", "~~~", "\n", "\n\n", "- ", "> ", "html\n", "  ")
TAG_PARTS = (
    *CODE_PARTS,
    "<status>",
    "</status>",
    "<title>",
    "</title>",
    "<sta",
    "tus>",
    "<",
    ">",
    "/",
)
parts = st.sampled_from((*TAG_PARTS, "a", " ", "é\n", "x" * CONTENT_MAX_CHARS, "y" * 100))


@given(st.lists(parts, max_size=14).map("".join), st.data())
def test_the_cuts_of_a_stream_change_nothing(text, data):
    """For any split of a text, the clean text and the tags are those of the whole."""
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=20))
    clean, found, held_max = parse(pieces_of(text, cuts))

    assert (clean, found) == parse([text])[:2]
    assert held_max <= HELD_MAX_CHARS


@given(st.lists(parts, max_size=10).map("".join))
def test_letter_by_letter_is_the_same_too(text):
    """The finest split there is gives the same result."""
    assert parse(list(text))[:2] == parse([text])[:2]
