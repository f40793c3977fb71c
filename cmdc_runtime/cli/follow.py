"""``cmdc tail`` and ``cmdc monitor``: what happens to one session, until it ends or Ctrl-C.

``cmdc tail --tree`` draws the runs of reasoning strategies in it while they grow. Where a process
ends, what is known of that stands as lines below the one about it: to show another field of
``Evidence``, add a line in ``evidence_lines``; what is not known has none. What the process wrote
is neutral and stands behind a bar, so that nobody takes it for ours.
"""

import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from cmdc_runtime.checked_struct import INDEX_MAX
from cmdc_runtime.cli.choices import address_option, json_option, running_client
from cmdc_runtime.cli.terminal import (
    Drawing,
    Line,
    StyledText,
    Terminal,
    TreeRow,
    clock,
    json_line,
    show_lines,
    terminal_columns,
)
from cmdc_runtime.errors import InvalidSession, SessionNotAlive
from cmdc_runtime.events import Envelope, Event, MessageDelta, ThinkingDelta
from cmdc_runtime.lines import duration, neutral, one_line
from cmdc_runtime.reasoning.result import (
    ReasoningEvent,
    ReasoningNode,
    ReasoningResult,
    RunFold,
    failed,
    is_lost,
    label_of,
    reasoning_event,
)
from cmdc_runtime.reasons import (
    AnyReason,
    Down,
    Evidence,
    Exception,  # noqa: A004 - the contract's name
    NoProcess,
    Normal,
    RestartIntensityExceeded,
    Shutdown,
    size_text,
)

if TYPE_CHECKING:
    from cmdc_runtime.client.sync.stream import EventStream, Monitor


# --- runs of reasoning strategies -----------------------------------------------------------------

DRAW_S: Final = 0.1
"""Between two drawings of what grows."""
RUNS_MAX: Final = 64
"""That grow at a time; of more of them the oldest one is printed as it is."""


def print_runs(stream: "EventStream", terminal: Terminal, *, as_json: bool) -> None:
    """Draw runs as they grow; print each for good when it is over, or cut short by an exception.

    One that the session has ended in, without a word of its own end, has failed with the session's.
    As JSON each is a line, a ``ReasoningResult``, and nothing is drawn.

    Raises:
        SessionNotAlive: the session has ended.
    """
    if as_json:
        _print(stream, lambda run: terminal.line(json_line(run)), lambda _: None)
        return
    with Drawing() as drawing:
        _print(
            stream,
            lambda run: drawing.keep(tree_of(run)),
            lambda runs: drawing.show(map(tree_of, runs)),
        )


def _print(
    stream: "EventStream",
    keep: Callable[[ReasoningResult], None],
    show: Callable[[Iterator[ReasoningResult]], None],
) -> None:
    runs: dict[str, RunFold] = {}
    try:
        for event in _at_times(stream):
            if event is None:
                show(run.result() for run in runs.values())
                continue
            run = runs.setdefault(event.run_id, RunFold(event.run_id))
            run.take(event)
            if run.done is not None:
                keep(runs.pop(event.run_id).result())
            elif len(runs) > RUNS_MAX:
                keep(runs.pop(next(iter(runs))).result())
    except SessionNotAlive as ended:  # nobody publishes the ends of its runs any more
        while runs:
            keep(failed(runs.pop(next(iter(runs))).result(), str(ended)))
        raise
    finally:
        for run in runs.values():
            keep(run.result())


def _at_times(stream: "EventStream") -> Iterator[ReasoningEvent | None]:
    """Yield the events of runs, and None when it is time to show what has changed since."""
    drawn_s, is_old = time.monotonic(), False
    while True:
        try:
            event = reasoning_event(stream.get(timeout=DRAW_S if is_old else None))
        except TimeoutError:
            event = None
        if event is not None:
            is_old = True
            yield event
        if is_old and time.monotonic() - drawn_s >= DRAW_S:
            yield None
            drawn_s, is_old = time.monotonic(), False


def tree_of(run: ReasoningResult) -> TreeRow:
    """Return a run as rows; a node whose parent is not known stands at the top."""
    known = {node.id for node in run.nodes}
    children: dict[str | None, list[ReasoningNode]] = {}
    for node in run.nodes:
        parent = node.parent_id if node.parent_id in known else None
        children.setdefault(parent, []).append(node)

    def row(node: ReasoningNode) -> TreeRow:
        head, text, *took = label_of(node)
        mark = ("[pruned]",) if node.pruned else ()  # a word, since a pipe has no styles
        line = one_line(" ".join([f"{head}: {text}", *(f"({one})" for one in took), *mark]))
        style = "quiet" if is_lost(node) else "plain"
        return TreeRow(line, map(row, children.get(node.id, ())), style)

    return TreeRow(_headline(run), map(row, children.get(None, ())))


def _headline(run: ReasoningResult) -> str:
    why = "" if run.reason is None else f" ({run.reason})"
    answer = "" if run.answer is None else f": {run.answer}"
    notes = "".join(f" [{one}]" for one in run.notes)
    return one_line(f"{run.strategy} {run.run_id} {run.status}{why}{answer}{notes}")


# --- events, with the pieces of a text together ---------------------------------------------------

JOIN_S: Final = 0.5
"""A text of which nothing came for so long is shown as far as it is."""
JOINED_CHARS_MAX: Final = 1_000
"""Of the pieces that are shown as one."""
_PIECES: Final = (MessageDelta, ThinkingDelta)
_HEAD_COLUMNS: Final = 6 + 1 + 8 + 1 + 22 + 1
"""Number, time and kind."""
_TEXT_COLUMNS_MIN: Final = 30
"""Where less is left for the text, it stands below its kind."""


@dataclass(frozen=True, slots=True)
class TailEntry:
    """What ``tail`` shows as one: an event, or pieces of a text under the number of the first."""

    index: int
    at_ms: int
    event: Event
    text: str

    def lines(self, columns: int | None) -> list[Line]:
        """Return the lines for a terminal of so many columns, None: for a pipe, always one."""
        kind = one_line(self.event.kind)
        head = [
            StyledText(f"{self.index:>6} ", "quiet"),
            StyledText(f"{clock(self.at_ms)} ", "quiet"),
            StyledText(f"{kind:<22} ", self._style()),
        ]
        if columns is None or not self.text:
            return [[*head[:-1], StyledText(f"{kind:<22} {self.text}".rstrip(), head[-1].style)]]
        room = columns - _HEAD_COLUMNS
        if room < _TEXT_COLUMNS_MIN:
            indent, room = " " * 7, columns - 7
            return [head, *([StyledText(indent + one)] for one in _folded(self.text, room))]
        first, *rest = _folded(self.text, room)
        indent = " " * _HEAD_COLUMNS
        return [[*head, StyledText(first)], *([StyledText(indent + one)] for one in rest)]

    def _style(self) -> str:
        if isinstance(self.event, _PIECES):
            return "strong" if isinstance(self.event, MessageDelta) else "quiet"
        return self.event.notice or ("warning" if self.event.level == "warning" else "kind")


def _folded(text: str, columns: int) -> list[str]:
    """Return a text in lines that end between words; a word that is longer than one stays whole."""
    return textwrap.wrap(text, max(1, columns), break_long_words=False, break_on_hyphens=False) or [
        ""
    ]


class JoinedPieces:
    """Events as they are shown: pieces of one text are held until it is over or long enough."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._first: Envelope | None = None
        self._pieces: list[str] = []
        self._chars = 0

    @property
    def is_open(self) -> bool:
        """Whether there is a text that more may be added to."""
        return self._first is not None

    def take(self, envelope: Envelope) -> list[TailEntry]:
        """Return what is to be shown now that this event has come."""
        event = envelope.event
        if not isinstance(event, _PIECES):
            return [*self.close(), _entry(envelope, str(event))]
        held = self._first
        is_other = held is not None and (
            type(held.event) is not type(event) or self._chars + len(event.delta) > JOINED_CHARS_MAX
        )
        shown = self.close() if is_other else []
        if self._first is None:
            self._first = envelope
        self._pieces.append(event.delta)
        self._chars += len(event.delta)
        return shown

    def close(self) -> list[TailEntry]:
        """Return the text that is held, and hold nothing."""
        first, text = self._first, one_line("".join(self._pieces), JOINED_CHARS_MAX)
        self._first, self._pieces, self._chars = None, [], 0
        return [] if first is None else [_entry(first, text)]


def _entry(envelope: Envelope, text: str) -> TailEntry:
    return TailEntry(envelope.index, envelope.at_ms, envelope.event, text)


# --- the end of a process -------------------------------------------------------------------------

_INDENT: Final = "    "
_BAR: Final = f"{_INDENT}| "


def evidence_lines(down: Down) -> list[str]:
    """Return the lines, indented; none where nothing is known."""
    evidence = down.evidence
    facts = (_life(evidence), _work(evidence), _usage(evidence), _memory(evidence))
    quoted = (
        ("traceback", _traceback(down.reason)),
        ("stack", evidence.stack),
        ("standard error", evidence.output),
    )
    return [
        *(f"{_INDENT}{fact}" for fact in facts if fact),
        *(line for title, text in quoted for line in _quoted(title, text)),
    ]


def _life(evidence: Evidence) -> str:
    lived = "" if evidence.lived_ms is None else f"it lived for {duration(evidence.lived_ms)}"
    index = evidence.last_index
    last = (
        "" if index is None else f"its last event is {index}" if index else "it published nothing"
    )
    return ", ".join(filter(None, (lived, last)))


def _work(evidence: Evidence) -> str:
    if not evidence.state and not evidence.tools:
        return ""
    tools = one_line(", ".join(evidence.tools))
    state = one_line(evidence.state) or "at work"
    return f"it was {state}" + (f", with these tools: {tools}" if tools else "")


def _usage(evidence: Evidence) -> str:
    resident = evidence.max_rss_bytes
    times = (("user", evidence.user_ms), ("system", evidence.system_ms))
    used = [f"{duration(ms)} {name}" for name, ms in times if ms is not None]
    parts = [
        "" if resident is None else f"{size_text(resident)} resident at most",
        f"CPU {', '.join(used)}" if used else "",
    ]
    return ", ".join(filter(None, parts))


def _memory(evidence: Evidence) -> str:
    peak, kills = evidence.memory_peak_bytes, evidence.oom_kills
    parts = [
        "" if peak is None else f"all its processes together {size_text(peak)} at most",
        f"the kernel killed {kills} of them for want of memory" if kills else "",
    ]
    return ", ".join(filter(None, parts))


def _traceback(reason: AnyReason) -> str:
    if isinstance(reason, RestartIntensityExceeded):
        reason = reason.last
    return reason.traceback if isinstance(reason, Exception) else ""


def _quoted(title: str, text: str) -> Iterator[str]:
    if text.strip():
        yield f"{_INDENT}{title}:"
        yield from (f"{_BAR}{line}".rstrip() for line in neutral(text).strip("\n").split("\n"))


# --- commands -------------------------------------------------------------------------------------

_ORDERLY: Final = (Normal, Shutdown)


@click.command()
@click.argument("session")
@click.option(
    "--since",
    type=click.IntRange(0, INDEX_MAX),
    metavar="N",
    help="Begin after event N, 0 for all that can be had.  [default: from now on]",
)
@click.option(
    "--tree", "is_tree", is_flag=True, help="Draw the runs of reasoning strategies, and no more."
)
@click.option("--raw", "is_raw", is_flag=True, help="Each event as it comes, on a line of its own.")
@json_option
@address_option
def tail(  # noqa: PLR0913 - a command's options
    session: str,
    *,
    since: int | None,
    is_tree: bool,
    is_raw: bool,
    as_json: bool,
    address: str | None,
) -> None:
    """Print the events of SESSION until it ends.

    The pieces in which a text comes are one line, under the number of the first, unless --raw is
    given. On a terminal lines are folded between words and coloured by kind.

    With --tree each run of a reasoning strategy is drawn as a tree while it grows, and printed
    when it is over; with --json it is one line then.
    """
    terminal = Terminal()
    with running_client(address) as client, client.subscribe(session, since=since) as stream:
        try:
            if is_tree:
                print_runs(stream, terminal, as_json=as_json)
            elif is_raw or as_json:
                _print_raw(stream, terminal, as_json=as_json)
            else:
                _print_joined(stream)
        except SessionNotAlive as ended:
            terminal.note(one_line(str(ended)))


def _print_raw(stream: "EventStream", terminal: Terminal, *, as_json: bool) -> None:
    while True:
        envelope = stream.get()
        terminal.line(json_line(envelope) if as_json else _raw_line(envelope))


def _raw_line(envelope: Envelope) -> str:
    kind = one_line(envelope.event.kind)
    return f"{envelope.index:>6} {clock(envelope.at_ms)} {kind:<22} {envelope.event}".rstrip()


def _print_joined(stream: "EventStream") -> None:
    """Print events with the pieces of a text together, until the session ends."""
    joined, columns = JoinedPieces(), terminal_columns()
    try:
        while True:
            try:
                envelope = stream.get(timeout=JOIN_S if joined.is_open else None)
            except TimeoutError:
                _show(joined.close(), columns)
                continue
            _show(joined.take(envelope), columns)
    finally:
        _show(joined.close(), columns)


def _show(entries: "list[TailEntry]", columns: int | None) -> None:
    show_lines(line for entry in entries for line in entry.lines(columns))


@click.command()
@click.argument("session")
@click.option("--brief", "is_brief", is_flag=True, help="One line for each end, however it came.")
@json_option
@address_option
def monitor(session: str, *, is_brief: bool, as_json: bool, address: str | None) -> int:
    """Print a line whenever a process of SESSION ends, until the session has ended.

    Below a line about a failure stands what is known of it. Of a session that has ended
    already its last end is printed.
    Exit status: 0 if it ended as asked, 1 if it failed or there was none.
    """
    terminal = Terminal()
    with running_client(address) as client:
        watch = client.monitor(session, persistent=True)
        down = _first(watch, terminal)
        while True:
            if isinstance(down.reason, NoProcess):
                raise InvalidSession(f"session {session!r} was never seen here")
            if as_json:
                terminal.line(json_line(down))
            else:
                _print_down(down, terminal, is_brief=is_brief)
            if not down.restarting:
                return 0 if isinstance(down.reason, _ORDERLY) else 1
            down = watch.wait()


def _first(watch: "Monitor", terminal: Terminal) -> Down:
    """Return the first notice; who has to wait for it reads that somebody watches."""
    try:
        return watch.wait(0)
    except TimeoutError:
        terminal.note(f"watching {one_line(watch.session_id)} from now on")
        return watch.wait()


def _print_down(down: Down, terminal: Terminal, *, is_brief: bool) -> None:
    terminal.line(str(down))
    if not is_brief and not isinstance(down.reason, _ORDERLY):
        for line in evidence_lines(down):
            terminal.line(line, "quiet")
