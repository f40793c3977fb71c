"""Writes that no life of a session makes: a process that dies at one of them has done it or not."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cmdc_runtime import faults
from supervisor.adapters.journal.base import SessionRow
from supervisor.adapters.journal.operations import (
    CreateSession,
    EndSession,
    FindBlob,
    FindSession,
)
from supervisor.adapters.journal.sqlite import SqliteJournal

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

WRITER = Path(__file__).with_name("rare_writer.py")
END_S = 60.0
OLD = SessionRow(session_id="old", created_ms=1, spec=b"spec")
SESSION = {"prune": faults.DAEMON_ITSELF, "restore": "new", "keep_blob": "old"}
"""Whose plan it is."""
FOUND = {
    ("prune", "before"): ["old"],
    ("prune", "after"): [],
    ("restore", "before"): ["old"],
    ("restore", "after"): ["old", "new"],
    ("keep_blob", "before"): ["old"],
    ("keep_blob", "after"): ["old", b"body"],
}
"""The sessions that the next process finds, and the blob of one."""


async def with_old_session(folder):
    """Make a journal with a session that has ended."""
    journal = SqliteJournal(folder)
    await journal.open()
    await journal.write(CreateSession(OLD))
    await journal.write(EndSession("old", b"reason", 2))
    await journal.close()


async def found(folder):
    """Return which of the sessions there are, and the blob if it is there."""
    journal = SqliteJournal(folder)
    await journal.open()
    rows = [await journal.read(FindSession(name)) for name in ("old", "new")]
    blob = await journal.read(FindBlob("old", "digest"))
    await journal.close()
    names = [row.session_id for row in rows if row is not None]
    return names if blob is None else [*names, blob]


def write(folder, method, plans):
    """Write in another process and return how it ended and what it said."""
    return subprocess.run(
        [sys.executable, WRITER, folder, method],
        env=os.environ | {faults.VARIABLE: str(plans)},
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
    )


@pytest.mark.parametrize(("method", "moment"), FOUND)
def test_a_death_beside_a_rare_write_leaves_all_of_it_or_nothing(tmp_path, method, moment):
    """And the same write, made again, does what is left to do."""
    folder, plans = tmp_path / "journal", tmp_path / "plans"
    plans.mkdir()
    asyncio.run(with_old_session(folder))
    plan = plans / f"{SESSION[method]}.plan"
    plan.write_text(f"{faults.FaultStep(f'{method}.{moment}', 1, 'daemon')}\n")
    died = write(folder, method, plans)

    assert (died.returncode, died.stdout) == (-signal.SIGKILL, ""), died.stderr
    assert asyncio.run(found(folder)) == FOUND[method, moment]
    assert plan.read_text() == ""
    if (method, moment) != ("restore", "after"):  # there it is refused: the session is alive
        again = write(folder, method, plans)
        assert (again.returncode, again.stdout) == (0, "done\n"), again.stderr
    assert asyncio.run(found(folder)) == FOUND[method, "after"]
