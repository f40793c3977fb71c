"""The how-to about handoffs is a program: its pieces, one after another, print what it says."""

import re
from pathlib import Path

import pytest

from tests.programs.running import run_program

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "handoffs.md"
PIECE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PRINTED = re.compile(r"print\(.*\)  # (.*)$", re.MULTILINE)
PROGRAM_S = 60.0
BEFORE = """
from cmdc_runtime.testing import ScriptedModel, ToolCalls, ToolUse
model = ScriptedModel(
    [
        ToolCalls(ToolUse("transfer_to_billing", {})),
        ToolCalls(ToolUse("invoice", {"number": 7})),
        "Yes, invoice 7 is paid.",
        ToolCalls(ToolUse("transfer_to_clerk", {})),
        "It is.",
    ]
)
"""

pytestmark = [pytest.mark.slow, pytest.mark.process]


def test_the_how_to_prints_what_it_says(cmdc_daemon, tmp_path):
    """Two agents of one conversation, and a function that decides what the second one sees."""
    page = PAGE.read_text(encoding="utf-8")
    text = "\n".join([BEFORE, *PIECE.findall(page), "model.assert_complete()", "model.close()"])
    done = run_program(cmdc_daemon, tmp_path, text, PROGRAM_S)

    assert (done.returncode, done.stdout.splitlines()) == (0, PRINTED.findall(page)), done.stderr
