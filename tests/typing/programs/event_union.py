"""Events: a match that leaves some out is reported, and a state is one of a few words."""

from typing import assert_never, assert_type

import cmdc_runtime as cmdc
from cmdc_runtime import events


def shown_in_part(event: events.AnyEvent) -> str:
    """Leave most of them out."""
    match event:
        case events.MessageDelta(delta=delta):
            return delta
        case other:
            assert_never(other)  # wrong


def state(status: cmdc.Status) -> bool:
    """Compare with words."""
    print(status.state == "iddle")  # wrong
    return status.state in ("idle", "hibernated")


with cmdc.create_agent(model="openai:gpt-4o-mini") as session:
    for event in session.stream_events("Hello"):
        assert_type(event, events.AnyEvent)
        if isinstance(event, events.ToolExecutionEnd):
            print(event.name, event.ok, event.txt)  # wrong
    for envelope in session.subscribe(since=0):
        assert_type(envelope.event, events.AnyEvent)
    cmdc.abort(session, kill_tools="everything")  # wrong
