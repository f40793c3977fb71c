"""What does it cost to have something acknowledged, and how large does a journal grow?

Expected: a lone append takes 30 to 120 us where the death of processes is outlived, and about as
long as the disk takes where that of the machine is. Fifty callers share a commit: many times the
plain rate where each commit waits for the disk. A long session stops growing.
"""  # noqa: D400 - a question

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import psycopg

from benchmarks.metrics import TAIL, Metric, at_least, at_most, measured
from benchmarks.settings import Settings
from cmdc_runtime.ids import CommandId, EventIndex, Incarnation, SessionId
from scripts.postgres import Server, missing
from supervisor.adapters.journal.base import Durability, SessionRow
from supervisor.adapters.journal.operations import (
    AcceptCommand,
    AppendRecords,
    CreateSession,
    PublishEvents,
)
from supervisor.adapters.journal.postgres import PostgresJournal
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.adapters.journal.writer import GroupWriter

BODY: Final = bytes(range(200))
BLOCK: Final = 20
"""Appends in a row; ours and the plain ones take turns."""
CALLERS: Final = 50
EACH: Final = 40
"""Commands of one caller in one round."""
TURNS: Final = (2_000, 10_000, 20_000)
BATCHES: Final = 6
"""Durable event batches of a turn."""
RECORDS: Final = 4
"""Records of a turn."""
SNAPSHOT_RECORDS: Final = 200
"""After so many records a snapshot is written."""
SNAPSHOT: Final = bytes(50_000)
WAVE: Final = 100
"""Turns on their way at once."""
GROUP_POWER: Final = at_least(5.0)
GROWTH: Final = at_most(1.1)
_MIB: Final = 2**20
_SYNCHRONOUS: Final[dict[Durability, str]] = {"process": "NORMAL", "power": "FULL"}
_TABLE: Final = "CREATE TABLE plain (session_id TEXT, id INTEGER, body {bytes}, PRIMARY KEY (id))"

Plain = Callable[[], None]


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject."""
    for durability in ("process", "power"):
        with tempfile.TemporaryDirectory() as folder:
            journal = SqliteJournal(Path(folder) / "state", durability=durability)
            with closing(_sqlite(Path(folder) / "plain", durability)) as connection:
                plain = _plain(connection.execute, "INSERT INTO plain VALUES ('s-1', ?, ?)")
                bar = GROUP_POWER if durability == "power" else None
                yield from asyncio.run(
                    _speed(journal, plain, settings, f"journal.{durability}", bar)
                )
    if missing() is None:
        with Server(on_disk=True) as server, psycopg.connect(server.url, autocommit=True) as wire:
            wire.execute(_TABLE.format(bytes="BYTEA").encode())
            plain = _plain(wire.execute, "INSERT INTO plain VALUES ('s-1', %s, %s)")
            remote = PostgresJournal(server.url)
            yield from asyncio.run(_speed(remote, plain, settings, "journal.postgres", None))
    yield from asyncio.run(_size())


def _sqlite(path: Path, durability: Durability) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")
    connection.execute(_TABLE.format(bytes="BLOB"))
    return connection


def _plain(execute: Callable[..., Any], insert: str) -> Plain:  # Any: the driver's cursor
    """Return what inserts and commits one row of the size of ours."""
    numbers = iter(range(10**9))

    def once() -> None:
        execute("BEGIN")
        execute(insert, (next(numbers), BODY))
        execute("COMMIT")

    return once


async def _speed(
    journal: GroupWriter, plain: Plain, settings: Settings, name: str, bar: Any
) -> list[Metric]:  # Any: a bar or None
    await journal.open()
    try:
        await journal.write(
            CreateSession(SessionRow(session_id=SessionId("s-0"), created_ms=1, spec=b""))
        )
        for number in range(1, CALLERS):
            row = SessionRow(session_id=SessionId(f"s-{number}"), created_ms=1, spec=b"")
            await journal.write(CreateSession(row))
        appends, plains = await _appends(journal, plain, settings.repeats)
        tail = at_most(10.0, rank=TAIL)
        found = [
            measured(f"{name}.append", "us", appends, baseline=plains),
            measured(f"{name}.append_p99", "us", appends, baseline=plains, bar=tail),
        ]
        for callers in (1, CALLERS):
            ours, theirs = await _rates(journal, plain, callers, settings.fewer)
            is_group = callers == CALLERS
            found.append(
                measured(
                    f"{name}.accepts_of_{callers}",
                    "1/s",
                    ours,
                    baseline=theirs,
                    bar=bar if is_group else None,
                )
            )
        return found
    finally:
        await journal.close()


async def _appends(
    journal: GroupWriter, plain: Plain, blocks: int
) -> tuple[list[float], list[float]]:
    """Time lone appends and plain commits in turns, in us; the first block of each is dropped."""
    ours: list[float] = []
    theirs: list[float] = []
    number = 0
    for _ in range(blocks + 1):
        for _ in range(BLOCK):
            number += 1
            written = time.perf_counter()
            await journal.write(
                AppendRecords(SessionId("s-0"), Incarnation(0), [("turn", BODY)], [], number=number)
            )
            ours.append((time.perf_counter() - written) * 1e6)
        for _ in range(BLOCK):
            written = time.perf_counter()
            plain()
            theirs.append((time.perf_counter() - written) * 1e6)
    return ours[BLOCK:], theirs[BLOCK:]


async def _rates(
    journal: GroupWriter, plain: Plain, callers: int, rounds: int
) -> tuple[list[float], list[float]]:
    """Count commands a second of callers who each wait for their own, and plain commits beside."""
    ours: list[float] = []
    theirs: list[float] = []

    async def call(caller: int, turn: int) -> None:
        session_id = SessionId(f"s-{caller}")
        for number in range(EACH):
            command_id = CommandId(f"c-{callers}-{turn}-{number}")
            await journal.write(AcceptCommand(session_id, command_id, BODY, 1))

    for turn in range(rounds):
        began = time.perf_counter()
        await asyncio.gather(*(call(caller, turn) for caller in range(callers)))
        ours.append(callers * EACH / (time.perf_counter() - began))
        began = time.perf_counter()
        for _ in range(EACH):
            plain()
        theirs.append(EACH / (time.perf_counter() - began))
    return ours, theirs


async def _size() -> list[Metric]:
    """Let one session live long, and weigh the folder on the way."""
    found: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        for first, last in zip((0, *TURNS), TURNS, strict=False):
            journal = SqliteJournal(state)
            await journal.open()
            try:
                if not first:
                    row = SessionRow(session_id=SessionId("s-0"), created_ms=1, spec=b"")
                    await journal.write(CreateSession(row))
                for turn in range(first, last, WAVE):
                    await asyncio.gather(*_wave(journal, range(turn, turn + WAVE)))
            finally:
                await journal.close()
            # Closed: what is left is the file, without its log.
            found[last] = (state / "journal.sqlite3").stat().st_size / _MIB
    metrics = [
        measured(f"journal.size_after_{turns}", "MiB", [size]) for turns, size in found.items()
    ]
    *_, before, last = TURNS
    growth = measured(
        "journal.size_grown", "MiB", [found[last]], baseline=[found[before]], bar=GROWTH
    )
    return [*metrics, growth]


def _wave(journal: GroupWriter, turns: range) -> Iterator[Awaitable[object]]:
    """Yield the writes of some turns: a command, its records and its events."""
    session_id = SessionId("s-0")
    for turn in turns:
        command_id = CommandId(f"c-{turn}")
        yield journal.write(AcceptCommand(session_id, command_id, BODY, turn))
        is_due = turn % (SNAPSHOT_RECORDS // RECORDS) == 0
        yield journal.write(
            AppendRecords(
                session_id,
                Incarnation(0),
                [("turn", 2 * BODY)] * RECORDS,
                [(command_id, BODY)],
                number=turn + 1,
                snapshot=SNAPSHOT if is_due else b"",
            )
        )
        for batch in range(BATCHES):
            first = EventIndex(1 + (turn * BATCHES + batch) * 3)
            yield journal.write(PublishEvents(session_id, first, 3, 2 * BODY))
