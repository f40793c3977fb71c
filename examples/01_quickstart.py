"""Twenty lines: an agent with a tool of your own, its answer streamed as it comes.

CMDC_MODEL=openai:gpt-4o-mini python examples/01_quickstart.py
"""

import os
from pathlib import Path

import cmdc_runtime as cmdc


@cmdc.tool(effects="read")
def count_lines(path: str) -> str:
    """Count the lines of a file."""
    return f"{path} has {len(Path(path).read_text().splitlines())} lines"


with cmdc.create_agent(model=os.environ["CMDC_MODEL"], tools=[count_lines]) as session:
    for event in session.stream_events("How many lines has README.md?"):
        match event:
            case cmdc.events.ToolExecutionEnd(text=text):
                print(f"[{text}]")
            case cmdc.events.MessageDelta(delta=delta):
                print(delta, end="", flush=True)
            case _:
                pass
    print(f"\n\nThe whole answer: {session.collect_reply()}")
