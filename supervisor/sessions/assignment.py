"""What a new process gets before it is the agent of a session: who it is, and what was.

A session's definition is in the journal as the request that started it.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import structlog
from msgspec.structs import replace

from cmdc_runtime.ids import CommandId, EventIndex, Incarnation, SessionId
from cmdc_runtime.plain import short
from cmdc_runtime.reasons import AnyReason
from cmdc_runtime.requests import StartSession
from cmdc_runtime.wire.codec import decode_as, encode
from cmdc_runtime.wire.frames import Assign, ToClient, ToWorker
from supervisor.adapters.journal.base import CommandRow, Stored
from supervisor.adapters.journal.operations import BeginIncarnation, LoadSession
from supervisor.core.history import command_problem, delivery, hole_text, slices
from supervisor.sessions.services import Services

# --- definitions ----------------------------------------------------------------------------------


def spec_bytes(spec: StartSession) -> bytes:
    """Return a session's definition as the journal keeps it."""
    return encode(spec)


def spec_of(data: bytes) -> StartSession:
    """Return the definition that ``spec_bytes`` made.

    Raises:
        ProtocolError: it is damaged, or of another program.
    """
    spec: StartSession = decode_as(StartSession, data)
    return spec


# --- assignments ----------------------------------------------------------------------------------

log = structlog.get_logger()


class SessionView(Protocol):
    """What every process that works for a session needs of it; the session stands above them."""

    spec: StartSession
    incarnation: Incarnation
    restarts: int
    last_reason: AnyReason | None
    keys: Mapping[str, str]

    @property
    def id(self) -> SessionId:
        """The session's id."""

    @property
    def set_aside(self) -> tuple[int, ...]:
        """The steps of rebuilding that are to be left out."""

    def reply(self, command_id: CommandId, frame: ToClient | bytes) -> None:
        """Answer a command or a question."""

    def is_look(self, command_id: CommandId) -> bool:
        """Say whether a command only asks how things are, and has its answer now."""

    def reader_fell(self, step: int) -> bool:
        """Record the step of rebuilding that a reader died at; say whether to try again."""


async def assignment_frames(services: Services, session: SessionView) -> tuple[ToWorker, ...]:
    """Return the frames for the process of the current incarnation, in their order.

    From now on no earlier process of the session can write to the journal.

    Raises:
        CmdcError: the journal could not be read or written.
    """
    spec, assign = session.spec, _assign(services, session)
    stored = None
    if assign.incarnation > 1:
        await services.journal.write(
            BeginIncarnation(spec.session_id, assign.incarnation, assign.restarts)
        )
    if assign.incarnation > 1 or spec.origin is not None:
        stored = await _stored(services, spec)
    if stored is not None:
        _log_left_out(spec.session_id, stored.unanswered)
        if stored.missing:
            gone = ", ".join(map(hole_text, stored.missing))
            log.error("rows.missing", session_id=spec.session_id, seqs=gone)
    next_index = EventIndex(services.hub.taken_index(spec.session_id) + 1)
    return (replace(assign, next_index=next_index), *slices(stored))


async def reading(services: Services, session: SessionView) -> tuple[ToWorker, ...]:
    """Return the frames for a process that only answers how the session stands.

    Raises:
        CmdcError: the journal could not be read.
    """
    stored = await _stored(services, session.spec)
    return (replace(_assign(services, session), looks=True), *slices(stored))


async def _stored(services: Services, spec: StartSession) -> Stored | None:
    """Return what a session is rebuilt from.

    One that began with the history of another has rows of its own, of which none may be missing,
    only behind its second snapshot: that history may be without its commands.

    Raises:
        CmdcError: the journal could not be read.
    """
    stored = await services.journal.read(LoadSession(spec.session_id))
    if stored is None or spec.origin is None or stored.snapshots > 1:
        return stored
    return dataclasses.replace(stored, missing=())


def deliveries(session_id: SessionId, stored: Stored | None) -> Iterator[ToWorker]:
    """Return the frames that give a process what nobody has answered yet."""
    unanswered = () if stored is None else stored.unanswered
    _log_left_out(session_id, unanswered)
    return (delivery(one) for one in unanswered if command_problem(one) is None)


def _log_left_out(session_id: SessionId, commands: Iterable[CommandRow]) -> None:
    """Log which rows hold a command that can't be given to a process; they stay as they are."""
    for one in commands:
        if (problem := command_problem(one)) is not None:
            log.error(
                "command.set_aside", session_id=session_id, seq=short(one.seq), problem=problem
            )


def _assign(services: Services, session: SessionView) -> Assign:
    spec = session.spec
    return Assign(
        session_id=spec.session_id,
        incarnation=session.incarnation,
        restarts=session.restarts,
        next_index=EventIndex(services.hub.taken_index(spec.session_id) + 1),
        agent=spec.agent,
        parent_id=spec.parent_id,
        group_id=spec.group_id,
        last_reason=session.last_reason,
        unresponsive_after=spec.supervision.unresponsive_after,
        max_open_files=spec.supervision.max_open_files,
        set_aside=session.set_aside,
        is_contained=False,
        keys=dict(session.keys),
        state_dir=services.state_dir,
    )
