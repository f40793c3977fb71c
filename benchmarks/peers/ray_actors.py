"""A peer: one ray actor per agent, which ray starts again as often as it dies, in a local cluster.

An answer is a streaming generator of the actor. Prompts are not tried again by ray, since the
agent that comes back knows nothing of them: the script does it.
"""

import importlib
import os
import time
from collections.abc import Iterator
from typing import Any, Final

import ray
from ray.exceptions import RayActorError

from benchmarks.peers.fleet import Gone, Hear
from benchmarks.peers.process_fleet import CONVERSATION

BACK_S: Final = 60.0
LOOK_S: Final = 0.005
"""Between two tries of a prompt while the actor starts again."""


class Talker:
    """What runs in an actor's process."""

    def __init__(self, url: str) -> None:
        """Begin a conversation; so does an actor that has died."""
        self._conversation = importlib.import_module(CONVERSATION).Conversation(url)

    def pid(self) -> int:
        """Return the actor's process."""
        return os.getpid()

    def ask(self, prompt: str) -> Iterator[str]:
        """Yield the pieces of the answer."""
        yield from self._conversation.ask(prompt)


class RayAgent:
    """A handle of one actor."""

    def __init__(self, url: str) -> None:
        """Have the actor started; it takes no core of ray's, as it waits for a model."""
        kind = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)(Talker)
        self._actor: Any = kind.remote(url)  # Any: ray makes the methods

    @property
    def pid(self) -> int:
        """The actor's process."""
        return int(ray.get(self._actor.pid.remote()))

    def ask(self, prompt: str, hear: Hear) -> None:
        """Return when the answer has ended; raises ``Gone``."""
        self.listen(self.post(prompt), hear)

    def post(self, prompt: str) -> Any:  # Any: a generator of ray's
        """Give a prompt and do not wait."""
        return self._actor.ask.options(num_returns="streaming").remote(prompt)

    def listen(self, answer: Any, hear: Hear) -> None:  # Any: what ``post`` returned
        """Return when an answer has ended; raises ``Gone``."""
        try:
            for piece in answer:
                hear(ray.get(piece))
        except RayActorError as error:
            raise Gone from error

    def go_on(self, prompt: str, hear: Hear) -> None:
        """Ask again until the actor is back."""
        deadline_s = time.monotonic() + BACK_S
        while True:
            try:
                return self.ask(prompt, hear)
            except Gone:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(LOOK_S)

    def end(self) -> None:
        """Kill the actor for good, as ray does it."""
        ray.kill(self._actor)


class RayFleet:
    """A local cluster."""

    def __init__(self, url: str) -> None:
        """Start it, without what only shows it to people."""
        self._url = url
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")

    def create(self) -> RayAgent:
        """Return a new agent, whose actor is on its way."""
        return RayAgent(self._url)

    def crowd(self, count: int, prompt: str) -> list[RayAgent]:
        """Create agents together, ask each, and return when all have answered."""
        agents = [self.create() for _ in range(count)]
        answers = [agent.post(prompt) for agent in agents]
        for agent, answer in zip(agents, answers, strict=True):
            agent.listen(answer, lambda _: None)
        return agents

    def roots(self) -> list[int]:
        """Return nothing: the cluster's processes are children of the script."""
        return []

    def close(self) -> None:
        """End the cluster."""
        ray.shutdown()


def open_fleet(url: str) -> RayFleet:
    """Return a fleet of this peer."""
    return RayFleet(url)
