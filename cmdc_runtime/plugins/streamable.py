r"""Regular expressions that can be decided while their text is still coming.

They are those of the ``regex`` library, in its version 0. What has no meaning for a text that
comes in pieces is refused: matching from the end, searching for the best match, or a match that
hangs on where the search began.

``probe_of`` makes of a pattern one that finds where it has to wait: searched with
``partial=True`` it matches at the first place from which matching runs into the end of the text
before it has succeeded or failed. It is the pattern as an atomic group, followed by what never
matches: the library then reports a partial match, and only that. One thing the library does not
count as running into the end: an assertion there, such as ``\b``. So each gets a look at the next
character put before it.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # 30 ms, for those alone who give patterns
    import regex

_PART: Final = (
    r"(?s)\\[pPN]\{[^}]*\}|\\."
    r"|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]"
    r"|\(\?\#[^)]*\)"
    r"|\(\?[A-Za-z]*x[A-Za-z]*:"
    r"|\(\?(?:R|0)\)|\(\*SKIP\)"
    r"|\{\s*(?:\d+\s*<=?\s*|\d+\s*)?[eids]\s*(?:[<+,:][^}]*)?\}"
    r"|\$"
)
"""What is looked at in a pattern: an escape, a set, a comment, an anchor, or what is refused."""
_COMMENT: Final = r"|#[^\n]*"
"""Besides, where a pattern is verbose."""
_REFUSED: Final = {
    r"\G": r"\G hangs on where a search began",
    r"\K": r"\K moves the start of a match: use a lookbehind",
    "(?R)": "(?R) repeats the whole pattern: repeat a group by its number",
    "(?0)": "(?0) repeats the whole pattern: repeat a group by its number",
    "(*SKIP)": "(*SKIP) hangs on where a search began",
}
_NEXT: Final = r"(?=(?s:.)|)"
"""Runs into the end where there is no next character, and is true in any case."""
_AFTER_LINE: Final = r"(?=\n?(?:(?s:.)|))"
"""The same, one line feed further: the end of a text may stand before its last one."""
_LOOKS: Final = {
    r"\b": _NEXT, r"\B": _NEXT, r"\m": _NEXT, r"\M": _NEXT,
    "$": _AFTER_LINE, r"\Z": _AFTER_LINE, r"\z": _AFTER_LINE,
}  # fmt: skip
"""Assertions about what comes next, each with the look that goes before it."""


def problem_of(pattern: str) -> str | None:
    """Say why a pattern cannot be used on text that comes in pieces, or None."""
    import regex  # noqa: PLC0415 - as above

    try:
        compiled = regex.compile(pattern)
    except (regex.error, OverflowError, RecursionError) as error:
        return f"it is no regular expression: {error}"
    if (refusal := _refusal(pattern, compiled.flags)) is not None:
        return refusal
    if compiled.fullmatch("") is not None:
        return "it matches the empty text: make it match a character at least"
    return None


def probe_of(pattern: str) -> "regex.Pattern[str]":
    """Return what finds the first place from which ``pattern`` runs into the end of a text."""
    import regex  # noqa: PLC0415 - as above

    flags = regex.compile(pattern).flags

    def looking(found: "regex.Match[str]") -> str:
        look = _LOOKS.get(found[0])
        return found[0] if look is None else f"(?:{look}{found[0]})"

    body = regex.sub(_part(flags), looking, pattern)
    # A verbose pattern may end with a comment, which ends with its line.
    close = "\n)" if flags & regex.VERBOSE else ")"
    return regex.compile(f"(?>{body}{close}(?!)")


def _refusal(pattern: str, flags: int) -> str | None:
    """Say what in a pattern has no meaning for a text that comes in pieces."""
    for flag, name in _refused_flags():
        if flags & flag:
            return f"the flag {name} is for text that is there as a whole"
    for part in _parts(pattern, flags):
        if part in _REFUSED:
            return _REFUSED[part]
        if part.startswith("(?") and part.endswith(":"):
            return "write (?x) at its start: it is for the pattern as a whole"
        if part.startswith("{"):
            return f"{part} allows for errors, and whether there are some shows at the end only"
    return None


def _refused_flags() -> tuple[tuple[int, str], ...]:
    import regex  # noqa: PLC0415 - as above

    return (
        (regex.REVERSE, "(?r)"),
        (regex.BESTMATCH, "(?b)"),
        (regex.ENHANCEMATCH, "(?e)"),
        (regex.POSIX, "(?p)"),
        (regex.WORD, "(?w)"),
        (regex.VERSION1, "(?V1)"),
    )


def _parts(pattern: str, flags: int) -> list[str]:
    import regex  # noqa: PLC0415 - as above

    return regex.findall(_part(flags), pattern)


def _part(flags: int) -> str:
    import regex  # noqa: PLC0415 - as above

    return _PART + _COMMENT if flags & regex.VERBOSE else _PART
