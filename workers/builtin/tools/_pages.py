"""What a page says: text as it is, HTML without its markup, but with what ``pre`` keeps. Pure.

It takes a time that grows as the page does, whatever the page is: each place is looked at once, and
what is left open ends with the page.
"""

import codecs
import html
import itertools
import operator
import re
from collections.abc import Iterator
from typing import Final

_HTML: Final = frozenset({"text/html", "application/xhtml+xml"})
_TEXT: Final = re.compile(
    r"text/.{1,100}|image/svg\+xml"
    r"|application/(?:[\w.-]{1,100}\+)?(?:json|xml|yaml|toml|javascript|x-ndjson|x-sh)"
)
_BEGIN: Final = re.compile(r"<(?=[/!?a-zA-Z])")
_TAG: Final = re.compile(r"(/?)([a-zA-Z][a-zA-Z0-9]{0,20})(?=[\s/>])")
_HREF: Final = re.compile(r"""\shref\s?=\s?["']?((?:https?:/)?/[^\s"'<>]{1,1000})""", re.IGNORECASE)
_TAG_CHARS: Final = 4000
"""Of a tag, that are looked at for an address."""
_UNSHOWN: Final = frozenset(
    {"script", "style", "template", "noscript", "svg", "textarea", "iframe"}
)
_BLOCKS: Final = frozenset(
    (
        *("address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "fieldset"),
        *("figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header"),
        *("hr", "li", "main", "nav", "ol", "p", "section", "table", "td", "th", "title"),
        *("tr", "ul"),
    )
)
_EMPTY_LINES: Final = re.compile(r"\n{3,}")
_CHARSET: Final = re.compile(
    rb"""<meta[\s/][^>]{0,300}?charset\s{0,9}=\s{0,9}["']?\s{0,9}([\w.:-]{1,40})""", re.IGNORECASE
)
_CHARSET_BYTES: Final = 4096
"""Of a page, that are looked at for its charset; by the standard it stands in the first 1,024."""
_BLANKS: Final = re.compile(r"[ \t\r\f\v\u00a0]+")


def text_of(body: bytes, kind: str, charset: str) -> str | None:
    """Return the text of a body with this media type, None where it is no text.

    ``charset`` is that of its headers; where it is "" a page may say itself which it has.
    """
    if not _TEXT.fullmatch(kind) and kind not in _HTML:
        return None
    if body.startswith(codecs.BOM_UTF8):
        charset = "utf-8-sig"
    elif not charset:
        charset = _own_charset(body) if kind in _HTML else "utf-8"
    try:
        text = body.decode(codecs.lookup(charset).name, errors="replace")
    except (LookupError, ValueError):  # no such charset, or none of texts
        text = body.decode("utf-8", errors="replace")
    return shown(text) if kind in _HTML else text


def _own_charset(body: bytes) -> str:
    """Return what a page says of its charset; it can't be one in which that would not be read."""
    found = _CHARSET.search(body, 0, _CHARSET_BYTES)
    name = "utf-8" if found is None else found[1].decode("ascii", errors="replace").lower()
    return "utf-8" if name.startswith(("utf-16", "utf-32")) else name


def shown(page: str) -> str:
    """Return what a page in HTML shows: each block on a line, with the addresses of its links."""
    groups = itertools.groupby(_pieces(page), operator.itemgetter(1))
    parts = ((is_kept, "".join(text for text, _ in pieces)) for is_kept, pieces in groups)
    return "".join(_kept(text) if is_kept else _flowing(text) for is_kept, text in parts).strip(
        "\n"
    )


def _flowing(text: str) -> str:
    lines = _BLANKS.sub(" ", text).split("\n")
    return _EMPTY_LINES.sub("\n\n", "\n".join(line.strip() for line in lines))


def _kept(text: str) -> str:
    """Return a text that stands as it is, without the line break behind its tag."""
    plain = text.replace("\r\n", "\n").replace("\u00a0", " ").removeprefix("\n")
    return "\n".join(line.rstrip() for line in plain.removesuffix("\n").split("\n"))


def _pieces(page: str) -> Iterator[tuple[str, bool]]:
    """Yield the text between the tags and what stands for them, and whether its blanks count."""
    is_kept = False
    at, goal, small = 0, "", page.lower()
    if len(small) != len(page):  # letters that are two in small: places have to be the same
        small = page
    while found := _BEGIN.search(page, at):
        begin = found.start()
        yield html.unescape(page[at:begin]), is_kept
        tag = _TAG.match(page, begin + 1)
        name, is_closing = (tag[2].lower(), bool(tag[1])) if tag else ("", False)
        closer = "-->" if page.startswith("<!--", begin) else ">"
        end = page.find(closer, begin)
        at = end + len(closer)
        if name in _UNSHOWN and not is_closing and end >= 0:
            at = end = small.find(f"</{name}", at)
        if end < 0:
            return
        if name == "pre":
            is_kept = not is_closing
            yield "\n", False
        elif name in _BLOCKS:
            yield "\n", is_kept
        elif name == "a":
            yield goal if is_closing else "", is_kept
            goal = "" if is_closing else _goal(page, begin, at)
    yield html.unescape(page[at:]), is_kept


def _goal(page: str, begin: int, end: int) -> str:
    href = _HREF.search(page, begin, min(end, begin + _TAG_CHARS))
    return f" <{html.unescape(href[1])}>" if href else ""
