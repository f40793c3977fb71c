"""Files of sessions that come in part by part."""

import asyncio

import pytest

from cmdc_runtime.errors import Overloaded, UsageError
from cmdc_runtime.requests import PutPart
from cmdc_runtime.transfer import FORMAT, Header, Seal, SnapshotPart, frame_of
from supervisor import imports as module
from supervisor.imports import IMPORT_IDLE_S, IMPORTS_OPEN_MAX, Imports

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
