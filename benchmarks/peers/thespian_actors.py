"""A peer: one thespian actor per agent, each a process, under an actor that starts it again.

Thespian notifies a parent that its child has exited; what is done then is the parent's own code,
here ``Keeper``. Processes are forked, and the openai SDK is imported before the first fork.
"""

import os
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from thespian.actors import Actor, ActorExitRequest, ActorSystem, ChildActorExited

from benchmarks.peers.conversation import Conversation
from benchmarks.peers.fleet import Gone, Hear

ANSWER_S: Final = 120.0
BASE: Final = "multiprocTCPBase"
"""A process for each actor, and TCP between them."""


@dataclass(frozen=True)
class Begin:
    """To a keeper: keep an agent of this number; to a talker: be it."""

    number: int
    url: str


@dataclass(frozen=True)
class Leave:
    """To a keeper: an agent is wanted no more."""

    number: int


@dataclass(frozen=True)
class Up:
    """From a talker, through its keeper: it is there."""

    number: int
    pid: int
    address: Any  # Any: an address of thespian's
    admin: int = 0
    """The process that is the parent of all; the keeper adds it."""


@dataclass(frozen=True)
class Died:
    """From a keeper: the process of an agent has ended, and the next one is on its way."""

    number: int


@dataclass(frozen=True)
class Piece:
    """From a talker: a piece of an answer; None is its end."""

    number: int
    text: str | None


class Talker(Actor):  # type: ignore[misc]  # thespian has no annotations
    """An agent's process."""

    def receiveMessage(self, message: object, sender: Any) -> None:  # noqa: N802 - thespian's name
        """Begin, or answer a prompt."""
        if isinstance(message, Begin):
            self._number = message.number
            self._conversation = Conversation(message.url)
            self.send(sender, Up(message.number, os.getpid(), self.myAddress))
        elif isinstance(message, str):
            for piece in self._conversation.ask(message):
                self.send(sender, Piece(self._number, piece))
            self.send(sender, Piece(self._number, None))


class Keeper(Actor):  # type: ignore[misc]  # thespian has no annotations
    """Keeps each agent's process alive."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        super().__init__()
        self._kept: dict[int, tuple[Any, Begin]] = {}
        self._client: Any = None

    def receiveMessage(self, message: object, sender: Any) -> None:  # noqa: N802 - thespian's name
        """Do what the script wants, and start again what has died."""
        match message:
            case Begin():
                self._client = sender
                self._start(message)
            case Up(number, pid, address):
                self.send(self._client, Up(number, pid, address, os.getppid()))
            case Leave(number):
                address, _ = self._kept.pop(number)
                self.send(address, ActorExitRequest())
            case ChildActorExited():
                for address, begin in list(self._kept.values()):
                    if address == message.childAddress:
                        self.send(self._client, Died(begin.number))
                        self._start(begin)
            case _:
                pass

    def _start(self, begin: Begin) -> None:
        address = self.createActor(Talker)
        self._kept[begin.number] = (address, begin)
        self.send(address, begin)


class ThespianFleet:
    """One actor system with one keeper."""

    def __init__(self, url: str) -> None:
        """Start both."""
        self._url = url
        self._numbers = count(1)
        self.system = ActorSystem(BASE)
        self.keeper = self.system.createActor(Keeper)
        self._admin = 0

    def create(self) -> "ThespianAgent":
        """Return a new agent, which is up."""
        agent = ThespianAgent(self, self.begin())
        agent.await_up()
        return agent

    def begin(self) -> int:
        """Have an agent started and return its number."""
        number = next(self._numbers)
        self.system.tell(self.keeper, Begin(number, self._url))
        return number

    def crowd(self, size: int, prompt: str) -> list["ThespianAgent"]:
        """Create agents together, ask each, and return when all have answered."""
        numbers = [self.begin() for _ in range(size)]
        agents = {number: ThespianAgent(self, number) for number in numbers}
        waiting = set(agents)
        while waiting:
            match self.next():
                case Up(number=number) as up if number in agents:
                    agents[number].meet(up)
                    agents[number].post(prompt)
                case Piece(number, None):
                    waiting.discard(number)
                case _:
                    pass
        return list(agents.values())

    def next(self) -> object:
        """Return the next message to the script.

        Raises:
            TimeoutError: none comes.
        """
        message = self.system.listen(ANSWER_S)
        if message is None:
            raise TimeoutError(f"thespian said nothing within {ANSWER_S:g} s")
        if isinstance(message, Up):
            self._admin = message.admin
        return message

    def roots(self) -> list[int]:
        """Return the admin, which is the parent of all and no child of the script."""
        return [self._admin] if self._admin else []

    def close(self) -> None:
        """End all of it."""
        self.system.shutdown()


class ThespianAgent:
    """An agent under the keeper."""

    def __init__(self, fleet: ThespianFleet, number: int) -> None:
        """Know the agent by its number."""
        self._fleet = fleet
        self._number = number
        self._address: Any = None
        self.pid = 0

    def await_up(self) -> None:
        """Return when the agent is there."""
        while True:
            match self._fleet.next():
                case Up(number=self._number) as up:
                    return self.meet(up)
                case _:
                    pass

    def meet(self, up: Up) -> None:
        """Learn where the agent is."""
        self._address, self.pid = up.address, up.pid

    def ask(self, prompt: str, hear: Hear) -> None:
        """Return when the answer has ended; raises ``Gone``."""
        self.post(prompt)
        while True:
            match self._fleet.next():
                case Piece(self._number, None):
                    return
                case Piece(self._number, str(text)):
                    hear(text)
                case Died(self._number):
                    raise Gone
                case _:
                    pass

    def post(self, prompt: str) -> None:
        """Give a prompt and do not wait."""
        self._fleet.system.tell(self._address, prompt)

    def go_on(self, prompt: str, hear: Hear) -> None:
        """Wait until the keeper has started it again, and ask again."""
        self.await_up()
        self.ask(prompt, hear)

    def end(self) -> None:
        """Have the agent's process end."""
        self._fleet.system.tell(self._fleet.keeper, Leave(self._number))


def open_fleet(url: str) -> ThespianFleet:
    """Return a fleet of this peer."""
    return ThespianFleet(url)
