"""A newcomer: what can go wrong at first, then a stream, a tool that prints, and a typed answer."""

import os
import time
from typing import TypedDict

import cmdc_runtime as cmdc

MODEL = os.environ["CMDC_MODEL"]


class Weather(TypedDict):
    """How it is outside."""

    sky: str
    degrees: int


@cmdc.tool(effects="read")
def weather(city: str) -> Weather:
    """Say how the weather is in a city."""
    print("asked for", city)
    return {"sky": "rain", "degrees": 9}


def refused(**options: object) -> str:
    """Return why no agent is made of these options, and that it is said at once."""
    start = time.monotonic()
    try:
        cmdc.create_agent(**options)
    except cmdc.CmdcError as error:
        assert time.monotonic() - start < 5, "a person would have waited"
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"{options} made an agent")


print(refused(modle=MODEL))
print(refused())
print(refused(model="gpt-4o"))

with cmdc.create_agent(model=MODEL, tools=[weather]) as session:
    for text in session.stream("What shall I wear in Bergen?"):
        print(text, end="", flush=True)
    print()
    print(session.run("How warm is it?", result=int).output + 1)
    print([message.role for message in session.messages()])
