"""The pytest plugin as a user has it: found by pytest itself, off until a fixture is asked for."""

import os
import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.process, pytest.mark.slow]

RUN_S = 100.0
PAGE = Path(__file__).parents[3] / "docs" / "howto" / "testing.md"
PIECE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LIGHT = {"cmdc_runtime", "cmdc_runtime.exports", "cmdc_runtime.version"} | {
    f"cmdc_runtime.testing{name}" for name in ("", ".fixtures")
}
"""What a run loads of the package that has nothing to do with agents."""
PLAIN = """
import sys

def test_nothing_of_agents():
    print("loaded:", *(name for name in sys.modules if name.partition(".")[0] == "cmdc_runtime"))
"""
REDIRECTED = """
import asyncio, os, subprocess, sys
import pytest
import cmdc_runtime as cmdc
from cmdc_runtime.testing import ScriptedModel

@pytest.fixture
def session():
    with ScriptedModel(["hello"]) as model, cmdc.create_agent(model=model) as session:
        yield session

def test_the_calls_go_to_the_daemon(session, cmdc_daemon):
    assert session.run("hi").text == "hello"
    assert [one.session_id for one in cmdc.list_sessions()] == [session.id]
    with cmdc_daemon.client() as client:
        assert client.status(session.id).turns == 1

def test_coroutines_do(cmdc_daemon):
    async def conversation():
        with ScriptedModel(["hello"]) as model:
            async with await cmdc.aio.create_agent(model=model) as session:
                reply = await session.run("hi")
        return reply.text, cmdc_daemon.client().list_sessions()

    assert asyncio.run(conversation()) == ("hello", [])

def test_programs_do(session, cmdc_daemon):
    code = "import cmdc_runtime as cmdc; print(*(one.session_id for one in cmdc.list_sessions()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [session.id]

def test_the_others_do_not():
    assert os.environ["CMDC_ADDRESS"] == "/nowhere"
    with pytest.raises(cmdc.DaemonUnavailable):
        cmdc.list_sessions()
    with pytest.raises(cmdc.DaemonUnavailable):
        asyncio.run(cmdc.aio.list_sessions())
"""
EXHAUSTED = """
import cmdc_runtime as cmdc
from cmdc_runtime.testing import ScriptedModel, ToolCalls, ToolUse

@cmdc.tool
def look() -> str:
    "Look."
    return "a cat"

def test_one_step_too_few(cmdc_session):
    with ScriptedModel([ToolCalls(ToolUse("look", {}))]) as model:
        try:
            cmdc_session(model, tools=[look]).run("What is there?")
        finally:
            print("asked", len(model.requests), "times")
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Run a user's file of tests, in which nothing names the plugin."""
    monkeypatch.setenv("CMDC_ADDRESS", "/nowhere")
    monkeypatch.setenv("COVERAGE_PROCESS_START", os.environ.get("COVERAGE_PROCESS_START", ""))

    def start(text, *flags):
        pytester.makepyfile(text)
        return pytester.runpytest_subprocess("-q", "-s", *flags, timeout=RUN_S)

    return start


def test_a_run_without_agents_loads_nothing(run):
    """Who has the package installed pays for three modules that hold no code of it."""
    done = run(PLAIN)
    (line,) = [line for line in done.outlines if "loaded:" in line]

    done.assert_outcomes(passed=1)
    assert set(line.partition("loaded:")[2].strip(" .").split()) == LIGHT


def test_calls_of_a_test_with_the_daemon_go_there(run):
    """In its fixtures, too; those of other tests go where they always do."""
    done = run(REDIRECTED)

    done.assert_outcomes(passed=4)


def test_the_plugin_may_be_named_as_well(run):
    """As it had to be before pytest found it: it is not loaded twice."""
    done = run("def test_it(cmdc_daemon): pass", "-p", "cmdc_runtime.testing.fixtures")

    done.assert_outcomes(passed=1)


def test_a_script_that_is_used_up_says_where(run):
    """At once, and not after retries: the request's number, and what it asked."""
    done = run(EXHAUSTED)
    text = done.stdout.str()

    done.assert_outcomes(failed=1)
    assert "AgentFailed" in text
    assert "request 2 found no step, the script has 1, and all were taken" in text
    assert "it followed the result of call_1_0: 'a cat'" in text
    assert "its last user message: 'What is there?'" in text
    assert "asked 2 times" in text


def test_the_tests_of_the_how_to_pass(run):
    """The page is a file of tests as it stands."""
    text = "\n\n".join(PIECE.findall(PAGE.read_text(encoding="utf-8")))
    done = run(text)

    done.assert_outcomes(passed=3)
