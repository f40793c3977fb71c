"""The how-to about typed answers is a program: its pieces, one after another, do what it says."""

import re
from pathlib import Path

import pytest

from tests.programs.running import run_program

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "typed-answers.md"
PIECE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROGRAM_S = 60.0
BEFORE = """
from cmdc_runtime.testing import ScriptedModel
ROME = '{"name": "Rome", "people": 2800000}'
model = ScriptedModel([
    ROME, '{"result": 2800000}', '{"result": ["Tiber", "Po"]}', '{"result": "yes"}',
    '{"result": null}', ROME, '{"result": 2800000}', '{"number": 3}', '{"number": 5}',
])
"""
AFTER = """
model.assert_complete()
session.stop()
surveyor.stop()
model.close()
"""
PRINTED = """
    Rome 2800000
    2800000 ['Tiber', 'Po'] yes None
    Rome
    2800000
    {"number": 5} ('number: Value error, it is odd',)
"""

pytestmark = [pytest.mark.slow, pytest.mark.process]


def test_the_answers_of_the_how_to_are_what_it_says(cmdc_daemon, tmp_path):
    """Of a struct, plain ones, of a session, and one that a validator refuses."""
    text = "\n\n".join([BEFORE, *PIECE.findall(PAGE.read_text(encoding="utf-8")), AFTER])
    done = run_program(cmdc_daemon, tmp_path, text, PROGRAM_S)

    assert (done.stderr, done.returncode) == ("", 0), done.stdout
    assert done.stdout.splitlines() == [line.strip() for line in PRINTED.strip().splitlines()]
