"""Hibernation: an idle session gives its process up, and the next prompt brings one back.

CMDC_MODEL=openai:gpt-4o-mini python examples/08_hibernate.py
"""

import os
import time

import cmdc_runtime as cmdc

with cmdc.create_agent(model=os.environ["CMDC_MODEL"], hibernate_after=1.0) as session:
    print(session.run("My favourite number is 42. Say that you know.").text)
    print(f"  {session.status().state}: process {session.agent_pid()}\n")

    # One second without work. To look, as this loop does, is no work: it wakes nobody.
    while session.agent_pid() is not None:
        time.sleep(0.1)
    print(f"  {session.status().state}: process {session.agent_pid()}\n")

    # Whatever needs the agent brings a new process, which has the whole conversation.
    print(session.run("What is my favourite number?").text)
    print(f"  {session.status().state}: process {session.agent_pid()}\n")

    for message in session.messages():
        print(f"  {message.role:<10} {message.content[:60]!r}")
    print(f"  restarts: {session.status().restarts}, for nothing has crashed")
