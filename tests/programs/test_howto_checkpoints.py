"""The how-to about checkpoints is a program: its pieces, one after another, do what it says."""

import re
from pathlib import Path

import pytest

from tests.programs.running import run_program

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "checkpoints.md"
EXAMPLE = PAGE.parents[2] / "examples" / "19_checkpoint_files.py"
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
"""
FILES = f"""
import runpy, tempfile
folder = tempfile.TemporaryDirectory()
CheckpointFiles = runpy.run_path({str(EXAMPLE)!r})["CheckpointFiles"]
files = CheckpointFiles(folder.name)
"""
LAST = """
assert cmdc.list_checkpoints(session.id) == [saved]
again.stop()
session.stop()
folder.cleanup()
model.close()
"""

pytestmark = [pytest.mark.slow, pytest.mark.process]


def test_the_checkpoints_of_the_how_to_do_what_it_says(cmdc_daemon, tmp_path):
    """Saved, forked, without secrets, by themselves, and in files of one's own."""
    fork, secret, by_itself, elsewhere, contract = PIECE.findall(PAGE.read_text(encoding="utf-8"))
    ends = "ann.stop()\nsession.stop()\n"
    text = f"{BEFORE}\n{fork}\n{ends}\n{secret}\n{BETWEEN}\n{by_itself}\n{AFTER}"
    text += f"{FILES}\n{elsewhere}\n{contract}\n{LAST}"
    done = run_program(cmdc_daemon, tmp_path, text, PROGRAM_S)

    assert (done.returncode, done.stdout) == (0, "['My name is Ann.']\n"), done.stderr
