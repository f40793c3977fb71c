"""What tests of MCP have in common: the server for tests, and what a session reports of it."""

import socket
import sys
from pathlib import Path

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ToolCalls, ToolUse

SERVER = [sys.executable, str(Path(__file__).parents[1] / "mcp" / "server.py")]
TURN_S = 60.0
"""A server takes seconds to start on a busy machine."""


def declared(name="tests", **given):
    return cmdc.McpServer(name, **{"command": SERVER, "timeout": TURN_S, **given})


def call(tool, call_id="c1", /, **arguments):
    return ToolCalls(ToolUse(f"mcp__tests__{tool}", arguments, id=call_id))


def result_of(session, call_id="c1"):
    return next(one for one in session.messages() if one.call_id == call_id)


def status_of(session):
    (found,) = session.status().mcp_servers
    return found


def states(stream, last):
    """Return the states of the server, as events report them, up to ``last``."""
    found = []
    while last not in found:
        event = stream.get(TURN_S).event
        if event.kind == "mcp_server_changed":
            found.append(event.state)
    return found


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def answers(port):
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
