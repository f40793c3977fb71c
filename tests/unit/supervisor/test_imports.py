"""Files of sessions that come in part by part."""

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.checkpoints import CheckpointFacts
from cmdc_runtime.errors import Overloaded, UsageError
from cmdc_runtime.requests import PutPart
from cmdc_runtime.transfer import FORMAT, Header, Seal, SnapshotPart, Whole, check_whole, frame_of
from cmdc_runtime.wire import codec
from cmdc_runtime.wire.frames import ToWorker
from supervisor.adapters.journal.base import row_problem
from supervisor.adapters.journal.opening import MemoryJournal
from supervisor.adapters.journal.operations import (
    BeginIncarnation,
    FindLastIndex,
    ListCheckpoints,
    ListLiveSessions,
    LoadSession,
    PublishEvents,
    RestoreSession,
)
from supervisor.api import transfer as module
from supervisor.api.transfer import IMPORT_IDLE_S, IMPORTS_OPEN_MAX, Imports, _brought, facts_of
from supervisor.core.history import slices
from supervisor.core.session_tree import check_session, session_spec
from supervisor.sessions.assignment import spec_of
from tests.unit.cmdc_runtime.test_transfer_checks import whole

HEADER = Header(
    format=FORMAT,
    session_id="s-1",
    exported_ms=2,
    created_ms=1,
    is_over=True,
    incarnation=3,
    restarts=1,
    last_index=9,
    spec=b"spec",
    snapshot_seq=4,
)


def frames():
    """Return the frames of a session's file."""
    seal = Seal()
    made = [frame_of(HEADER), frame_of(SnapshotPart(body=b"state"))]
    for frame in made:
        seal.add(frame)
    return [*made, frame_of(seal.end())]


def part(number, frame, import_id="i"):
    return PutPart(import_id=import_id, number=number, frame=frame)


def in_loop(scenario):
    """Run a function with new imports, in a loop."""

    async def run():
        return scenario(Imports())

    return asyncio.run(run())


def test_a_file_comes_in_part_by_part():
    """A part that comes twice, because its answer was lost, counts once."""

    def scenario(imports):
        for number, frame in enumerate(frames()):
            imports.put(part(number, frame))
            imports.put(part(number, frame))
        return imports.take("i")

    whole = in_loop(scenario)
    assert (whole.header, whole.snapshot) == (HEADER, b"state")


def test_a_part_that_is_missing_ends_it():
    """The daemon that had the first ones is another one."""

    def scenario(imports):
        with pytest.raises(UsageError, match="part 0 of the file is missing: import it again"):
            imports.put(part(1, frames()[1]))
        with pytest.raises(UsageError, match="the file is not here"):
            imports.take("i")

    in_loop(scenario)


def test_a_damaged_part_ends_it():
    """What came before it is let go of."""

    def scenario(imports):
        imports.put(part(0, frames()[0]))
        with pytest.raises(UsageError, match="another checksum"):
            imports.put(part(1, frames()[1][:-1]))
        with pytest.raises(UsageError, match="the file is not here"):
            imports.take("i")

    in_loop(scenario)


def test_a_file_that_is_not_complete_is_no_session():
    """Its end says that all of it is there."""

    def scenario(imports):
        imports.put(part(0, frames()[0]))
        with pytest.raises(UsageError, match="its end is missing"):
            imports.take("i")

    in_loop(scenario)


def test_so_many_files_come_in_at_a_time(monkeypatch):
    """One that nothing was heard of for long makes room for another."""

    def scenario(imports):
        for name in range(IMPORTS_OPEN_MAX):
            imports.put(part(0, frames()[0], f"i-{name}"))
        with pytest.raises(Overloaded, match="are being imported"):
            imports.put(part(0, frames()[0], "late"))
        monkeypatch.setattr(module, "IMPORT_IDLE_S", -1.0)
        imports.put(part(0, frames()[0], "late"))
        assert IMPORT_IDLE_S > 0
        with pytest.raises(UsageError, match="the file is not here"):
            imports.take("i-0")

    in_loop(scenario)


# --- whatever is in a file ------------------------------------------------------------------

NUMBERS = st.integers(-3, 12) | st.sampled_from([2**31, 2**53, 2**62, 2**63 - 1, -(2**63)])
TEXTS = st.sampled_from(["", "s-1", "c-1", "\x1b[2J", "x" * 300, "\x00"])
BYTES = st.binary(max_size=6) | st.just(b"\x91" * 970 + b"\xc0")
VALUES = {int: NUMBERS, str: TEXTS, bytes: BYTES, bool: st.booleans()}


def mutated(draw, struct):
    """Return a struct with some of its numbers, texts and bytes changed."""
    fields = {}
    for name in struct.__struct_fields__:
        strategy = VALUES.get(type(getattr(struct, name)))
        if strategy is not None and draw(st.integers(0, 9)) == 0:
            fields[name] = draw(strategy)
    return msgspec.structs.replace(struct, **fields)


@st.composite
def files(draw):
    """Return what a file holds, with anything in it changed."""
    made = whole()
    spec = msgspec.msgpack.decode(made.header.spec)
    name = draw(st.sampled_from(sorted(spec["supervision"])))
    if draw(st.booleans()):
        spec["supervision"][name] = draw(NUMBERS | st.floats() | TEXTS | st.none())
    header = msgspec.structs.replace(made.header, spec=msgspec.msgpack.encode(spec))
    rows = {
        name: [mutated(draw, one) for one in getattr(made, name) * draw(st.integers(0, 2))]
        for name in ("records", "commands", "events")
    }
    facts = mutated(draw, made.checkpoints[0].facts)
    kept = msgspec.structs.replace(made.checkpoints[0], facts=facts)
    snapshot = draw(st.just(made.snapshot) | BYTES)
    return Whole(header=mutated(draw, header), snapshot=snapshot, checkpoints=[kept], **rows)


@given(files())
def test_what_is_taken_of_a_file_can_be_gone_on_with(file):
    """It is refused as a whole, or the next daemon finds nothing in its journal to stop at."""
    try:
        spec = check_whole(file)
    except UsageError:
        return

    async def taken_over():
        journal = MemoryJournal()
        await journal.open()
        try:
            brought = _brought(file, spec)
            await journal.write(RestoreSession(brought.past, brought.events, brought.checkpoints))
            (row,) = await journal.read(ListLiveSessions())
            assert row_problem(row) is None
            check_session(spec_of(row.spec))
            session_spec(spec, None, incarnation=row.incarnation, restarts=row.restarts)
            await journal.write(
                BeginIncarnation(row.session_id, row.incarnation + 1, row.restarts + 1)
            )
            await journal.write(PublishEvents(row.session_id, brought.last + 1, 1, b"\x90"))
            assert await journal.read(FindLastIndex(row.session_id)) == brought.last + 1
            stored = await journal.read(LoadSession(row.session_id))
            for frame in slices(stored):
                assert codec.decode(ToWorker, codec.encode(frame)) == frame
            for kept in await journal.read(ListCheckpoints(row.session_id)):
                codec.decode_as(CheckpointFacts, codec.encode(facts_of(kept)))
        finally:
            await journal.close()

    asyncio.run(taken_over())
