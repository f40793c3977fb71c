"""The how-to about guardrails is a program: its pieces, one after another, print what it says."""

import re
from pathlib import Path

import pytest

from tests.programs.running import run_program

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "guardrails.md"
PIECE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PRINTED = re.compile(r"print\(.*\)  # (.*)$", re.MULTILINE)
PROGRAM_S = 60.0
BEFORE = """
from cmdc_runtime.testing import ScriptedModel
model = ScriptedModel(["Pears."], default="Look at the weather!")
"""

pytestmark = [pytest.mark.slow, pytest.mark.process]


def test_the_how_to_prints_what_it_says(cmdc_daemon, tmp_path):
    """One of each side trips, and says why."""
    page = PAGE.read_text(encoding="utf-8")
    text = "\n".join([BEFORE, *PIECE.findall(page), "model.close()"])
    done = run_program(cmdc_daemon, tmp_path, text, PROGRAM_S)

    assert (done.returncode, done.stdout.splitlines()) == (0, PRINTED.findall(page)), done.stderr
