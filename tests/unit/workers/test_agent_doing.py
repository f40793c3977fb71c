"""What an agent leaves word of: what it is about to do, before it does it."""

import asyncio
from types import SimpleNamespace

from cmdc_runtime.events import AgentAbort
from cmdc_runtime.messages import Message, ToolCall
from workers.agent import Agent
from workers.core.state import Asking, Calling, Memory, OpenCall
from workers.core.step import CancelModel, Publish, Step
from workers.effects.publish import Publisher

NEVER = SimpleNamespace(look=lambda **_: None)
"""A rest that never comes."""


class Hands:
    """Hands that note how much was told when they were asked to do something."""

    def __init__(self, told):
        self._told = told
        self.told_before = []

    def can(self, effect):
        return isinstance(effect, CancelModel)

    def perform(self, effect, memory):
        self.told_before.append(len(self._told))

    def observe(self, event):
        pass


def taking(*steps):
    """Return what an agent told in each of these steps, and its hands."""

    async def scenario():
        told = []
        agent = Agent(None, Memory(), None, Publisher(8, lambda *_: None))
        agent.equip(Hands(told), NEVER, None, None)
        agent._take(Step(Memory()))
        agent.tell(lambda *doing: told.append(doing))
        for step in steps:
            agent._take(step)
        return told, agent._hands

    return asyncio.run(scenario())


def test_state_turns_and_newest_index_are_told_before_effects_are_performed():
    """The process may die of an effect, and this is what is known of it then."""
    step = Step(Memory(turns=4, activity=Asking()), [Publish(AgentAbort())], [CancelModel()])
    told, hands = taking(step)

    assert told == [("idle", 0, (), 7), ("running", 5, (), 8)]  # with the turn that has begun
    assert hands.told_before == [2]


def test_the_calls_in_flight_are_told_by_name_and_id():
    """Neither those that have not started yet nor those that are over."""
    over = Message(id="m", role="tool", content="done")
    calls = (
        OpenCall(ToolCall(call_id="c1", name="shell"), started_at_ms=1),
        OpenCall(ToolCall(call_id="c2", name="grep"), started_at_ms=1, result=over),
        OpenCall(ToolCall(call_id="c3", name="glob")),
    )
    told, _ = taking(
        Step(Memory(calls=calls, activity=Calling())),
        Step(Memory()),
    )

    assert [tools for _, _, tools, _ in told] == [(), ("shell c1",), ()]
