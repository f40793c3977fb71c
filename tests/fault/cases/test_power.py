"""Power that is cut: what was acknowledged with ``durability = "power"`` is there afterwards."""

import os
import random
import shutil
import subprocess
import sys

import pytest

from supervisor.adapters.journal.operations import ReadHistory
from tests.fault.cases.journals import with_journal
from tests.fault.cases.storage_faults import SYNC, FaultyDisk, Remains, entries

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.process]

IS_FULL = "FAULT_FULL" in os.environ
CUTS = 800 if IS_FULL else 50
LOOSE_CUTS = 400 if IS_FULL else 20
CALLERS, TALKS = 4, 120
RUN_S = 60.0


@pytest.fixture(autouse=True)
def audit():
    """No daemon is needed here."""


TO_BE_KILLED = """
import asyncio, os, sys
from pathlib import Path
from supervisor.adapters.journal.base import SessionRow
from supervisor.adapters.journal.operations import AcceptCommand, AppendRecords, CreateSession
from supervisor.adapters.journal.sqlite import SqliteJournal

async def talk(journal, acks, caller):
    name = f"s-{caller}"
    await journal.write(CreateSession(SessionRow(session_id=name, created_ms=1, spec=b"")))
    for number in range(int(sys.argv[2])):
        await journal.write(AcceptCommand(name, f"c-{number}", bytes(900), number))
        records, answers = [("said", bytes(1500))], [(f"c-{number}", b"done")]
        await journal.write(AppendRecords(name, 0, records, answers))
        os.write(acks, f"{name} {number}\\n".encode())

async def main():
    journal = SqliteJournal(Path(sys.argv[1]), durability=sys.argv[3])
    await journal.open()
    acks = os.open(Path(sys.argv[1]) / "acks", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    await asyncio.gather(*(talk(journal, acks, caller) for caller in range(4)))
    await journal.close()

asyncio.run(main())
"""


@pytest.fixture
def trace(tmp_path):
    """Return a function that gives what a journal of some durability does to its disk."""

    def give(durability):
        if (compiler := shutil.which("cc")) is None:
            pytest.skip("a disk that forgets needs a C compiler")
        state = tmp_path / "state"
        state.mkdir(mode=0o700)
        disk = FaultyDisk(compiler, tmp_path, state)
        variables = {**os.environ, **disk.variables, "STORAGE_FAULTS_TRACE": str(disk.trace)}
        words = [sys.executable, "-c", TO_BE_KILLED, str(state), str(TALKS), durability]
        subprocess.run(words, env=variables, check=True, timeout=RUN_S)
        found = entries(disk.trace)
        assert len(found) > 1_000
        return found

    return give


@pytest.mark.fault_case("F39")
def test_what_was_acknowledged_outlives_the_power(tmp_path, trace):
    """Cut at any point, with any part of what was not synced: what was acknowledged is there.

    Half of the cuts are right before a sync of the log, when a whole commit is still to come to the
    disk: of its frames any may be there, and nobody is ended for one that is not.
    """
    found = trace("power")
    lost = {}
    chance = random.Random(6)
    syncs = [at for at, one in enumerate(found) if one.kind == SYNC and one.path.endswith("-wal")]
    moments = chance.sample(range(len(found)), CUTS // 2) + chance.sample(syncs, CUTS // 2)
    for number, moment in enumerate(sorted(moments)):
        left = cut_at(found, moment, chance, tmp_path / f"cut-{number}")
        acknowledged = left.pop("acks", "").split("\n")[:-1]
        missing = [
            line for line in acknowledged if line.split()[1] not in left.get(line.split()[0], ())
        ]
        if missing:
            lost[moment] = missing
    assert lost == {}


@pytest.mark.fault_case("F39")
def test_without_that_promise_the_power_takes_the_last_moments_alone(tmp_path, trace):
    """Any part of what was written is there: a session goes on from a moment that it had.

    A commit may be torn as damage tears one, with whole ones behind it: who misses a page of that
    is ended aloud, as few as are. The daemon starts.
    """
    found = trace("process")
    chance = random.Random(7)
    kept = ended = 0
    for number, moment in enumerate(sorted(chance.sample(range(len(found)), LOOSE_CUTS))):
        left = cut_at(found, moment, chance, tmp_path / f"cut-{number}", over="ended")
        left.pop("acks")
        for said in left.values():
            if said == {"ended"}:
                ended += 1
            else:
                kept += 1
                assert said == {str(at) for at in range(len(said))}, moment
    assert ended * 4 < kept


def cut_at(found, moment, chance, folder, over=None):
    """Return what a power cut after so many entries leaves: commands by session, and the acks.

    A session that was ended has none, or is ``over``.
    """
    remains = Remains(chance)
    acks = b""
    for entry in found[:moment]:
        if entry.path.endswith("/acks"):
            acks += entry.data
        else:
            remains.apply(entry)
    remains.cut(folder)

    async def commands(journal):
        kept = {}
        for caller in range(CALLERS):
            past = await journal.read(ReadHistory(f"s-{caller}"))
            is_over = past is not None and past.row.ended_ms
            rows = () if past is None or is_over else past.commands
            said = {row.command_id[2:] for row in rows if row.answer == b"done"}
            kept[f"s-{caller}"] = {over} if is_over and over else said
        return kept

    left, _ = with_journal(folder, commands)
    shutil.rmtree(folder)
    return {**left, "acks": acks.decode()}
