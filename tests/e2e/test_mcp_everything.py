"""The protocol's own reference server, which has a tool for each thing that a server may do.

It speaks the older era; ``make setup-mcp`` installs it, with npm.
"""

import contextlib
import shutil
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ToolCalls, ToolUse
from tests.e2e.mcp_servers import TURN_S, result_of, states, status_of
from tests.ended import has_ended

pytest.importorskip("mcp", reason="the extra mcp is not installed")
FOLDER = Path(__file__).parents[2] / ".mcp" / "node_modules" / ".bin"
PROGRAM = FOLDER / "mcp-server-everything"
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        not PROGRAM.exists() or shutil.which("node") is None,
        reason="the reference server is missing: make setup-mcp, which needs Node.js 20 and npm",
    ),
]
CALLS = {
    "echo": ({"message": "hi"}, "Echo: hi"),
    "get-annotated-message": ({"messageType": "error", "includeImage": True}, "[image: image/png"),
    "get-env": ({}, "CMDC_SESSION_ID"),
    "get-resource-links": ({"count": 2}, "[resource: "),
    "get-resource-reference": ({"resourceType": "Text", "resourceId": 1}, "[resource: demo://"),
    "get-structured-content": ({"location": "Chicago"}, "temperature"),
    "get-sum": ({"a": 2, "b": 3}, "5"),
    "get-tiny-image": ({}, "[image: image/png"),
    "gzip-file-as-resource": ({"name": "a.gz", "data": "data:text/plain,hello"}, "[resource"),
    "toggle-simulated-logging": ({}, "logging"),
    "toggle-subscriber-updates": ({}, "updates"),
    "trigger-long-running-operation": ({"duration": 1, "steps": 2}, "completed"),
    "trigger-elicitation-request": ({}, "Ann"),
    "trigger-url-elicitation": ({"url": "https://example.org/sign-in"}, "accept"),
    "simulate-research-query": ({"topic": "bees"}, "requires task augmentation"),
}
"""Each tool with arguments for it, and what its result has; tasks are gone from the protocol."""


def server(*command):
    return cmdc.McpServer("all", command=[*command], timeout=TURN_S)


def answer_all(session, stream, asked):
    """Answer questions until the cycle ends, forms with a name."""
    while (event := stream.get(TURN_S).event).kind != "agent_end":
        if event.kind == "ask_user":
            asked.append(event.question)
            is_form = "Open https" not in event.question
            with contextlib.suppress(
                cmdc.AskNotFound
            ):  # by a call that has ended: another one asks
                session.user_respond(event.ref, {"name": "Ann"} if is_form else "accept")


def test_every_tool_is_called(agent, scripted):
    """Each result is as the server makes it, questions are the user's, and nothing is left out."""
    uses = [
        ToolUse(f"mcp__all__{name}", arguments, id=name) for name, (arguments, _) in CALLS.items()
    ]
    session = agent(scripted(ToolCalls(*uses), "Done."), mcp_servers=[server("node", str(PROGRAM))])
    asked = []
    with session.subscribe(types=["ask_user", "agent_end"]) as stream:
        session.prompt("go")
        answer_all(session, stream, asked)
    found = {name: result_of(session, name).content for name in CALLS}

    assert {*status_of(session).tools} == {f"mcp__all__{name}" for name in CALLS}
    assert {name: text for name, text in found.items() if CALLS[name][1] not in text} == {}
    assert len({*asked}) == 2


def test_a_server_behind_npx_ends_with_its_session(agent, scripted, poll):
    """So do npx, its shell and the server itself."""
    command = ["npx", "--no-install", "--prefix", str(FOLDER.parents[1]), PROGRAM.name]
    session = agent(scripted("Hello."), mcp_servers=[server(*command)])
    with session.subscribe() as stream:
        session.run("go", timeout=TURN_S)
        states(stream, "ready")
    agent_process = psutil.Process(session.agent_pid())
    below = [one.pid for one in agent_process.children(recursive=True)]
    agent_process.kill()

    assert len(below) >= 3
    assert poll(lambda: all(map(has_ended, below)))
