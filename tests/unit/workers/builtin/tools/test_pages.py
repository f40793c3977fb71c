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


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (
            "<pre><code>def f(x):\n    if x:\n\treturn</code></pre>",
            "def f(x):\n    if x:\n\treturn",
        ),
        ("a  b<pre>\n  c   d  \n\n\n e\n</pre> f  g", "a b\n  c   d\n\n\n e\nf g"),
        ("<pre>  a</pre><PRE>  b</PRE>", "  a\n\n  b"),
        ("<pre>a<br>&nbsp; b <a href='/x'>c</a>\r\n d", "a\n  b c </x>\n d"),
        ("a</pre>  b  c", "a\nb c"),
        ("a<pre></pre>b", "a\n\nb"),
    ],
)
def test_preformatted_text_keeps_its_blanks(page, text):
    """It is mostly code, whose indentation means something."""
    assert shown(page) == text


@given(st.text(alphabet="<>/!-aApPreEscriptSCRIPT \n&;\u0130\"'=", max_size=300))
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


@pytest.mark.parametrize(
    ("page", "charset", "text"),
    [
        (b'<head><meta charset="windows-1252">\x80', "", "\u20ac"),
        (b"<META name=a  CharSet = 'koi8-r' >\xc1", "", "\u0430"),
        (
            b'<meta http-equiv="Content-Type" content="text/html; charset=iso-8859-2"/>\xb1',
            "",
            "\u0105",
        ),
        (b"<meta charset=windows-1252>\xc3\xa9", "utf-8", "\u00e9"),
        (b"\xef\xbb\xbf<meta charset=windows-1252>\xc3\xa9", "latin-1", "\u00e9"),
        (b"<meta charset=utf-16>\xc3\xa9", "", "\u00e9"),
        (b"<meta charset=nonsense>\xc3\xa9", "", "\u00e9"),
        (b"<p>charset=windows-1252</p>\xc3\xa9", "", "charset=windows-1252\n\u00e9"),
        (b"<meta " * 1000 + b"\xc3\xa9", "", ""),
    ],
)
def test_a_page_may_say_its_charset_itself(page, charset, text):
    """Where the headers don't; what it begins with counts more than both."""
    assert text_of(page, "text/html", charset) == text


def test_other_text_says_no_charset():
    """What looks so in it is its text."""
    assert text_of(b"<meta charset=koi8-r>\xc3\xa9", "text/plain", "") == (
        "<meta charset=koi8-r>\u00e9"
    )
