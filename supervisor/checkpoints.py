"""What the daemon answers about checkpoints and definitions: it keeps bytes and opens none."""

from typing import Final

from cmdc_runtime import requests
from cmdc_runtime.checkpoints import (
    CHECKPOINT_BYTES_MAX,
    CHECKPOINT_ID,
    CHECKPOINTS_MAX,
    METADATA_BYTES_MAX,
    CheckpointFacts,
)
from cmdc_runtime.errors import CheckpointFailed, InvalidSession, UsageError
from cmdc_runtime.requests import CheckpointFound, SessionDefinition
from supervisor.adapters.journal.base import CheckpointRow
from supervisor.revival import checkpoint_row
from supervisor.sessions import Sessions
from supervisor.specs import spec_of

_METADATA_SLACK: Final = 1024
"""For what an agent adds to the metadata of whoever asked."""


async def keep(sessions: Sessions, request: requests.KeepCheckpoint) -> None:
    """Keep a checkpoint.

    Raises:
        UsageError: it is none that may be kept.
        CheckpointFailed: the session has too many.
    """
    facts = request.facts
    await sessions.look_up(facts.session_id)
    _check(facts, request.body)
    known = await sessions.journal.checkpoints(facts.session_id)
    if len(known) >= CHECKPOINTS_MAX and all(
        one.checkpoint_id != facts.checkpoint_id for one in known
    ):
        raise CheckpointFailed(
            f"session {facts.session_id} has {len(known)} checkpoints, and may have no more:"
            " delete some"
        )
    await sessions.journal.save_checkpoint(
        CheckpointRow(
            session_id=facts.session_id,
            checkpoint_id=facts.checkpoint_id,
            label=facts.label,
            saved_ms=facts.saved_ms,
            schema_version=facts.schema_version,
            body=request.body,
            metadata=facts.metadata,
        )
    )


async def listed(
    sessions: Sessions, request: requests.ListCheckpoints
) -> tuple[CheckpointFacts, ...]:
    """Answer the checkpoints of a session, newest first."""
    await sessions.look_up(request.session_id)
    return tuple(map(facts_of, await sessions.journal.checkpoints(request.session_id)))


async def get(sessions: Sessions, request: requests.GetCheckpoint) -> CheckpointFound:
    """Answer one checkpoint with its body."""
    await sessions.look_up(request.session_id)
    row = await checkpoint_row(sessions.journal, request.session_id, request.checkpoint_id)
    return CheckpointFound(facts=facts_of(row), body=row.body)


async def delete(sessions: Sessions, request: requests.DeleteCheckpoint) -> None:
    """Delete one checkpoint, or all of a session."""
    await sessions.look_up(request.session_id)
    await sessions.journal.delete_checkpoint(request.session_id, request.checkpoint_id)


async def definition(sessions: Sessions, request: requests.GetDefinition) -> SessionDefinition:
    """Answer what a session was started from."""
    live = sessions.live.get(request.session_id)
    if live is not None:
        spec = live.spec
    else:
        row = await sessions.journal.find(request.session_id)
        if row is None:
            raise InvalidSession(f"no session {request.session_id!r} was ever seen here")
        spec = spec_of(row.spec)
    return SessionDefinition(agent=spec.agent, group_id=spec.group_id, is_alive=live is not None)


def facts_of(row: CheckpointRow) -> CheckpointFacts:
    """Return what is told of a checkpoint."""
    return CheckpointFacts(
        session_id=row.session_id,
        checkpoint_id=row.checkpoint_id,
        label=row.label,
        saved_ms=row.saved_ms,
        schema_version=row.schema_version,
        metadata=row.metadata,
    )


def _check(facts: CheckpointFacts, body: bytes) -> None:
    if not CHECKPOINT_ID.fullmatch(facts.checkpoint_id):
        raise UsageError(
            f"checkpoint_id: expected 1 to 128 of A-Z a-z 0-9 _ . : -, got {facts.checkpoint_id!r}"
        )
    if len(body) > CHECKPOINT_BYTES_MAX:
        raise UsageError(f"body: {len(body):,} bytes, at most {CHECKPOINT_BYTES_MAX:,} are kept")
    if len(facts.metadata) > METADATA_BYTES_MAX + _METADATA_SLACK:
        raise UsageError(
            f"metadata: {len(facts.metadata):,} bytes, at most {METADATA_BYTES_MAX:,} are kept"
        )
