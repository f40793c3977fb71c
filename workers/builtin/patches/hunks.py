"""What a patch says of files, and the content of a file once that is done.

Lines are compared byte by byte without their ends, so a file keeps its own (LF, or CR LF), its
encoding and its byte order mark. A hunk that says at which line it stands is looked for there, and
then, as one that says nothing, in the rest of the file, where it has to be the only one; behind an
anchor the first one is meant. If lines are not found as they are, they are looked for once more
without the white space at their ends. Nothing else is guessed: a file that is not as the patch has
it is a ``PatchError``.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

ChangeKind = Literal["add", "update", "delete", "move"]
LineKind = Literal["keep", "remove", "add"]

PLACES_MAX: Final = 5
"""So many places of lines that are not unique are named."""
SHOWN_CHARS_MAX: Final = 80
"""Of a line in an error."""
LINES_LOOKED_UP_MAX: Final = 200
"""Of a hunk that is not found: so many are looked for one by one, to name one that is missing."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_WHITE: Final = b" \t\r\f\v"


class PatchError(ValueError):
    """The patch can't be read, or a file is not as it has it; the text is for the model."""


@dataclass(frozen=True, slots=True)
class PatchLine:
    """A line of a hunk, without its end."""

    kind: LineKind
    text: bytes
    is_open: bool = False
    """No line end follows in the file."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines that stand together."""

    lines: tuple[PatchLine, ...]
    at: int
    """Its line in the patch, from 1, for errors."""
    line: int | None = None
    """Where it stands in the file, from 1; of one that removes and keeps nothing, the line that it
    stands behind. None: it does not say."""
    anchors: tuple[bytes, ...] = ()
    """Lines that stand before it, in their order, each somewhere behind the one before."""
    is_last: bool = False
    """It ends where the file does."""

    @property
    def old(self) -> list[bytes]:
        """Return the lines that the file has."""
        return [line.text for line in self.lines if line.kind != "add"]


@dataclass(frozen=True, slots=True)
class FileChange:
    """What becomes of one file."""

    kind: ChangeKind
    path: str
    hunks: tuple[Hunk, ...] = ()
    """Of a deletion the content as the patch has it, where it says so."""
    to: str | None = None
    """Of a move, the path afterwards."""
    notes: tuple[str, ...] = ()
    """What the patch says and nobody does."""

    def count(self, kind: LineKind) -> int:
        """Return how many lines of a kind there are."""
        return sum(line.kind == kind for hunk in self.hunks for line in hunk.lines)


def changed(change: FileChange, content: bytes | None) -> bytes | None:
    """Return what a file holds afterwards, None for one that is not there.

    Of a move that is what stands at its new path.

    Raises:
        PatchError: the file is not as the patch has it.
    """
    if change.kind == "add":
        if content is not None:
            raise PatchError("it is there already; update it, or delete it first")
        return applied(b"", change.hunks)
    if content is None:
        raise PatchError("there is no such file")
    if change.kind == "delete" and not change.hunks:
        return None
    after = applied(content, change.hunks)
    if change.kind == "delete":
        if after:
            raise PatchError("it holds more than the patch deletes")
        return None
    if after == content and change.kind == "update":
        raise PatchError("the patch changes nothing in it")
    return after


def applied(content: bytes, hunks: Sequence[Hunk]) -> bytes:
    """Return a content with hunks applied, each behind the one before.

    Raises:
        PatchError: one is not found, or found more than once.
    """
    file = _File(content)
    for hunk in hunks:
        file.apply(hunk)
    return file.content()


@dataclass(slots=True)
class _Index:
    """The lines of a file in one form, in which rows of lines are found in time that is linear."""

    rows: bytes
    line: int = 0
    offset: int = 0
    """Where ``line`` begins in ``rows``: there stands the line feed before it."""

    @classmethod
    def of(cls, lines: Sequence[bytes]) -> "_Index":
        return cls(b"\n".join([b"", *lines, b""]))

    def places(
        self, lines: Sequence[bytes], start: int, most: int, *, ends: bool = True
    ) -> list[int]:
        """Return where rows of lines begin, at most so many, from line ``start`` on.

        ``start`` is never before that of an earlier call. Without ``ends`` more may stand behind
        the last line.
        """
        self._go_to(start)
        wanted = b"\n".join([b"", *lines, b""] if ends else [b"", *lines])
        line, offset, found = self.line, self.offset, list[int]()
        at = self.rows.find(wanted, offset)
        while at >= 0 and len(found) < most:
            line, offset = line + self.rows.count(b"\n", offset, at), at
            found.append(line)
            at = self.rows.find(wanted, at + 1)
        return found

    def _go_to(self, start: int) -> None:
        while self.line < start:
            self.offset = self.rows.index(b"\n", self.offset + 1)
            self.line += 1


@dataclass(slots=True)
class _File:
    """A file that is being changed, from its top to its end."""

    original: bytes
    texts: list[bytes] = field(init=False)
    ends: list[bytes] = field(init=False)
    mark: bytes = field(init=False)
    line_end: bytes = field(init=False)
    """What stands behind a line that is added."""
    done: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Lines of the new content with their ends."""
    next_line: int = 0
    """The first line of the old content that no hunk has had."""
    drift: int = 0
    """How many lines later than it says the last hunk was found."""
    _exact: _Index | None = None
    _loose: _Index | None = None
    _bare: _Index | None = None

    def __post_init__(self) -> None:
        self.mark = _BYTE_ORDER_MARK if self.original.startswith(_BYTE_ORDER_MARK) else b""
        rows = self.original[len(self.mark) :].split(b"\n")
        is_open = rows[-1] != b""
        if not is_open:
            rows.pop()
        self.texts = [row.removesuffix(b"\r") for row in rows]
        self.ends = [b"\r\n" if row.endswith(b"\r") else b"\n" for row in rows]
        if is_open:  # the last line has no end, and what looks like the half of one is text
            self.texts[-1], self.ends[-1] = rows[-1], b""
        counted = Counter(self.ends)
        self.line_end = b"\r\n" if counted[b"\r\n"] > counted[b"\n"] else b"\n"

    def content(self) -> bytes:
        """Return the new content; what no hunk has had stays."""
        self._keep_up_to(len(self.texts))
        rows = [*self.done]
        for at, (text, end) in enumerate(rows[:-1]):
            if not end:
                rows[at] = (text, self.line_end)
        return self.mark + b"".join(text + end for text, end in rows)

    def apply(self, hunk: Hunk) -> None:
        """Do what a hunk says at its place."""
        place = self._place_of(hunk)
        if hunk.line is not None:
            self.drift = place - _stated(hunk)
        self._keep_up_to(place)
        for line in hunk.lines:
            if line.kind == "keep":
                self._keep_up_to(self.next_line + 1)
            elif line.kind == "remove":
                self.next_line += 1
            else:
                text = line.text.removesuffix(b"\r") if self.original else line.text
                self.done.append((text, b"" if line.is_open else self.line_end))

    def _keep_up_to(self, line: int) -> None:
        kept = slice(self.next_line, line)
        self.done += zip(self.texts[kept], self.ends[kept], strict=True)
        self.next_line = line

    # --- places -----------------------------------------------------------------------------------

    def _place_of(self, hunk: Hunk) -> int:
        start = self.next_line
        for anchor in hunk.anchors:
            start = self._anchored(hunk, anchor, start)
        old = [text.removesuffix(b"\r") for text in hunk.old]
        if not old:
            return self._insertion(hunk, start)
        for is_loose in (False, True):
            place = self._found(hunk, old, start, is_loose=is_loose)
            if place is not None:
                return place
        raise PatchError(self._not_found(hunk, old))

    def _found(self, hunk: Hunk, old: Sequence[bytes], start: int, *, is_loose: bool) -> int | None:
        wanted = [text.rstrip(_WHITE) for text in old] if is_loose else old
        if hunk.is_last:
            place = len(self.texts) - len(old)
            return place if place >= start and self._is_at(wanted, place, is_loose) else None
        if hunk.line is not None:
            for place in (_stated(hunk) + self.drift, _stated(hunk)):
                if place >= start and self._is_at(wanted, place, is_loose):
                    return place
        index = self._loosely() if is_loose else self._exactly()
        places = index.places(wanted, start, 1 if hunk.anchors else PLACES_MAX + 1)
        if len(places) > 1:
            raise PatchError(_not_unique(hunk, places))
        return places[0] if places else None

    def _is_at(self, wanted: Sequence[bytes], place: int, is_loose: bool) -> bool:  # noqa: FBT001
        there = self.texts[place : place + len(wanted)]
        return (there if not is_loose else [one.rstrip(_WHITE) for one in there]) == list(wanted)

    def _insertion(self, hunk: Hunk, start: int) -> int:
        if hunk.is_last or not self.texts:
            return len(self.texts)
        if hunk.anchors:
            return start + 1
        if hunk.line is None:
            raise PatchError(
                f"the hunk at line {hunk.at} of the patch only adds lines, and does not say where;"
                " give lines around the place as context"
            )
        place = hunk.line + self.drift
        if not self.next_line <= place <= len(self.texts):
            raise PatchError(
                f"the hunk at line {hunk.at} of the patch stands behind line {hunk.line}, which is"
                f" none of the file's {len(self.texts)}, or is part of an earlier hunk"
            )
        return place

    def _anchored(self, hunk: Hunk, anchor: bytes, start: int) -> int:
        if self._bare is None:
            self._bare = _Index.of([text.strip() for text in self.texts])
        wanted = [anchor.strip()]
        places = self._bare.places(wanted, start, 1) or self._bare.places(
            wanted, start, 1, ends=False
        )
        if not places:
            raise PatchError(
                f"the hunk at line {hunk.at} of the patch: no line {_shown(anchor)} stands"
                f" {'in the file' if not start else f'behind line {start}'}"
            )
        return places[0]

    def _exactly(self) -> _Index:
        if self._exact is None:
            self._exact = _Index.of(self.texts)
        return self._exact

    def _loosely(self) -> _Index:
        if self._loose is None:
            self._loose = _Index.of([text.rstrip(_WHITE) for text in self.texts])
        return self._loose

    def _not_found(self, hunk: Hunk, old: Sequence[bytes]) -> str:
        where = f"the hunk at line {hunk.at} of the patch"
        there = set(self.texts) | {text.rstrip(_WHITE) for text in self.texts}
        missing = (one for one in old[:LINES_LOOKED_UP_MAX] if one.rstrip(_WHITE) not in there)
        absent = next(missing, None)
        if absent is not None:
            return f"{where} does not fit: the file has no line {_shown(absent)}; read it again"
        if hunk.is_last:
            return f"{where} does not fit: its lines do not end the file; read it again"
        behind = "" if not self.next_line else f" behind line {self.next_line}"
        return f"{where} does not fit: its lines do not stand together{behind}; read the file again"


def _stated(hunk: Hunk) -> int:
    """Return the place that a hunk says, from 0; what it only adds stands behind its line."""
    line = hunk.line or 0
    return line if not hunk.old else max(line - 1, 0)


def _not_unique(hunk: Hunk, places: Sequence[int]) -> str:
    lines = ", ".join(str(place + 1) for place in places[:PLACES_MAX])
    more = " and others" if len(places) > PLACES_MAX else ""
    return (
        f"the hunk at line {hunk.at} of the patch fits more than once, at lines {lines}{more};"
        " give more lines around the place"
    )


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    return repr(text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…")
