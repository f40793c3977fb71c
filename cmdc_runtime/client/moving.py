"""A session out of one daemon and into another: what is asked of them, part by part.

Everything is read by questions that anybody may ask, so nothing is held for it in the daemon that
the session comes from. The one that it goes to holds the parts until the last one has come.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import Final

from cmdc_runtime.checkpoints import CheckpointFacts, movable
from cmdc_runtime.client.connection import Connection
from cmdc_runtime.client.limits import COMMAND_TIMEOUT_S, START_GRACE_S
from cmdc_runtime.client.past import read_past
from cmdc_runtime.clock import now_ms
from cmdc_runtime.errors import CheckpointNotFound, SessionNotAlive
from cmdc_runtime.ids import EventIndex, SessionId, new_command_id
from cmdc_runtime.reasons import Shutdown
from cmdc_runtime.requests import (
    CheckpointFound,
    FindSession,
    FinishImport,
    GetCheckpoint,
    ListCheckpoints,
    PastPage,
    PutPart,
    Replay,
    Replayed,
    ReplayedBatch,
    SessionInfo,
    StopSession,
)
from cmdc_runtime.transfer import (
    FORMAT,
    CheckpointPart,
    CommandsPart,
    EventsPart,
    Header,
    Part,
    RecordsPart,
    Seal,
    SnapshotPart,
    frame_of,
    in_pieces,
    rows_in_parts,
)

MOVED: Final = "it was moved to another daemon"
"""Why a session ended that was exported for good."""
STOP_S: Final = 30.0
"""For its process to end; SIGKILL follows."""
START_S: Final = 300.0
"""The longest start that an import waits for."""


async def end_to_move(daemon: Connection, session_id: SessionId) -> bool:
    """End a session that is to go on elsewhere; return False where it had ended otherwise."""
    try:
        wanted = StopSession(session_id=session_id, reason=MOVED, timeout=STOP_S)
        await daemon.ask(wanted, timeout_s=STOP_S + COMMAND_TIMEOUT_S)
    except SessionNotAlive as ended:
        return ended.reason == Shutdown(detail=MOVED)  # the answer to the first time was lost
    return True


async def export_session(
    daemon: Connection, session_id: SessionId, write: Callable[[bytes], None]
) -> Header:
    """Give each frame of a session's file to ``write``.

    Raises:
        InvalidSession: there was never such a session.
        UsageError: a part of it is too large for a file.
    """
    past = await read_past(daemon, session_id)
    info: SessionInfo = await daemon.ask(FindSession(session_id=session_id))
    header = _header(info, past)
    seal = Seal()
    async for part in _parts(daemon, header, past):
        frame = frame_of(part)
        seal.add(frame)
        write(frame)
    write(frame_of(seal.end()))
    return header


async def import_session(
    daemon: Connection, frames: Iterable[bytes], as_id: SessionId | None
) -> SessionInfo:
    """Start a session from the frames of its file, and return it when its agent is up.

    Raises:
        UsageError: the file is damaged, or its session may not go on under its id.
        SessionExists: the id is alive.
        StartFailed: the agent can't be built here; the reason says why.
    """
    import_id = new_command_id()
    for number, frame in enumerate(frames):
        await daemon.ask(PutPart(import_id=import_id, number=number, frame=frame))
    wanted = FinishImport(import_id=import_id, as_id=as_id)
    found: SessionInfo = await daemon.ask(wanted, timeout_s=START_S + START_GRACE_S)
    return found


def _header(info: SessionInfo, past: PastPage) -> Header:
    return Header(
        format=FORMAT,
        session_id=info.session_id,
        exported_ms=now_ms(),
        created_ms=info.created_ms,
        is_over=info.phase == "ended",
        incarnation=info.incarnation,
        restarts=info.restarts,
        last_index=info.last_index,
        spec=past.spec,
        snapshot_seq=past.snapshot_seq,
    )


async def _parts(daemon: Connection, header: Header, past: PastPage) -> AsyncIterator[Part]:
    yield header
    for part in _past_parts(past):
        yield part
    async for batches in _events(daemon, header.session_id, header.last_index):
        for part in rows_in_parts(batches, EventsPart):
            yield part
    async for part in _checkpoints(daemon, header.session_id):
        yield part


def _past_parts(past: PastPage) -> Iterator[Part]:
    if past.snapshot:
        yield from in_pieces(past.snapshot, lambda body: SnapshotPart(body=body))
    yield from rows_in_parts(past.records, RecordsPart)
    yield from rows_in_parts(past.commands, CommandsPart)


async def _events(
    daemon: Connection, session_id: SessionId, last: EventIndex
) -> AsyncIterator[tuple[ReplayedBatch, ...]]:
    """Yield what is left of a session's events, a page at a time."""
    after = EventIndex(0)
    while after < last:
        page: Replayed = await daemon.ask(Replay(session_id=session_id, after=after, through=last))
        yield page.batches
        if page.through <= after:
            return
        after = page.through


async def _checkpoints(daemon: Connection, session_id: SessionId) -> AsyncIterator[Part]:
    """Yield a session's checkpoints, oldest first, so that they keep their order."""
    known = await daemon.ask(ListCheckpoints(session_id=session_id))
    for facts in reversed(known):
        wanted = GetCheckpoint(session_id=session_id, checkpoint_id=facts.checkpoint_id)
        try:
            found: CheckpointFound = await daemon.ask(wanted)
        except CheckpointNotFound:  # deleted meanwhile
            continue
        for part in in_pieces(found.body, partial(_checkpoint_part, movable(found.facts))):
            yield part


def _checkpoint_part(facts: CheckpointFacts, body: bytes) -> Part:
    return CheckpointPart(facts=facts, body=body)
