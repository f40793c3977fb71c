"""What the processes of a tool read in /proc of themselves names no path that leads to the daemon.

It is no wall: a program of the same user finds these paths elsewhere, as evasions.md says.
"""

import os
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.runtime_dir import read_token
from cmdc_runtime.testing import ToolCalls, ToolUse

pytestmark = [pytest.mark.process, pytest.mark.slow]

TURN_S = 60.0
FILES = "cmdline comm environ maps mountinfo cgroup status limits"
SHELL = f"""
for process in $$ $PPID; do
    for file in {FILES}; do echo "== $file"; tr '\\0' '\\n' < /proc/$process/$file; done
    ls -l /proc/$process/fd /proc/$process/cwd /proc/$process/root /proc/$process/exe
done 2>&1 | tail -c 40000
"""


@cmdc.tool(effects="read")
def look(files: str) -> str:
    """Return all that /proc says of this process, and what of it its host shows."""
    found = []
    for process in (Path(f"/proc/{os.getpid()}"), Path(f"/proc/{os.getppid()}")):
        for path in (*(process / file for file in files.split()), *process.glob("fd/*")):
            try:
                found.append(f"== {path.name}")
                found.append(str(path.readlink()) if path.is_symlink() else path.read_text())
            except OSError:  # of the host nobody but root sees it
                found.append("?")
    return "\n".join([*found, str(Path.cwd())])


CALLS = {
    "process": ToolCalls(ToolUse("look", {"files": FILES})),
    "shell": ToolCalls(ToolUse("shell", {"command": SHELL})),
}


@pytest.mark.parametrize("kind", CALLS)
def test_a_tools_own_process_names_no_path_of_the_daemon(cmdc_daemon, agent, scripted, kind):
    """Command lines, environments, descriptors, maps, mounts and cgroups, of it and its parent."""
    session = agent(scripted(CALLS[kind], default="done"), tools=[look, cmdc.tools.Shell])
    session.run("Go.", timeout=TURN_S)
    [found] = [one.content for one in session.messages() if one.role == "tool_result"]
    secrets = (
        str(cmdc_daemon.address),
        str(cmdc_daemon.state_dir),
        read_token(cmdc_daemon.address),
    )

    assert found.count("== cmdline") == 2
    assert "python" in found
    assert [one for one in secrets if one in found] == []
