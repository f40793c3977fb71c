"""What is run by hand is recorded, and its last run is green and of the code that is here.

A row of ``scripts/proofs/proofs.toml`` that fails here is played again by its command, which leaves
the record to be committed. A row without any run yet says "never" in ``CONTRIBUTING.md``. One whose
last run was red and is explained in ``notes.toml`` is expected to fail until it is played again.
"""

import re
import tomllib
from pathlib import Path

import pytest

from benchmarks.report import RESULTS
from scripts.proofs.ledger import newest, proofs

MAKEFILE = Path(__file__).parents[2] / "Makefile"
NOTES = tomllib.loads((RESULTS / "notes.toml").read_text())
PROOFS = sorted(proofs())


@pytest.mark.parametrize("name", PROOFS)
def test_the_last_run_is_green_and_of_this_code(name):
    """Else nobody knows whether what it shows is still true."""
    run, proof = newest(name), proofs()[name]
    if run is None:
        pytest.skip(f"never played: {proof.command}")
    if (note := NOTES.get(f"proofs {run.at}")) is not None and run.status:
        pytest.xfail(f"to be played again, {proof.command}: {note}")

    assert run.status == 0, f"{proof.command} failed at {run.at}: {run.said}"
    assert run.code == proof.digest(), f"older than its code, so play it: {proof.command}"


@pytest.mark.parametrize("name", PROOFS)
def test_its_command_keeps_a_record(name):
    """Whoever plays it need not think of that."""
    target = proofs()[name].command.split()[1]
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE.read_text(), re.MULTILINE)

    assert recipe is not None
    assert f"$(PROOF) {name} " in recipe[1]
