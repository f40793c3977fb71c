"""What ran for a prompt is counted by modules and functions, and seen in all three processes."""

import re
import subprocess
import sys

import pytest

from scripts.hops import __main__ as hops

AGENT = [
    "workers/agent.py Agent.take",
    "workers/agent.py Agent.take.<locals>.<lambda>",
    "workers/agent.py <module>",
    "workers/link.py Link.send.<locals>.<listcomp>",
    "workers/link.py Link.send.<locals>.each",
]


def test_what_stands_in_a_function_is_that_function():
    """Lambdas and comprehensions; a function within one has a name of its own."""
    assert hops.read(AGENT) == {
        ("workers/agent.py", "Agent.take"),
        ("workers/link.py", "Link.send"),
        ("workers/link.py", "Link.send.<locals>.each"),
    }


def test_what_runs_in_two_processes_counts_once_together():
    """In the table, and among the names."""
    codec = ("cmdc_runtime/wire/codec.py", "encode")
    calls = {"client": frozenset({codec}), "agent": frozenset({codec, ("workers/agent.py", "f")})}

    assert list(hops.lines_of(calls, names=True)) == [
        "process modules functions",
        "client        1         1",
        "agent         2         2",
        "together      2         2",
        "cmdc_runtime/wire/codec.py encode",
        "workers/agent.py f",
    ]


@pytest.mark.process
def test_a_prompt_is_seen_in_client_daemon_and_agent():
    """By the functions that it can't do without; what tests bring along is none of them."""
    line = [sys.executable, "-m", "scripts.hops", "--list"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=100, check=True)
    seen = set(done.stdout.splitlines()[5:])

    assert re.search(r"^daemon +\d+ +\d+$", done.stdout, re.MULTILINE)
    assert {
        "cmdc_runtime/client/sync/session.py Session.run",
        "supervisor/sessions/session.py Session.deliver",
        "workers/core/commands.py start",
        "workers/core/cycle.py finish",
    } <= seen
    assert not [one for one in seen if "testing/" in one]
