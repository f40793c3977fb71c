"""The how-to about plugins is a program: its pieces, one after another, do what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
    program = tmp_path / "program.py"
    program.write_text("\n\n".join(PIECE.findall(PAGE.read_text(encoding="utf-8"))))
    ours = {name: text for name, text in os.environ.items() if not name.startswith("CMDC_")}
    done = subprocess.run(
        [sys.executable, str(program)],
        env=ours | {"CMDC_ADDRESS": str(cmdc_daemon.address)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    printed = re.sub(r"reached: \d+", "reached: N", done.stdout)

    assert (done.stderr, done.returncode) == ("", 0), done.stdout
    assert printed.splitlines() == [line.strip() for line in PRINTED.strip().splitlines()]
