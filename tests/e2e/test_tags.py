"""What the model says beside its answer: thinking, its status, and a title for the conversation."""

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Sequence, Text, Thinking

ANSWER = "<title>Two lakes</title><status>Looking at maps</status>Both are in the north."


def test_thinking_and_tags_are_told_apart_from_the_answer(agent, scripted, cycle_of):
    """Each is an event of its own, and none of it is in the text, however it is torn apart."""
    spoken = Sequence(Thinking("Lakes. Let me see."), Text(ANSWER, chunk_chars=5))
    session = agent(scripted(spoken))
    stream = session.subscribe()
    session.prompt("Where are the lakes?")
    found = [envelope.event for envelope in cycle_of(stream)]
    thought = [one.delta for one in found if isinstance(one, cmdc.events.ThinkingDelta)]
    said = [one.delta for one in found if isinstance(one, cmdc.events.MessageDelta)]

    assert cmdc.events.ThinkingStart() in found
    assert "".join(thought) == "Lakes. Let me see."
    assert cmdc.events.TitleGenerated(title="Two lakes") in found
    assert cmdc.events.StatusUpdate(text="Looking at maps") in found
    assert "".join(said) == "Both are in the north."
    assert session.collect_reply() == "Both are in the north."
