"""What the editor of the IDE user marks, and what it leaves alone."""

from typing import assert_type

import cmdc_runtime as cmdc

cmdc.create_agent(modle="openai:gpt-4o-mini")  # wrong
cmdc.create_agent(model="openai:gpt-4o-mini", max_turns="three")  # wrong
with cmdc.create_agent(model="openai:gpt-4o-mini", result=int) as session:
    assert_type(session.run("How many?").output, int)
    for text in session.stream("Why?"):
        assert_type(text, str)
    for event in session.stream_events("How?"):
        match event:
            case cmdc.events.ToolExecutionEnd(txet=_):  # wrong
                pass
            case cmdc.events.MessageDelta(delta=delta):
                assert_type(delta, str)
            case _:
                pass
    is_asleep = session.status().state == "sleepy"  # wrong
