"""Errors: what each says of itself."""

from typing import assert_type

import cmdc_runtime as cmdc

try:
    with cmdc.Client() as client, client.create_agent(model="openai:gpt-4o-mini") as session:
        assert_type(session.client, cmdc.Client)
        assert_type(client.list_sessions(), list[cmdc.Status])
        client.run(session)  # wrong
        client.run(text="Hello")  # wrong
except cmdc.InvalidOptions as error:
    assert_type(error.problems, tuple[str, ...])
except cmdc.SessionNotAlive as error:
    print(error.reason)
except (cmdc.AgentFailed, cmdc.StartFailed) as error:
    print(error.reason)
    error.resaon  # wrong
except cmdc.TransientError:
    raise
