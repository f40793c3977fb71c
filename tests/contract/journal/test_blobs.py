"""Blobs in a journal: kept once by their digest, for as long as a session holds them."""

from dataclasses import replace

import pytest

from cmdc_runtime.errors import InvalidPart, InvalidSession
from cmdc_runtime.message_parts import SESSION_PARTS_BYTES_MAX, SESSION_PARTS_MAX
from supervisor.adapters.journal.base import BlobRow, CheckpointRow, Past, SessionRow
from supervisor.adapters.journal.operations import (
    CreateSession,
    EndSession,
    FindBlob,
    KeepBlob,
    ListBlobs,
    PruneSessions,
    RestoreSession,
    SaveCheckpoint,
)

ROW = SessionRow(session_id="s-1", created_ms=5, spec=b"spec", incarnation=1)
OTHER = replace(ROW, session_id="s-2")
BLOB = BlobRow("digest", bytes(range(256)))
EVER_MS = 2**50
CHECKPOINT = CheckpointRow(
    session_id="s-1",
    checkpoint_id="cp",
    label=None,
    saved_ms=1,
    schema_version=1,
    body=b"state",
    metadata=b"",
)


async def keep(journal, *blobs, row=ROW):
    """Start a session that holds blobs."""
    await journal.write(CreateSession(row))
    for blob in blobs:
        await journal.write(KeepBlob(row.session_id, blob))


async def end(journal, row=ROW):
    """End a session, and forget all that has ended."""
    await journal.write(EndSession(row.session_id, b"reason", 1))


async def held(journal, row=ROW):
    """Return what a session holds, and the blob if it can be read."""
    blob = await journal.read(FindBlob(row.session_id, BLOB.digest))
    return await journal.read(ListBlobs(row.session_id)), blob


def test_a_blob_comes_back_as_it_was(rerun):
    """To another daemon, too; and to nobody who does not hold it."""
    rerun(lambda journal: keep(journal, BLOB, BLOB))
    rerun(lambda journal: keep(journal, row=OTHER))

    assert rerun(held) == ([(BLOB.digest, 256)], BLOB.body)
    assert rerun(lambda journal: held(journal, OTHER)) == ([], None)


def test_a_blob_goes_with_the_last_session_that_holds_it(run):
    """It is kept once for all of them."""

    async def look(journal):
        await keep(journal, BLOB)
        await keep(journal, BLOB, row=OTHER)
        await end(journal)
        await journal.write(PruneSessions(EVER_MS, 10))
        found = [await held(journal), await held(journal, OTHER)]
        await end(journal, OTHER)
        await journal.write(PruneSessions(EVER_MS, 10))
        # Whoever holds it again holds other bytes: those of before are gone.
        await keep(journal, BlobRow(BLOB.digest, b"new"))
        return [*found, await held(journal)]

    assert run(look) == [
        ([], None),
        ([(BLOB.digest, 256)], BLOB.body),
        ([(BLOB.digest, 3)], b"new"),
    ]


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_an_id_that_is_used_again_holds_what_a_checkpoint_may_name(run, has_checkpoint):
    """A session that begins anew under an ended one's id holds nothing else."""

    async def look(journal):
        await keep(journal, BLOB)
        if has_checkpoint:
            await journal.write(SaveCheckpoint(CHECKPOINT))
        await end(journal)
        await journal.write(CreateSession(ROW))
        return await held(journal)

    assert run(look) == (([(BLOB.digest, 256)], BLOB.body) if has_checkpoint else ([], None))


def test_a_session_that_goes_on_holds_what_it_held(run):
    """And a fork what the session holds that it comes from; a file brings its own."""
    past = Past(row=ROW, snapshot=b"", records=(), commands=())

    async def look(journal):
        await keep(journal, BLOB)
        await end(journal)
        await journal.write(RestoreSession(past))
        fork = replace(past, row=OTHER)
        await journal.write(RestoreSession(fork, holds_of="s-1"))
        moved = replace(ROW, session_id="s-3")
        more = BlobRow("more", b"1")
        await journal.write(RestoreSession(replace(past, row=moved), blobs=(BLOB, more)))
        return [await held(journal, row) for row in (ROW, OTHER, moved)]

    assert run(look) == [
        ([(BLOB.digest, 256)], BLOB.body),
        ([(BLOB.digest, 256)], BLOB.body),
        ([(BLOB.digest, 256), ("more", 1)], BLOB.body),
    ]


def test_nobody_holds_a_blob_who_was_never_there(run):
    """As with everything of a session."""
    with pytest.raises(InvalidSession):
        run(lambda journal: journal.write(KeepBlob("nobody", BLOB)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "blobs",
    [
        [BlobRow(f"d-{number}", b"x") for number in range(SESSION_PARTS_MAX)],
        [BlobRow(f"d-{at}", bytes(16 * 2**20)) for at in range(SESSION_PARTS_BYTES_MAX // 2**24)],
    ],
    ids=["many", "much"],
)
def test_a_session_holds_no_more_than_its_bound(run, blobs):
    """The one beyond is refused with the bound and the way out; one that it holds is not."""

    async def look(journal):
        await keep(journal, *blobs)
        await journal.write(KeepBlob("s-1", blobs[0]))
        with pytest.raises(InvalidPart, match=r"at most 1,000 of 134,217,728 .*another session"):
            await journal.write(KeepBlob("s-1", BLOB))
        return await held(journal)

    listed, blob = run(look)
    assert len(listed) == len(blobs)
    assert blob is None
