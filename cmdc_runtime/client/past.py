"""What the journal keeps of a session, read part by part, and what it is given to keep."""

import msgspec

from cmdc_runtime.checkpoints import SCHEMA_VERSION, CheckpointFacts, encode_facts
from cmdc_runtime.client.limits import READS_MAX
from cmdc_runtime.client.monitors import Questions
from cmdc_runtime.clock import now_ms
from cmdc_runtime.errors import TransientError
from cmdc_runtime.ids import SessionId, new_command_id
from cmdc_runtime.pages import PAGE_BYTES
from cmdc_runtime.requests import (
    KeepCheckpoint,
    PastCommand,
    PastPage,
    PastRecord,
    ReadPast,
)


async def read_past(asker: Questions, session_id: SessionId) -> PastPage:
    """Return all that the daemon's journal keeps of a session but its events, as one page.

    Raises:
        InvalidSession: there was never such a session.
        TransientError: its journal was shortened again and again while it was read.
    """
    for _ in range(READS_MAX):
        whole = await _read_once(asker, session_id)
        if whole is not None:
            return whole
    raise TransientError(
        f"session {session_id}: its journal was shortened while it was read, {READS_MAX} times; "
        "try again when it is less busy"
    )


async def _read_once(asker: Questions, session_id: SessionId) -> PastPage | None:
    """Read every part; None where what was read first fits no more to what came then."""
    spec: PastPage = await asker.ask(ReadPast(session_id=session_id, part="spec"))
    begun: PastPage = await asker.ask(ReadPast(session_id=session_id, part="snapshot"))
    # Commands come last: each was accepted before it is named by a record.
    recorded = await _rows(asker, ReadPast(session_id=session_id, part="records"))
    given = await _rows(asker, ReadPast(session_id=session_id, part="commands"))
    if recorded.snapshot_seq != begun.snapshot_seq:
        return None
    return msgspec.structs.replace(
        begun, spec=spec.spec, records=recorded.records, commands=given.commands
    )


async def _rows(asker: Questions, first: ReadPast) -> PastPage:
    """Return all pages of one part as one; its ``snapshot_seq`` is that of the last."""
    whole: PastPage = await asker.ask(first)
    while not whole.is_last:
        rows: tuple[PastRecord | PastCommand, ...] = (*whole.records[-1:], *whole.commands[-1:])
        after = msgspec.structs.replace(first, after=rows[-1].seq)
        page: PastPage = await asker.ask(after)
        whole = msgspec.structs.replace(
            page,
            records=(*whole.records, *page.records),
            commands=(*whole.commands, *page.commands),
        )
    return whole


async def keep_checkpoint(asker: Questions, facts: CheckpointFacts, body: bytes) -> None:
    """Have the daemon keep a checkpoint; return when it is in the journal.

    Raises:
        CheckpointFailed: the session has too many.
        TransientError: another daemon began while it was sent; nothing is kept of it.
    """
    size = len(body) if len(body) > PAGE_BYTES else 0
    for offset in range(0, max(1, len(body)), PAGE_BYTES):
        piece = body[offset : offset + PAGE_BYTES]
        await asker.ask(KeepCheckpoint(facts=facts, body=piece, offset=offset, size=size))


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
