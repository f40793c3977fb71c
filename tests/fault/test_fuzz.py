"""Inputs that are nearly right, for every decoder: the short form of ``make fuzz``.

What is checked is in ``scripts/fuzz``; that it sees what it looks for, in
``tests/unit/scripts/test_fuzz.py``.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

INPUTS = int(os.environ.get("FUZZ_N", "20000"))
ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_no_input_hurts():
    """No crash, no hang, no memory that grows; the daemon and a bystander go on."""
    words = ["--inputs", str(INPUTS), "--unguided", "--no-save"]
    done = subprocess.run(
        [sys.executable, "-m", "scripts.fuzz", *words],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{INPUTS:,} inputs, seeded" in done.stdout
