"""A peer: agents on the openai SDK for asyncio, all in the process of the user's script."""

import asyncio
import os
from typing import NoReturn

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from benchmarks.peers.fleet import Gone, Hear
from benchmarks.peers.prompts import KEY, MODEL


class AsyncioAgent:
    """A history, and a task while it is asked."""

    def __init__(self, runner: asyncio.Runner, client: AsyncOpenAI) -> None:
        """Talk by a client that all agents share."""
        self._runner = runner
        self._client = client
        self._messages: list[ChatCompletionMessageParam] = []
        self.pid = os.getpid()

    def ask(self, prompt: str, hear: Hear) -> None:
        """Return when the answer has ended."""
        self._runner.run(self.answer(prompt, hear))

    async def answer(self, prompt: str, hear: Hear) -> None:
        """Return when the answer has ended."""
        self._messages.append({"role": "user", "content": prompt})
        said: list[str] = []
        stream = await self._client.chat.completions.create(
            model=MODEL, messages=self._messages, stream=True
        )
        async for chunk in stream:
            if piece := chunk.choices[0].delta.content:
                said.append(piece)
                hear(piece)
        self._messages.append({"role": "assistant", "content": "".join(said)})

    def go_on(self, _prompt: str, _hear: Hear) -> NoReturn:
        """Raise: whoever could call this has ended with the agent."""
        raise Gone

    def end(self) -> None:
        """Do nothing: it is a list of messages."""


class AsyncioFleet:
    """One event loop and one client."""

    def __init__(self, url: str) -> None:
        """Open a loop."""
        self._runner = asyncio.Runner()
        self._client = AsyncOpenAI(base_url=url, api_key=KEY)

    def create(self) -> AsyncioAgent:
        """Return a new agent."""
        return AsyncioAgent(self._runner, self._client)

    def crowd(self, count: int, prompt: str) -> list[AsyncioAgent]:
        """Create agents together, ask each, and return when all have answered."""
        agents = [self.create() for _ in range(count)]

        async def ask_all() -> None:
            await asyncio.gather(*(agent.answer(prompt, lambda _: None) for agent in agents))

        self._runner.run(ask_all())
        return agents

    def roots(self) -> list[int]:
        """Return nothing: there is one process."""
        return []

    def close(self) -> None:
        """Close client and loop."""
        self._runner.run(self._client.close())
        self._runner.close()


def open_fleet(url: str) -> AsyncioFleet:
    """Return a fleet of this peer."""
    return AsyncioFleet(url)
