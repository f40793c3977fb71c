"""What each peer has to do: a fleet of agents, each of which answers prompts word by word.

A peer is a module with ``open_fleet(url)``, where ``url`` is the base of a model's API. Its fleet
lives in the process of the user's script; where the agents live is the peer's own matter. To add a
peer, write its module and name it in ``catalogue.py``.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

Hear = Callable[[str], None]
"""Called in the user's script for each piece of an answer, when it has come there."""


class Gone(Exception):
    """The agent's process ended before its answer did, or nothing starts it again."""


class Agent(Protocol):
    """One agent with the history of its conversation."""

    @property
    def pid(self) -> int:
        """The process in which it reads the model's answers."""

    def ask(self, prompt: str, hear: Hear) -> None:
        """Return when the answer has ended.

        Raises:
            Gone: the agent's process ended before.
        """

    def go_on(self, prompt: str, hear: Hear) -> None:
        """Have ``prompt``, which ``Gone`` has interrupted, answered after all.

        Raises:
            Gone: nothing starts the agent again.
        """

    def end(self) -> None:
        """Take the agent away."""


class Fleet(Protocol):
    """Agents of one peer, and what runs them."""

    def create(self) -> Agent:
        """Return a new agent, which need not be up yet."""

    def crowd(self, count: int, prompt: str) -> Sequence[Agent]:
        """Create agents together, ask each, and return when all have answered."""

    def roots(self) -> list[int]:
        """Return the processes outside the script's own family whose families belong to it."""

    def close(self) -> None:
        """Take everything away."""
