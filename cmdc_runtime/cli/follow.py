"""``cmdc tail`` and ``cmdc monitor``: what happens to one session, until it ends or Ctrl-C."""

from typing import TYPE_CHECKING, Final

import click

from cmdc_runtime.cli.choices import address_option, json_option, running_client
from cmdc_runtime.cli.terminal import Terminal
from cmdc_runtime.cli.text import clock, json_line
from cmdc_runtime.errors import InvalidSession, SessionNotAlive
from cmdc_runtime.lines import one_line
from cmdc_runtime.ranges import INDEX_MAX
from cmdc_runtime.reasons import Down, NoProcess, Normal, Shutdown

if TYPE_CHECKING:
    from cmdc_runtime.client.sync.stream import EventStream, Monitor

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
@json_option
@address_option
def tail(
    session: str, *, since: int | None, is_tree: bool, as_json: bool, address: str | None
) -> None:
    """Print the events of SESSION until it ends.

    With --tree each run of a reasoning strategy is drawn as a tree while it grows, and printed
    when it is over; with --json it is one line then.
    """
    from cmdc_runtime.cli.branches import print_runs  # noqa: PLC0415 - with the client

    terminal = Terminal()
    with running_client(address) as client, client.subscribe(session, since=since) as stream:
        try:
            (print_runs if is_tree else _print_events)(stream, terminal, as_json=as_json)
        except SessionNotAlive as ended:
            terminal.note(one_line(str(ended)))


def _print_events(stream: "EventStream", terminal: Terminal, *, as_json: bool) -> None:
    while True:
        envelope = stream.get()
        if as_json:
            terminal.line(json_line(envelope))
            continue
        at = clock(envelope.at_ms)
        kind = one_line(envelope.event.kind)
        terminal.line(f"{envelope.index:>6} {at} {kind:<22} {envelope.event}".rstrip())


@click.command()
@click.argument("session")
@click.option("--brief", "is_brief", is_flag=True, help="One line for each end, however it came.")
@json_option
@address_option
def monitor(session: str, *, is_brief: bool, as_json: bool, address: str | None) -> int:
    """Print a line whenever a process of SESSION ends, until the session has ended.

    Below a line that tells of a failure stands what is known of it. Of a session that has ended
    already its last end is told.
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
    """Return the first notice; who has to wait for it is told that somebody watches."""
    try:
        return watch.wait(0)
    except TimeoutError:
        terminal.note(f"watching {one_line(watch.session_id)} from now on")
        return watch.wait()


def _print_down(down: Down, terminal: Terminal, *, is_brief: bool) -> None:
    from cmdc_runtime.cli.evidence import evidence_lines  # noqa: PLC0415 - with the client

    terminal.line(str(down))
    if not is_brief and not isinstance(down.reason, _ORDERLY):
        for line in evidence_lines(down):
            terminal.line(line, "quiet")
