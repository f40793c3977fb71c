"""``cmdc replay``: what a session has decided, decided again by today's code.

The client reads the session's past from the daemon and gives it to a process that can load the
session's code, ``python -m workers.replay``; here is what people see of it.
"""

import base64
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, Final

import click
import msgspec

from cmdc_runtime.cli.choices import address_option, json_option, running_address
from cmdc_runtime.cli.terminal import Terminal, clock, json_line
from cmdc_runtime.errors import CmdcError
from cmdc_runtime.ids import new_session_id
from cmdc_runtime.lines import neutral, one_line

if TYPE_CHECKING:
    from cmdc_runtime.requests import PastPage

_PLAYER: Final = "workers.replay"
PlayerLine = dict[str, Any]  # Any: what the player says, see its module


class ReplayFailed(CmdcError):
    """The session could not be played at all."""


@click.command()
@click.argument("session")
@click.option(
    "--until",
    type=click.IntRange(1),
    metavar="N",
    help="Stop after the step of record N, and show all that the session remembers there.",
)
@click.option(
    "--fork",
    "forks",
    is_flag=True,
    help="Start a new session from the state there, if all records are the same.",
)
@json_option
@address_option
def replay(
    session: str, *, until: int | None, forks: bool, as_json: bool, address: str | None
) -> int:
    """Decide again what SESSION has decided, and say where today's code decides otherwise.

    The machine of the agent gets the recorded commands, answers and results again; no model is
    asked, no tool and no plugin runs, and the session itself goes on untouched. A line for each
    step has the numbers of its records and how the session stands after it.

    Exit status: 0 all records are the same, 1 one is not, or the session can't be played.
    """
    # These load zmq.
    from cmdc_runtime.client.arguments import checked_id  # noqa: PLC0415
    from cmdc_runtime.client.engine import ClientEngine  # noqa: PLC0415

    session_id = checked_id(session)
    arguments = [] if until is None else ["--until", str(until), "--state"]
    show = _json if as_json else _text
    terminal = Terminal()
    with contextlib.closing(ClientEngine(running_address(address))) as engine:
        past = engine.call(engine.exchange.past(session_id))
        is_same, state = True, ""
        for line in _played(past, [*arguments, *(["--save"] if forks else [])]):
            if line["kind"] == "failed":
                raise ReplayFailed(f"session {session} can't be played here: {line['why']}")
            is_same = is_same and line["kind"] in {"step", "end"}
            state = line.pop("saved", "")
            show(terminal, line)
        if state:
            saved = base64.b64decode(state)
            forked = engine.call(engine.exchange.fork(session_id, new_session_id(), saved))
            show(terminal, {"kind": "forked", "session_id": forked})
    return 0 if is_same else 1


def _played(past: "PastPage", arguments: list[str]) -> Iterator[PlayerLine]:
    """Yield what the player says; it ends with us, however we end."""
    command = [sys.executable, "-P", "-m", _PLAYER, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as player:  # noqa: S603 - our own
        try:
            assert player.stdin is not None  # noqa: S101 - as asked for
            assert player.stdout is not None  # noqa: S101 - as asked for
            _send_past(player.stdin, past)
            yield from _lines(player.stdout)
        finally:
            player.kill()


def _send_past(stdin: IO[bytes], past: "PastPage") -> None:
    """Write the past; a player that has died writes no last line."""
    with contextlib.suppress(BrokenPipeError), stdin:
        stdin.write(msgspec.msgpack.encode(past))


def _lines(stdout: IO[bytes]) -> Iterator[PlayerLine]:
    kind = ""
    for text in stdout:
        line: PlayerLine = msgspec.json.decode(text)
        kind = line["kind"]
        yield line
    if kind not in {"end", "failed"}:
        raise ReplayFailed("the process that plays the session died; what it said is above")


def _json(terminal: Terminal, line: PlayerLine) -> None:
    terminal.line(json_line(line))


def _text(terminal: Terminal, line: PlayerLine) -> None:
    match line["kind"]:
        case "step":
            terminal.line(_step(line))
        case "set_aside":
            why = one_line(line["why"], 1_000)
            terminal.line(f"the {line['what']} is set aside: {why}", "bad")
            terminal.line(
                f"  passed over: {line['passed_over']} records, up to the one that says so"
            )
        case "difference":
            terminal.line(f"record {line['number']}: today's code decides otherwise", "bad")
            terminal.line(f"  input:    {_cause(line)}")
            terminal.line(f"  recorded: {_record(line['recorded'])}")
            terminal.line(f"  now:      {_record(line['now'])}")
        case "unplayable":
            why = one_line(line["why"], 1_000)
            terminal.line(f"record {line['number']}: it can't be played from here: {why}", "bad")
        case "forked":
            terminal.line(f"session {line['session_id']} goes on from there", "good")
        case _:
            _end(terminal, line)


def _end(terminal: Terminal, line: PlayerLine) -> None:
    for name, value in line.get("state", {}).items():
        terminal.line(f"{name}: {neutral(json_line(value))}")
    count, total, passed = line["records"], line["of"], line["passed_over"]
    if count == total:
        terminal.line(f"{count} records, the same", "good")
    elif count + passed == total:
        terminal.line(f"{count} of {total} records, the same; {passed} were passed over")
    else:
        terminal.line(f"{count} of {total} records, the same; then not")


def _step(line: PlayerLine) -> str:
    first, last, stands = line["first"], line["last"], line["stands"]
    numbers = str(first) if first == last else f"{first}-{last}"
    facts = " ".join(f"{name} {stands[name]}" for name in ("turn", "queue", "calls", "tokens"))
    cost = "" if stands["cost_usd"] is None else f" ${stands['cost_usd']:.4f}"
    kept = ", ".join(line["records"])
    return f"{numbers:>9} {stands['state']:<15} {facts}{cost}  {_cause(line)} -> {kept}"


def _cause(line: PlayerLine) -> str:
    when = f"{clock(line['at_ms'])} " if line["at_ms"] else ""
    return f"{when}{one_line(' '.join((line['input'], line['ref'])))}".rstrip()


def _record(record: PlayerLine | None) -> str:
    return "nothing" if record is None else neutral(json_line(record))
