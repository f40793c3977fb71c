"""``cmdc tail --tree``: the runs of reasoning strategies in a session, drawn while they grow."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from cmdc_runtime.cli.terminal import Drawing, Terminal, TreeRow
from cmdc_runtime.cli.text import json_line
from cmdc_runtime.lines import one_line
from cmdc_runtime.reasoning.result import (
    ReasoningEvent,
    ReasoningNode,
    ReasoningResult,
    RunFold,
    is_lost,
    label_of,
    reasoning_event,
)

if TYPE_CHECKING:
    from cmdc_runtime.client.sync.stream import EventStream

DRAW_S: Final = 0.1
"""Between two drawings of what grows."""
RUNS_MAX: Final = 64
"""That grow at a time; of more of them the oldest one is printed as it is."""


def print_runs(stream: "EventStream", terminal: Terminal, *, as_json: bool) -> None:
    """Draw runs as they grow; print each for good when it is over, or cut short by an exception.

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
        line = one_line(" ".join([f"{head}: {text}", *(f"({one})" for one in took)]))
        style = "quiet" if is_lost(node) else "plain"
        return TreeRow(line, map(row, children.get(node.id, ())), style)

    return TreeRow(_headline(run), map(row, children.get(None, ())))


def _headline(run: ReasoningResult) -> str:
    why = "" if run.reason is None else f" ({run.reason})"
    answer = "" if run.answer is None else f": {run.answer}"
    return one_line(f"{run.strategy} {run.run_id} {run.status}{why}{answer}")
