"""Sessions that come in as files, part by part: held until the last part has come, then begun."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import msgspec

from cmdc_runtime.errors import Overloaded, UsageError
from cmdc_runtime.ids import EventIndex, SessionId
from cmdc_runtime.process import RESUMED
from cmdc_runtime.reasons import Other
from cmdc_runtime.requests import FinishImport, Origin, PutPart, SessionInfo, StartSession
from cmdc_runtime.transfer import Assembly, CheckpointPart, Whole, check_whole
from supervisor.adapters.journal.base import (
    CheckpointRow,
    CommandRow,
    EventRow,
    Past,
    RecordRow,
    SessionRow,
)
from supervisor.core.limits import INDEX_JUMP
from supervisor.sessions.revival import Brought
from supervisor.sessions.sessions import Sessions
from supervisor.sessions.specs import spec_bytes

IMPORTS_OPEN_MAX: Final = 2
"""Files that come in at a time: each is held in memory."""
IMPORT_IDLE_S: Final = 60.0
"""Without a part, until one that was given up may be dropped for another."""


@dataclass(slots=True)
class _Coming:
    assembly: Assembly
    heard_s: float


@dataclass(slots=True)
class Imports:
    """The files that are coming in."""

    _coming: OrderedDict[str, _Coming] = field(default_factory=OrderedDict)

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
            coming = self._coming[request.import_id] = _Coming(Assembly(), now_s)
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
