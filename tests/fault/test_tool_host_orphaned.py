"""``kill -9`` of the daemon while a tool runs in a process of its own: nothing of it stays."""

import subprocess
import time
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ToolCalls, ToolUse

pytestmark = [pytest.mark.fault, pytest.mark.process]

GONE_S = 15.0


@cmdc.tool
def burn(pids: str) -> str:
    """Burn a core beside a child."""
    child = subprocess.Popen(["sleep", "300"])
    Path(pids).write_text(f"{child.pid}")
    end = time.monotonic() + 300.0
    while time.monotonic() < end:
        pass
    return "never"


def test_hosts_and_calls_end_with_a_killed_daemon(own_daemon, scripted, poll, tmp_path):
    """The host watches the daemon itself, and kills each call with all that it started."""
    pids = tmp_path / "pids"
    own_daemon.start()
    with own_daemon.client() as client:
        model = scripted(ToolCalls(ToolUse("burn", {"pids": str(pids)})), "never")
        session = client.create_agent(model=model, tools=[burn])
        session.prompt("Burn.")
        assert poll(lambda: pids.exists() and pids.read_text())
        child = psutil.Process(int(pids.read_text()))
        call, host = child.parent(), child.parent().parent()
        own_daemon.kill()
    _, left = psutil.wait_procs([child, call, host], GONE_S)

    assert left == []
    assert poll(lambda: not own_daemon.left())
