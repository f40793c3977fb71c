"""Checkpoints in a journal: kept by name, newest first, and for longer than their session."""

from dataclasses import replace

import pytest

from cmdc_runtime.errors import InvalidSession
from supervisor.adapters.journal.base import CheckpointRow, SessionRow
from supervisor.adapters.journal.operations import (
    CreateSession,
    DeleteCheckpoint,
    EndSession,
    FindCheckpoint,
    ListCheckpoints,
    SaveCheckpoint,
)

ROW = SessionRow(session_id="s-1", created_ms=5, spec=b"spec", incarnation=1)


def checkpoint(name, saved_ms=1, body=b"state", session_id="s-1"):
    """Return a checkpoint to save."""
    return CheckpointRow(
        session_id=session_id,
        checkpoint_id=name,
        label=f"label of {name}",
        saved_ms=saved_ms,
        schema_version=3,
        body=body,
        metadata=b"metadata",
    )


async def save(journal, *rows):
    """Start the session, and save checkpoints of it."""
    await journal.write(CreateSession(ROW))
    for row in rows:
        await journal.write(SaveCheckpoint(row))


def names(rows):
    """Return the names of checkpoints."""
    return [row.checkpoint_id for row in rows]


def test_a_checkpoint_comes_back_as_it_was(rerun):
    """Each by its name, also to another daemon, and without a label too."""
    bare = replace(checkpoint("cp-2"), label=None, metadata=b"", body=bytes(range(256)))

    async def look(journal):
        return [
            await journal.read(FindCheckpoint("s-1", name)) for name in ("cp-1", "cp-2", "cp-3")
        ]

    rerun(lambda journal: save(journal, checkpoint("cp-1"), bare))

    assert rerun(look) == [checkpoint("cp-1"), bare, None]


def test_the_last_saved_comes_first(run):
    """By time, then by the order of saving; a list is without bodies."""

    async def work(journal):
        await save(
            journal, *(checkpoint(f"cp-{number}", at) for number, at in enumerate([2, 9, 5, 9]))
        )
        return await journal.read(ListCheckpoints("s-1")), await journal.read(
            FindCheckpoint("s-1", None)
        )

    listed, newest = run(work)

    assert names(listed) == ["cp-3", "cp-1", "cp-2", "cp-0"]
    assert listed[0] == replace(checkpoint("cp-3", 9), body=b"")
    assert newest == checkpoint("cp-3", 9)


def test_a_name_is_used_again(run):
    """The later one takes the place of the earlier, and is then the last saved."""

    async def work(journal):
        await save(journal, checkpoint("cp-1", 5), checkpoint("cp-2", 5))
        await journal.write(SaveCheckpoint(checkpoint("cp-1", 5, b"later")))
        return await journal.read(ListCheckpoints("s-1")), await journal.read(
            FindCheckpoint("s-1", "cp-1")
        )

    listed, found = run(work)

    assert (names(listed), found.body) == (["cp-1", "cp-2"], b"later")


def test_checkpoints_are_deleted_one_by_one_or_all(run):
    """Those of another session stay, and what is not there is deleted already."""

    async def work(journal):
        await save(journal, *(checkpoint(f"cp-{number}") for number in (1, 2, 3)))
        await journal.write(CreateSession(replace(ROW, session_id="s-2")))
        await journal.write(SaveCheckpoint(checkpoint("cp-1", session_id="s-2")))
        await journal.write(DeleteCheckpoint("s-1", "cp-2"))
        await journal.write(DeleteCheckpoint("s-1", "cp-2"))
        await journal.write(DeleteCheckpoint("s-9", None))
        one = await journal.read(ListCheckpoints("s-1"))
        await journal.write(DeleteCheckpoint("s-1", None))
        return (
            one,
            await journal.read(ListCheckpoints("s-1")),
            await journal.read(ListCheckpoints("s-2")),
        )

    one, none, theirs = run(work)

    assert (names(one), none, names(theirs)) == (["cp-3", "cp-1"], [], ["cp-1"])


def test_checkpoints_of_sessions_never_seen_are_refused(run):
    """Reading finds nothing."""

    async def work(journal):
        with pytest.raises(InvalidSession):
            await journal.write(SaveCheckpoint(checkpoint("cp-1")))
        return await journal.read(ListCheckpoints("s-1")), await journal.read(
            FindCheckpoint("s-1", None)
        )

    assert run(work) == ([], None)


def test_checkpoints_outlive_their_session(run):
    """Its end, saving after it, and a new session of the same id."""

    async def work(journal):
        await save(journal, checkpoint("cp-1", 1))
        await journal.write(EndSession("s-1", b"normal", 9))
        await journal.write(SaveCheckpoint(checkpoint("cp-2", 2)))
        await journal.write(CreateSession(ROW))
        await journal.write(SaveCheckpoint(checkpoint("cp-3", 3)))
        return await journal.read(ListCheckpoints("s-1"))

    assert names(run(work)) == ["cp-3", "cp-2", "cp-1"]
