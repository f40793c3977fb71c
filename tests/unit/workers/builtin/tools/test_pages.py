"""What a page says, without its markup."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.builtin.tools._pages import shown, text_of

PAGE = """<!DOCTYPE html>
<html><head><title>T &amp; t</title><style>p{x}</style><script>if (a<b) "</p>";</script></head>
<body><h1>One</h1><p>a <b>b</b>
c 1 < 2 &lt;tag&gt; <a class=x href="/there?a=1&amp;b=2">link</a><!-- <p>not</p> -->
<ul><li>first<li>second</ul>end"""


def test_a_page_is_shown_block_by_block():
    """With the goals of its links, without scripts, styles and comments."""
    assert shown(PAGE).split("\n") == [
        *("T & t", "", "One", "", "a b", "c 1 < 2 <tag> link </there?a=1&b=2>", ""),
        *("first", "second", "end"),
    ]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("", ""),
        ("a", "a"),
        ("a<", "a<"),
        ("a<b", "a"),
        ("a<p", "a"),
        ("a<!--b", "a"),
        ("a<script>b", "a"),
        ("a<SCRIPT>b</Script >c", "ac"),
        ("a</p>b", "a\nb"),
        ("a<br/>b", "a\nb"),
        ("<a href='javascript:x'>a</a>", "a"),
        ("<a>a</a>", "a"),
        ("\u0130<script>x</script>a", "\u0130a"),
    ],
)
def test_what_is_left_open_ends_with_the_page(page, text):
    """And nothing of a tag is shown."""
    assert shown(page) == text


@given(st.text(alphabet="<>/!-aApPscriptSCRIPT \n&;\u0130\"'=", max_size=300))
def test_any_page_is_shown(page):
    """Whatever it is made of; no more of it than there is."""
    assert len(shown(page)) <= len(page) + page.count("<") * 4


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("text/plain", "<b>\u00e9"),
        ("text/html", "\u00e9"),
        ("application/json", "<b>\u00e9"),
        ("application/ld+json", "<b>\u00e9"),
        ("image/svg+xml", "<b>\u00e9"),
        ("application/pdf", None),
        ("application/octet-stream", None),
        ("image/png", None),
        ("", None),
    ],
)
def test_text_is_known_by_its_media_type(kind, text):
    """HTML comes without markup, other text as it is, and what is none not at all."""
    assert text_of("<b>\u00e9".encode(), kind, "utf-8") == text


@pytest.mark.parametrize("charset", ["latin-1", "nonsense", "hex", "utf-8\0"])
def test_a_charset_that_is_none_is_taken_as_utf8(charset):
    """One that is not of texts, too; bytes that are none of it are shown as such."""
    expected = "a\u00e9" if charset == "latin-1" else "a\ufffd"

    assert text_of(b"a\xe9", "text/plain", charset) == expected
