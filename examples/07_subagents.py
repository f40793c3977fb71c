"""Subagents: the model gives tasks away. Each subagent is a session, with a process of its own.

CMDC_MODEL=openai:gpt-4o-mini python examples/07_subagents.py
"""

import os

import cmdc_runtime as cmdc
from cmdc_runtime import events

GROUP = f"review-{os.getpid()}"
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

# What a SubAgent leaves open it has from its parent: the model, the group, the working folder.
with cmdc.create_agent(
    model=os.environ["CMDC_MODEL"],
    subagents=[READER, CRITIC],
    group_id=GROUP,
    max_total_tokens=200_000,  # of the session with all its subagents
) as session:
    names = {session.id: "parent"}
    stream = cmdc.subscribe_group(GROUP)
    session.prompt("Let a reader sum README.md up and let a critic judge what the reader says.")
    for envelope in stream:
        who = names.get(envelope.session_id, envelope.session_id)
        match envelope.event:
            case events.SubagentStart(child_session_id=child, subagent_type=kind):
                names[child] = kind
                print(f"{who}: starts a {kind}, which is session {child}")
            case events.ToolExecutionStart(name=name, args=args):
                print(f"{who}: calls {name} {args}")
            case events.ResponseComplete(message=message) if message.content:
                print(f"{who}: {message.content}")
            case events.SubagentEnd(child_session_id=child, ok=ok, usage=usage):
                print(f"{who}: {names[child]} ends, ok={ok}, {usage.total_tokens} tokens")
            case events.AgentEnd() | events.AgentError() if envelope.session_id == session.id:
                break
            case _:
                pass
    print(f"\n{session.collect_reply()}")
