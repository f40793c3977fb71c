"""What a session begins with: a checkpoint, another one's past, or its own after its end."""

import asyncio
from dataclasses import replace

import pytest

from cmdc_runtime.errors import CheckpointNotFound, CheckpointUnreadable
from cmdc_runtime.requests import Origin
from supervisor.adapters.journal.base import CheckpointRow, SessionRow
from supervisor.adapters.journal.opening import MemoryJournal
from supervisor.adapters.journal.operations import (
    AcceptCommand,
    AppendRecords,
    BeginIncarnation,
    CreateSession,
    EndSession,
    FindAnswer,
    ListCheckpoints,
    LoadSession,
    PublishEvents,
    ReadHistory,
    RestoreSession,
    SaveCheckpoint,
)
from supervisor.core.limits import INDEX_JUMP, REPLAY_BATCHES_MAX
from supervisor.sessions.assignment import all_events, brought_from, checkpoint_row

EVENTS = 4 * REPLAY_BATCHES_MAX
"""In batches of two: more than one look into the journal finds."""


def with_past(test):
    """Run a test with a journal that has one ended session, with a checkpoint."""

    def run():
        async def scenario():
            journal = MemoryJournal()
            await journal.open()
            try:
                await live(journal)
                await test(journal)
            finally:
                await journal.close()

        asyncio.run(scenario())

    run.__doc__ = test.__doc__
    return run


async def live(journal):
    """Let a session live and end: three incarnations, a snapshot, events, an open command."""
    await journal.write(
        CreateSession(SessionRow(session_id="s", created_ms=5, spec=b"old", incarnation=1))
    )
    await journal.write(BeginIncarnation("s", 3, 2))
    await journal.write(AcceptCommand("s", "c-1", b"prompt", 6))
    await journal.write(
        AppendRecords("s", 3, [("said", b"one")], [("c-1", b"receipt")], snapshot=b"state")
    )
    await journal.write(AppendRecords("s", 3, [("said", b"two")], []))
    await journal.write(AcceptCommand("s", "c-2", b"late", 7))
    for first in range(1, EVENTS, 2):
        await journal.write(PublishEvents("s", first, 2, b"events"))
    await journal.write(
        SaveCheckpoint(
            CheckpointRow(
                session_id="s",
                checkpoint_id="k",
                label=None,
                saved_ms=7,
                schema_version=1,
                body=b"kept",
                metadata=b"",
            )
        )
    )
    await journal.write(EndSession("s", b"reason", 8))


def row(session_id):
    return SessionRow(session_id=session_id, created_ms=9, spec=b"new", incarnation=1)


@with_past
async def test_an_ended_session_goes_on_with_all_that_it_did(journal):
    """Its incarnations, its events and what it answered; what it refused is not done after all."""
    brought = await brought_from(journal, Origin(session_id="s"), row("s"))
    await journal.write(RestoreSession(brought.past, brought.events, brought.checkpoints))
    stored, events = await journal.read(LoadSession("s")), await all_events(journal, "s")

    # With one snapshot a past still reaches back to the start.
    assert (stored.snapshot, [one.body for one in stored.records]) == (b"", [b"one", b"two"])
    assert stored.unanswered == ()
    assert (stored.row.created_ms, stored.row.spec, stored.row.incarnation) == (5, b"new", 3)
    assert (brought.incarnation, brought.last) == (3, events[-1].first + 1 + INDEX_JUMP)
    assert [one.first for one in events] == list(range(1, EVENTS, 2))
    assert await journal.read(FindAnswer("s", "c-1")) == b"receipt"
    assert [one.checkpoint_id for one in await journal.read(ListCheckpoints("s"))] == ["k"]
    await journal.write(BeginIncarnation("s", 4, 0))
    await journal.write(AppendRecords("s", 4, [("said", b"three")], []))
    assert [one.body for one in (await journal.read(LoadSession("s"))).records][1:] == [
        b"two",
        b"three",
    ]


@with_past
async def test_an_ended_session_goes_on_from_a_checkpoint(journal):
    """What came after it is gone, and what comes now is behind it."""
    brought = await brought_from(journal, Origin(session_id="s", checkpoint_id="k"), row("s"))
    await journal.write(RestoreSession(brought.past, brought.events, brought.checkpoints))
    await journal.write(BeginIncarnation("s", 4, 0))
    await journal.write(AppendRecords("s", 4, [("said", b"instead")], []))
    stored = await journal.read(LoadSession("s"))

    assert (stored.snapshot, [one.body for one in stored.records]) == (b"kept", [b"instead"])
    assert brought.incarnation == 3


@pytest.mark.parametrize("checkpoint_id", [None, "k"])
def test_a_fork_begins_anew_with_the_state(checkpoint_id):
    """No command and no event of the other one; the other one is as it was."""

    @with_past
    async def check(journal):
        origin = Origin(session_id="s", checkpoint_id=checkpoint_id)
        before = await journal.read(ReadHistory("s"))
        brought = await brought_from(journal, origin, row("f"))
        await journal.write(RestoreSession(brought.past, brought.events, brought.checkpoints))
        stored = await journal.read(LoadSession("f"))

        assert (brought.incarnation, brought.last) == (0, 0)
        assert stored.row.incarnation == 1
        whole = (b"", [b"one", b"two"])
        expected = whole if checkpoint_id is None else (b"kept", [])
        assert (stored.snapshot, [one.body for one in stored.records]) == expected
        assert (stored.unanswered, await all_events(journal, "f")) == ((), ())
        assert await journal.read(ReadHistory("s")) == before

    check()


@with_past
async def test_what_is_not_there_is_reported(journal):
    """Neither the checkpoint nor the session."""
    for origin in (Origin(session_id="s", checkpoint_id="gone"), Origin(session_id="never")):
        with pytest.raises(CheckpointNotFound):
            await brought_from(journal, origin, row("f"))


@with_past
async def test_a_checkpoint_without_a_state_is_kept_apart_from_one_with_damaged_facts(journal):
    """What is said of it matters to nobody who goes on from it."""
    [sound] = await journal.read(ListCheckpoints("s"))
    await journal.write(SaveCheckpoint(replace(sound, body=b"kept", label=5)))
    found = await checkpoint_row(journal, "s", "k")
    await journal.write(SaveCheckpoint(replace(sound, body="text")))

    assert found.body == b"kept"
    with pytest.raises(CheckpointUnreadable, match="damaged: body: expected bytes, got str"):
        await checkpoint_row(journal, "s", "k")
