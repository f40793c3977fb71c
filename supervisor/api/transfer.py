"""What comes and goes in pieces, opened by nobody here: files, checkpoints, definitions.

A file of a session is held until its last part has come, and then begun.
"""

import asyncio
import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import msgspec
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
    InvalidPart,
    InvalidSession,
    Overloaded,
    SessionNotAlive,
    TransientError,
    UsageError,
)
from cmdc_runtime.ids import EventIndex, SessionId
from cmdc_runtime.message_parts import size_problem
from cmdc_runtime.process import RESUMED
from cmdc_runtime.reasons import Other
from cmdc_runtime.requests import (
    CheckpointFound,
    FinishImport,
    Origin,
    PutPart,
    SessionDefinition,
    SessionInfo,
    StartSession,
)
from cmdc_runtime.transfer import Assembly, CheckpointPart, Whole, check_whole
from supervisor.adapters.journal.base import (
    BlobRow,
    CheckpointRow,
    CommandRow,
    EventRow,
    Past,
    RecordRow,
    SessionRow,
    checkpoint_problem,
    is_checkpoint_id,
    shown_checkpoint,
)
from supervisor.adapters.journal.operations import (
    DeleteCheckpoint,
    FindSession,
    KeepBlob,
    ListCheckpoints,
    SaveCheckpoint,
)
from supervisor.core.limits import INDEX_JUMP, PIECES_IDLE_S, PIECES_OPEN_MAX
from supervisor.sessions.assignment import Brought, checkpoint_row, spec_bytes, spec_of
from supervisor.sessions.sessions import Sessions

# --- sessions from files --------------------------------------------------------------------------

IMPORTS_OPEN_MAX: Final = 2
"""Files that come in at a time: each is held in memory."""
IMPORT_IDLE_S: Final = 60.0
"""Without a part, until one that was given up may be dropped for another."""


@dataclass(slots=True)
class _ComingFile:
    assembly: Assembly
    heard_s: float


@dataclass(slots=True)
class Imports:
    """The files that are coming in."""

    _coming: OrderedDict[str, _ComingFile] = field(default_factory=OrderedDict)

    def put(self, request: PutPart) -> None:
        """Take a part of a file; one that comes again is there already.

        Raises:
            UsageError: it is damaged, or not the next one.
            Overloaded: too many files come in already.
        """
        now_s = asyncio.get_running_loop().time()
        coming = self._coming.get(request.import_id)
        if coming is None:
            self._make_room(now_s)
            coming = self._coming[request.import_id] = _ComingFile(Assembly(), now_s)
        coming.heard_s = now_s
        taken = coming.assembly.taken
        if request.number > taken:
            del self._coming[request.import_id]
            raise UsageError(f"part {taken} of the file is missing: import it again")
        if request.number < taken:
            return
        try:
            coming.assembly.add(request.frame)
        except UsageError:
            del self._coming[request.import_id]
            raise

    def take(self, import_id: str) -> Whole:
        """Return the session of a file that has come in, and let go of it.

        Raises:
            UsageError: it is not complete, or nobody knows it.
        """
        coming = self._coming.pop(import_id, None)
        if coming is None:
            raise UsageError("the file is not here: the daemon began anew, so import it again")
        return coming.assembly.whole()

    def _make_room(self, now_s: float) -> None:
        stale = [
            import_id
            for import_id, one in self._coming.items()
            if now_s - one.heard_s > IMPORT_IDLE_S
        ]
        for import_id in stale:
            del self._coming[import_id]
        if len(self._coming) >= IMPORTS_OPEN_MAX:
            raise Overloaded(f"{IMPORTS_OPEN_MAX} sessions are being imported; try again later")


async def begin_imported(
    sessions: Sessions, imports: Imports, request: FinishImport
) -> SessionInfo:
    """Begin with what came in, and answer when its agent is up; once, however often it is asked.

    Raises:
        UsageError: its session may not go on under its id, or is not to be read.
        SessionExists: the id is alive.
        StartFailed: the agent can't be built here.
    """
    for known in sessions.live.values():
        if known.spec.start_id == request.import_id:  # it is asked for again
            await asyncio.shield(known.started)
            return known.info()
    whole = imports.take(request.import_id)
    header = whole.header
    session_id = request.as_id or header.session_id
    if not header.is_over and session_id == header.session_id:
        raise UsageError(
            f"session {session_id} goes on where it comes from, since it was not moved (cmdc export"
            " --move): give the copy another id (cmdc import --as ID)"
        )
    spec = msgspec.structs.replace(
        await asyncio.to_thread(check_whole, whole),
        session_id=session_id,
        parent_id=None,
        parent_incarnation=None,
        start_id=request.import_id,
        origin=Origin(session_id=header.session_id),
    )
    session = await sessions.start(spec, _brought(whole, spec))
    return session.info()


def _brought(whole: Whole, spec: StartSession) -> Brought:
    """Return what a session begins with.

    The commands of a copy belong to the session that goes on: what it has not answered yet is done
    there, and who asks again asks it.
    """
    header = whole.header
    row = SessionRow(
        session_id=spec.session_id,
        created_ms=header.created_ms,
        spec=spec_bytes(spec),
        group_id=spec.group_id,
        incarnation=header.incarnation,
        restarts=header.restarts,
    )
    commands = [
        CommandRow(
            command_id=one.id, seq=one.seq, at_ms=one.at_ms, body=one.body, answer=one.answer
        )
        for one in (whole.commands if header.is_over else ())
    ]
    records = [
        RecordRow(seq=one.seq, incarnation=one.incarnation, kind=one.kind, body=one.body)
        for one in whole.records
    ]
    return Brought(
        past=Past(
            row=row,
            snapshot=whole.snapshot,
            records=tuple(records),
            commands=tuple(commands),
            snapshot_seq=header.snapshot_seq,
        ),
        events=tuple(
            EventRow(first=one.first, count=one.count, body=one.body) for one in whole.events
        ),
        last=EventIndex(header.last_index + INDEX_JUMP),
        incarnation=header.incarnation,
        reason=Other(detail=RESUMED),
        checkpoints=tuple(_checkpoint(one, spec.session_id) for one in whole.checkpoints),
        blobs=tuple(BlobRow(one.digest, one.body) for one in whole.blobs),
    )


def _checkpoint(part: CheckpointPart, session_id: SessionId) -> CheckpointRow:
    facts = part.facts
    return CheckpointRow(
        session_id=session_id,
        checkpoint_id=facts.checkpoint_id,
        label=facts.label,
        saved_ms=facts.saved_ms,
        schema_version=facts.schema_version,
        body=part.body,
        metadata=facts.metadata,
    )


# --- checkpoints and definitions ------------------------------------------------------------------

log = structlog.get_logger()


@dataclass(slots=True)
class _ComingBody:
    body: bytearray
    size: int
    heard_s: float


@dataclass(slots=True)
class Pieces:
    """The bodies of one kind that come in pieces, until each is complete."""

    what: str = "a checkpoint"
    bytes_max: int = CHECKPOINT_BYTES_MAX
    _coming: dict[tuple[SessionId, str], _ComingBody] = field(default_factory=dict)

    def put(
        self, name: tuple[SessionId, str], request: requests.KeepCheckpoint | requests.KeepBlob
    ) -> bytes | None:
        """Take a piece, and return the body where it is complete; one that is there counts once.

        Raises:
            UsageError: it is larger than one may be, or than it says.
            TransientError: it is not the next one: those before it went to another daemon.
            Overloaded: too many come in already.
        """
        if request.size == 0:
            return request.body
        if not 0 < request.size <= self.bytes_max:
            at_most = f"at most {self.bytes_max:,} are kept"
            raise UsageError(f"body: {request.size:,} bytes, {at_most}")
        now_s = asyncio.get_running_loop().time()
        if request.offset == 0:
            self._coming.pop(name, None)
            self._make_room(now_s)
            self._coming[name] = _ComingBody(bytearray(), request.size, now_s)
        coming = self._coming.get(name)
        if coming is None or request.offset > len(coming.body) or request.size != coming.size:
            raise TransientError(f"the pieces before it are not here: send {self.what} again")
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
            raise Overloaded(
                f"{PIECES_OPEN_MAX} such bodies are coming in; {self.what} has to wait"
            )


async def keep(sessions: Sessions, pieces: Pieces, request: requests.KeepCheckpoint) -> None:
    """Keep a checkpoint, or a piece of it until the last one has come.

    Raises:
        UsageError: it is none that may be kept.
        CheckpointFailed: the session has too many.
    """
    facts = request.facts
    await sessions.look_up(facts.session_id)
    body = pieces.put((facts.session_id, facts.checkpoint_id), request)
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


async def keep_blob(sessions: Sessions, pieces: Pieces, request: requests.KeepBlob) -> None:
    """Keep the bytes of an image or a file, or a piece of them until the last one has come.

    Raises:
        SessionNotAlive: the session has ended.
        InvalidPart: they are other bytes, too many, or the session has no room for them.
    """
    found = await sessions.look_up(request.session_id)
    if found.phase == "ended":
        raise SessionNotAlive(found.reason or Other(detail="its reason is not known"))
    body = pieces.put((request.session_id, request.digest), request)
    if body is None:
        return
    if (problem := size_problem(len(body))) is not None:
        raise InvalidPart(problem)
    if await asyncio.to_thread(_digest_of, body) != request.digest:
        raise InvalidPart("digest: it is that of other bytes")
    await sessions.journal.write(KeepBlob(request.session_id, BlobRow(request.digest, body)))


def _digest_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


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
    """Return what is shown of a checkpoint; of a damaged one what can be."""
    row = shown_checkpoint(row)
    return CheckpointFacts(
        session_id=row.session_id,
        checkpoint_id=row.checkpoint_id,
        label=row.label,
        saved_ms=row.saved_ms,
        schema_version=row.schema_version,
        metadata=row.metadata,
    )
