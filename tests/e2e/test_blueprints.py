"""The blueprints to start from, each at its work with a scripted model."""

import os
import signal
import threading

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ScriptedModel, ToolCalls, ToolUse

TURN_S = 60.0
WRONG = "def mean(numbers):\n    return sum(numbers) / (len(numbers) + 1)\n"
RIGHT = "def mean(numbers):\n    return sum(numbers) / len(numbers)\n"
TEST = """import unittest

from calc import mean


class MeanTest(unittest.TestCase):
    def test_mean(self):
        self.assertEqual(mean([1, 2, 3]), 2)
"""
RUN = "python3 -B -m unittest -v test_calc"


def repository(folder):
    """Make a repository with a bug and no test."""
    folder.mkdir()
    (folder / "calc.py").write_text(WRONG)
    (folder / "AGENTS.md").write_text("Every fix has a test.\n")
    return folder


def contents(folder):
    """Return every file of a folder with what is in it."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def calls_of(request):
    """Return the calls of a conversation with their results, oldest first."""
    calls = {}
    for message in request["messages"]:
        for call in message.get("tool_calls") or ():
            calls[call["id"]] = [call["function"]["name"], None]
        if message["role"] == "tool":
            calls[message["tool_call_id"]][1] = message["content"]
    return list(calls.values())


def engineer(request):
    """Answer as an engineer would who looks before repeating what was cut short.

    It goes by the results alone: what was read last says whether an edit is there.
    """
    calls = calls_of(request)
    name, result = calls[-1] if calls else ("edit_file", "")
    if name == "edit_file":
        return ToolCalls(ToolUse("read_file", {"path": "calc.py"}))
    if name == "read_file" and "+ 1" in result:
        edit = {"path": "calc.py", "old_string": "(len(numbers) + 1)", "new_string": "len(numbers)"}
        return ToolCalls(ToolUse("edit_file", edit))
    if not any(name == "write_file" and "test_calc.py: " in result for name, result in calls):
        return ToolCalls(ToolUse("write_file", {"path": "test_calc.py", "content": TEST}))
    if name == "shell" and "OK" in result:
        return "Mended, with a test that passes."
    return ToolCalls(ToolUse("shell", {"command": RUN}))


class Killer:
    """Kills the session's process when these events come, each once."""

    def __init__(self, session, moments):
        self.session, self.moments = session, list(moments)
        self.stream = session.subscribe(types=["tool_execution_start", "tool_execution_end"])
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        """Kill at each moment; end when there is none left, or the stream is closed."""
        for envelope in self.stream:
            if self.moments and (envelope.event.kind, envelope.event.name) == self.moments[0]:
                del self.moments[0]
                os.kill(self.session.agent_pid(), signal.SIGKILL)
            if not self.moments:
                return

    def close(self):
        """Wait for the thread."""
        self.stream.close()
        self.thread.join(TURN_S)
        assert not self.thread.is_alive()


@pytest.mark.slow
@pytest.mark.process
def test_a_coding_agent_that_is_killed_three_times_leaves_the_same_repository(agent, tmp_path):
    """It edits, adds a test and runs it; what was cut short is looked at and done once."""
    left = {}
    moments = (
        ("tool_execution_start", "edit_file"),
        ("tool_execution_end", "write_file"),
        ("tool_execution_start", "shell"),
    )
    for name, kills in (("calm", ()), ("killed", moments)):
        folder = repository(tmp_path / name)
        with ScriptedModel([], default=engineer) as model:
            session = agent(
                model,
                blueprint=cmdc.blueprints.CodingAgent,
                working_dir=str(folder),
                max_restarts=9,
                max_cycle_crashes=9,
            )
            killer = Killer(session, kills)
            try:
                reply = session.run("mean is wrong: mend it.", timeout=TURN_S)
            finally:
                killer.close()
            system = model.requests[0]["messages"][0]["content"]
        assert killer.moments == []
        assert session.status().restarts == len(kills)
        assert reply.text == "Mended, with a test that passes."
        assert "Every fix has a test." in system
        left[name] = contents(folder)

    assert left["killed"] == left["calm"]
    assert left["calm"]["calc.py"] == RIGHT


def test_a_research_agent_gives_its_questions_to_readers(agent, scripted, tmp_path):
    """Side by side; what they found comes back to who puts it together."""
    (tmp_path / "a.txt").write_text("The ship is red.\n")
    task = {"description": "What colour is the ship?", "subagent_type": "reader"}
    read = ToolUse("read_file", {"path": "a.txt"})
    answers = [ToolCalls(ToolUse("task", task)), ToolCalls(read), "Red: a.txt, line 1.", "Red."]
    model = scripted(*answers)
    session = agent(
        model, blueprint=cmdc.blueprints.ResearchAgent, working_dir=str(tmp_path), max_children=2
    )

    assert session.run("What colour is it?", timeout=TURN_S).text == "Red."
    assert "Red: a.txt, line 1." in str(model.requests[-1]["messages"][-1]["content"])
    assert "Find what you are asked for" in str(model.requests[1]["messages"][0]["content"])


def test_a_support_agent_acts_when_a_person_agrees(agent, scripted, tmp_path):
    """A rejected action is not carried out; what only looks up needs nobody."""
    log = tmp_path / "refunds"

    @cmdc.tool(effects="read")
    def order(number: int) -> str:
        """Look up an order."""
        return f"order {number}: 20 euro"

    @cmdc.tool(effects="write")
    def refund(number: int) -> str:
        """Pay an order back."""
        with log.open("a") as file:
            file.write(f"{number}\n")
        return "paid back"

    steps = [ToolCalls(ToolUse("order", {"number": 1}))]
    steps += [ToolCalls(ToolUse("refund", {"number": n})) for n in (1, 2)]
    model = scripted(*steps, "One was paid back, the other was not.")
    support = cmdc.blueprints.SupportAgent(actions=[refund]).add_tools(order)
    session = agent(model, blueprint=support, working_dir=str(tmp_path))
    stream = session.subscribe(types=["approval_required"])
    session.prompt("Pay both back.")
    session.approve(stream.get(TURN_S).event.id)
    session.reject(stream.get(TURN_S).event.id)

    assert session.collect_reply(timeout=TURN_S) == "One was paid back, the other was not."
    assert log.read_text() == "1\n"
