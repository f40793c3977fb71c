"""A plugin author: a module of one's own, its plugin by a name, and its state after a crash."""

import os
import subprocess
import sys
from pathlib import Path

GUARD = '''
"""A guard of one's own."""

import msgspec

import cmdc_runtime as cmdc


class TooMuch(cmdc.Plugin):
    """Lets so many calls be made in the life of a session."""

    class Config(msgspec.Struct, frozen=True):
        calls_max: int = 2

    class State(msgspec.Struct):
        calls: int = 0

    def before_tool(self, event, context) -> cmdc.BlockTool | None:
        self.state.calls += 1
        if self.state.calls <= self.config.calls_max:
            return None
        return cmdc.BlockTool("that is enough")
'''
TESTS = '''
"""Tests of the guard, with the fixtures that the package brings."""

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Chaos, ScriptedModel, ToolCalls, ToolUse

from too_much import TooMuch


@cmdc.tool(effects="read")
def look() -> str:
    """Look."""
    return "seen"


CALL = ToolCalls(ToolUse("look", {}))


def results(session):
    return [one.content for one in session.messages() if one.role == "tool_result"]


def test_a_call_too_many_is_blocked(cmdc_session):
    session = cmdc_session([CALL, CALL, "Done."], tools=[look], plugins=[TooMuch(calls_max=1)])

    assert session.run("Look twice.").text == "Done."
    assert results(session) == ["seen", "Error: blocked: that is enough"]


def test_its_count_survives_a_crash():
    with (
        Chaos(kill="agent", at="after_cycle_end") as chaos,
        ScriptedModel([CALL, "One.", CALL, "Two."]) as model,
    ):
        session = cmdc.create_agent(model=model, tools=[look], plugins=[TooMuch(calls_max=1)])
        session.run("Look.")
        session.run("Look again.")
        assert results(session) == ["seen", "Error: blocked: that is enough"]
        chaos.audit()
'''
PROGRAM = """
import os, cmdc_runtime as cmdc
plugin = ("too_much:TooMuch", {"calls_max": 1})
with cmdc.create_agent(model=os.environ["CMDC_MODEL"], plugins=[plugin]) as session:
    print(session.run("Hello.").text)
"""


def run(*words: str) -> str:
    """Return what a command prints, and fail as it does."""
    environ = os.environ | {"PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(
        [sys.executable, *words], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


Path("too_much.py").write_text(GUARD)
Path("test_too_much.py").write_text(TESTS)
print(run("-c", PROGRAM).strip())
print("2 passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_too_much.py"))
