"""Patterns of paths: ``*`` and ``?`` within one name, ``**`` across folders, ``{a,b}`` for either.

Nothing else is special: a name like ``[id].tsx`` is found by itself. A new wildcard is a row of
``_MEANINGS``.
"""

import re
from typing import Final

PATTERN_CHARS_MAX: Final = 500

_TOKEN: Final = re.compile(r"(?<![^/{,])\*\*/|\*\*|.", re.DOTALL)
_WILD: Final = re.compile(r"[*?{]")
_MEANINGS: Final = {
    "**/": "(?:.*/)?",
    "**": ".*",
    "*": "[^/]*",
    "?": "[^/]",
    "{": "(?:",
}
_MEANINGS_IN_BRACES: Final = {**_MEANINGS, ",": "|", "}": ")"}


def compiled(pattern: str) -> re.Pattern[str]:
    """Return what fully matches the paths that are meant.

    Raises:
        ValueError: a brace stays open.
    """
    parts: list[str] = []
    depth = 0
    for token in _TOKEN.findall(pattern):
        meanings = _MEANINGS_IN_BRACES if depth else _MEANINGS
        parts.append(meanings.get(token, re.escape(token)))
        depth += (token == "{") - (token == "}" and depth > 0)  # noqa: S105 - no password
    if depth:
        raise ValueError("a { in the pattern has no }")
    return re.compile("".join(parts), re.DOTALL)


def split(pattern: str) -> tuple[str, str]:
    """Return the folder in which every match is, "" for any, and the pattern below it."""
    *folders, last = pattern.split("/")
    plain = next((at for at, name in enumerate(folders) if _WILD.search(name)), len(folders))
    folder = "/".join(folders[:plain])
    if plain and not folder:  # an absolute pattern with a wildcard right below the root
        folder = "/"
    return folder, "/".join([*folders[plain:], last])
