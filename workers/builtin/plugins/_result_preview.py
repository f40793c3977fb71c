"""What a model sees of a text that is kept elsewhere: both its ends, and how to read on."""

import re
from typing import Final

HEAD_CHARS: Final = 2000
TAIL_CHARS: Final = 1000
LINE_CHARS_MAX: Final = 10_000
"""Of a kept text, so that ``read_file`` can show every line of it as a whole."""
READERS: Final = {
    "read_file": 'Read it in parts: read_file(path="{path}", offset=1, limit=200).',
    "grep": 'Search it: grep(pattern="...", path="{path}").',
}
"""What to say of each tool that can read a kept text."""
_LONG_LINE: Final = re.compile(rf"[^\n]{{{LINE_CHARS_MAX}}}(?=[^\n])")


def readable(text: str) -> str:
    """Return a text that can be read by lines: no NUL, and no line that is too long."""
    return _LONG_LINE.sub("\\g<0>\n", text.replace("\0", "\N{SYMBOL FOR NULL}"))


def preview(path: str, text: str, tools: tuple[str, ...]) -> str:
    """Return what the model sees in place of a kept text, with how ``tools`` read the rest."""
    head, tail = _head(text), _tail(text)
    how = [said.format(path=path) for tool, said in READERS.items() if tool in tools]
    lines = text.count("\n") + (not text.endswith("\n"))
    size = f"{len(text):,} characters in {lines:,} lines"
    return "\n".join(
        [
            f"The result is too long to be shown here: {size}. All of it is kept as {path}",
            *(how or ["No tool of this session reads it."]),
            "--- first part ---",
            head.removesuffix("\n"),
            f"--- {len(text) - len(head) - len(tail):,} characters left out ---",
            tail.removesuffix("\n"),
            "--- end ---",
        ]
    )


def _head(text: str) -> str:
    """Return the beginning, up to the end of a line if one ends in its second half."""
    at = text.rfind("\n", HEAD_CHARS // 2, HEAD_CHARS)
    return text[: at + 1 or HEAD_CHARS]


def _tail(text: str) -> str:
    """Return the end, from the beginning of a line if one begins in its first half."""
    first = len(text) - TAIL_CHARS
    at = text.find("\n", first, first + TAIL_CHARS // 2)
    return text[at + 1 or first :]
