"""The how-to about checkpoints is a program: its pieces, one after another, do what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "checkpoints.md"
PIECE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROGRAM_S = 60.0
BEFORE = """
from cmdc_runtime.testing import ScriptedModel
model = ScriptedModel([], default="Fine.")
"""
BETWEEN = """
session.checkpoint()
assert session.load_checkpoint().state["provider_opts"] == {}
session.stop()
"""
AFTER = """
session.stop()
assert [one.label for one in cmdc.list_checkpoints(session.id)] == ["auto: session_end"]
model.close()
"""

pytestmark = [pytest.mark.slow, pytest.mark.process]


def test_the_checkpoints_of_the_how_to_do_what_it_says(cmdc_daemon, tmp_path):
    """Saved, forked, without secrets, and by themselves."""
    fork, secret, by_itself = PIECE.findall(PAGE.read_text(encoding="utf-8"))
    ends = "ann.stop()\nsession.stop()\n"
    program = tmp_path / "program.py"
    program.write_text(f"{BEFORE}\n{fork}\n{ends}\n{secret}\n{BETWEEN}\n{by_itself}\n{AFTER}")
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

    assert (done.returncode, done.stdout) == (0, "['My name is Ann.']\n"), done.stderr
