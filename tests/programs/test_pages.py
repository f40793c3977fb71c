"""Pages that are programs: their pieces, one after another, print what the page shows.

To add a page, add it to ``PAGES``: its blocks marked ``python`` are the program, those marked
``text`` what it prints. The last part of the tutorial is a file of tests, which pytest runs.
"""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs.running import environment, run_program

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (
    "tutorial/2-agent.md",
    "tutorial/3-approval.md",
    "tutorial/4-plugin.md",
    "tutorial/5-crash.md",
    "howto/tools.md",
    "howto/subagents.md",
    "howto/blueprints.md",
    "howto/web.md",
    "howto/from-openai-agents.md",
    "howto/from-pydantic-ai.md",
    "howto/from-langgraph.md",
    "howto/from-claude-agent-sdk.md",
    "howto/images.md",
)
PIECE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHOWN = re.compile(r"^```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROGRAM_S = 240.0

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(PROGRAM_S + 60)]


@pytest.mark.parametrize("page", PAGES)
def test_the_page_prints_what_it_shows(page, cmdc_daemon, tmp_path):
    """A reader who puts the pieces into a file sees the same."""
    text = (DOCS / page).read_text(encoding="utf-8")
    done = run_program(cmdc_daemon, tmp_path, "\n\n".join(PIECE.findall(text)), PROGRAM_S)

    assert (done.stderr, done.returncode) == ("", 0), done.stdout
    assert done.stdout == "".join(SHOWN.findall(text))


def test_the_tests_of_the_tutorial_pass(cmdc_daemon, tmp_path):
    """The last part is a file for pytest, which finds the fixtures by itself."""
    text = (DOCS / "tutorial/6-test.md").read_text(encoding="utf-8")
    (tmp_path / "test_library.py").write_text("\n\n".join(PIECE.findall(text)))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_library.py"]
    done = subprocess.run(
        command,
        env=environment(cmdc_daemon),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )

    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_each_part_of_the_tutorial_is_run():
    """A part with code is one of the pages above, and each names the next one."""
    parts = sorted(path.name for path in (DOCS / "tutorial").glob("[0-9]-*.md"))
    with_code = [one for one in parts if PIECE.search((DOCS / "tutorial" / one).read_text())]
    run = [page.rpartition("/")[2] for page in PAGES if page.startswith("tutorial/")]

    assert with_code == [*run, "6-test.md"]
    for part, following in itertools.pairwise(parts):
        assert f"({following})" in (DOCS / "tutorial" / part).read_text()
