"""What the processes of a daemon load and run, and what the first request of an agent costs."""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.process import SWITCH_INTERVAL_S
from cmdc_runtime.testing import ToolCalls, ToolUse

TURN_S = 20.0
HEAVY = {"cloudpickle", "litellm", "mcp", "openai", "pydantic", "tiktoken", "workers"}
LISTING = "import json, sys, supervisor.daemon, supervisor.entry; print(json.dumps([*sys.modules]))"
FIRST_TO_LATER_MAX = 10.0
"""A request that had to load what the zygote has not takes a hundred times as long as others."""
SESSIONS = 8
SPARES = 2
DESCRIPTORS_ON_THE_WAY = 6
"""Of a spare that is just being connected; ten sessions that leave one each have more."""


def loaded_libraries(pid):
    """Return the paths of the files that a process has mapped."""
    return Path(f"/proc/{pid}/maps").read_text()


def zygote_pid(client):
    (zygote,) = [node for node in client.tree().children if node.id == "nursery"]
    return zygote.pid


def test_daemon_imports_no_model_and_no_code():
    """The daemon's modules pull in neither litellm nor anything that opens code by value."""
    printed = subprocess.run(
        [sys.executable, "-c", LISTING], capture_output=True, text=True, timeout=TURN_S, check=True
    ).stdout
    roots = {name.partition(".")[0] for name in json.loads(printed)}

    assert roots & HEAVY == set()


def test_running_daemon_has_nothing_of_litellm_in_memory(cmdc_daemon, agent):
    """Having served sessions, it has mapped none of the libraries that their processes have."""
    session = agent(
        "mistral/none", provider_opts={"api_key": "none", "api_base": "http://127.0.0.1:1"}
    )

    assert "pydantic_core" in loaded_libraries(session.agent_pid())
    assert "pydantic_core" not in loaded_libraries(cmdc_daemon.pid)


@cmdc.tool(isolation="thread", effects="read")
def waited_s() -> float:
    """Return how long a thread of the agent keeps the interpreter from its loop."""
    return sys.getswitchinterval()


def test_a_thread_that_computes_does_not_keep_the_loop_of_an_agent_long(agent, scripted):
    """Python's 5 ms each time that the loop has waited for anything make an abort wait for 8."""
    session = agent(scripted(ToolCalls(ToolUse("waited_s", {})), "fine"), tools=[waited_s])
    session.run("1", timeout=TURN_S)

    (result,) = [one for one in session.messages() if one.role == "tool_result"]
    assert float(result.content) == pytest.approx(SWITCH_INTERVAL_S)


def test_zygote_has_one_thread(client, agent, scripted):
    """Nothing but a single-threaded process can be forked safely."""
    agent(scripted("fine")).run("1", timeout=TURN_S)

    assert psutil.Process(zygote_pid(client)).num_threads() == 1


def test_ended_sessions_leave_no_descriptor(cmdc_daemon, client, agent, scripted, poll):
    """Sessions that come and go cost neither the daemon nor the zygote anything for good."""
    model = scripted(default="fine")
    both = [psutil.Process(cmdc_daemon.pid), psutil.Process(zygote_pid(client))]

    def counts():
        """Count when as many spares are there as there should be, since they count too."""
        assert poll(lambda: len(both[1].children()) == SPARES)
        return [process.num_fds() for process in both]

    def live():
        session = agent(model)
        session.run("1", timeout=TURN_S)
        session.stop()

    live()
    before = counts()
    for _ in range(10):
        live()

    pairs = zip(counts(), before, strict=True)
    assert [now - then < DESCRIPTORS_ON_THE_WAY for now, then in pairs] == [True, True]


@pytest.mark.slow
def test_first_request_of_an_agent_costs_about_as_much_as_others(agent, scripted):
    """A fork has everything loaded: its first request is not the one that pays."""
    first, later = [], []
    for _ in range(SESSIONS):
        session = agent(scripted(default="fine"))
        for taken in (first, later, later):
            started_s = time.perf_counter()
            session.run("Go.", timeout=TURN_S)
            taken.append(time.perf_counter() - started_s)
        session.stop()

    assert statistics.median(first) < FIRST_TO_LATER_MAX * statistics.median(later)
