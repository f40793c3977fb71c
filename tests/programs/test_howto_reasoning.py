"""The how-to about reasoning is a program: its pieces, one after another, print what it says."""

import re
from pathlib import Path

import pytest

from tests.programs.running import run_program

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "reasoning.md"
PIECE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PRINTED = re.compile(r"print\(.*\)  # (.*)$", re.MULTILINE)
PROGRAM_S = 60.0
BEFORE = """
from cmdc_runtime.testing import ScriptedModel
model = ScriptedModel([], default="Answer: 42")
"""
AFTER = """
assert tree.startswith("flowchart TD")
model.close()
"""

pytestmark = [pytest.mark.slow, pytest.mark.process]


def test_the_how_to_prints_what_it_says(cmdc_daemon, tmp_path):
    """A run from outside, and a session with a strategy of one's own."""
    page = PAGE.read_text(encoding="utf-8")
    text = "\n".join([BEFORE, *PIECE.findall(page), AFTER])
    done = run_program(cmdc_daemon, tmp_path, text, PROGRAM_S)

    assert (done.returncode, done.stdout.splitlines()) == (0, PRINTED.findall(page)), done.stderr
