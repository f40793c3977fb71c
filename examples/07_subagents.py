"""Subagents: the model gives tasks away. Each subagent is a session, with a process of its own.

CMDC_MODEL=openai:gpt-4o-mini python examples/07_subagents.py
"""

import os

import cmdc_runtime as cmdc
from cmdc_runtime import events

READER = cmdc.SubAgent(
    name="reader",
    description="Reads a file of the project and says in one sentence what is in it.",
    system_prompt="Read the file that you are asked about. Answer in one sentence.",
    tools=[cmdc.tools.ReadFile],
    max_turns=5,
)
CRITIC = cmdc.SubAgent(
    name="critic",
    description="Says what is wrong with a sentence.",
    system_prompt="You are a friendly critic. Answer in one sentence.",
    tools=[],
)

# What a SubAgent leaves open it has from its parent: the model, the working folder.
with cmdc.create_agent(
    model=os.environ["CMDC_MODEL"],
    subagents=[READER, CRITIC],
    max_total_tokens=200_000,  # of the session with all its subagents
) as session:
    kinds = {}
    ask = "Let a reader sum README.md up and let a critic judge what the reader says."
    for event in session.stream_events(ask):
        match event:
            case events.ToolExecutionStart(name=name, args=args):
                print(f"calls {name} {args}")
            case events.SubagentStart(child_session_id=child, subagent_type=kind):
                kinds[child] = kind
                print(f"a {kind} starts, which is session {child}")
            case events.SubagentEnd(child_session_id=child, ok=ok, text=text, usage=usage):
                print(f"the {kinds[child]} ends, ok={ok}, {usage.total_tokens} tokens: {text}")
            case _:
                pass
    print(f"\n{session.collect_reply()}")
