"""All about one session: ``cmdc show``, its conversation; ``cmdc logs``, what the daemon's log has.

Both read a session that lives and one that has ended, as long as the journal, or the log, has it.
"""

import os
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import click

from cmdc_runtime.cli.choices import address_option, json_option, running_client, running_engine
from cmdc_runtime.cli.follow import evidence_lines
from cmdc_runtime.cli.listing import state_of, style_of, waits_for
from cmdc_runtime.cli.terminal import Terminal, json_line, moment
from cmdc_runtime.errors import CmdcError
from cmdc_runtime.events import ApprovalRequired, AskUser
from cmdc_runtime.lines import call_line, duration, neutral, one_line

if TYPE_CHECKING:
    from cmdc_runtime.client.sync.session import Client
    from cmdc_runtime.commands import Status
    from cmdc_runtime.messages import Message
    from cmdc_runtime.reasons import Down

# --- what waits -----------------------------------------------------------------------------------

READ_S: Final = 2.0
"""Between two events that are read again; a session with none that are kept says so by silence."""

Waiting = ApprovalRequired | AskUser


def waiting_events(client: "Client", status: "Status") -> list[Waiting]:
    """Return what was published of the approvals and questions that a session waits for."""
    wanted = {*status.pending_approvals, *status.pending_questions}
    found: dict[str, Waiting] = {}
    if not wanted:
        return []
    with client.subscribe(status.session_id, since=0) as stream:
        index = 0
        while index < status.last_index and found.keys() != wanted:
            try:
                envelope = stream.get(READ_S)
            except (TimeoutError, CmdcError):
                break
            index, event = envelope.index, envelope.event
            key = event.id if isinstance(event, ApprovalRequired) else ""
            key = event.ref if isinstance(event, AskUser) else key
            if key in wanted and isinstance(event, Waiting):
                found[key] = event
    return list(found.values())


def waiting_lines(status: "Status", events: list[Waiting]) -> Iterator[str]:
    """Yield a line for each thing that a session waits for, with the command that answers it."""
    known = {one.id if isinstance(one, ApprovalRequired) else one.ref: one for one in events}
    session = status.session_id
    for approval_id in status.pending_approvals:
        one = known.get(approval_id)
        what = _asked(one) if isinstance(one, ApprovalRequired) else "a call"
        yield f"{what}: cmdc approve {session} {approval_id}"
    for ref in status.pending_questions:
        one = known.get(ref)
        what = one_line(one.question) if isinstance(one, AskUser) else "a question"
        yield f"{what}: cmdc respond {session} {ref} TEXT"
    if status.spent_limit:
        yield f"the next request would break its budget: {status.spent_limit}"


def _asked(wanted: ApprovalRequired) -> str:
    """Return a call, and what its tool says of it to a person."""
    hint = one_line(wanted.hint)
    return call_line(wanted.tool, wanted.args) + (f" ({hint})" if hint else "")


# --- show -----------------------------------------------------------------------------------------

_LABEL_COLUMNS: Final = 10
_ROLE_STYLES: Final[Mapping[str, str]] = {
    "system": "quiet",
    "user": "strong",
    "assistant": "plain",
    "tool_result": "kind",
}


@click.command()
@click.argument("session")
@click.option("--messages", "is_whole", is_flag=True, help="Also the conversation.")
@json_option
@address_option
def show(session: str, *, is_whole: bool, as_json: bool, address: str | None) -> None:
    """Show all about SESSION, also one that has ended: state, usage, tools, why it died.

    With --json one object: status, messages, and the last end of a process of it, if there was one.
    """
    from cmdc_runtime.client.arguments import checked_id  # noqa: PLC0415 - loads zmq

    terminal = Terminal()
    with running_engine(address) as engine:
        status = engine.call(engine.exchange.last_status(checked_id(session)))
    with running_client(address) as client:
        messages = client.messages(session)
        down = _last_down(client, session) if status.state == "ended" else None
        events = waiting_events(client, status)
    if as_json:
        known = {"status": status, "messages": messages, "down": down, "waits": events}
        terminal.line(json_line(known))
        return
    terminal.line(f"{status.session_id}  {state_of(status)}", style_of(status))
    for label, text in _facts(status, messages):
        terminal.line(f"  {label:<{_LABEL_COLUMNS}} {text}")
    for line in waiting_lines(status, events):
        terminal.line(f"  {'waits':<{_LABEL_COLUMNS}} {line}", "warning")
    if down is not None:
        terminal.line(f"  {'died':<{_LABEL_COLUMNS}} {down}")
        for line in evidence_lines(down):
            terminal.line(line, "quiet")
    if is_whole:
        for message in messages:
            _show_message(terminal, message)


def _last_down(client: "Client", session: str) -> "Down | None":
    watch = client.monitor(session)
    try:
        return watch.wait(READ_S)
    except TimeoutError:
        return None


def _facts(status: "Status", messages: "list[Message]") -> Iterator[tuple[str, str]]:
    usage = status.token_usage
    cost = "" if status.cost_usd is None else f", ${status.cost_usd:.4f}"
    cached = "" if usage.cached_tokens is None else f", {usage.cached_tokens} of them cached"
    calls = Counter(call.name for one in messages for call in one.tool_calls)
    facts = {
        "model": one_line(status.model),
        "process": "" if status.pid is None else f"pid {status.pid}, number {status.incarnation}",
        "restarts": str(status.restarts),
        "up": duration(status.uptime_ms) if status.uptime_ms else "",
        "active": moment(status.active_at_ms) if status.active_at_ms else "",
        "parent": status.parent_id or "",
        "group": one_line(status.group_id or ""),
        "turns": f"{status.turns}, {len(messages)} messages, {status.last_index} events",
        "tokens": f"{usage.prompt_tokens} in{cached}, {usage.completion_tokens} out{cost}",
        "queued": _queued(status),
        "runs": ", ".join(one_line(one.name) for one in status.pending_tools),
        "called": ", ".join(f"{many} {one_line(name)}" for name, many in calls.most_common()),
        "uncertain": ", ".join(one_line(one.name) for one in status.uncertain),
        "reason": one_line(status.reason or ""),
    }
    yield from ((label, text) for label, text in facts.items() if text)


def _queued(status: "Status") -> str:
    parts = {"prompts": status.queued_prompts, "steering": status.queued_steering}
    return ", ".join(f"{many} {what}" for what, many in parts.items() if many)


def _show_message(terminal: Terminal, message: "Message") -> None:
    terminal.line("")
    name = f" {one_line(message.name)}" if message.name else ""
    failed = " (failed)" if message.is_error else ""
    terminal.line(f"{message.role}{name}{failed}:", _ROLE_STYLES.get(message.role, "plain"))
    if message.content:
        terminal.line(neutral(message.content))
    for call in message.tool_calls:
        terminal.line(f"→ {call_line(call.name, call.arguments)}", "kind")


# --- what waits, of one session or of all ---------------------------------------------------------


def show_waiting(session: str | None, address: str | None, *, as_json: bool) -> None:
    """List what waits for a person, of one session or of all that live."""
    from cmdc_runtime.client.arguments import checked_id  # noqa: PLC0415 - loads zmq

    terminal = Terminal()
    with running_client(address) as client:
        one = None if session is None else checked_id(session)
        found = client.list_sessions() if one is None else [client.status(one)]
        waiting = [(one, waiting_events(client, one)) for one in found if waits_for(one)]
    if as_json:
        terminal.line(
            json_line([{"session_id": one.session_id, "waits": events} for one, events in waiting])
        )
        return
    if not waiting:
        terminal.note("nothing waits")
    for status, events in waiting:
        terminal.line(f"{status.session_id}  {waits_for(status)}", "warning")
        for line in waiting_lines(status, events):
            terminal.line(f"  {line}")


# --- logs -----------------------------------------------------------------------------------------

LOG_BYTES_READ: Final = 64 * 2**20
"""Of the end of a log, so much is looked through."""
LINES_SHOWN: Final = 1_000
FOLLOW_S: Final = 0.2
"""Between two looks for new lines."""
_RECORD: Final = re.compile(r"^(?:<\d>)?(?:\{|\d{4}-\d\d-\d\dT)")
"""How a record begins; other lines go on with the one before."""


class LogNotFound(CmdcError):
    """The daemon's log is not where it could be read."""


@click.command()
@click.argument("session")
@click.option(
    "--follow", "-f", "is_followed", is_flag=True, help="Go on as it grows, until Ctrl-C."
)
@click.option(
    "--lines",
    "-n",
    type=click.IntRange(1, 10**6),
    default=LINES_SHOWN,
    show_default=True,
    help="So many of the newest.",
)
@click.option("--file", "file", metavar="FILE", help="The daemon's log; - is standard input.")
@address_option
def logs(
    session: str, *, is_followed: bool, lines: int, file: str | None, address: str | None
) -> None:
    """Print what the daemon's log has of SESSION: starts, ends, and what its process printed.

    A detached daemon's log, or one that was sent to a file, is found by itself. With systemd:
    journalctl -u cmdc -o cat | cmdc logs SESSION --file -
    """
    from cmdc_runtime.client.arguments import checked_id  # noqa: PLC0415 - loads zmq

    session_id, terminal = checked_id(session), Terminal()
    if file == "-":
        for line in deque(_of_session(sys.stdin, session_id), lines):
            terminal.line(line)
        return
    path = Path(file) if file is not None else _log_of(address)
    try:
        source = path.open(encoding="utf-8", errors="replace")
    except OSError as error:
        raise LogNotFound(f"the log {path} cannot be read: {error.strerror}") from error
    with source:
        source.seek(max(0, os.fstat(source.fileno()).st_size - LOG_BYTES_READ))
        found = deque(_of_session(source, session_id), lines)
        for line in found:
            terminal.line(line)
        if not (found or is_followed):
            raise LogNotFound(f"the log {path} has nothing of session {session!r}")
        while is_followed:
            for line in _of_session(source, session_id):
                terminal.line(line)
            sys.stdout.flush()
            time.sleep(FOLLOW_S)


def _log_of(address: str | None) -> Path:
    from cmdc_runtime.requests import GetFacts  # noqa: PLC0415 - with the client

    with running_engine(address) as engine:
        found: str = engine.call(engine.exchange.ask(GetFacts())).log
    if not found:
        raise LogNotFound(
            "the daemon's log is no file: it goes to a terminal or to another program. With "
            "systemd: journalctl -u cmdc -o cat | cmdc logs SESSION --file -"
        )
    return Path(found)


def _of_session(source: IO[str], session_id: str) -> Iterator[str]:
    """Yield the lines of the records about one session."""
    is_ours = False
    quoted = re.escape(session_id)
    named = re.compile(rf'session_id=[\'"]?{quoted}(?:[\'"\s]|$)|"session_id": ?"{quoted}"')
    for line in source:
        if _RECORD.match(line):
            is_ours = named.search(line) is not None
        if is_ours:
            yield line.rstrip("\n")
