"""Unified diffs, as ``diff -u`` and git write them, as changes of files.

The numbers of ``@@ -1,3 +1,4 @@`` are taken at their word, so that no line is read as what it is
not; a header without numbers is taken too, and its hunk goes on to the next header. What git says
of renames is done; of modes, that it is not done. Binary patches and copies are refused.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Final

from workers.builtin.patches.hunks import FileChange, Hunk, LineKind, PatchError, PatchLine

NOWHERE: Final = "/dev/null"
GIT: Final = "diff --git "

_NUMBERS: Final = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_KINDS: Final[dict[str, LineKind]] = {" ": "keep", "-": "remove", "+": "add"}
_TWO_QUOTED: Final = re.compile(r'("(?:[^"\\]|\\.)*") ("(?:[^"\\]|\\.)*")')
_NO_LINE_END: Final = "\\"
_SIGNATURE: Final = "-- "
"""Under it a mailed patch names its program."""
_ESCAPE: Final = re.compile(rb"\\([0-7]{3}|.)")
_ESCAPED: Final = {
    b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
}  # fmt: skip


def numbers_of(header: str) -> tuple[int, int, int] | None:
    """Return where a hunk stands in the file, and how many lines it has of the old and the new."""
    found = _NUMBERS.match(header)
    if found is None:
        return None
    start, old, _, new = found.groups()
    return int(start), 1 if old is None else int(old), 1 if new is None else int(new)


def unified(text: str) -> list[FileChange]:
    """Return what a unified diff says, in its order.

    Raises:
        PatchError: it is none, or says something that is not done.
    """
    return _Reader(text.removesuffix("\n").split("\n")).read()


@dataclass(slots=True)
class _Section:
    """What is known of a file of the diff."""

    old: str | None = None
    new: str | None = None
    at: int = 0
    """Its first line in the patch, from 1."""
    is_named: bool = False
    """The lines "---" and "+++" have come."""
    is_rename: bool = False
    is_new: bool = False
    is_deleted: bool = False
    notes: tuple[str, ...] = ()
    hunks: list[Hunk] = field(default_factory=list)

    def change(self) -> FileChange:
        """Return the change that it is."""
        old, new, hunks = self.old, self.new, tuple(self.hunks)
        if old is None or new is None:
            raise self._wrong('names no file; a file begins with "--- path" and "+++ path"')
        if self.is_new or old == NOWHERE:
            return FileChange("add", new, hunks, notes=self.notes)
        if self.is_deleted or new == NOWHERE:
            held = hunks or (Hunk((), self.at, line=0),)  # it says that there is nothing in it
            return FileChange("delete", old, held, notes=self.notes)
        if self.is_rename:
            return FileChange("move", old, hunks, new, self.notes)
        if old != new:
            raise self._wrong(
                f"names two files, {old} and {new}; name one, or say with git's lines"
                ' "rename from" and "rename to" that it is moved'
            )
        if not hunks:
            raise self._wrong(f"says nothing of what is to change in {new}")
        return FileChange("update", new, hunks, notes=self.notes)

    def _wrong(self, why: str) -> PatchError:
        return PatchError(f"what begins at line {self.at} of the patch {why}")


class _Reader:
    """Goes through the lines of a diff."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0
        self._sections: list[_Section] = []

    def read(self) -> list[FileChange]:
        """Return all changes."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith(GIT):
                self._begin_git(line)
            elif self._is_header(self._at):
                self._name_files()
            elif line.startswith("@@") and self._sections:
                self._sections[-1].hunks.append(self._hunk(line))
            elif self._sections and line[:1] in _KINDS and line != _SIGNATURE:
                raise PatchError(
                    f"line {self._at + 1} of the patch is no part of a hunk: the header of the hunk"
                    " says fewer lines than it has; correct its numbers, or write @@ without any"
                )
            else:  # words around the diff, or what git says of a file
                self._note(line)
                self._at += 1
        return [section.change() for section in self._sections]

    def _is_header(self, at: int) -> bool:
        names = self._lines[at : at + 2]
        return [name[:4] for name in names] == ["--- ", "+++ "]

    def _begin_git(self, line: str) -> None:
        old, new = _git_names(line.removeprefix(GIT))
        self._at += 1
        self._sections.append(_Section(old, new, at=self._at))

    def _name_files(self) -> None:
        old, new = (_name(line[4:]) for line in self._lines[self._at : self._at + 2])
        section = self._sections[-1] if self._sections else None
        if section is None or section.is_named or section.hunks:
            section = _Section(at=self._at + 1)
            self._sections.append(section)
        section.old, section.new = _without_prefixes(old, new)
        section.is_named = True
        self._at += 2

    def _note(self, line: str) -> None:
        if not self._sections or self._sections[-1].hunks:
            return
        section = self._sections[-1]
        if line.startswith(("Binary files ", "GIT binary patch")):
            raise PatchError("it changes a binary file, which no patch does here")
        if line.startswith(("copy from ", "copy to ")):
            raise PatchError("it copies a file, which no patch does here; add the copy instead")
        if line.startswith("rename from "):
            section.old, section.is_rename = _name(line.removeprefix("rename from ")), True
        elif line.startswith("rename to "):
            section.new, section.is_rename = _name(line.removeprefix("rename to ")), True
        section.is_new |= line.startswith("new file mode ")
        section.is_deleted |= line.startswith("deleted file mode ")
        if line.startswith(("new mode ", "new file mode ")) and not line.endswith(" 100644"):
            section.notes += (f"its mode, {line.rsplit(maxsplit=1)[-1]}, is not set",)

    # --- hunks ------------------------------------------------------------------------------------

    def _hunk(self, header: str) -> Hunk:
        at, numbers = self._at + 1, numbers_of(header)
        self._at += 1
        if numbers is None:
            return Hunk(tuple(self._uncounted()), at)
        start, old, new = numbers
        return Hunk(tuple(self._counted(at, old, new)), at, line=start)

    def _counted(self, at: int, old: int, new: int) -> list[PatchLine]:
        lines: list[PatchLine] = []
        while old > 0 or new > 0:
            if self._at >= len(self._lines) or (line := self._line()) is None:
                raise PatchError(
                    f"the hunk at line {at} of the patch ends before it has the lines that its"
                    " header says; correct the numbers, or write @@ without any"
                )
            old -= line.kind != "add"
            new -= line.kind != "remove"
            lines.append(self._ended(line))
        if old or new:
            raise PatchError(
                f"the hunk at line {at} of the patch has other lines than its header says; correct"
                " the numbers, or write @@ without any"
            )
        return lines

    def _uncounted(self) -> list[PatchLine]:
        lines: list[PatchLine] = []
        blank = 0
        while self._at < len(self._lines) and not self._ends():
            blank = blank + 1 if self._lines[self._at] == "" else 0
            line = self._line()
            if line is None:
                raise PatchError(
                    f"line {self._at} of the patch begins neither with a space nor with + or -"
                )
            lines.append(self._ended(line))
        return lines[: len(lines) - blank]  # blank lines between two hunks are no lines of a file

    def _ends(self) -> bool:
        line = self._lines[self._at]
        return line.startswith(("@@", GIT)) or line == _SIGNATURE or self._is_header(self._at)

    def _line(self) -> PatchLine | None:
        text = self._lines[self._at]
        self._at += 1
        kind = _KINDS.get(text[:1] or " ")  # editors cut the space of an empty line
        return None if kind is None else PatchLine(kind, text[1:].encode())

    def _ended(self, line: PatchLine) -> PatchLine:
        if self._at < len(self._lines) and self._lines[self._at].startswith(_NO_LINE_END):
            self._at += 1
            return replace(line, is_open=True)
        return line


# --- names ----------------------------------------------------------------------------------------


def _name(text: str) -> str:
    """Return a path as a header has it: in git's quotes, or up to a tab with the time behind."""
    text = text.removesuffix("\r")
    if not text.startswith('"'):
        return text.split("\t", 1)[0].rstrip()
    quoted, _, _ = text[1:].rpartition('"')
    return _unquoted(quoted)


def _unquoted(quoted: str) -> str:
    def meant(found: re.Match[bytes]) -> bytes:
        code = found[1]
        return bytes([int(code, 8) % 256]) if len(code) > 1 else _ESCAPED.get(code, code)

    return _ESCAPE.sub(meant, quoted.encode()).decode("utf-8", "replace")


def _git_names(text: str) -> tuple[str | None, str | None]:
    """Return both names of a line of git's, None where it does not separate them.

    They are the same but for their prefixes; what has been renamed is named again below.
    """
    text = text.removesuffix("\r")
    middle = len(text) // 2
    quoted = _TWO_QUOTED.fullmatch(text)
    given = quoted.groups() if quoted else (text[:middle], text[middle + 1 :])
    old, new = _without_prefixes(*(_name(name) for name in given))
    return (old, new) if old == new else (None, None)


def _without_prefixes(old: str, new: str) -> tuple[str, str]:
    """Return both names without "a/" and "b/" where both have them, or are nowhere."""
    if not all(
        name == NOWHERE or name.startswith(prefix) for name, prefix in ((old, "a/"), (new, "b/"))
    ):
        return old, new
    return tuple(name if name == NOWHERE else name[2:] for name in (old, new))  # type: ignore[return-value]  # two
