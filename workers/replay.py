"""``python -m workers.replay``: plays a session again that ``cmdc replay`` has read from a daemon.

It is a process of its own, as an agent is, because it loads the session's tools and plugins: the
machine has to know their names and their hooks. None of them is called. On standard input comes a
``PastPage`` with all that the journal keeps of the session; on standard output go lines of JSON:

- ``step``: one step was decided as it was recorded, and how the session stands after it,
- ``set_aside``: the snapshot is left out, as the session leaves it out, and so many records are
  passed over: what was decided on it, up to the record that sets it aside,
- ``difference``: today's code decides otherwise; ``unplayable``: the journal does not hold enough,
- ``failed``: the session could not be loaded here,
- ``end``: how far it came, with ``--state`` how the session stands there, and with ``--save`` that
  state as a checkpoint of base64.
"""

import argparse
import base64
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TextIO

import msgspec

from cmdc_runtime.errors import CheckpointUnreadable, CmdcError, InvalidTool
from cmdc_runtime.extensions.plugin import hooks_of
from cmdc_runtime.ids import EventIndex, Incarnation
from cmdc_runtime.requests import PastPage, StartSession
from cmdc_runtime.spec import AgentSpec
from cmdc_runtime.wire.codec import decode_as, encode
from cmdc_runtime.wire.frames import Assign
from workers.build import PROVIDER, first_memory, policy_of, with_agents
from workers.core import omissions
from workers.core.evolve import rebuild
from workers.core.plugins import with_hooks
from workers.core.records import Record, SetAside
from workers.core.replaying import (
    Entry,
    Plain,
    PlayedStep,
    of_end,
    of_left_out,
    of_step,
    play,
    whole,
)
from workers.core.snapshot import restore, saved
from workers.core.state import Memory
from workers.loader import LoadError, load_provider
from workers.session_code import SessionCode

EXIT_SAME: Final = 0
EXIT_OTHERWISE: Final = 1


@dataclass(frozen=True, slots=True)
class Script:
    """A session to play: its definition, its memory at first, its records.

    ``left_out`` names the snapshot where that is set aside. ``first`` comes after so many records
    as are ``passed_over`` then: those of processes that had it, up to the one that names it.
    """

    request: StartSession
    first: Memory
    entries: tuple[Entry, ...]
    left_out: SetAside | None = None
    passed_over: int = 0


class NotLoadedError(Exception):
    """The session can't be loaded here; the message says why."""


def script_of(past: PastPage, until: int | None) -> Script:
    """Return what is to be played of ``past``, up to the step that record ``until`` is part of.

    Raises:
        NotLoadedError: its definition, its code, or what the journal has of it can't be read.
    """
    try:
        bodies = [(row.kind, row.body) for row in past.records]
        records, _ = omissions.read_records(bodies, frozenset(), _at_no_step)
        entries = [
            Entry(row.seq, row.incarnation, record)
            for row, record in zip(past.records, records, strict=True)
        ]
        request: StartSession = decode_as(StartSession, past.spec)
        first, left_out = _first_memory(request, past.snapshot, records)
    except (LoadError, InvalidTool, CmdcError, msgspec.DecodeError) as error:
        raise NotLoadedError(str(error)) from error
    wanted = tuple(_upto(entries, until))
    if left_out is None:
        return Script(request, first, wanted)
    count = _decided_on(left_out, wanted)
    passed = (entry.record for entry in wanted[:count])
    first, _ = omissions.fold(first, (left_out, *passed), _at_no_step)
    return Script(request, first, wanted[count:], left_out, count)


def _at_no_step(_step: int) -> None:
    """Nobody counts the steps of rebuilding here."""


def _decided_on(left_out: SetAside, entries: Sequence[Entry]) -> int:
    """Return how many records come up to the first process without the snapshot ``left_out``."""
    named = (at for at, entry in enumerate(entries, 1) if entry.record == left_out)
    return next(named, len(entries))


def _first_memory(
    request: StartSession, snapshot: bytes, records: Sequence[Record]
) -> tuple[Memory, SetAside | None]:
    """Return the memory that the records go on from, with the hooks that plugins have today.

    With it comes what names the snapshot, where that is left out.
    """
    spec: AgentSpec = decode_as(AgentSpec, request.agent)
    assign = Assign(
        session_id=request.session_id,
        incarnation=Incarnation(1),
        restarts=0,
        next_index=EventIndex(1),
        agent=request.agent,
        parent_id=request.parent_id,
        group_id=request.group_id,
        last_reason=None,
    )
    empty = Memory(policy=policy_of(assign, spec, load_provider(PROVIDER)))
    start, left_out = _restored(empty, snapshot, records)
    session_code = SessionCode(left_out=start.left_out | omissions.tools_left_out(records))
    if spec.provider is not None:
        own = policy_of(assign, spec, session_code.provider(spec.provider))
        start = msgspec.structs.replace(start, policy=own)
    start = with_agents(start, session_code.agents(spec))
    opened = session_code.plugins(spec.plugins)
    if not snapshot or left_out is not None:
        start = first_memory(start.policy, spec, opened, session_code.tools(spec.tools))
    hooks = {plugin.name: hooks_of(plugin) for plugin, _ in opened}
    return with_hooks(start, hooks), left_out


def _restored(
    empty: Memory, snapshot: bytes, records: Sequence[Record]
) -> tuple[Memory, SetAside | None]:
    """Return the memory of the snapshot, which is not read where the session leaves it out.

    Raises:
        CheckpointUnreadable: it can't be read, and the session would not begin without it either.
    """
    if (left_out := omissions.naming(snapshot, records)) is not None:
        return empty, left_out
    try:
        return restore(empty, snapshot), None
    except CheckpointUnreadable as error:
        if not records:
            raise
        return empty, omissions.damage_of(snapshot, error)


def _upto(entries: Sequence[Entry], until: int | None) -> Iterator[Entry]:
    """Yield the entries of all steps that have begun by record ``until``."""
    for entry in entries:
        if until is not None and entry.number > until and entry.record.cause is not None:
            return
        yield entry


def perform(script: Script, out: TextIO, *, shows_state: bool, saves: bool) -> int:
    """Play a script, write down what comes of it, and return the exit status."""
    memory = script.first
    status, played = EXIT_SAME, 0
    if script.left_out is not None:
        status = EXIT_OTHERWISE
        _say(out, of_left_out(script.left_out, script.passed_over))
    for outcome in play(script.first, script.entries):
        if isinstance(outcome, PlayedStep):
            memory = outcome.memory
            played += len(outcome.entries)
            _say(out, of_step(outcome))
        else:
            status = EXIT_OTHERWISE
            _say(out, of_end(outcome))
    total = script.passed_over + len(script.entries)
    end: Plain = {"kind": "end", "records": played, "of": total}
    end["passed_over"] = script.passed_over
    if shows_state:
        end["state"] = whole(memory)
    if saves and status == EXIT_SAME:
        end["saved"] = base64.b64encode(_saved(script)).decode()
    _say(out, end)
    return status


def _saved(script: Script) -> bytes:
    """Return a checkpoint of what a new process would make of the records."""
    known = rebuild(script.first, (entry.record for entry in script.entries))
    request = script.request
    state = msgspec.structs.replace(
        saved(known), agent=bytes(request.agent), group_id=request.group_id
    )
    return encode(state)


def _say(out: TextIO, value: Any) -> None:  # Any: what JSON takes
    out.write(msgspec.json.encode(value).decode() + "\n")
    out.flush()


def _own_output() -> TextIO:
    """Keep standard output for ourselves: what imported code prints goes to standard error."""
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return own


def main(arguments: Sequence[str] | None = None) -> int:
    """Read a session from standard input and play it."""
    parser = argparse.ArgumentParser(prog="python -m workers.replay")
    parser.add_argument("--until", type=int, default=None)
    parser.add_argument("--state", action="store_true")
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args(arguments)
    out = _own_output()
    try:
        past: PastPage = decode_as(PastPage, sys.stdin.buffer.read())
        script = script_of(past, given.until)
    except (NotLoadedError, CmdcError) as error:
        _say(out, {"kind": "failed", "why": str(error)})
        return EXIT_OTHERWISE
    return perform(script, out, shows_state=given.state, saves=given.save)


if __name__ == "__main__":
    sys.exit(main())
