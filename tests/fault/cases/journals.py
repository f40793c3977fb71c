"""Journals for the cases about their files: made, damaged, and looked into."""

import asyncio
import contextlib
import os
import shutil
import sqlite3

from cmdc_runtime.reasons import AnyReason
from cmdc_runtime.wire.codec import decode_as
from supervisor.adapters.journal.base import SessionRow
from supervisor.adapters.journal.operations import (
    AcceptCommand,
    AppendRecords,
    CreateSession,
    FindAnswer,
    LoadSession,
    PublishEvents,
    ReplayEvents,
)
from supervisor.adapters.journal.sqlite import SqliteJournal

SESSIONS = 40
BODY_BYTES = 700


def name_of(number):
    return f"s-{number:03}"


def body_of(number, step):
    return f"{number}/{step} ".encode().ljust(BODY_BYTES, b".")


async def fill(journal, steps=4):
    """Write sessions with commands, records of two pages, answers, events and snapshots."""
    for number in range(SESSIONS):
        await journal.write(
            CreateSession(SessionRow(session_id=name_of(number), created_ms=5, spec=b"spec"))
        )
    for step in range(steps):
        for number in range(SESSIONS):
            name, body = name_of(number), body_of(number, step)
            await journal.write(AcceptCommand(name, f"c-{step}", body, 1))
            large = body * 8 if number % 8 == 0 else body
            await journal.write(
                AppendRecords(name, 0, [("said", large)], [(f"c-{step}", body)], number=step + 1)
            )
            await journal.write(PublishEvents(name, step * 2 + 1, 2, body))


async def fill_one(journal, steps=2):
    """Write one session, so that its last commit is a record with an answer and little else."""
    name = name_of(0)
    await journal.write(CreateSession(SessionRow(session_id=name, created_ms=5, spec=b"spec")))
    for step in range(steps):
        body = body_of(0, step)
        await journal.write(AcceptCommand(name, f"c-{step}", body, 1))
        await journal.write(
            AppendRecords(name, 0, [("said", body)], [(f"c-{step}", body)], number=step + 1)
        )


async def look(journal):
    """Return what each session has, and of those that are over why."""
    found, over = {}, {}
    for number in range(SESSIONS):
        name = name_of(number)
        stored = await journal.read(LoadSession(name))
        if stored is None:
            continue
        if stored.row.ended_ms is not None:
            over[name] = str(decode_as(AnyReason, stored.row.reason))
            continue
        answers = [await journal.read(FindAnswer(name, f"c-{step}")) for step in range(4)]
        events = [row.body for row in await journal.read(ReplayEvents(name, 0, 1_000, 1_000))]
        found[name] = ([row.body for row in stored.records], answers, events)
    return found, over


def with_journal(state, work, *, is_crash=False):
    """Open a journal, do something with it, and close it; or leave it as a killed daemon does."""

    async def whole():
        journal = SqliteJournal(state)
        await journal.open()
        try:
            return await work(journal), journal._store.repaired
        finally:
            if is_crash:
                copy = state.with_name("crashed")
                copy.mkdir(mode=0o700)
                for path in state.iterdir():
                    shutil.copy2(path, copy)
            await journal.close()

    found = asyncio.run(whole())
    if is_crash:
        shutil.rmtree(state)
        state.with_name("crashed").rename(state)
    return found


def damage(path, at, data):
    """Change bytes as a disk does: nobody wrote, so the file's times stay."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def flip(path, at, bit):
    with path.open("rb") as file:
        file.seek(at)
        (old,) = file.read(1)
    damage(path, at, bytes([old ^ (1 << bit)]))


def make_first(journal):
    """Turn a journal's file into one of the first format."""
    with contextlib.closing(sqlite3.connect(journal)) as db:
        for table in ("downs", "snapshots", "marks", "checkpoints", "blobs", "holds"):
            db.execute(f"DROP TABLE {table}")
        db.execute("DROP INDEX sessions_ended")
        db.commit()
    stamp(journal, 1)


def stamp(journal, version):
    """Say in a journal's file which format it has."""
    with contextlib.closing(sqlite3.connect(journal)) as db:
        db.execute(f"PRAGMA user_version = {version}")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
