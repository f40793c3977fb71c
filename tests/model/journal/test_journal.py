"""Any sequence of operations gives the same answers on every store and on a small reference.

Writes are called in bursts, without waiting for one another, so that many share a transaction. What
a store remembers of its sessions is taken from it now and then, as a restart does.
``JOURNAL_EXAMPLES=2000`` plays more of them.
"""

import asyncio
import os
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmdc_runtime.errors import CmdcError
from supervisor.adapters.journal.base import BlobRow, CheckpointRow, DownRow, SessionRow
from supervisor.adapters.journal.opening import MemoryJournal
from supervisor.adapters.journal.operations import (
    AcceptCommand,
    AppendRecords,
    BeginIncarnation,
    CreateSession,
    DeleteCheckpoint,
    EndSession,
    FindAnswer,
    FindBlob,
    FindCheckpoint,
    FindLastIndex,
    FindNewestDown,
    KeepBlob,
    ListBlobs,
    ListCheckpoints,
    ListDowns,
    ListEndedSessions,
    ListLiveSessions,
    LoadSession,
    PruneSessions,
    PublishEvents,
    ReadHistory,
    RecordDown,
    ReplayEvents,
    RestoreSession,
    SaveCheckpoint,
    Write,
)
from supervisor.adapters.journal.postgres import PostgresJournal
from supervisor.adapters.journal.schema import Bounds
from supervisor.adapters.journal.sqlite import SqliteJournal
from tests.journal_thread import on_thread
from tests.model.journal.reference import Reference
from tests.postgres import lend_server

pytestmark = pytest.mark.slow

BOUNDS = Bounds(commands=3, events=3)
EXAMPLES = int(os.environ.get("JOURNAL_EXAMPLES", "150"))
NAMES = ("a", "b")
PARTS = 3
"""Of a sequence: hypothesis makes lists of about five."""
EVER_MS = 2**60

names = st.sampled_from(("a", "a", "b"))
unknown = st.sampled_from(("a", "a", "a", "a", "b", "b", "c"))
bodies = st.sampled_from((b"", b"x", b"y\0"))
small = st.integers(0, 3)
commands = st.integers(0, 6).map("c-{}".format)
checkpoints = st.integers(0, 2).map("cp-{}".format)


def rows(kind, **values):
    """Return a strategy of rows."""
    return st.builds(kind, **values)


BLOBS = [BlobRow(f"digest-{size}", bytes(size)) for size in range(1, 4)]


CREATED = rows(
    SessionRow,
    session_id=names,
    created_ms=small,
    spec=bodies,
    parent_id=st.none() | names,
    incarnation=st.sampled_from((0, 0, 0, 1)),
)
ENDED = rows(
    DownRow,
    session_id=unknown,
    incarnation=st.none() | small,
    restarting=st.booleans(),
    at_ms=st.integers(0, 9),
    body=bodies,
)
SAVED = rows(
    CheckpointRow,
    session_id=unknown,
    checkpoint_id=checkpoints,
    label=st.none() | st.just("label"),
    saved_ms=small,
    schema_version=small,
    body=bodies,
    metadata=bodies,
)
APPENDED = st.builds(
    AppendRecords,
    unknown,
    st.sampled_from((0, 0, 0, 1, 1, 2)),
    st.lists(st.tuples(st.just("turn"), bodies), max_size=2),
    st.lists(st.tuples(commands, bodies), max_size=2),
    number=st.sampled_from((0, 0, 1, 1, 1, 2, 2, 3)),
    snapshot=st.sampled_from((b"", b"", b"state", b"later")),
)
WRITES = st.one_of(
    st.builds(CreateSession, CREATED),
    st.builds(AcceptCommand, unknown, commands, bodies, small),
    st.builds(AcceptCommand, names, commands, bodies, small),
    APPENDED,
    APPENDED,
    st.builds(PublishEvents, unknown, st.integers(1, 12), st.integers(1, 3), bodies),
    st.builds(PublishEvents, names, st.integers(1, 30), st.just(1), bodies),
    st.builds(BeginIncarnation, unknown, st.sampled_from((0, 0, 0, 1, 1, 2)), small),
    st.builds(EndSession, unknown, bodies, st.integers(0, 5)),
    st.builds(RecordDown, ENDED),
    st.builds(PruneSessions, st.integers(0, 6), st.integers(-1, 2)),
    st.builds(SaveCheckpoint, SAVED),
    st.builds(DeleteCheckpoint, unknown, st.none() | checkpoints),
    st.builds(KeepBlob, unknown, st.sampled_from(BLOBS)),
)
READS = st.one_of(
    st.builds(LoadSession, unknown),
    st.builds(ReadHistory, unknown),
    st.builds(ReplayEvents, unknown, small, st.integers(0, 20), st.integers(-1, 3)),
    st.builds(FindAnswer, unknown, commands),
    st.builds(ListDowns, unknown, small, st.integers(-1, 3)),
    st.builds(FindCheckpoint, unknown, st.none() | checkpoints),
    st.builds(FindBlob, unknown, st.sampled_from([blob.digest for blob in BLOBS])),
    st.builds(ListEndedSessions, st.integers(-1, 3)),
)
SOME = st.lists(
    st.one_of(
        st.lists(WRITES, min_size=1, max_size=8).map(lambda burst: ("burst", burst)),
        READS.map(lambda read: ("read", read)),
        st.tuples(st.just("copy"), st.tuples(names, names)),
        st.just(("forget", None)),
    ),
    max_size=20,
)
STEPS = st.tuples(*[SOME] * PARTS).map(lambda parts: [step for part in parts for step in part])
BEGIN = [
    ("burst", [CreateSession(SessionRow(session_id=one, created_ms=1, spec=b""))]) for one in NAMES
]


class Runner:
    """One open journal, and the loop that it lives in."""

    def __init__(self, journal):
        self.journal = journal
        self._loop = asyncio.Runner()
        self._loop.run(journal.open())

    def close(self):
        """Close both."""
        self._loop.run(self.journal.close())
        self._loop.close()

    def play(self, steps):
        """Play steps on the empty journal and on a reference, and return both logs of answers."""
        return self._loop.run(self._play(steps))

    async def _play(self, steps):
        await self._empty()
        reference = Reference(BOUNDS.commands, BOUNDS.events)
        found, right = [], []
        for kind, what in [*BEGIN, *steps]:
            match kind:
                case "burst":
                    await self._ask(what, reference, found, right)
                case "read":
                    await self._ask([what], reference, found, right)
                case "copy":
                    await self._copy(*what, reference, found, right)
                case "forget":
                    await on_thread(self.journal, self.journal._store.heads.forget)
        kinds = (
            LoadSession,
            ReadHistory,
            FindLastIndex,
            FindNewestDown,
            ListCheckpoints,
            ListBlobs,
        )
        everything = [kind(name) for name in NAMES for kind in kinds]
        everything += [ReplayEvents(name, 0, 99, 99) for name in NAMES]
        everything += [ListDowns(name, 0, 99) for name in NAMES]
        everything += [ListLiveSessions(), ListEndedSessions(99)]
        await self._ask(everything, reference, found, right)
        return found, right

    async def _ask(self, operations, reference, found, right):
        waiting = [
            self.journal.write(one) if isinstance(one, Write) else self.journal.read(one)
            for one in operations
        ]
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        for operation, answer in zip(operations, answers, strict=True):
            found.append((operation, outcome(answer)))
            try:
                wanted = reference.perform(operation)
            except CmdcError as error:
                wanted = error
            right.append((operation, outcome(wanted)))

    async def _copy(self, name, other, reference, found, right):
        past = await self.journal.read(ReadHistory(name))
        assert past == reference.history(name)
        if past is not None:
            past = replace(past, row=replace(past.row, session_id=other))
            events = await self.journal.read(ReplayEvents(name, 0, 99, 99))
            saved = [
                replace(
                    await self.journal.read(FindCheckpoint(name, one.checkpoint_id)),
                    session_id=other,
                )
                for one in reversed(await self.journal.read(ListCheckpoints(name)))
            ]
            wanted = RestoreSession(past, events, saved, (), name)
            await self._ask([wanted], reference, found, right)

    async def _empty(self):
        for row in await self.journal.read(ListLiveSessions()):
            await self.journal.write(EndSession(row.session_id, b"", 0))
        while await self.journal.write(PruneSessions(EVER_MS, 100)):
            pass


def outcome(answer):
    """Return what of an answer two journals must agree on: of an error its class."""
    return type(answer) if isinstance(answer, BaseException) else answer


server = pytest.fixture(lend_server, scope="module")


@pytest.fixture(
    scope="module",
    params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.process)],
)
def runner(request, tmp_path_factory):
    """Each store in turn."""
    match request.param:
        case "memory":
            journal = MemoryJournal(bounds=BOUNDS)
        case "sqlite":
            journal = SqliteJournal(tmp_path_factory.mktemp("state"), bounds=BOUNDS)
        case _:
            url = request.getfixturevalue("server").url
            journal = PostgresJournal(url, bounds=BOUNDS)
    runner = Runner(journal)
    yield runner
    runner.close()


@settings(max_examples=EXAMPLES, report_multiple_bugs=False)
@given(STEPS)
def test_a_store_answers_as_the_reference_does(runner, steps):
    """Every result, every refusal, and all that is there in the end."""
    found, right = runner.play(steps)

    assert found == right
