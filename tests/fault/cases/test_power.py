"""Power that is cut: what was acknowledged with ``durability = "power"`` is there afterwards."""

import os
import random
import shutil
import subprocess
import sys

import pytest

from supervisor.adapters.journal.operations import ReadHistory
from tests.fault.cases.journals import with_journal
from tests.fault.cases.storage_faults import FaultyDisk, Remains, entries

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.process]

IS_FULL = "FAULT_FULL" in os.environ
CUTS = 800 if IS_FULL else 50
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
    journal = SqliteJournal(Path(sys.argv[1]), durability="power")
    await journal.open()
    acks = os.open(Path(sys.argv[1]) / "acks", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    await asyncio.gather(*(talk(journal, acks, caller) for caller in range(4)))
    await journal.close()

asyncio.run(main())
"""


@pytest.mark.fault_case("F39")
def test_what_was_acknowledged_outlives_the_power(tmp_path):
    """Cut at any point, with any part of what was not synced: what was acknowledged is there."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("a disk that forgets needs a C compiler")
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    disk = FaultyDisk(compiler, tmp_path, state)
    variables = {**os.environ, **disk.variables, "STORAGE_FAULTS_TRACE": str(disk.trace)}
    words = [sys.executable, "-c", TO_BE_KILLED, str(state), str(TALKS)]
    subprocess.run(words, env=variables, check=True, timeout=RUN_S)
    found = entries(disk.trace)
    lost = {}
    chance = random.Random(6)
    moments = sorted(chance.sample(range(len(found)), CUTS))
    for number, moment in enumerate(moments):
        left = cut_at(found, moment, chance, tmp_path / f"cut-{number}")
        acknowledged = left.pop("acks", "").split("\n")[:-1]
        missing = [
            line for line in acknowledged if line.split()[1] not in left.get(line.split()[0], ())
        ]
        if missing:
            lost[moment] = missing
    assert len(found) > 1_000
    assert lost == {}


def cut_at(found, moment, chance, folder):
    """Return what a power cut after so many entries leaves: commands by session, and the acks."""
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
            rows = () if past is None or past.row.ended_ms else past.commands
            kept[f"s-{caller}"] = {row.command_id[2:] for row in rows if row.answer == b"done"}
        return kept

    left, _ = with_journal(folder, commands)
    shutil.rmtree(folder)
    return {**left, "acks": acks.decode()}
