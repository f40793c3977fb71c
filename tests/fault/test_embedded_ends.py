"""However a program with an embedded daemon ends, nothing of it is left: no process, no file."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from cmdc_runtime.testing import Hold, ToolCalls, ToolUse

pytestmark = [pytest.mark.fault, pytest.mark.process]

PROGRAM_S = 60.0
PROGRAM = """
import os, signal, sys
import cmdc_runtime as cmdc

model = os.environ["MODEL_URL"]
session = cmdc.create_agent(
    model="openai/scripted",
    provider_opts={"api_base": model, "api_key": "none"},
    tools=[cmdc.tools.Shell],
    working_dir=os.environ["WORK"],
)
stream = session.subscribe()
session.prompt("Sleep.")
for envelope in stream:
    if envelope.event.kind == "tool_execution_start":
        break
other = cmdc.create_agent(
    model="openai/scripted", provider_opts={"api_base": model, "api_key": "none"}
)
other.prompt("Talk.")
for envelope in other.subscribe(since=0):
    if envelope.event.kind == "message_delta":
        break
print("busy", flush=True)
sys.stdin.readline()
"""
ENDS = {
    "normally": ("", 0),
    "by-exception": ("raise LookupError('a bug')", 1),
    "by-exit": ("sys.exit(4)", 4),
    "by-interrupt": ("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT),
    "by-kill": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
}


def answer(request):
    """Let the session with tools sleep, and the other one talk for ever."""
    if request.get("tools"):
        return ToolCalls(ToolUse("shell", {"command": "sleep 300 & sleep 300"}))
    return ("Once upon a time ", Hold(), "never")


@pytest.mark.parametrize("end", ENDS)
def test_program_that_ends_leaves_nothing(end, scripted, tmp_path, poll, processes_of):
    """Daemon, zygote, tracker, agents, commands and directories go with the program."""
    source, status = ENDS[end]
    model = scripted(default=answer)
    temporary, work = tmp_path / "tmp", tmp_path / "work"
    temporary.mkdir()
    work.mkdir()
    environment = {
        name: text for name, text in os.environ.items() if not name.startswith("CMDC_")
    } | {
        "TMPDIR": str(temporary),
        "CMDC_RUNTIME_DIR": str(tmp_path / "nowhere"),
        "MODEL_URL": model.url,
        "WORK": str(work),
    }
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM + source],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            assert program.stdout.readline() == "busy\n", program.stderr.read()
            top = psutil.Process(program.pid)
            # The daemon, its zygote and tracker, two agents, the command and its child.
            assert poll(lambda: len(top.children(recursive=True)) >= 7)
            below = top.children(recursive=True)
            _, printed = program.communicate("\n", timeout=PROGRAM_S)
        finally:
            program.kill()
    _, left = psutil.wait_procs(below, PROGRAM_S)

    assert program.returncode == status, printed
    assert left == []
    assert poll(lambda: processes_of(tmp_path) == [])
    assert poll(lambda: [*temporary.iterdir()] == [])
