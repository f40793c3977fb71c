"""Approvals, steering and monitors: what the calls take and return."""

from typing import assert_type

import cmdc_runtime as cmdc
from cmdc_runtime import events


def over(down: cmdc.Down) -> None:
    """Print the end."""
    print(down.reason, down.restarting)


session = cmdc.create_agent(model="openai:gpt-4o-mini", max_queued_prompts=3)
receipt = session.prompt("Hello")
assert_type(receipt.queued, bool)
assert_type(session.steer("Be brief."), str)
session.steer("Be brief.", scope="all")  # wrong
monitor = session.monitor(over, persistent=True)
assert_type(monitor, cmdc.Monitor)
session.monitor("callback")  # wrong
for envelope in session.subscribe(types=[events.ApprovalRequired, "agent_end"]):
    if isinstance(envelope.event, events.ApprovalRequired):
        assert_type(envelope.event.args, dict[str, object])
        session.approve(envelope.event.id, kind="approve_always")
        session.approve(envelope.event.id, kind="always")  # wrong
    elif isinstance(envelope.event, events.AgentEnd):
        break
session.abort(reason={"why": "late"}, kill_tools="none")
session.stop(timeout=1.5)
session.stop(timeout="soon")  # wrong
