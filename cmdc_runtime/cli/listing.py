"""``cmdc ps`` and ``cmdc tree``: what lives, what it waits for, and what has ended.

Rules: a cell is printed whole, so that whatever is shown can be typed or searched for. Where a
table is wider than the terminal, columns are left out, those with the highest ``rank`` first; a
name too long for its column stands on a line of its own. A pipe gets every column that says
something. To add a column: its row in ``COLUMNS``.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from cmdc_runtime.cli.choices import address_option, json_option, running_client, running_engine
from cmdc_runtime.cli.terminal import (
    Line,
    Screen,
    StyledText,
    Terminal,
    TreeRow,
    json_line,
    show_lines,
    show_tree,
    terminal_columns,
)
from cmdc_runtime.clock import now_ms
from cmdc_runtime.lines import duration, neutral, one_line

if TYPE_CHECKING:
    from cmdc_runtime.client.engine import ClientEngine
    from cmdc_runtime.commands import Status
    from cmdc_runtime.requests import TreeNode

# --- what a session waits for ---------------------------------------------------------------------


def waits_for(status: "Status") -> str:
    """Return what a person has to do before a session goes on, "" where nothing is to be done."""
    parts = [
        _counted(len(status.pending_approvals), "approval"),
        _counted(len(status.pending_questions), "question"),
        "budget" if status.spent_limit else "",
    ]
    return ", ".join(filter(None, parts))


def _counted(many: int, what: str) -> str:
    return "" if not many else what if many == 1 else f"{many} {what}s"


def state_of(status: "Status") -> str:
    """Return the state, with what a person is waited for."""
    wanted = waits_for(status)
    return f"{status.state}, waits: {wanted}" if wanted else status.state


_STYLES: Final = {
    "idle": "plain",
    "running": "good",
    "streaming": "good",
    "executing_tools": "good",
    "starting": "warning",
    "restarting": "warning",
    "stopping": "warning",
    "hibernated": "quiet",
    "ended": "quiet",
    "parked": "bad",
    "unresponsive": "bad",
}


def style_of(status: "Status") -> str:
    """Return the style of a session's state; what waits for a person stands out."""
    return "warning" if waits_for(status) else _STYLES.get(status.state, "plain")


# --- the table ------------------------------------------------------------------------------------

NAME_COLUMNS_MAX: Final = 28
"""Of the first column on a terminal; a longer name has a line of its own."""
_GAP: Final = 2
_INDENT: Final = "  "


class Column(NamedTuple):
    """One column; of two that do not both fit that with the higher ``rank`` goes, 0 never.

    An ``optional`` one is there where a row has something in it. ``place`` is where it is shown:
    everywhere, or on a terminal alone, or with ``--all`` alone.
    """

    name: str
    cell: Callable[["Status"], str]
    rank: int = 0
    optional: bool = False
    place: str = "everywhere"
    style: Callable[["Status"], str] = lambda _: "plain"


def _left(shown: Callable[["Status"], str]) -> Callable[["Status"], str]:
    """Show of a session what its agent reports, ``-`` where none has: it names its model always."""
    return lambda one: shown(one) if one.model else "-"


def _since(one: "Status") -> str:
    return f"{duration(max(0, now_ms() - one.active_at_ms))} ago" if one.active_at_ms else "-"


# fmt: off
COLUMNS: Final = (
    Column("SESSION",  lambda one: one.session_id),
    Column("STATE",    state_of, style=style_of),
    Column("PID",      lambda one: "-" if one.pid is None else str(one.pid), 6),
    Column("MODEL",    _left(lambda one: one_line(one.model)), 3),
    Column("TURNS",    _left(lambda one: str(one.turns)), 8),
    Column("QUEUED",   _left(lambda one: str(one.queued_prompts)), 10),
    Column("TOKENS",   _left(lambda one: str(one.total_tokens)), 2),
    Column("COST",     lambda one: "-" if one.cost_usd is None else f"${one.cost_usd:.4f}", 5),
    Column("RESTARTS", lambda one: str(one.restarts), 9),
    Column("UP",       _left(lambda one: duration(one.uptime_ms)), 7),
    Column("ACTIVE",   _since, 4, place="terminal"),
    Column("GROUP",    lambda one: one_line(one.group_id or "-"), 11, optional=True),
    Column("PARENT",   lambda one: one.parent_id or "-", 12, optional=True),
    Column("REASON",   lambda one: "-" if one.reason is None else one_line(one.reason), 1,
           place="all"),
)
# fmt: on


@dataclass(frozen=True, slots=True)
class SessionTable:
    """A table of sessions, as ``ps`` shows it; ``width`` None is a pipe, where nothing is cut."""

    found: Sequence["Status"]
    is_all: bool = False
    width: int | None = None

    def lines(self) -> list[Line]:
        """Return the lines, the head first."""
        columns = [one for one in COLUMNS if self._is_shown(one)]
        while self.width is not None and _width(self._widths(columns)) > self.width:
            least = max(columns, key=lambda one: one.rank)
            if not least.rank:
                break
            columns.remove(least)
        widths = self._widths(columns)
        head = [StyledText(one.name, "strong") for one in columns]
        rows = [
            [StyledText(neutral(one.cell(row)), one.style(row)) for one in columns]
            for row in self.found
        ]
        return [_joined(head, widths), *(line for row in rows for line in self._row(row, widths))]

    def _is_shown(self, column: Column) -> bool:
        if column.optional and all(column.cell(one) == "-" for one in self.found):
            return False
        places = {"everywhere": True, "terminal": self.width is not None, "all": self.is_all}
        return places[column.place]

    def _widths(self, columns: Sequence[Column]) -> list[int]:
        """Return how wide each column is; a long name of a session has a line of its own."""
        widths = []
        for column in columns:
            cells = [column.name, *(neutral(column.cell(one)) for one in self.found)]
            widths.append(max(len(cell) for cell in cells if self._fits(column, cell)))
        return widths

    def _fits(self, column: Column, cell: str) -> bool:
        is_name = self.width is not None and column is COLUMNS[0]
        return not is_name or len(cell) <= NAME_COLUMNS_MAX

    def _row(self, pieces: Line, widths: Sequence[int]) -> list[Line]:
        if self._fits(COLUMNS[0], pieces[0].text):
            return [_joined(pieces, widths)]
        return [[pieces[0]], _joined([StyledText(_INDENT), *pieces[1:]], widths)]


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _joined(pieces: Sequence[StyledText], widths: Sequence[int]) -> Line:
    line: Line = []
    for piece, width in zip(pieces, widths, strict=True):
        line += [piece, StyledText(" " * (width + _GAP - len(piece.text)))]
    return line[:-1]


WATCH_S: Final = 2.0
"""Between two looks of ``ps --watch``."""


@click.command()
@click.option("--all", "is_all", is_flag=True, help="Also what is parked, and what has ended.")
@click.option(
    "--watch", "is_watch", is_flag=True, help=f"Look again every {WATCH_S:g} s; Ctrl-C ends it."
)
@json_option
@address_option
def ps(*, is_all: bool, is_watch: bool, as_json: bool, address: str | None) -> None:
    """List the live sessions; with --json as one array.

    STATE says what a person is waited for: an approval (`cmdc approve SESSION`), a question
    (`cmdc respond`), or the budget, which the next request would break.

    A parked session is one that the daemon can't go on with: all that is kept of it stays until
    `cmdc resume` goes on with it or `cmdc stop` ends it. The column REASON says why. Of what ended,
    also before the daemon began, the newest are shown while the journal keeps them (retain_days);
    `cmdc show` reads one. A column that only a session's process could fill has a `-` where none
    answers. On a terminal that is too narrow some columns are left out.
    """
    terminal = Terminal()
    with running_engine(address) as engine:
        if is_watch:
            _watch(engine, is_all=is_all, as_json=as_json)
            return
        found = _found(engine, is_all=is_all)
    if as_json:
        terminal.line(json_line(found))
    elif found:
        show_lines(SessionTable(found, is_all, terminal_columns()).lines())
    else:
        terminal.note("no sessions")


def _found(engine: "ClientEngine", *, is_all: bool) -> list["Status"]:
    found = engine.call(engine.exchange.list_sessions())
    if is_all:
        found += engine.call(engine.exchange.list_inactive())
    return sorted(found, key=lambda one: one.session_id)


def _watch(engine: "ClientEngine", *, is_all: bool, as_json: bool) -> None:
    """Show the list anew until Ctrl-C, in its place where a person looks on."""
    with contextlib.suppress(KeyboardInterrupt), Screen() as screen:
        while True:
            found = _found(engine, is_all=is_all)
            if as_json:
                Terminal().line(json_line(found))
            else:
                screen.show(SessionTable(found, is_all, terminal_columns()).lines())
            time.sleep(WATCH_S)


# --- the tree -------------------------------------------------------------------------------------

_SESSION_NODE: Final = "session:"
_OWN_LINE: Final = "\n"
_FACT_COLUMNS_MIN: Final = 20
"""Where less is left behind a name, the facts stand below it."""
_BRANCH_COLUMNS: Final = 4
"""Of the lines that lead to a node, for each node above it."""


@click.command()
@json_option
@address_option
def tree(*, as_json: bool, address: str | None) -> None:
    """Show the supervision tree; a session's line has its state, model and tokens."""
    with running_client(address) as client:
        root = client.tree()
        live = [] if as_json else client.list_sessions()
    known: dict[str, Status] = {one.session_id: one for one in live}
    if as_json:
        Terminal().line(json_line(root))
    else:
        show_tree(_row(root, known, terminal_columns()))


class _Fact(NamedTuple):
    """A word about a node; where not all fit, that with the highest ``rank`` is left out."""

    text: str
    rank: int


def _row(node: "TreeNode", known: Mapping[str, "Status"], room: int | None) -> TreeRow:
    """Return a node with what is below it; ``room`` is how many columns there are for its line."""
    is_session = node.id.startswith(_SESSION_NODE)
    status = known.get(node.id.removeprefix(_SESSION_NODE)) if is_session else None
    facts = [fact for fact in _facts(node, status) if fact.text]
    text = f"{node.id}  {_words(facts)}"
    if room is not None and len(text) > room:
        left = room - len(node.id) - _GAP
        is_long = left < _FACT_COLUMNS_MIN
        while len(facts) > 1 and len(_words(facts)) > (room - _BRANCH_COLUMNS if is_long else left):
            facts.remove(max(facts, key=lambda one: one.rank))
        text = f"{node.id}{_OWN_LINE if is_long else '  '}{_words(facts)}"
    below = None if room is None else room - _BRANCH_COLUMNS
    style = "plain" if status is None else style_of(status)
    return TreeRow(text.rstrip(), [_row(one, known, below) for one in node.children], style)


def _facts(node: "TreeNode", status: "Status | None") -> tuple[_Fact, ...]:
    session: tuple[_Fact, ...] = (_Fact(node.state, 0),)
    if status is not None:
        is_known = bool(status.model)
        session = (
            _Fact(state_of(status), 0),
            _Fact(one_line(status.model), 2),
            _Fact(f"{status.total_tokens} tokens" if is_known else "", 1),
        )
    return (
        *session,
        _Fact(node.strategy, 6),
        _Fact(node.restart, 5),
        _Fact("" if node.pid is None else f"pid {node.pid}", 3),
        _Fact(f"{node.restarts} restarts" if node.restarts else "", 4),
    )


def _words(facts: Sequence[_Fact]) -> str:
    return ", ".join(fact.text for fact in facts)
