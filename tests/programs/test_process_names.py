"""What ``ps`` and ``htop`` call the processes of a daemon: by what they are, and whose."""

import os
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ToolCalls, ToolUse

pytestmark = [pytest.mark.process, pytest.mark.slow]

TURN_S = 60.0


@cmdc.tool(effects="read")
def names() -> str:
    """Return what this process and its host are called."""
    shown = []
    for pid in (os.getpid(), os.getppid()):
        title = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0")
        shown.append(f"{Path(f'/proc/{pid}/comm').read_text().strip()}: {title.decode()}")
    return "\n".join(shown)


def test_processes_are_called_what_they_are(cmdc_daemon, agent, scripted):
    """An agent has its session's id, a call its tool's name."""
    model = scripted(ToolCalls(ToolUse("names", {})), default="done")
    session = agent(model, tools=[names], session_id="named")
    session.run("Go.", timeout=TURN_S)
    [result] = [one.content for one in session.messages() if one.role == "tool_result"]
    daemon = psutil.Process(cmdc_daemon.pid)
    titles = {one.cmdline()[0] for one in daemon.children(recursive=True) if one.cmdline()}
    of_agent = psutil.Process(session.agent_pid())

    call, host = result.splitlines()
    assert call.startswith("cmdc-call: cmdc call names h-")
    assert host.startswith("cmdc-tool-host: cmdc tool host h-")
    assert (of_agent.name(), of_agent.cmdline()[0]) == ("cmdc-agent", "cmdc agent named")
    assert (daemon.name(), daemon.cmdline()[0].split(" ")[0]) == ("cmdcd", "cmdcd")
    assert {"cmdc zygote", "cmdc spare"} <= titles
