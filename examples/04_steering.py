"""Steering: a word to an agent that is busy. It does not wait for the slow tool, nor start anew.

CMDC_MODEL=openai:gpt-4o-mini python examples/04_steering.py
"""

import os
import time

import cmdc_runtime as cmdc
from cmdc_runtime import events


@cmdc.tool(effects="read")
def search_archive(query: str) -> str:
    """Search the archive; it takes some minutes."""
    time.sleep(300)
    return f"nothing about {query}"


with cmdc.create_agent(model=os.environ["CMDC_MODEL"], tools=[search_archive]) as session:
    for event in session.stream_events("Search the archive for penguins; where do they live?"):
        match event:
            case events.ToolExecutionStart(name=name, args=args):
                print(f"{name} {args} runs, so we say something")
                session.steer("Forget the archive. Answer from memory, in one sentence.")
            case events.SteeringReceived(status=status):
                print(f"steering: {status}")
            # The process of the tool is killed; one of ``interrupt_immune_tools`` would go on.
            case events.ToolKilled(name=name, reason=reason):
                print(f"{name} is killed: {reason}")
            # Between two turns: the model reads our words as the user's next message.
            case events.SteeringApplied(count=count):
                print(f"the model reads {count} thing(s)")
            case events.MessageDelta(delta=delta):
                print(delta, end="", flush=True)
            case _:
                pass
    print(f"\n\nAll in one cycle: {session.status().turns} turns")
