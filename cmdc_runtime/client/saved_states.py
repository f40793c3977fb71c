"""Checkpoints as a client asks for them: in the journal, or in a backend of the application's own.

The journal is the daemon's to read. A backend runs in the session's own process, so that one is
asked, or one that reads for a session that sleeps or has ended. What a session is to begin with is
brought into the journal for as long as it takes.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cmdc_runtime.checkpoints import (
    CheckpointFacts,
    KeptCheckpoint,
    Snapshot,
    encode_facts,
    listed_snapshot,
    plain_state,
    read_saved,
    snapshot_of,
)
from cmdc_runtime.client.connection import Connection
from cmdc_runtime.client.resuming import definition_of
from cmdc_runtime.client.transfer import keep_checkpoint
from cmdc_runtime.commands import (
    DeleteOwnCheckpoint,
    ListOwnCheckpoints,
    LoadOwnCheckpoint,
    OfBackend,
)
from cmdc_runtime.errors import CheckpointFailed, CommandDropped, SessionNotAlive
from cmdc_runtime.ids import SessionId
from cmdc_runtime.requests import (
    CheckpointFound,
    DeleteCheckpoint,
    FindSession,
    GetCheckpoint,
    ListCheckpoints,
    Origin,
    SessionDefinition,
    SessionInfo,
)

_WITHOUT_PROCESS: Final = frozenset({"hibernated", "ended"})
"""Phases in which a process that only reads answers for the session."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a session begins with: where its state is, and what defined it then."""

    origin: Origin
    agent: bytes
    group_id: str | None


async def listed(connection: Connection, session_id: SessionId) -> list[Snapshot]:
    """Return a session's checkpoints without their states, newest first."""
    found: SessionInfo = await connection.ask(FindSession(session_id=session_id))
    if found.own_checkpoints:
        return list(await _asked(connection, found, ListOwnCheckpoints()))
    journaled = await connection.ask(ListCheckpoints(session_id=session_id))
    return [listed_snapshot(one) for one in journaled]


async def loaded(connection: Connection, session_id: SessionId, name: str | None) -> Snapshot:
    """Return a checkpoint with its state, or with None the newest."""
    found: SessionInfo = await connection.ask(FindSession(session_id=session_id))
    if found.own_checkpoints:
        own: KeptCheckpoint = await _asked(connection, found, LoadOwnCheckpoint(checkpoint_id=name))
        return msgspec.structs.replace(own.snapshot, state=plain_state(read_saved(own.body)))
    request = GetCheckpoint(session_id=session_id, checkpoint_id=name)
    journaled: CheckpointFound = await connection.ask(request)
    return snapshot_of(journaled.facts, journaled.body)


async def deleted(connection: Connection, session_id: SessionId, name: str | None) -> None:
    """Have a checkpoint deleted, or with None all of the session."""
    found: SessionInfo = await connection.ask(FindSession(session_id=session_id))
    if found.own_checkpoints:
        await _asked(connection, found, DeleteOwnCheckpoint(checkpoint_id=name))
    else:
        await connection.ask(DeleteCheckpoint(session_id=session_id, checkpoint_id=name))


@asynccontextmanager
async def beginning(
    connection: Connection, origin: Origin, known: SessionDefinition
) -> AsyncIterator[Beginning]:
    """Lend what a session begins with that goes on from ``origin``, until it has begun."""
    name, agent = origin.checkpoint_id, bytes(known.agent)
    if name is None:
        yield Beginning(origin, agent, known.group_id)
        return
    if definition_of(agent).checkpoint_backend is None:
        wanted = GetCheckpoint(session_id=origin.session_id, checkpoint_id=name)
        journaled: CheckpointFound = await connection.ask(wanted)
        saved = read_saved(journaled.body)
        yield Beginning(origin, saved.agent, saved.group_id)
        return
    found: SessionInfo = await connection.ask(FindSession(session_id=origin.session_id))
    own: KeptCheckpoint = await _asked(connection, found, LoadOwnCheckpoint(checkpoint_id=name))
    saved = read_saved(own.body)
    async with kept(connection, _facts_of(own.snapshot), own.body) as brought:
        yield Beginning(brought, saved.agent, saved.group_id)


@asynccontextmanager
async def kept(
    connection: Connection, facts: CheckpointFacts, state: bytes
) -> AsyncIterator[Origin]:
    """Keep a state in the journal until a session has begun with it."""
    await keep_checkpoint(connection.ask, facts, state)
    try:
        yield Origin(session_id=facts.session_id, checkpoint_id=facts.checkpoint_id)
    finally:
        await connection.ask(
            DeleteCheckpoint(session_id=facts.session_id, checkpoint_id=facts.checkpoint_id)
        )


def _facts_of(snapshot: Snapshot) -> CheckpointFacts:
    return CheckpointFacts(
        session_id=snapshot.session_id,
        checkpoint_id=snapshot.checkpoint_id,
        label=None,
        saved_ms=snapshot.saved_at_ms,
        schema_version=snapshot.schema_version,
        metadata=encode_facts({}, ()),
    )


async def _asked(
    connection: Connection, found: SessionInfo, command: OfBackend
) -> Any:  # Any: what the command's ``answer`` says
    """Return what a session's own backend answers, be the session awake, asleep or ended."""
    is_read = found.phase in _WITHOUT_PROCESS
    try:
        return await connection.send(found.session_id, command, reads_ended=is_read)
    except CommandDropped as error:
        raise CheckpointFailed(f"the session's checkpoint backend: {error}") from error
    except SessionNotAlive:
        if is_read:
            raise
        return await connection.send(found.session_id, command, reads_ended=True)
