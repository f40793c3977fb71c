"""One process of ``multiprocessing`` per agent, with a pipe to the user's script.

Two peers are made of it, which differ in how a process starts.
"""

import importlib
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Final, NoReturn

from benchmarks.peers.fleet import Gone, Hear

CONVERSATION: Final = "benchmarks.peers.conversation"
"""Imported where the agent lives: the user's script does without the SDK."""
END_S: Final = 5.0


def converse(pipe: Connection, url: str) -> None:
    """Be an agent: answer each prompt that comes through ``pipe`` until that ends."""
    conversation = importlib.import_module(CONVERSATION).Conversation(url)
    while True:
        try:
            prompt = pipe.recv()
        except EOFError:
            return
        for piece in conversation.ask(prompt):
            pipe.send(piece)
        pipe.send(None)


class ProcessAgent:
    """One process."""

    def __init__(self, context: SpawnContext | ForkServerContext, url: str) -> None:
        """Start the process."""
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=converse, args=(theirs, url), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process.pid is not None
        return self._process.pid

    def ask(self, prompt: str, hear: Hear) -> None:
        """Return when the answer has ended; raises ``Gone``."""
        self.post(prompt)
        self.listen(hear)

    def post(self, prompt: str) -> None:
        """Give a prompt and do not wait."""
        self._pipe.send(prompt)

    def listen(self, hear: Hear) -> None:
        """Return when the answer to a posted prompt has ended; raises ``Gone``."""
        try:
            while (piece := self._pipe.recv()) is not None:
                hear(piece)
        except (EOFError, ConnectionError) as error:
            raise Gone from error

    def go_on(self, _prompt: str, _hear: Hear) -> NoReturn:
        """Raise: nobody starts it again, and its history was in it."""
        raise Gone

    def end(self) -> None:
        """End the process and wait for it."""
        self._pipe.close()
        self._process.join(END_S)
        self._process.kill()
        self._process.join()


class ProcessFleet:
    """Processes that start in one way."""

    def __init__(self, context: SpawnContext | ForkServerContext, url: str) -> None:
        """Start nothing yet."""
        self._context = context
        self._url = url

    def create(self) -> ProcessAgent:
        """Return a new agent, whose process has begun."""
        return ProcessAgent(self._context, self._url)

    def crowd(self, count: int, prompt: str) -> list[ProcessAgent]:
        """Create agents together, ask each, and return when all have answered."""
        agents = [self.create() for _ in range(count)]
        for agent in agents:
            agent.post(prompt)
        for agent in agents:
            agent.listen(lambda _: None)
        return agents

    def roots(self) -> list[int]:
        """Return nothing: all are children of the script."""
        return []

    def close(self) -> None:
        """Do nothing: each agent is ended by itself."""
