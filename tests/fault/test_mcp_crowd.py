"""A crowd of sessions with an MCP server each: whoever is killed, nothing of a server is left.

Half of the servers stand behind a shell, as npx puts one there, and each leaves a process behind
that has left its group, session and environment. ``make mcp-crowd BIG=1`` has 1,000 of them.
"""

import os
import sys
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from tests.ended import has_ended
from tests.fault.conftest import GONE_S, poll_for

pytest.importorskip("mcp", reason="the extra mcp is not installed")

COUNT = int(os.environ.get("MCP_N", "6"))
SERVER = Path(__file__).parents[1] / "mcp" / "older.py"
TURN_S = 120.0 + 4.0 * COUNT
END_S = GONE_S + 0.5 * COUNT
PROCESSES = 3
"""Of one server: its launcher, itself and what it leaves; one more where a shell is above."""
pytestmark = [
    pytest.mark.fault,
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(4 * TURN_S + 4 * END_S),
]


def declared(mark):
    number = int(mark.rpartition("-")[2])
    program = [sys.executable, str(SERVER), "--leave", mark]
    shell = ["sh", "-c", '"$0" "$@"; exit $?'] if number % 2 else []
    return cmdc.McpServer("tests", command=[*shell, *program], timeout=TURN_S)


def marked(marks):
    """Return the living processes of servers by the mark in their commands."""
    found = {mark: set() for mark in marks}
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if words and words[-1] in found and not has_ended(process):
                found[words[-1]].add(process)
        except psutil.Error:
            continue
    return found


def of(found, marks):
    return {process for mark in marks for process in found[mark]}


def server_in(processes):
    """Return the server's own process."""
    return next(one for one in processes if one.cmdline()[1:2] == [str(SERVER)])


@pytest.fixture(name="crowd")
def _crowd(own_daemon, scripted):
    """Return the sessions of a daemon by the marks of their servers, which run."""
    own_daemon.start()
    model = scripted(default="Done.")
    marks = [str(own_daemon.place / f"left-{number}") for number in range(COUNT)]
    with own_daemon.client() as client:
        sessions = {
            mark: client.create_agent(model=model, mcp_servers=[declared(mark)], max_restarts=10)
            for mark in marks
        }
        for session in sessions.values():
            session.prompt("go")
        for session in sessions.values():
            session.collect_reply(timeout=TURN_S)
        yield sessions


def test_nothing_of_a_server_outlives_who_is_killed(own_daemon, crowd):
    """Servers, agents and the daemon in turn; what is kept up is started anew meanwhile."""
    before = marked(crowd)
    servers, agents, others = ([*crowd][at::3] for at in range(3))
    for mark in servers:
        server_in(before[mark]).kill()
    for mark in agents:
        psutil.Process(crowd[mark].agent_pid()).kill()

    assert {len(before[mark]) for mark in crowd} == {PROCESSES, PROCESSES + 1}
    assert poll_for(lambda: all(map(has_ended, of(before, [*servers, *agents]))), END_S)
    assert all(one.is_running() for one in of(before, others))
    assert poll_for(lambda: all(marked(servers).values()), END_S)

    own_daemon.kill()

    assert poll_for(lambda: not any(marked(crowd).values()), END_S)
