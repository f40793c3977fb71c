"""Events of an application's own, of tools and of plugins: had again by who comes late."""

import os
import signal

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ToolCalls, ToolUse

TURN_S = 20.0


class Indexed(msgspec.Struct):
    """What a tool publishes."""

    files: int


class Audited(msgspec.Struct):
    """What a plugin publishes."""

    length: int


@cmdc.tool(effects="idempotent")
def index(*, context: cmdc.Context) -> str:
    """Index, in a process of its own."""
    context.session.emit(Indexed(files=3))
    return "done"


@cmdc.tool(effects="idempotent")
async def index_here(*, context: cmdc.Context) -> str:
    """Index, in the agent's process."""
    context.session.emit(Indexed(files=3))
    return "done"


class Auditor(cmdc.Plugin):
    """Publishes how long a prompt is."""

    name = "auditor"

    def before_prompt(self, event, context):
        return cmdc.Emit(Audited(length=len(event.text)))


@pytest.mark.parametrize("tool", [index, index_here], ids=["process", "task"])
def test_own_events_are_replayed_typed(agent, scripted, poll, tool):
    """In their order and under their indexes, also when the process that published them is gone."""
    model = scripted(ToolCalls(ToolUse(tool.name, {})), "done")
    session = agent(model, tools=[tool], plugins=[Auditor], user_data={"who": "me"})
    live = [one for one in session.stream_events("Go!") if one.kind == "plugin_event"]
    os.kill(session.status().pid, signal.SIGKILL)
    assert poll(lambda: session.status().incarnation == 2)
    with session.subscribe(since=0, types=["plugin_event"]) as stream:
        again = [stream.get(TURN_S).event for _ in live]

    assert again == live
    assert [(one.payload_as(Audited), one.payload_as(Indexed)) for one in live] == [
        (Audited(3), None),
        (None, Indexed(3)),
    ]
    assert str(live[1]).endswith("indexed: {'files': 3}")
