"""The event log of a real session: its lines from the first process to the end."""

import json
import os
import signal

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ToolCalls, ToolUse

TURN_S = 20.0


@cmdc.tool(effects="read", isolation="task", max_retries=1)
async def explode() -> str:
    """Fail."""
    raise ValueError("no luck")


def lines(folder, session):
    path = folder / ".cmdc" / "logs" / f"{session.id}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_session_has_one_log_over_its_life(agent, scripted, tmp_path, poll):
    """Two processes, a tool that fails twice, and the end; each line once, in its order."""
    model = scripted(ToolCalls(ToolUse("explode", {}, "c-1")), "one", "two")
    session = agent(
        model, plugins=[cmdc.plugins.EventLogger], tools=[explode], working_dir=str(tmp_path)
    )
    session.run("First.", timeout=TURN_S)
    # Lines are written a little after a caller has its answer.
    assert poll(lambda: "agent_end" in [line["event"] for line in lines(tmp_path, session)])
    os.kill(first := session.agent_pid(), signal.SIGKILL)
    assert poll(lambda: session.agent_pid() not in {None, first})
    session.run("Second.", timeout=TURN_S)
    session.stop()
    found = [line["event"] for line in lines(tmp_path, session)]

    assert found[0] == "session_start"
    assert found[-1] == "session_end"
    assert found.count("session_start") == 2
    assert found.count("on_tool_error") == 2
    assert found.count("agent_end") == 2
    assert found.count("agent_recovered") == 1
    assert "message_delta" not in found
    assert {line["session"] for line in lines(tmp_path, session)} == {session.id}


@pytest.mark.parametrize(("include_args", "found"), [(True, ["Go.", "there"]), (False, [])])
def test_a_log_may_be_without_content(agent, scripted, tmp_path, include_args, found):
    """At debug it has everything that is published, and each run of plugins."""
    logger = cmdc.plugins.EventLogger(level="debug", include_args=include_args)
    session = agent(scripted("there"), plugins=[logger], working_dir=str(tmp_path))
    session.run("Go.", timeout=TURN_S)
    session.stop()
    logged = lines(tmp_path, session)
    text = json.dumps(logged)

    assert {"session_start", "message_delta", "agent_end", "pipeline_run"} <= {
        line["event"] for line in logged
    }
    assert [word for word in ("Go.", "there") if word in text] == found
