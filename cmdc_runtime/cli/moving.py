"""``cmdc export``, ``import``, ``checkpoints``, ``resume``: states of sessions, kept and moved."""

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from cmdc_runtime.cli.choices import address_option, json_option, running_client, running_engine
from cmdc_runtime.cli.draft import Draft, drafted
from cmdc_runtime.cli.terminal import Terminal, show_table
from cmdc_runtime.cli.text import json_line, moment
from cmdc_runtime.errors import CmdcError, InvalidOptions, UsageError
from cmdc_runtime.lines import one_line

if TYPE_CHECKING:
    from cmdc_runtime.checkpoints import Snapshot
    from cmdc_runtime.client.engine import ClientEngine
    from cmdc_runtime.ids import SessionId
    from cmdc_runtime.transfer import Header

STDIN_IN_MEMORY_BYTES_MAX: Final = 16 * 2**20
"""Of a file from standard input; a larger one waits on the disk."""
_COPY_BYTES: Final = 2**20

_COLUMNS: Final[Mapping[str, Callable[["Snapshot"], str]]] = {
    "CHECKPOINT": lambda one: one.checkpoint_id,
    "SAVED": lambda one: moment(one.saved_at_ms),
    "LABEL": lambda one: one_line(one.label or "-"),
    "METADATA": lambda one: one_line(
        one.problem or (json_line(one.metadata) if one.metadata else "-")
    ),
}


@click.command()
@click.argument("session")
@click.option("--move", is_flag=True, help="End the session here, so that it goes on elsewhere.")
@click.option("-o", "--output", metavar="FILE", help="Write there.  [default: standard output]")
@address_option
def export(session: str, *, move: bool, output: str | None, address: str | None) -> None:
    """Write SESSION as a file that `cmdc import` takes, on this machine or another one.

    It has the conversation, what waits, tools by value, plugin states, checkpoints and durable
    events, and so all that was said, and the keys of the session's options: keep it as you would
    keep those. Without --move it is a copy, and goes on elsewhere only under another id.
    """
    from cmdc_runtime.client.arguments import checked_id  # noqa: PLC0415 - loads zmq

    session_id = checked_id(session)
    with drafted(output) as draft, running_engine(address) as engine:
        header = _write_whole(engine, session_id, draft)
        if move and not header.is_over:
            draft.prepare()
            header = _end_and_deliver(engine, session_id, draft)
        else:
            draft.deliver()
    how = "moved" if move else "copied"
    if not header.is_over:
        how = "copied; it goes on here"
    Terminal().note(f"{session_id} {how}, up to event {header.last_index}")


@click.command("import")
@click.argument("file", metavar="FILE")
@click.option("--as", "as_id", metavar="ID", help="Name of the session.  [default: its own]")
@json_option
@address_option
def import_(file: str, *, as_id: str | None, as_json: bool, address: str | None) -> None:
    """Start the session that `cmdc export` wrote to FILE; ``-`` is standard input.

    It goes on where it was: a running cycle too, except for calls that may not run twice. The file
    may hold code, which runs as yours: import what you trust.
    """
    from cmdc_runtime.client.arguments import checked_id  # noqa: PLC0415 - loads zmq
    from cmdc_runtime.transfer import Assembly, read_frames  # noqa: PLC0415 - with it
    from cmdc_runtime.transfer_checks import check_whole  # noqa: PLC0415 - with it

    new_id = None if as_id is None else checked_id(as_id)
    with _read(file) as source, running_engine(address) as engine:
        assembly = Assembly()  # all of it is looked at before the daemon is asked for anything
        for frame in read_frames(source):
            assembly.add(frame)
        whole = assembly.whole()
        check_whole(whole)
        source.seek(0)
        info = engine.call(engine.exchange.bring(read_frames(source), new_id))
    outcome = {"session_id": info.session_id, "from": whole.header.session_id, "pid": info.pid}
    Terminal().line(json_line(outcome) if as_json else f"{info.session_id} goes on here")


@click.command()
@click.argument("session")
@click.option("--save", "label", metavar="LABEL", help="Save the session's state first.")
@click.option("--delete", "gone", metavar="ID", help="Delete this one first.")
@json_option
@address_option
def checkpoints(
    session: str, *, label: str | None, gone: str | None, as_json: bool, address: str | None
) -> None:
    """List the checkpoints of SESSION, newest first; with --json as one array."""
    _check_label(label)
    with running_client(address) as client:
        if label is not None:
            client.checkpoint(session, label=label)
        if gone is not None:
            client.delete_checkpoint(session, gone)
        found = client.list_checkpoints(session)
    if as_json:
        Terminal().line(json_line(found))
        return
    if not found:
        Terminal().note("no checkpoints")
        return
    show_table(_COLUMNS, found)


@click.command()
@click.argument("session")
@click.option("--checkpoint", "checkpoint_id", metavar="ID", help="Go on from this one.")
@click.option("--as", "new_id", metavar="ID", help="Fork it: a new session of this name.")
@click.option(
    "--code",
    type=click.Choice(["pinned", "latest"]),
    help="latest: with the code of its tools and plugins that is there now.  [default: as before]",
)
@json_option
@address_option
def resume(
    session: str,
    *,
    new_id: str | None,
    as_json: bool,
    address: str | None,
    **chosen: str | None,
) -> None:
    """Let SESSION go on after its end, or with --as make a session that begins with its state."""
    given = {name: value for name, value in chosen.items() if value is not None}
    with running_client(address) as client:
        found = client.resume_session(session, new_id=new_id, **given)
        outcome = {"session_id": found.id, "from": session}
    Terminal().line(json_line(outcome) if as_json else f"{found.id} goes on")


def _write_whole(engine: "ClientEngine", session_id: "SessionId", draft: Draft) -> "Header":
    from cmdc_runtime.transfer import MAGIC  # noqa: PLC0415 - with the client

    with draft.whole() as write:
        write(MAGIC)
        return engine.call(engine.exchange.export(session_id, write))


def _end_and_deliver(engine: "ClientEngine", session_id: "SessionId", draft: Draft) -> "Header":
    """End a session of which a draft is whole, and deliver what it has come to.

    Where no file comes of it, the session goes on here. All of it is in the journal all the time,
    so that nothing is lost where this process is killed in between.
    """
    is_ours = True
    try:
        is_ours = engine.call(engine.exchange.end_to_move(session_id))
        header = _write_whole(engine, session_id, draft)
        draft.deliver()
    except BaseException:
        if is_ours:
            _bring_back(engine, session_id)
        raise
    return header


def _bring_back(engine: "ClientEngine", session_id: "SessionId") -> None:
    """Let a session go on that was ended for a file that did not come into being; say so."""
    from cmdc_runtime.requests import Origin  # noqa: PLC0415 - with the client

    try:
        engine.call(engine.exchange.end_to_move(session_id))  # its end may still be under way
        engine.call(engine.exchange.resume(Origin(session_id=session_id), None, {}))
    except (CmdcError, KeyboardInterrupt) as error:
        why = f" ({error})" if str(error) else ""
        Terminal().note(
            f"nothing of {session_id} is lost, but it has ended{why}: `cmdc resume {session_id}` "
            "lets it go on here",
            "warning",
        )
    else:
        Terminal().note(f"{session_id} was not moved, and goes on here")


def _check_label(label: str | None) -> None:
    from cmdc_runtime.checkpoints import checkpoint_facts  # noqa: PLC0415 - with the client

    try:
        checkpoint_facts(label, None)
    except UsageError as error:
        raise InvalidOptions([f"--save: {str(error).removeprefix('label: ')}"]) from error


@contextlib.contextmanager
def _read(file: str) -> Iterator[BinaryIO]:
    if file != "-":
        try:
            source = Path(file).open("rb")  # noqa: SIM115 - closed below
        except OSError as error:
            raise UsageError(f"{file} cannot be read: {error}") from error
        with source:
            yield source
        return
    with tempfile.SpooledTemporaryFile(STDIN_IN_MEMORY_BYTES_MAX) as spooled:
        while some := sys.stdin.buffer.read(_COPY_BYTES):
            spooled.write(some)
        spooled.seek(0)
        yield spooled  # type: ignore[misc]  # it is a BinaryIO in all but name
