"""A session out of one daemon and into another: what is asked of them, part by part.

Everything is read by questions that anybody may ask, so nothing is held for it in the daemon that
the session comes from. The one that it goes to holds the parts until the last one has come.

What the journal keeps of a session is read part by part, and so is what it is given to keep.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Final

import msgspec

from cmdc_runtime.checkpoints import SCHEMA_VERSION, CheckpointFacts, encode_facts, movable
from cmdc_runtime.client.connection import Connection
from cmdc_runtime.client.limits import COMMAND_TIMEOUT_S, READS_MAX, START_GRACE_S
from cmdc_runtime.clock import now_ms
from cmdc_runtime.content import File, Image, read
from cmdc_runtime.errors import (
    CheckpointNotFound,
    ProtocolError,
    SessionNotAlive,
    TransientError,
)
from cmdc_runtime.ids import EventIndex, SessionId, new_command_id
from cmdc_runtime.message_parts import MessagePart
from cmdc_runtime.pages import PAGE_BYTES
from cmdc_runtime.reasons import Shutdown
from cmdc_runtime.requests import (
    BlobFound,
    CheckpointFound,
    FindSession,
    FinishImport,
    GetBlob,
    GetCheckpoint,
    KeepBlob,
    KeepCheckpoint,
    ListBlobs,
    ListCheckpoints,
    PastCommand,
    PastPage,
    PastRecord,
    PutPart,
    ReadPast,
    Replay,
    Replayed,
    ReplayedBatch,
    Request,
    SessionInfo,
    StopSession,
)
from cmdc_runtime.transfer import (
    FORMAT,
    FORMAT_FIRST,
    BlobPart,
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
from cmdc_runtime.wire.codec import is_unknown_request

# --- the past of a session ------------------------------------------------------------------------


async def read_past(daemon: Connection, session_id: SessionId) -> PastPage:
    """Return all that the daemon's journal keeps of a session but its events, as one page.

    Raises:
        InvalidSession: there was never such a session.
        TransientError: its journal was shortened again and again while it was read.
    """
    for _ in range(READS_MAX):
        whole = await _read_once(daemon, session_id)
        if whole is not None:
            return whole
    raise TransientError(
        f"session {session_id}: its journal was shortened while it was read, {READS_MAX} times; "
        "try again when it is less busy"
    )


async def _read_once(daemon: Connection, session_id: SessionId) -> PastPage | None:
    """Read every part; None where what was read first fits no more to what came then."""
    spec: PastPage = await daemon.ask(ReadPast(session_id=session_id, part="spec"))
    begun: PastPage = await daemon.ask(ReadPast(session_id=session_id, part="snapshot"))
    # Commands come last: each was accepted before it is named by a record.
    recorded = await _rows(daemon, ReadPast(session_id=session_id, part="records"))
    given = await _rows(daemon, ReadPast(session_id=session_id, part="commands"))
    if recorded.snapshot_seq != begun.snapshot_seq:
        return None
    return msgspec.structs.replace(
        begun, spec=spec.spec, records=recorded.records, commands=given.commands
    )


async def _rows(daemon: Connection, first: ReadPast) -> PastPage:
    """Return all pages of one part as one; its ``snapshot_seq`` is that of the last."""
    whole: PastPage = await daemon.ask(first)
    while not whole.is_last:
        rows: tuple[PastRecord | PastCommand, ...] = (*whole.records[-1:], *whole.commands[-1:])
        after = msgspec.structs.replace(first, after=rows[-1].seq)
        page: PastPage = await daemon.ask(after)
        whole = msgspec.structs.replace(
            page,
            records=(*whole.records, *page.records),
            commands=(*whole.commands, *page.commands),
        )
    return whole


async def keep_checkpoint(
    ask: Callable[[Request], Awaitable[object]], facts: CheckpointFacts, body: bytes
) -> None:
    """Have the daemon keep a checkpoint; return when it is in the journal.

    Raises:
        CheckpointFailed: the session has too many.
        TransientError: another daemon began while it was sent; nothing is kept of it.
    """
    size = len(body) if len(body) > PAGE_BYTES else 0
    for offset in range(0, max(1, len(body)), PAGE_BYTES):
        piece = body[offset : offset + PAGE_BYTES]
        await ask(KeepCheckpoint(facts=facts, body=piece, offset=offset, size=size))


OLDER: Final = (
    "the daemon is of an older release than this client and takes no images and files: install the"
    " same release of cmdc-runtime on both sides"
)


async def keep_part(
    daemon: Connection, session_id: SessionId, given: Image | File, at: int
) -> MessagePart:
    """Have the daemon keep an image or a file; return what stands for it, when it is kept.

    Raises:
        InvalidPart: it is none that is taken, or the session has no room for it.
        TransientError: another daemon began while it was sent.
        ProtocolError: the daemon is of a release that keeps none.
    """
    part, body = await asyncio.to_thread(read, given, at)
    size = len(body) if len(body) > PAGE_BYTES else 0
    for offset in range(0, len(body), PAGE_BYTES):
        piece = body[offset : offset + PAGE_BYTES]
        wanted = KeepBlob(
            session_id=session_id, digest=part.digest, body=piece, offset=offset, size=size
        )
        try:
            await daemon.ask(wanted)
        except ProtocolError as error:
            if not is_unknown_request(error):
                raise
            raise ProtocolError(OLDER) from error
    return part


def new_facts(session_id: SessionId, new_id: str) -> CheckpointFacts:
    """Return the facts of a state that is kept only until session ``new_id`` has begun."""
    return CheckpointFacts(
        session_id=session_id,
        checkpoint_id=new_command_id(),
        label=f"for session {new_id}",
        saved_ms=now_ms(),
        schema_version=SCHEMA_VERSION,
        metadata=encode_facts({}, ()),
    )


# --- from one daemon to another -------------------------------------------------------------------

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
    # Behind the records: what they name was there before them.
    held = await _held_blobs(daemon, session_id)
    header = _header(info, past, FORMAT if held else FORMAT_FIRST)
    seal = Seal()
    for parts in (_parts(daemon, header, past), _blobs(daemon, session_id, held)):
        async for part in parts:
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


def _header(info: SessionInfo, past: PastPage, format_: int) -> Header:
    return Header(
        format=format_,
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


async def _held_blobs(daemon: Connection, session_id: SessionId) -> tuple[tuple[str, int], ...]:
    """Return digest and size of what a session holds: nothing, where a daemon keeps no images."""
    try:
        held: tuple[tuple[str, int], ...] = await daemon.ask(ListBlobs(session_id=session_id))
    except ProtocolError as error:
        if not is_unknown_request(error):
            raise
        return ()
    return held


async def _blobs(
    daemon: Connection, session_id: SessionId, held: Iterable[tuple[str, int]]
) -> AsyncIterator[Part]:
    """Yield the images and files that a session holds, each read when it is its turn."""
    for digest, _size in held:
        found: BlobFound = await daemon.ask(GetBlob(session_id=session_id, digest=digest))
        for part in in_pieces(found.body or b"", partial(_blob_part, digest)):
            if found.body is not None:  # the session was deleted meanwhile
                yield part


def _blob_part(digest: str, body: bytes) -> Part:
    return BlobPart(digest=digest, body=body)


def _checkpoint_part(facts: CheckpointFacts, body: bytes) -> Part:
    return CheckpointPart(facts=facts, body=body)
