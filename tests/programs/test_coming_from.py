"""The pages for those who come from another library: their half of each program is real, too.

Ours is run with the other pages. Theirs is compiled here, and run where its library is installed in
the environment of the peers, which ``make bench-peers`` makes; it prints the same.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from cmdc_runtime.testing import ScriptedModel, ToolCalls, ToolUse

ROOT = Path(__file__).parents[2]
HOWTO = ROOT / "docs" / "howto"
PEERS = ROOT / ".peers" / "bin" / "python"
THEIRS = re.compile(r"^```py\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHOWN = re.compile(r"^```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROGRAM_S = 240.0
CALL = ToolCalls(ToolUse("find_book", {"title": "Emma"}))
PLAYED = {
    "openai-agents": ("agents", [CALL, "On shelf A3.", "You're welcome."]),
    "langgraph": ("langgraph", [CALL, "On shelf A3.", "You're welcome."]),
    "pydantic-ai": (
        "pydantic_ai",
        [
            CALL,
            ToolCalls(ToolUse("final_result", {"title": "Emma", "shelf": "A3"})),
            "You're welcome.",
        ],
    ),
}
"""What to import, and what the model says; who runs a program of its own is not played."""


@pytest.mark.parametrize("page", sorted(HOWTO.glob("from-*.md")), ids=lambda page: page.stem)
def test_their_program_is_python(page):
    """One block, which the compiler takes."""
    (program,) = THEIRS.findall(page.read_text(encoding="utf-8"))

    assert compile(program, page.name, "exec")


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(PROGRAM_S + 60)
@pytest.mark.parametrize("name", PLAYED)
def test_their_program_prints_what_ours_does(name, tmp_path):
    """The comparison is of two programs that work."""
    module, script = PLAYED[name]
    if (
        not PEERS.exists()
        or subprocess.run([PEERS, "-c", f"import {module}"], check=False).returncode
    ):
        pytest.skip(f"{module} is not installed in .peers: make bench-peers")
    page = (HOWTO / f"from-{name}.md").read_text(encoding="utf-8")
    program = tmp_path / "theirs.py"
    program.write_text(*THEIRS.findall(page))
    with ScriptedModel(script) as model:
        done = subprocess.run(
            [PEERS, str(program)],
            env=os.environ | {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )

    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(SHOWN.findall(page))
