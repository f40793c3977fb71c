"""What the command line writes: answers to standard output, everything else to standard error.

Everything that is printed passes here and is made ``neutral``, whoever wrote it: ids out of a file,
errors, tools, models. So no control sequence reaches a terminal but our own. Colour is for
terminals and obeys ``NO_COLOR``; click takes it out of everything else. Two threads write, the
command's and the one of Down notices.

What it prints and is given as text, JSON, arguments and times, is formed here too. Times may be any
number.

Standard output that takes no more ends the command with ``OutputLost``, wherever it is written:
by click, by rich, byte by byte. A pipe that nobody reads is a ``BrokenPipeError``, which ends it
quietly. Standard error that takes nothing is passed over: there is nobody left to report it to.
"""

import contextlib
import errno
import io
import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

import click
import msgspec

from cmdc_runtime.checked_struct import TIME_MS_MAX
from cmdc_runtime.lines import ESCAPED, neutral

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# --- the terminal ---------------------------------------------------------------------------------

_Row = TypeVar("_Row")

STYLES: Final[dict[str, dict[str, Any]]] = {  # Any: arguments of click.style
    "plain": {},
    "quiet": {"dim": True},
    "good": {"fg": "green"},
    "warning": {"fg": "yellow"},
    "bad": {"fg": "red"},
    "strong": {"bold": True},
    "kind": {"fg": "cyan"},
}
RICH_STYLES: Final = {
    name: " ".join(look["fg"] if key == "fg" else key for key in look)
    for name, look in STYLES.items()
}
"""The same in rich's words."""
PIPE_COLUMNS: Final = 10_000
"""Width of a table that no terminal shows: nothing is cut or wrapped."""


class Terminal:
    """Writes pieces, lines and notes so that they do not run into each other."""

    def __init__(self) -> None:
        """Begin at the start of a line."""
        self.is_live = sys.stdout.isatty()
        self._lock = threading.RLock()
        self._is_mid_line = False

    def piece(self, text: str, style: str = "plain") -> None:
        """Write a part of an answer, at once."""
        with self._lock:
            _write(text, style)
            if text:
                self._is_mid_line = not text.endswith("\n")

    def line(self, text: str, style: str = "plain") -> None:
        """Write a line to standard output."""
        with self._lock:
            self.end_line()
            _write(text, style, end="\n")

    def note(self, text: str, style: str = "quiet") -> None:
        """Write a line to standard error, about the answer and not of it."""
        with self._lock:
            self.end_line()
            _write(text, style, end="\n", is_note=True)

    def end_line(self) -> None:
        """Go to a new line, unless at the start of one."""
        with self._lock:
            if self._is_mid_line:
                self.piece("\n")

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[Callable[[str], None]]:
        """Turn a spinner meanwhile, where a person looks on; call the result to say what else."""
        if not sys.stderr.isatty():
            yield lambda _what: None
            return
        from rich.console import Console  # noqa: PLC0415 - slow, and not always needed
        from rich.text import Text  # noqa: PLC0415 - with it

        with Console(stderr=True, no_color=_is_colourless() or None).status(neutral(what)) as shown:
            yield lambda more: shown.update(Text(neutral(more)))


def show_table(columns: Mapping[str, Callable[[_Row], str]], rows: Iterable[_Row]) -> None:
    """Print a line for each row on standard output; ``columns`` say by their names what it has."""
    from rich.table import Table  # noqa: PLC0415 - slow, and not always needed

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    for one in rows:
        table.add_row(*(neutral(cell(one)) for cell in columns.values()))
    _console().print(table)


class StyledText(NamedTuple):
    """A part of a line, in one style."""

    text: str
    style: str = "plain"


Line = list[StyledText]


def terminal_columns() -> int | None:
    """Return how wide the terminal of standard output is, None where it is none."""
    return _console().width if sys.stdout.isatty() else None


def show_lines(lines: Iterable[Line]) -> None:
    """Print lines on standard output as they are; none is wrapped by us."""
    console = _console()
    for line in lines:
        console.print(_text_of(line), soft_wrap=True)


class Screen:
    """Lines at the end of standard output, shown anew in their place where a person looks on.

    Elsewhere they are printed each time.
    """

    def __init__(self) -> None:
        """Begin with nothing; it is shown inside ``with``."""
        from rich.live import Live  # noqa: PLC0415 - slow, and not always needed

        self._live = Live(console=_console(), auto_refresh=False, redirect_stderr=False)

    def __enter__(self) -> Self:
        """Begin to show."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave what was shown last."""
        self._live.stop()

    def show(self, lines: Iterable[Line]) -> None:
        """Show these in the place of what was shown before."""
        if not self._live.console.is_terminal:
            show_lines(lines)
            return
        from rich.console import Group  # noqa: PLC0415 - with the above

        self._live.update(Group(*map(_text_of, lines)), refresh=True)


def _text_of(line: Line) -> Any:  # Any: rich is loaded where it is used
    from rich.text import Text  # noqa: PLC0415 - slow, and not always needed

    pieces = ((neutral(piece.text), RICH_STYLES[piece.style]) for piece in line)
    return Text.assemble(*pieces, no_wrap=True, overflow="ignore")


class TreeRow(NamedTuple):
    """A line of a tree, or several, and what is below it."""

    text: str
    below: Iterable["TreeRow"] = ()
    style: str = "plain"


def show_tree(root: TreeRow) -> None:
    """Print what is below what on standard output; no line is wrapped or cut by us."""
    show_lines(_tree_lines(root, "", ""))


def _tree_lines(row: TreeRow, first: str, rest: str) -> Iterator[Line]:
    """Yield the lines of a row and of what is below; ``first`` and ``rest`` stand before them."""
    below = list(row.below)
    head, *more = row.text.split("\n")
    yield [StyledText(first, "quiet"), StyledText(head, row.style)]
    stem = "│   " if below else "    "
    for text in more:
        yield [StyledText(rest + stem, "quiet"), StyledText(text, row.style)]
    for number, one in enumerate(below, 1):
        is_last = number == len(below)
        yield from _tree_lines(
            one, f"{rest}{'└── ' if is_last else '├── '}", f"{rest}{'    ' if is_last else '│   '}"
        )


class Drawing:
    """Trees at the end of standard output, drawn again and again where a person looks on.

    Elsewhere nothing is shown but what is kept.
    """

    def __init__(self) -> None:
        """Begin with nothing; it is drawn inside ``with``."""
        from rich.live import Live  # noqa: PLC0415 - slow, and not always needed

        self._live = Live(console=_console(), auto_refresh=False, redirect_stderr=False)

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave what is kept, and nothing else."""
        self.show(())
        self._live.stop()

    def show(self, trees: Iterable[TreeRow]) -> None:
        """Draw these in the place of what was drawn before."""
        if self._live.console.is_terminal:
            from rich.console import Group  # noqa: PLC0415 - with the above

            self._live.update(Group(*map(_grown, trees)), refresh=True)

    def keep(self, tree: TreeRow) -> None:
        """Print a tree for good, above what is drawn."""
        self._live.console.print(_grown(tree), soft_wrap=True)


def _grown(root: TreeRow) -> Any:  # Any: rich is loaded where it is used
    """Return a tree for rich."""
    from rich.tree import Tree  # noqa: PLC0415 - slow, and not always needed

    def grow(branch: Tree, row: TreeRow) -> Tree:
        for one in row.below:
            grow(branch.add(_styled(one)), one)
        return branch

    return grow(Tree(_styled(root)), root)


def _styled(row: TreeRow) -> Any:  # Any: rich is loaded where it is used
    from rich.text import Text  # noqa: PLC0415 - slow, and not always needed

    return Text(neutral(row.text), style=RICH_STYLES[row.style])


def _console() -> Any:  # Any: rich is loaded where it is used
    """Return a rich console for tables on standard output."""
    from rich.console import Console  # noqa: PLC0415 - slow, and not always needed

    is_live = sys.stdout.isatty()
    return Console(
        force_terminal=is_live,
        no_color=_is_colourless() or not is_live,
        width=None if is_live else PIPE_COLUMNS,
        markup=False,
        highlight=False,
        emoji=False,
    )


def _write(text: str, style: str, *, end: str = "", is_note: bool = False) -> None:
    text = neutral(text)
    styled = click.style(text, **STYLES[style]) if text and STYLES[style] else text
    click.echo(styled + end, nl=False, err=is_note, color=False if _is_colourless() else None)


def _is_colourless() -> bool:
    return bool(os.environ.get("NO_COLOR"))


# --- words ----------------------------------------------------------------------------------------

_JSON_ESCAPES: Final = {code: json.dumps(chr(code))[1:-1] for code in ESCAPED}
"""What JSON lets pass as it is; it stands in strings only, where the escape means the same."""


def json_line(value: Any) -> str:  # Any: whatever msgspec encodes
    """Return ``value`` as one line of JSON that no terminal takes for commands."""
    return msgspec.json.encode(value).decode().translate(_JSON_ESCAPES)


def typed(argument: str) -> str:
    """Return a command-line argument with bytes that are no UTF-8 replaced."""
    return argument.encode(errors="surrogateescape").decode(errors="replace")


def moment(at_ms: int) -> str:
    """Return a wall time as people read it: UTC, to the second; a wild one as the number it is."""
    if not 0 <= at_ms <= TIME_MS_MAX:
        return f"{at_ms} ms since 1970"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def clock(at_ms: int) -> str:
    """Return the local time of day of a wall time; nothing of a wild one."""
    is_time = 0 <= at_ms <= TIME_MS_MAX
    return time.strftime("%H:%M:%S", time.localtime(at_ms / 1000)) if is_time else "--:--:--"


# --- standard streams -----------------------------------------------------------------------------

_CLOSED_MODES: Final = (os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)
"""How a standard stream that is closed is opened on the null device: input has an end, output
refuses what is written, and notes go nowhere."""


class OutputLost(click.ClickException):
    """Standard output cannot be written."""

    def __init__(self, error: OSError) -> None:
        """Say why."""
        super().__init__(f"standard output cannot be written: {error.strerror}")


class _Output(io.FileIO):
    """Standard output; once it is given up, whatever is still written is dropped."""

    is_given_up = False

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write some of ``data``, and wait where others made the stream non-blocking."""
        while not self.is_given_up:
            try:
                written = super().write(data)
            except BrokenPipeError:
                raise
            except OSError as error:
                raise OutputLost(error) from error
            if written is not None:  # it is, where the stream is full and does not block
                return written
            select.select((), (self,), ())
        return len(memoryview(data).cast("B"))


class _Notes(io.FileIO):
    """Standard error."""

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write some of ``data``, or drop it."""
        try:
            written = super().write(data)
        except OSError:
            written = None
        return len(memoryview(data).cast("B")) if written is None else written


def open_streams() -> None:
    """Put streams that keep the rules of this module in the place of Python's own."""
    for descriptor, mode in enumerate(_CLOSED_MODES):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, mode)  # the lowest that is free: this one
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(_Output(1, "w", closefd=False), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Notes(2, "w", closefd=False), sys.stderr)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115 - for good


def flush_output() -> None:
    """Have all that was printed on standard output written.

    Raises:
        OutputLost: it cannot be.
        BrokenPipeError: nobody reads it.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise OutputLost(error) from error


def give_up_output() -> None:
    """Let go of what could not be written, so that the end of the interpreter does not try."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _Output):
        raw.is_given_up = True


def _text(raw: io.FileIO, before: IO[str] | None) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(before, "encoding", "utf-8"),
        errors="backslashreplace",
        line_buffering=getattr(before, "line_buffering", False),
    )
