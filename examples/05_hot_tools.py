"""Hot tools: what the model can do changes while the session lives, and its history stays.

CMDC_MODEL=openai:gpt-4o-mini python examples/05_hot_tools.py
"""

import os
from datetime import UTC, datetime

import cmdc_runtime as cmdc


@cmdc.tool(effects="read")
def temperature(city: str) -> str:
    """Measure the temperature of a city."""
    return f"{len(city) + 10} degrees in {city}"


@cmdc.tool(effects="read")
def clock() -> str:
    """Return the time, in UTC."""
    return f"{datetime.now(UTC):%H:%M}"


def ask(session: cmdc.Session, question: str) -> None:
    """Print a question, the tools that were used for it, and the answer."""
    reply = session.run(question)
    used = [call.name for message in reply.messages for call in message.tool_calls]
    print(f"> {question}\n  used {used}: {reply.text}\n")


with cmdc.create_agent(model=os.environ["CMDC_MODEL"]) as session:
    ask(session, "How warm is it in Bern?")

    session.attach_tool(temperature)
    ask(session, "And now?")

    # The whole set at once: what keeps its name stays as it is.
    diff = session.replace_tools([clock])
    print(f"attached {diff.attached}, detached {diff.detached}\n")
    ask(session, "What time is it, and how warm?")

    session.detach_tool("clock")
    ask(session, "And what time is it now?")

    # All or nothing: one wrong tool, and none is attached.
    try:
        session.attach_tools([clock, temperature, clock])
    except cmdc.ToolValidationFailed as error:
        print(f"refused: {error.problems}")
