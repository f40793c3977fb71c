"""Each example of a plugin as a program: what it prints, and that nothing of it is left.

They play a script of their own unless ``CMDC_MODEL`` names a model. To add one: a row here.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cmdc_runtime.testing import ScriptedModel, ToolCalls, ToolUse

FOLDER = Path(__file__).parents[2] / "examples" / "plugins"
PROGRAM_S = 60.0
LINES_MAX = 110
VARYING = re.compile(r'"at":"[^"]*Z"|s-[0-9a-f]{16}')

PRINTED = {
    "01_dangerous_commands": """
        user: Which version of curl is here?
        assistant: ['cd . && LANG=C /usr/bin/curl --version']
        tool_result: Error: blocked: curl may not be used here.
        assistant: ['echo curl is a word here']
        tool_result: curl is a word here
        assistant: I may not use curl.
    """,
    "02_prompt_audit": """
        What is 2 + 2? Four.
        And 2 + 3? Five.
        prompt_audited {'chars': 14, 'user_data': {'tenant': 'acme'}}
        prompt_audited {'chars': 10, 'user_data': {'tenant': 'acme'}}
        {-,"session":"-","prompt":"What is 2 + 2?"}
        {-,"session":"-","prompt":"And 2 + 3?"}
    """,
    "03_budget_guard": """
        Chapter 1. So far $0.0006
        the cycle was aborted: budget: $0.0012 of $0.001
        The session is idle and has 5 messages
    """,
    "04_tool_fallback": """
        failed: '12-34' is no order: a number has six digits
        openai/scripted gives way to openai/better
        failed: '1234' is no order: a number has six digits
        found: 001234 was delivered
        It was delivered.
    """,
    "05_sensitive_words": """
        How is it? -> It is a fine day.
        Tell me about PROJECT FALCON. -> the cycle was aborted: sensitive word: PROJECT FALCON
        Forget it, please. -> Of course.
        The provider saw: ['How is it?', 'It is a fine day.', 'Tell me about [...].', \
'Forget it, please.']
    """,
    "06_turn_auditor": """
        ada | finished | I am Ada. | Hello, Ada.
        ada | finished | Who am I? | You are Ada.
    """,
}

pytestmark = [pytest.mark.slow, pytest.mark.process]


def run(name, **more):
    """Run an example to its end and return what it printed."""
    ours = {name: text for name, text in os.environ.items() if not name.startswith("CMDC_")}
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py")],
        env=ours | more,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0), done.stdout
    return done.stdout


@pytest.mark.parametrize("name", PRINTED)
def test_a_plugin_does_what_its_example_shows(name, cmdc_daemon):
    """The program runs as it is, and prints what the plugin did."""
    printed = VARYING.sub("-", run(name, CMDC_ADDRESS=str(cmdc_daemon.address)))

    assert printed.splitlines() == [line.strip() for line in PRINTED[name].strip().splitlines()]


def test_an_example_takes_another_model_and_no_daemon(poll):
    """With ``CMDC_MODEL`` that model is asked; the program's own daemon is gone with it."""
    call = ToolCalls(ToolUse("shell", {"command": "env curl\n(wget --version)"}))
    with tempfile.TemporaryDirectory(prefix="x-") as folder:
        with ScriptedModel([call, "I may not."]) as model:
            printed = run(
                "01_dangerous_commands",
                CMDC_MODEL="openai/given",
                OPENAI_API_KEY="none",
                OPENAI_API_BASE=model.url,
                CMDC_RUNTIME_DIR=str(Path(folder) / "run"),
                TMPDIR=folder,
            )

            assert [request["model"] for request in model.requests] == ["given", "given"]
        assert poll(lambda: list(Path(folder).iterdir()) == []), list(Path(folder).iterdir())
    assert printed.splitlines()[2:] == [
        "tool_result: Error: blocked: wget may not be used here.",
        "assistant: I may not.",
    ]


def test_every_example_is_short_and_run():
    """An example is read as a whole, and one that nobody runs goes stale."""
    found = sorted(FOLDER.glob("*.py"))

    assert [path.stem for path in found] == sorted(PRINTED)
    assert [path.name for path in found if path.read_text().count("\n") > LINES_MAX] == []
