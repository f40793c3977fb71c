"""The how-to about plugins is a program: its pieces, one after another, do what the page says."""

import re
from pathlib import Path

import pytest

from tests.programs.running import run_program

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "plugins.md"
PIECE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROGRAM_S = 60.0
PRINTED = """
    A long answer.
    the cycle was aborted: max_tokens is reached: N of 10 used
    Gladly.
    ['Help me.', 'The user is in a hurry. Be kind all the same.']
    ['Hello!', 'The user is in a hurry', 'Now!']
    I i f.
    ['hello', 'Error: blocked: That is enough: answer with what you know.']
    ['shell']
"""

pytestmark = [pytest.mark.slow, pytest.mark.process]


def test_the_plugins_of_the_how_to_do_what_it_says(cmdc_daemon, tmp_path):
    """Built-ins, a first plugin, and all of the others in one session."""
    text = "\n\n".join(PIECE.findall(PAGE.read_text(encoding="utf-8")))
    done = run_program(cmdc_daemon, tmp_path, text, PROGRAM_S)
    printed = re.sub(r"reached: \d+", "reached: N", done.stdout)

    assert (done.stderr, done.returncode) == ("", 0), done.stdout
    assert printed.splitlines() == [line.strip() for line in PRINTED.strip().splitlines()]
