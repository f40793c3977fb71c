"""What a page says: text as it is, HTML without its markup. Pure.

It takes a time that grows as the page does, whatever the page is: each place is looked at once, and
what is left open ends with the page.
"""

import codecs
import html
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
        *("hr", "li", "main", "nav", "ol", "p", "pre", "section", "table", "td", "th", "title"),
        *("tr", "ul"),
    )
)
_BLANKS: Final = re.compile(r"[ \t\r\f\v\u00a0]+")


def text_of(body: bytes, kind: str, charset: str) -> str | None:
    """Return the text of a body with this media type, None where it is no text."""
    if not _TEXT.fullmatch(kind) and kind not in _HTML:
        return None
    try:
        text = body.decode(codecs.lookup(charset).name, errors="replace")
    except (LookupError, ValueError):  # no such charset, or none of texts
        text = body.decode("utf-8", errors="replace")
    return shown(text) if kind in _HTML else text


def shown(page: str) -> str:
    """Return what a page in HTML shows: each block on a line, with the addresses of its links."""
    text = _BLANKS.sub(" ", "".join(_pieces(page)))
    lines = [line.strip() for line in text.split("\n")]
    kept = [line for at, line in enumerate(lines) if line or (at and lines[at - 1])]
    return "\n".join(kept).strip()


def _pieces(page: str) -> Iterator[str]:
    """Yield the text between the tags, and what stands for them."""
    at, goal, small = 0, "", page.lower()
    if len(small) != len(page):  # letters that are two in small: places have to be the same
        small = page
    while found := _BEGIN.search(page, at):
        begin = found.start()
        yield html.unescape(page[at:begin])
        tag = _TAG.match(page, begin + 1)
        name, is_closing = (tag[2].lower(), bool(tag[1])) if tag else ("", False)
        closer = "-->" if page.startswith("<!--", begin) else ">"
        end = page.find(closer, begin)
        at = end + len(closer)
        if name in _UNSHOWN and not is_closing and end >= 0:
            at = end = small.find(f"</{name}", at)
        if end < 0:
            return
        if name in _BLOCKS:
            yield "\n"
        elif name == "a":
            yield goal if is_closing else ""
            goal = "" if is_closing else _goal(page, begin, at)
    yield html.unescape(page[at:])


def _goal(page: str, begin: int, end: int) -> str:
    href = _HREF.search(page, begin, min(end, begin + _TAG_CHARS))
    return f" <{html.unescape(href[1])}>" if href else ""
