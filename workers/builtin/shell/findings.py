"""What reading shell text finds: simple commands with their redirections and assignments."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from workers.builtin.shell.scanner import Doubt
from workers.builtin.shell.words import Word

Direction: TypeAlias = Literal["read", "write", "both"]


@dataclass(frozen=True, slots=True)
class Redirect:
    """A file that a command reads or writes by ``<``, ``>`` and their kin."""

    direction: Direction
    target: Word


@dataclass(frozen=True, slots=True)
class Assignment:
    """A value that a variable is given, be it in front of a command or by ``for`` or ``export``."""

    name: str
    value: Word
    is_appended: bool = False
    """``name+=value``: it follows the value that the variable has."""


@dataclass(slots=True)
class Draft:
    """A simple command while it is read."""

    words: list[Word] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    stdin: str | None = None
    """The text of a here-document or here-string."""
    feeds: bool = False
    """Its output is, or may be, what another command reads or a part of its words."""
    fed: bool = False
    """It reads what another command writes."""
    is_redirected: bool = False

    @property
    def is_begun(self) -> bool:
        """Whether something of it has been read."""
        return self.is_redirected or bool(self.words or self.assignments)


@dataclass(slots=True)
class Findings:
    """What has been read so far, of the text and of all texts in it."""

    drafts: list[Draft] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    chars: int = 0
    words: int = 0

    def doubt(self, doubt: Doubt) -> None:
        """Note a doubt once."""
        if doubt not in self.doubts:
            self.doubts.append(doubt)
