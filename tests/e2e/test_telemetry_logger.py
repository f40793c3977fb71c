"""Telemetry of running sessions in a program's log."""

import logging

import pytest

from cmdc_runtime.telemetry import attach_logger
from cmdc_runtime.testing import ToolCalls, ToolUse

pytestmark = pytest.mark.process
TURN_S = 20.0


def test_what_sessions_do_is_logged(agent, scripted, client, caplog, poll):
    """From now on, until the logger is closed; without what was said."""
    model = scripted(ToolCalls(ToolUse("list_dir", {})), "a secret", "two")
    session = agent(model, tools=["list_dir"])
    caplog.set_level(logging.INFO, logger="cmdc.telemetry")

    def names():
        return [one.getMessage().split()[0] for one in caplog.records if session.id in one.message]

    with attach_logger(client):
        session.run("Go.", timeout=TURN_S)
        assert poll(lambda: "agent.turn.stop" in names())
    session.run("Again.", timeout=TURN_S)

    assert names() == [
        "agent.turn.start",
        "llm.request.start",
        "llm.request.stop",
        "tool.exec.start",
        "tool.exec.stop",
        "llm.request.start",
        "llm.request.stop",
        "agent.turn.stop",
    ]
    assert "a secret" not in caplog.text
    assert "tool=list_dir" in caplog.text
