"""What is run by hand is recorded, and its last run is green and of the code that is here.

A row of ``scripts/proofs/proofs.toml`` that fails here is played again by its command, which leaves
the record to be committed. ``notes.toml`` beside the records excuses three things: a row without
any run, by a note ``proofs never NAME`` that begins with its day; a red run, by a note of its time,
for as long as the proof's code is the one that was red; and in commits of seven days code that has
changed in what can't matter, by a note ``proofs NAME is DIGEST`` that begins with its day.
"""

import datetime as dt
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from scripts.proofs.ledger import ALIKE, NEVER, newest, notes, problem_of, proofs

ROOT = Path(__file__).parents[2]
PROOFS = proofs()
NOTES = notes()


def committed():
    """Return the day of the commit that is tested: a checkout is judged alike in a year."""
    day = subprocess.check_output(["git", "log", "-1", "--format=%cs"], cwd=ROOT, text=True)
    return dt.date.fromisoformat(day.strip())


@pytest.mark.parametrize("name", PROOFS)
def test_the_last_run_is_green_and_of_this_code(name):
    """Else nobody knows whether what it shows is still true."""
    run = newest(name)

    assert problem_of(name, PROOFS[name], run, NOTES, committed()) is None
    if run is None:
        pytest.skip(NOTES[NEVER.format(name)])
    if run.status:
        pytest.xfail(NOTES[f"proofs {run.at}"])
    if run.code != PROOFS[name].digest():
        pytest.xfail(NOTES[ALIKE.format(name, PROOFS[name].digest())])


@pytest.mark.parametrize("name", PROOFS)
def test_its_command_keeps_a_record(name):
    """Whoever plays it need not think of that; what the row says is a run that counts."""
    environ = {key: text for key, text in os.environ.items() if not key.startswith("MAKE")}
    command = [*shlex.split(PROOFS[name].command), "--dry-run"]
    shown = subprocess.check_output(command, cwd=ROOT, env=environ, text=True)
    kept = re.search(rf"-m scripts\.proofs {name} (?:--size (\d+) )?--", shown)

    assert kept is not None, shown
    assert int(kept[1] or 0) >= PROOFS[name].least
