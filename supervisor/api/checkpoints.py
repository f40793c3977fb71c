"""What the daemon answers about checkpoints and definitions: it keeps bytes and opens none."""

import asyncio
from dataclasses import dataclass, field

import structlog

from cmdc_runtime import requests
from cmdc_runtime.checkpoints import (
    CHECKPOINT_BYTES_MAX,
    CHECKPOINTS_MAX,
    CheckpointFacts,
    facts_problem,
)
from cmdc_runtime.errors import (
    CheckpointFailed,
    InvalidSession,
    Overloaded,
    TransientError,
    UsageError,
)
from cmdc_runtime.ids import SessionId
from cmdc_runtime.requests import CheckpointFound, SessionDefinition
from supervisor.adapters.journal.base import CheckpointRow
from supervisor.adapters.journal.operations import (
    DeleteCheckpoint,
    FindSession,
    ListCheckpoints,
    SaveCheckpoint,
)
from supervisor.adapters.journal.rows import (
    checkpoint_problem,
    is_checkpoint_id,
    shown_checkpoint,
)
from supervisor.core.limits import PIECES_IDLE_S, PIECES_OPEN_MAX
from supervisor.sessions.revival import checkpoint_row
from supervisor.sessions.sessions import Sessions
from supervisor.sessions.specs import spec_of

log = structlog.get_logger()


@dataclass(slots=True)
class _Coming:
    body: bytearray
    size: int
    heard_s: float


@dataclass(slots=True)
class Pieces:
    """The bodies of checkpoints that come in pieces, until each is complete."""

    _coming: dict[tuple[SessionId, str], _Coming] = field(default_factory=dict)

    def put(self, request: requests.KeepCheckpoint) -> bytes | None:
        """Take a piece, and return the body where it is complete; one that is there counts once.

        Raises:
            UsageError: it is larger than a checkpoint may be, or than it says.
            TransientError: it is not the next one: those before it went to another daemon.
            Overloaded: too many come in already.
        """
        if request.size == 0:
            return request.body
        if not 0 < request.size <= CHECKPOINT_BYTES_MAX:
            at_most = f"at most {CHECKPOINT_BYTES_MAX:,} are kept"
            raise UsageError(f"body: {request.size:,} bytes, {at_most}")
        now_s = asyncio.get_running_loop().time()
        name = (request.facts.session_id, request.facts.checkpoint_id)
        if request.offset == 0:
            self._coming.pop(name, None)
            self._make_room(now_s)
            self._coming[name] = _Coming(bytearray(), request.size, now_s)
        coming = self._coming.get(name)
        if coming is None or request.offset > len(coming.body) or request.size != coming.size:
            raise TransientError("the pieces before it are not here: make the checkpoint again")
        coming.heard_s = now_s
        if request.offset == len(coming.body):
            coming.body += request.body
        if len(coming.body) < coming.size:
            return None
        del self._coming[name]
        if len(coming.body) > coming.size:
            raise UsageError(f"body: more than the {coming.size:,} bytes that were announced")
        return bytes(coming.body)

    def _make_room(self, now_s: float) -> None:
        stale = [one for one, it in self._coming.items() if now_s - it.heard_s > PIECES_IDLE_S]
        for name in stale:
            del self._coming[name]
        if len(self._coming) >= PIECES_OPEN_MAX:
            raise Overloaded(f"{PIECES_OPEN_MAX} checkpoints are coming in; try again later")


async def keep(sessions: Sessions, pieces: Pieces, request: requests.KeepCheckpoint) -> None:
    """Keep a checkpoint, or a piece of it until the last one has come.

    Raises:
        UsageError: it is none that may be kept.
        CheckpointFailed: the session has too many.
    """
    facts = request.facts
    await sessions.look_up(facts.session_id)
    body = pieces.put(request)
    if (problem := facts_problem(facts, body or b"")) is not None:
        raise UsageError(problem)
    if body is None:
        return
    known = await sessions.journal.read(ListCheckpoints(facts.session_id))
    if len(known) >= CHECKPOINTS_MAX and all(
        one.checkpoint_id != facts.checkpoint_id for one in known
    ):
        raise CheckpointFailed(
            f"session {facts.session_id} has {len(known)} checkpoints, and may have no more:"
            " delete some"
        )
    await sessions.journal.write(
        SaveCheckpoint(
            CheckpointRow(
                session_id=facts.session_id,
                checkpoint_id=facts.checkpoint_id,
                label=facts.label,
                saved_ms=facts.saved_ms,
                schema_version=facts.schema_version,
                body=body,
                metadata=facts.metadata,
            )
        )
    )


async def listed(
    sessions: Sessions, request: requests.ListCheckpoints
) -> tuple[CheckpointFacts, ...]:
    """Answer the checkpoints of a session, newest first.

    A damaged one is among them as far as it can be shown, and in the log; one that nobody could ask
    for is in the log only.
    """
    await sessions.look_up(request.session_id)
    found = await sessions.journal.read(ListCheckpoints(request.session_id))
    for row in found:
        if (problem := checkpoint_problem(row)) is not None:
            log.warning("checkpoint.damaged", session_id=request.session_id, problem=problem)
    return tuple(facts_of(row) for row in found if is_checkpoint_id(row.checkpoint_id))


async def get(sessions: Sessions, request: requests.GetCheckpoint) -> CheckpointFound:
    """Answer one checkpoint with its body."""
    await sessions.look_up(request.session_id)
    row = await checkpoint_row(sessions.journal, request.session_id, request.checkpoint_id)
    return CheckpointFound(facts=facts_of(row), body=row.body)


async def delete(sessions: Sessions, request: requests.DeleteCheckpoint) -> None:
    """Delete one checkpoint, or all of a session."""
    await sessions.look_up(request.session_id)
    await sessions.journal.write(DeleteCheckpoint(request.session_id, request.checkpoint_id))


async def definition(sessions: Sessions, request: requests.GetDefinition) -> SessionDefinition:
    """Answer what a session was started from."""
    live = sessions.live.get(request.session_id)
    if live is not None:
        spec = live.spec
    else:
        row = await sessions.journal.read(FindSession(request.session_id))
        if row is None:
            raise InvalidSession(f"no session {request.session_id!r} was ever seen here")
        spec = spec_of(row.spec)
    return SessionDefinition(agent=spec.agent, group_id=spec.group_id, is_alive=live is not None)


def facts_of(row: CheckpointRow) -> CheckpointFacts:
    """Return what is told of a checkpoint; of a damaged one what can be shown."""
    row = shown_checkpoint(row)
    return CheckpointFacts(
        session_id=row.session_id,
        checkpoint_id=row.checkpoint_id,
        label=row.label,
        saved_ms=row.saved_ms,
        schema_version=row.schema_version,
        metadata=row.metadata,
    )
