"""A process's title stands where its arguments were, and never beyond them."""

import subprocess
import sys

import pytest

PROBE = """
import sys
from pathlib import Path
from cmdc_runtime.prctl import set_title
before = Path("/proc/self/environ").read_bytes()
size = len(Path("/proc/self/cmdline").read_bytes())
set_title("a-name-that-is-too-long", sys.argv[1] * 3)
set_title("a-name-that-is-too-long", sys.argv[1] * 3)
shown = Path("/proc/self/cmdline").read_bytes()
assert len(shown) == size and shown.endswith(b"\\0")
assert Path("/proc/self/environ").read_bytes() == before
print(Path("/proc/self/comm").read_text().strip(), shown.rstrip(b"\\0").decode() in sys.argv[1] * 3)
"""


@pytest.mark.slow
@pytest.mark.parametrize("title", ["short", "grün", "x" * 4000], ids=["short", "wide", "long"])
def test_a_title_is_cut_to_the_arguments(title):
    """The environment behind the arguments stays what it was, however long the title is."""
    given = [sys.executable, "-c", PROBE, title]
    done = subprocess.run(given, capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout, done.stderr) == ("a-name-that-is- True\n", "")
