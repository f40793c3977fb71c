"""Unit files of systemd as text: filled in, signed, and told apart from what a person wrote.

What ``cmdc service install`` writes begins with two lines of its own, the second of which holds the
hash of all that follows. So a file that was changed since is known, without a record elsewhere.
Nothing here touches a file, a process or the clock.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final

from cmdc_runtime.errors import UsageError

_WRITTEN: Final = "# Written by `cmdc service install`; changes belong into a drop-in, see below."
_SIGNATURE: Final = re.compile(r"# sha256 of what follows: ([0-9a-f]{64})")


class Origin(Enum):
    """Who wrote a unit file."""

    INSTALLED = auto()  # ``cmdc service install``, and nobody has touched it
    CHANGED = auto()  # the same, and somebody has changed it since
    FOREIGN = auto()  # somebody else


def filled_in(template: str, settings: Mapping[str, str]) -> str:
    """Return the unit with each of the ``settings`` in place of the one that the template has."""
    lines = template.splitlines()
    for name, value in settings.items():
        (at,) = (number for number, line in enumerate(lines) if line.startswith(f"{name}="))
        lines[at] = f"{name}={value}"
    return "\n".join(lines) + "\n"


def signed(unit: str) -> str:
    """Return the unit below the lines that tell who wrote it."""
    return f"{_WRITTEN}\n# sha256 of what follows: {_hash(unit)}\n{unit}"


def origin_of(text: str) -> Origin:
    """Say who wrote the text of a unit file."""
    first, _, rest = text.partition("\n")
    second, _, unit = rest.partition("\n")
    signature = _SIGNATURE.fullmatch(second)
    if first != _WRITTEN or signature is None:
        return Origin.FOREIGN
    return Origin.INSTALLED if signature[1] == _hash(unit) else Origin.CHANGED


def command_line(words: Sequence[str]) -> str:
    """Return the words as a value of ``ExecStart=``, which reads quotes, % and $ in its own way.

    Raises:
        UsageError: a word that cannot be written in a unit file, or a program that cannot be named.

    """
    program = words[0]
    if not program.startswith("/") or "$" in program:
        raise UsageError(
            f"{program!r} cannot be the program of a unit: systemd wants an absolute path without $"
        )
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    if any(ord(character) < ord(" ") for character in word):
        raise UsageError(f"{word!r} cannot stand in a unit file: it has control characters")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if re.fullmatch(r"[\w./:=@%+,-]+", escaped) else f'"{escaped}"'


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
