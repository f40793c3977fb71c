"""``kill -9`` of the daemon while a subagent works: the next daemon's agent counts what it used."""

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.events import ToolCallUnknown
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.testing import Hold, Text, ToolCalls, ToolUse

pytestmark = [pytest.mark.fault, pytest.mark.process]

TURN_S = 30.0
CALL = ToolUse("task", {"description": "Look.", "subagent_type": "scout"})


def used(tokens):
    return TokenUsage(prompt_tokens=tokens, completion_tokens=0, total_tokens=tokens)


def test_subagent_of_a_dead_daemon_is_counted_and_not_continued(own_daemon, scripted, poll):
    """Its call is uncertain to the model; its own usage and that of the level below are in."""
    model = scripted(
        ToolCalls(CALL, usage=used(1_000)),
        ToolCalls(CALL, usage=used(200)),
        ToolCalls(ToolUse("nothing", {}), usage=used(30)),
        (Hold(), "never"),
        Text("done", usage=used(4)),
    )
    own_daemon.start()
    with own_daemon.client() as client:
        scout = cmdc.SubAgent("scout", "Looks at things.")
        session = client.create_agent(
            model=model, session_id="above", subagents=[scout], max_depth=2
        )
        with client.subscribe_all(types=[ToolCallUnknown]) as unknown:
            session.prompt("Go.")
            model.wait_held()
            next(iter(unknown))  # so the turn that called it is in the journal
        own_daemon.kill()
    own_daemon.start()
    with own_daemon.client() as client:
        text = client.collect_reply("above", timeout=TURN_S)
        # The request that the lowest one died in counts about.
        is_counted = poll(lambda: 1_234 < client.status("above").total_tokens < 1_234 + 400)
        live = [status.session_id for status in client.list_sessions()]

    assert text == "done"
    assert is_counted
    assert live == ["above"]
    result = model.requests[-1]["messages"][-1]["content"]
    assert "It may or may not have taken effect" in result
