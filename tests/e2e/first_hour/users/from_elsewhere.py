"""Somebody who comes from another agent library: coroutines, a pool of their own, a history."""

import asyncio
import os
from dataclasses import dataclass

import cmdc_runtime as cmdc
from cmdc_runtime import aio

MODEL = os.environ["CMDC_MODEL"]


@dataclass
class Fruit:
    """What is in stock."""

    name: str
    count: int


class Pool:
    """Stands for connections, which cannot travel."""

    def __init__(self) -> None:
        """Belong to the loop that runs."""
        self.loop = asyncio.get_running_loop()

    async def count(self, name: str) -> int:
        """Ask the database."""
        assert asyncio.get_running_loop() is self.loop
        return {"pears": 3}.get(name, 0)


async def main() -> None:
    """Ask two agents at a time."""
    pool = Pool()

    @cmdc.tool(where="client", effects="read")
    async def stock(fruit: str) -> dict[str, int]:
        """Say how many fruits of a kind there are."""
        return {"count": await pool.count(fruit)}

    async def fruit(name: str) -> Fruit:
        async with await aio.create_agent(model=MODEL, tools=[stock], result=Fruit) as session:
            return (await session.run(f"How many {name} are there?")).output

    print(sorted(map(str, await asyncio.gather(fruit("pears"), fruit("plums")))))

    async with await aio.create_agent(model=MODEL) as session:
        await session.run("My name is Ada.")
        history = await session.messages()
    async with await aio.create_agent(model=MODEL, messages=history) as session:
        pieces = [text async for text in session.stream("What is my name?")]
    print("".join(pieces), len(pieces) > 1)

    try:
        async with await aio.create_agent(model=MODEL) as session:
            await session.run("Fail.")
    except cmdc.AgentFailed as error:
        print(type(error).__name__, "no such thing" in str(error))


asyncio.run(main())
