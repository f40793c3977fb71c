"""The page: prose from ``prose``, and between it what the incidents have shown.

A line ``{{name: part part}}`` of the prose is the place of a code block: what the incident ``name``
of ``PLAYS`` has shown, in these parts. The page is written from both. Its blocks are also read back
from it, known by the commands in them: so they can be compared, and kept where this machine cannot
stage an incident.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.incidents import shown
from scripts.incidents.playbill import Key, command

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "discussion" / "why-did-my-session-die.md"
PROSE: Final = Path(__file__).with_name("prose")
WRITE: Final = "python -m scripts.incidents"
NOTICE: Final = (
    f"<!-- Written by `{WRITE}`, which plays every incident: edit scripts/incidents/prose. -->\n\n"
)

_PLACE: Final = re.compile(r"^\{\{(?P<name>\w+): (?P<parts>[\w ]+)\}\}$", re.MULTILINE)
_BLOCK: Final = re.compile(r"^```console\n.*?^```$", re.MULTILINE | re.DOTALL)
_MACHINE: Final = re.compile(r"^ *all its processes together .* at most$\n?", re.MULTILINE)
"""A line that is there only where cgroups are."""

Blocks = dict[str, str]
"""Code blocks by their places, as these stand in the prose."""


class PageError(Exception):
    """The page does not fit its prose."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A block of the page, and what its incident shows today."""

    place: str
    old: str
    new: str


def prose() -> str:
    """Return the whole text with its places."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(PROSE.glob("*.md"))]
    return NOTICE + "\n".join(texts)


def places() -> dict[str, list[Key]]:
    """Return every place of the prose, with the parts of an incident that belong there."""
    return {
        found[0]: [(found["name"], part) for part in found["parts"].split()]
        for found in _PLACE.finditer(prose())
    }


def blocks(shown_parts: Mapping[Key, str]) -> Blocks:
    """Return the blocks of those places whose incidents were played."""
    return {
        place: shown.block(shown_parts[key] for key in keys)
        for place, keys in places().items()
        if all(key in shown_parts for key in keys)
    }


def composed(found: Mapping[str, str]) -> str:
    """Return the page with these blocks.

    Raises:
        PageError: one is missing.
    """
    missing = [place for place in places() if place not in found]
    if missing:
        raise PageError(f"nothing is known for {', '.join(missing)}: run `{WRITE}`")
    return _PLACE.sub(lambda place: found[place[0]], prose())


def read() -> str:
    """Return the page as it is, empty if there is none."""
    return PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""


def read_back() -> Blocks:
    """Return those blocks of the page as it is that have a place in the prose."""
    known = {_commands(block): block for block in (found[0] for found in _BLOCK.finditer(read()))}
    wanted = {place: tuple(f"$ {command(key)}" for key in keys) for place, keys in places().items()}
    return {place: known[words] for place, words in wanted.items() if words in known}


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[Difference]:
    """Return where new blocks differ from those of the page."""
    return [
        Difference(place, old.get(place, ""), block)
        for place, block in new.items()
        if _comparable(old.get(place, "")) != _comparable(block)
    ]


def is_stale() -> bool:
    """Say whether the page is made of other prose, or lacks a block."""
    try:
        return read() != composed(read_back())
    except PageError:
        return True


def _commands(block: str) -> tuple[str, ...]:
    return tuple(line for line in block.splitlines() if line.startswith("$ "))


def _comparable(block: str) -> str:
    return _MACHINE.sub("", block)
