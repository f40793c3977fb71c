"""``cmdc tail --tree``: a run of a strategy, drawn while it grows and printed when it is over."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Hold, Text, ToolCalls, ToolUse
from tests.programs.terminals import RUN_S, typing

pytestmark = pytest.mark.process

ESCAPE = "\x1b]0;owned\x07"


class Choice(cmdc.ReasoningStrategy):
    """Asks two, and gives the first up."""

    def step(self, state, context):
        return [cmdc.Branch("One?", id="first"), cmdc.Branch("Two?", id="second")]

    def aggregate(self, thoughts, state):
        self.prune(thoughts[:1], "worse")
        return cmdc.Done(thoughts[1].content)


class Pair(cmdc.ReasoningStrategy):
    """Asks twice, one below the other, and takes the second answer."""

    def step(self, state, context):
        return cmdc.Branch(context.question, id="first")

    def aggregate(self, thoughts, state):
        if thoughts[0].id == "first":
            return cmdc.Branch("Are you sure?", id="second", parent_id="first")
        return cmdc.Done(thoughts[0].content)


def tail(session, daemon, *more):
    """Return the command and its environment."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("CMDC_")}
    command = [Path(sys.executable).with_name("cmdc"), "tail", session.id, "--tree", *more]
    return command, ours | {"CMDC_ADDRESS": str(daemon.address), "TERM": "xterm"}


def printed(session, daemon, *more):
    """Return what the command prints of a session that has ended."""
    command, environment = tail(session, daemon, *more)
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=RUN_S, check=True
    ).stdout


@pytest.fixture
def reasons(cmdc_session, scripted):
    """Make a session whose model calls the tool once, and the model of its branches."""

    def make(*answers, strategy=Pair):
        call = ToolCalls(ToolUse("reason", {"question": "Six times seven?"}))
        below = scripted(*answers)
        tool = cmdc.tools.Reason(strategies=[strategy])
        kind = cmdc.SubAgent("general-purpose", "Thinks.", model=below)
        return cmdc_session(scripted(call, "done"), tools=[tool], subagents=[kind]), below

    return make


def test_a_run_is_printed_when_it_is_over(reasons, cmdc_daemon):
    """In a pipe once, without a control character; as JSON it is the run's result."""
    session, _ = reasons(f"41{ESCAPE}", "42")
    session.run("Think.", timeout=RUN_S)
    session.stop()
    rows = printed(session, cmdc_daemon, "--since", "0").splitlines()
    [line] = printed(session, cmdc_daemon, "--since", "0", "--json").splitlines()
    result = json.loads(line)

    assert re.fullmatch(r"pair \S+ done: 42", rows[0])
    assert re.fullmatch(r"└── first: 41␛]0;owned␇ \(\d+ tokens.*", rows[1])
    assert re.fullmatch(r"    └── second: 42 \(\d+ tokens.*", rows[2])
    assert len(rows) == 3
    assert (result["status"], result["answer"]) == ("done", "42")
    assert [one["id"] for one in result["nodes"]] == ["first", "second"]


def test_what_is_given_up_is_marked_in_a_pipe(reasons, cmdc_daemon):
    """By a word: there is nothing else to know it by."""
    session, _ = reasons(*["41"] * 2, strategy=Choice)
    session.run("Think.", timeout=RUN_S)
    session.stop()
    _, *rows = printed(session, cmdc_daemon, "--since", "0").splitlines()

    assert [row.endswith("[pruned]") for row in rows] == [True, False]
    assert "first: 41" in rows[0]


def test_a_run_is_drawn_while_it_grows(reasons, cmdc_daemon):
    """On a terminal; what still runs has no text yet, and Ctrl-C leaves it as it is."""
    session, below = reasons((Text("4"), Hold(), "1"), (Text("4"), Hold(), "2"))
    with typing(*tail(session, cmdc_daemon, "--since", "0")) as terminal:
        session.prompt("Think.")
        terminal.expect("first: …")
        below.release()
        terminal.expect("first: 41")
        terminal.expect("second: …")
        terminal.type("\x03")
        terminal.expect("running")
        terminal.expect("second: …")

        assert terminal.status() == 130
    session.stop()
