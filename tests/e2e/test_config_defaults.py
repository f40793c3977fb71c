"""What a config says for all agents, seen by running ones: the shell, skills and MCP servers."""

import json
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ToolCalls, ToolUse
from tests.e2e.mcp_servers import SERVER, TURN_S
from tests.unit.cmdc_runtime.test_skills import skill

pytestmark = pytest.mark.process


def test_shell_skills_and_servers_of_a_file_are_those_of_agents(agent, scripted, tmp_path):
    """The tool that names a shell itself keeps it; what an agent is given takes the place."""
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    skill(home, "pdf", "Reads PDF.")
    file = tmp_path / "config.toml"
    file.write_text(
        f'shell = "sh"\nskills_dirs = ["{home}"]\n'
        f'[[mcp_servers]]\nname = "files"\ncommand = {json.dumps(SERVER)}\n'
    )
    config = cmdc.Config.load(file)
    call = ToolCalls(ToolUse("shell", {"command": "readlink /proc/$$/exe; true"}))
    model = scripted(call, "one", call, "two")
    first = agent(model, tools=["shell"], config=config, working_dir=str(work))
    first.run("Go.", timeout=TURN_S)
    own = agent(
        model,
        tools=[cmdc.tools.Shell(shell="bash")],
        config=config,
        working_dir=str(work),
        skills_dirs=[],
        mcp_servers=[],
    )
    own.run("Go.", timeout=TURN_S)
    shells = [
        next(one.content for one in session.messages() if one.role == "tool_result")
        for session in (first, own)
    ]

    assert [Path(one).name for one in shells] == [Path("/bin/sh").resolve().name, "bash"]
    assert [one.name for one in first.status().skills] == ["pdf"]
    assert [(one.name, one.state) for one in first.status().mcp_servers] == [("files", "ready")]
    assert own.status().skills == own.status().mcp_servers == ()
