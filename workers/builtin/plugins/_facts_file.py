"""A list of facts in a file of prose: one section with a heading of its own, a fact in each item.

What people wrote stays as it is. Facts are compared without regard to case, spacing and the stop
at the end, with the items of the whole file.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from workers.builtin.plugins._memory_files import MEMORY_BYTES_MAX, locked_folder
from workers.builtin.tools._files import one_at_a_time, read_whole, replace

HEADING: Final = "## Remembered facts"
FACTS_MAX: Final = 200
"""Of the section; the oldest give way."""
FACT_CHARS_MAX: Final = 500

_ITEM: Final = re.compile(r"\s*(?:[-*•]|\d{1,3}[.)])\s+(\S.*)")
_NEXT_HEADING: Final = re.compile(r"#{1,2}\s")


def facts_in(text: str, facts_max: int) -> tuple[str, ...]:
    """Return the items of a list, at most so many, each on one line and once."""
    facts: dict[str, str] = {}
    for line in text.splitlines():
        if len(facts) == facts_max:
            break
        if (found := _ITEM.fullmatch(line)) and (fact := _clean(found[1])):
            facts.setdefault(_compared(fact), fact)
    return tuple(facts.values())


def remember(path: Path, facts: Sequence[str]) -> tuple[str, ...]:
    """Add the facts that are new to the file, and return them.

    Raises:
        OSError: the file cannot be read or written.
        ValueError: it is no text, or there is no room for the facts.
        ToolError: an earlier change does not end.
    """
    target = Path(os.path.realpath(path))
    with one_at_a_time(), locked_folder(target.parent):
        try:
            text = read_whole(target).decode()
        except FileNotFoundError:
            text = ""
        known = {_compared(found[1]) for line in text.split("\n") if (found := _ITEM.match(line))}
        new = tuple(fact for fact in facts if _compared(fact) not in known)
        if new:
            replace(target, with_facts(text, new).encode())
    return new


def with_facts(text: str, facts: Sequence[str]) -> str:
    """Return the text with the facts at the end of their section, the oldest gone if need be.

    Raises:
        ValueError: the text would be too long without any older fact.
    """
    cr = "\r" if "\r\n" in text else ""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()  # what is behind the last line end is no line
    plain = [line.removesuffix("\r") for line in lines]
    if HEADING not in plain:
        added = [*([""] if lines else []), HEADING, ""]
        plain += added
        lines += [line + cr for line in added]
    first = plain.index(HEADING) + 1
    after = next(
        (at for at in range(first, len(lines)) if _NEXT_HEADING.match(lines[at])), len(lines)
    )
    section, rest = lines[first:after], lines[after:]
    while section and not section[-1].strip():
        section.pop()
    section = [*(section or [cr]), *(f"- {fact}{cr}" for fact in facts)]
    excess = sum(map(_is_fact, section)) - FACTS_MAX
    while True:
        section = _without_oldest(section, excess)
        made = "\n".join([*lines[:first], *section, *([cr] if rest else []), *rest, ""])
        if len(made.encode()) <= MEMORY_BYTES_MAX:
            return made
        if sum(map(_is_fact, section)) <= len(facts):
            raise ValueError(f"with the facts it would be longer than {MEMORY_BYTES_MAX} bytes")
        excess = 1


def _without_oldest(section: list[str], count: int) -> list[str]:
    kept = []
    for line in section:
        if count > 0 and _is_fact(line):
            count -= 1
        else:
            kept.append(line)
    return kept


def _is_fact(line: str) -> bool:
    return line.startswith("- ")


def _clean(fact: str) -> str:
    printable = "".join(char if char.isprintable() else " " for char in fact)
    return " ".join(printable.split())[:FACT_CHARS_MAX].rstrip()


def _compared(fact: str) -> str:
    return _clean(fact).casefold().rstrip(".")
