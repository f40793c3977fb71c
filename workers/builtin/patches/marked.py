"""The form between "*** Begin Patch" and "*** End Patch", as changes of files.

A file has a line of its own: "*** Add File: path" with lines that begin with "+", "*** Delete File:
path", or "*** Update File: path", where "*** Move to: path" may follow, with hunks. A hunk begins
with "@@", behind which a line of the file may stand that comes before it; several such lines lead
to a place step by step. "*** End of File" says that a hunk ends where the file does.
"""

from typing import Final

from workers.builtin.patches.hunks import FileChange, Hunk, LineKind, PatchError, PatchLine
from workers.builtin.patches.unified import numbers_of

BEGIN: Final = "*** Begin Patch"
END: Final = "*** End Patch"
_ADD: Final = "*** Add File: "
_DELETE: Final = "*** Delete File: "
_UPDATE: Final = "*** Update File: "
_MOVE: Final = "*** Move to: "
_LAST: Final = "*** End of File"
_MARK: Final = "*** "
_KINDS: Final[dict[str, LineKind]] = {" ": "keep", "-": "remove", "+": "add"}


def marked(text: str) -> list[FileChange]:
    """Return what a patch of this form says, in its order.

    Raises:
        PatchError: it is none.
    """
    lines = text.split("\n")
    first = next(at for at, line in enumerate(lines) if line.strip())
    ends = [at for at, line in enumerate(lines) if line.rstrip() == END]
    if not ends:
        raise PatchError(f'it has no line "{END}": it may have been cut off')
    if any(line.strip() for line in lines[ends[0] + 1 :]):
        raise PatchError(f'something stands behind "{END}" at line {ends[0] + 1} of the patch')
    return _Reader(lines[: ends[0]], first + 1).read()


class _Reader:
    """Goes through the lines of a patch."""

    def __init__(self, lines: list[str], at: int) -> None:
        self._lines = lines
        self._at = at
        self._filled = -1
        """The first line from here on that is not blank."""

    def read(self) -> list[FileChange]:
        """Return all changes."""
        changes: list[FileChange] = []
        while (line := self._peek()) is not None:
            if not line.strip():
                self._at += 1
            elif line.startswith(_ADD):
                path = self._path(_ADD)
                changes.append(FileChange("add", path, self._added(path)))
            elif line.startswith(_DELETE):
                changes.append(FileChange("delete", self._path(_DELETE)))
            elif line.startswith(_UPDATE):
                changes.append(self._updated(self._path(_UPDATE)))
            else:
                raise self._unreadable(f'expected "{_ADD.strip()}", "{_UPDATE.strip()}" or so')
        return changes

    def _peek(self) -> str | None:
        return self._lines[self._at] if self._at < len(self._lines) else None

    def _path(self, mark: str) -> str:
        path = self._lines[self._at].removeprefix(mark).strip()
        self._at += 1
        if not path:
            raise PatchError(f"line {self._at} of the patch names no file")
        return path

    def _added(self, path: str) -> tuple[Hunk, ...]:
        lines, at = list[PatchLine](), self._at
        while (line := self._peek()) is not None and not line.startswith(_MARK):
            if line.startswith("+") or (not line.strip() and self._has_more()):
                lines.append(PatchLine("add", line[1:].encode()))
            elif line.strip():
                raise self._unreadable(f'each line of the new file {path} begins with "+"')
            self._at += 1
        return (Hunk(tuple(lines), at),)

    def _updated(self, path: str) -> FileChange:
        line, to = self._peek(), None
        if line is not None and line.startswith(_MOVE):
            to = self._path(_MOVE)
        hunks: list[Hunk] = []
        while (line := self._peek()) is not None and not line.startswith(_MARK):
            if line.strip() or self._has_more():
                hunks.append(self._hunk())
            else:
                self._at += 1
        if not hunks and to is None:
            raise PatchError(f"it says nothing of what is to change in {path}")
        return FileChange("update" if to is None else "move", path, tuple(hunks), to)

    def _has_more(self) -> bool:
        """Say whether a line of the same file follows the blank lines that stand here."""
        if self._filled < self._at:
            rest = range(self._at, len(self._lines))
            self._filled = next((at for at in rest if self._lines[at].strip()), len(self._lines))
        filled = self._filled
        return filled < len(self._lines) and not self._lines[filled].startswith((_MARK, "@@"))

    def _hunk(self) -> Hunk:
        at, anchors, number = self._at + 1, list[bytes](), None
        while (line := self._peek()) is not None and line.startswith("@@"):
            numbers, anchor = numbers_of(line), line[2:].strip()
            if numbers is not None:
                number = numbers[0]
            elif anchor.strip("@ "):
                anchors.append(anchor.encode())
            self._at += 1
        lines = self._body()
        is_last = self._peek() is not None and self._lines[self._at].rstrip() == _LAST
        if is_last:
            self._at += 1
        if not lines:
            raise PatchError(f"the hunk at line {at} of the patch has no lines")
        return Hunk(tuple(lines), at, number, tuple(anchors), is_last)

    def _body(self) -> list[PatchLine]:
        lines: list[PatchLine] = []
        while (line := self._peek()) is not None and not line.startswith(("@@", _MARK)):
            if not line.strip("\r") and not self._has_more():
                break
            kind = _KINDS.get(line[:1] if line.strip("\r") else " ")
            if kind is None:
                raise self._unreadable('expected a space, "+" or "-" before the line')
            lines.append(PatchLine(kind, line[1:].encode()))
            self._at += 1
        return lines

    def _unreadable(self, why: str) -> PatchError:
        return PatchError(f"line {self._at + 1} of the patch: {why}")
