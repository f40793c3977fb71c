"""The demo, with a scripted provider behind the real provider path."""

import os
import subprocess
import sys
from pathlib import Path

from cmdc_runtime.testing import ScriptedModel, Text, ToolCalls, ToolUse

ROOT = Path(__file__).parents[2]
DEMO_S = 90.0
STORY = "Once upon a time there was a file, and it was read to the end by an agent that came back."


def story(request):
    """Call the tool, then write the story slowly enough to be killed in the middle of it."""
    if request["messages"][-1]["role"] == "tool":
        return Text(STORY, chunk_chars=4, delay=0.02)
    return ToolCalls(ToolUse("count_lines", {"path": "README.md"}))


def test_the_demo_kills_an_agent_and_gets_the_whole_answer():
    """Down says SIGKILL, no index is missing, and the answer is whole."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("CMDC_")}
    with ScriptedModel([], default=story) as model:
        environment = kept | {
            "CMDC_MODEL": "openai/scripted",
            "OPENAI_API_KEY": "none",
            "OPENAI_API_BASE": model.url,
            "COLUMNS": "200",
        }
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "demo.py")],
            env=environment,
            capture_output=True,
            text=True,
            timeout=DEMO_S,
            check=False,
        )

    assert done.returncode == 0, done.stderr
    assert "killed by signal 9 (SIGKILL); restarting: True" in done.stdout
    assert "none missing, none twice" in done.stdout
    assert f"Answer:    {STORY}" in done.stdout
