"""Streaming: an answer as it comes, with thinking and tools, and then its events once more.

CMDC_MODEL=openai:gpt-4o-mini python examples/02_streaming.py
"""

import os
from pathlib import Path

import cmdc_runtime as cmdc
from cmdc_runtime import events

QUESTION = "Use your tool to count the lines of README.md, then tell me about it."


@cmdc.tool(effects="read")
def count_lines(path: str) -> str:
    """Count the lines of a file."""
    return f"{path} has {len(Path(path).read_text().splitlines())} lines"


with cmdc.create_agent(model=os.environ["CMDC_MODEL"], tools=[count_lines]) as session:
    before = session.last_index()

    # The events of this prompt's cycle and of no other; the loop ends with it, whatever ends it.
    for event in session.stream_events(QUESTION):
        match event:
            case events.ThinkingStart():
                print("\nthinks: ", end="")
            case events.ThinkingDelta(delta=delta) | events.MessageDelta(delta=delta):
                print(delta, end="", flush=True)
            case events.ToolExecutionStart(name=name, args=args):
                print(f"\ncalls {name} with {args}", end="")
            case events.ToolExecutionEnd(name=name, ok=ok, text=text):
                print(f"\n{name} {'returns' if ok else 'fails'}: {text}", end="")
            case events.MessageStart():
                print("\nsays: ", end="")
            case events.StreamReset():
                print("\n(sent again: what was said of this answer does not count)", end="")
            case events.EventsLost(first=first, last=last):
                print(f"\n(events {first} to {last} are lost)", end="")
            case events.AgentEnd(usage=usage):
                print(f"\nends after {usage.total_tokens} tokens")
            case events.AgentAbort(reason=reason) | events.AgentError(reason=reason):
                raise SystemExit(reason)
            case _:
                pass

    # Any index will do, also in another program, and ``types`` selects.
    print(f"\nOnce more, the durable ones after event {before}:")
    kinds = ["request_start", "tool_execution_end", "response_complete", "agent_end"]
    for envelope in session.subscribe(since=before, types=kinds):
        print(f"{envelope.index:4} {envelope.event.kind}")
        if isinstance(envelope.event, events.AgentEnd):
            break
