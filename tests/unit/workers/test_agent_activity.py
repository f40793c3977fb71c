"""What an agent reports of its activity: what it is about to do, before it does it."""

import asyncio
from types import SimpleNamespace

from cmdc_runtime.events import AgentAbort
from cmdc_runtime.messages import Message, ToolCall
from workers.agent import Agent
from workers.core.state import Asking, Calling, Memory, OpenCall
from workers.core.step import CancelModel, Publish, Step
from workers.performers.publish import Publisher

NEVER = SimpleNamespace(look=lambda **_: None)
"""An idle timer that is never due."""


class Performers:
    """Performers that record how much was reported when they were asked to do something."""

    def __init__(self, reports):
        self._reports = reports
        self.reported_before = []

    def perform(self, effect, memory):
        self.reported_before.append(len(self._reports))

    def observe(self, event):
        pass


def taking(*steps):
    """Return what an agent reported in each of these steps, and its performers."""

    async def scenario():
        reports = []
        agent = Agent(None, Memory(), None, Publisher(8, lambda *_: None))
        agent.wire(Performers(reports), NEVER, None)
        agent._take(Step(Memory()))
        agent.report_activity_to(lambda *activity: reports.append(activity))
        for step in steps:
            agent._take(step)
        return reports, agent._performers

    return asyncio.run(scenario())


def test_state_turns_and_newest_index_are_reported_before_effects_are_performed():
    """The process may die of an effect, and this is what is known of it then."""
    step = Step(Memory(turns=4, activity=Asking()), [Publish(AgentAbort())], [CancelModel()])
    reports, performers = taking(step)

    assert reports == [("idle", 0, (), 7), ("running", 5, (), 8)]  # with the turn that has begun
    assert performers.reported_before == [2]


def test_the_calls_in_flight_are_reported_by_name_and_id():
    """Neither those that have not started yet nor those that are over."""
    over = Message(id="m", role="tool", content="done")
    calls = (
        OpenCall(ToolCall(call_id="c1", name="shell"), started_at_ms=1),
        OpenCall(ToolCall(call_id="c2", name="grep"), started_at_ms=1, result=over),
        OpenCall(ToolCall(call_id="c3", name="glob")),
    )
    reports, _ = taking(
        Step(Memory(calls=calls, activity=Calling())),
        Step(Memory()),
    )

    assert [tools for _, _, tools, _ in reports] == [(), ("shell c1",), ()]
