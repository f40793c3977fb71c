"""``python -m benchmarks.peers.script MODULE URL [--cold]``: the user's script of one peer.

It does what it is ordered on stdin; with ``--cold`` it creates one agent, asks it, says so when the
first piece of the answer has come, and ends. It imports what every Python has, and the peer.
"""

import contextlib
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import Final, TextIO

from benchmarks.peers.fleet import Agent, Fleet, Gone
from benchmarks.peers.prompts import SHORT, SLOW, TURNS
from benchmarks.processes import Order

HEARD_BEFORE_KILL: Final = 5
"""Pieces that are let through: the answer is well under way then."""


class Clock:
    """Takes the time of the first piece that is heard."""

    def __init__(self) -> None:
        """Start."""
        self._start = time.perf_counter()
        self.took_ms: float | None = None

    def hear(self, _piece: str) -> None:
        """Stop at the first call."""
        if self.took_ms is None:
            self.took_ms = (time.perf_counter() - self._start) * 1e3


class Enough(Exception):
    """What had to be heard was heard."""


class Killer:
    """Kills an agent's process in the middle of an answer."""

    def __init__(self, pid: int) -> None:
        """Wait for pieces."""
        self._pid = pid
        self._heard = 0
        self._killed = 0.0
        self.took_ms: float | None = None

    def hear(self, _piece: str) -> None:
        """Kill at one of the pieces."""
        self._heard += 1
        if self._heard == HEARD_BEFORE_KILL:
            self._killed = time.perf_counter()
            os.kill(self._pid, signal.SIGKILL)

    def hear_again(self, _piece: str) -> None:
        """Take the time at the first piece after the kill, and hear no more of it."""
        self.took_ms = (time.perf_counter() - self._killed) * 1e3
        raise Enough


class Script:
    """Orders of a benchmark, carried out by one fleet."""

    def __init__(self, fleet: Fleet) -> None:
        """Own nothing yet but the fleet."""
        self._fleet = fleet
        self._kept: list[Agent] = []

    def first(self) -> float | None:
        """Return the ms from creating an agent to the first piece of its answer."""
        clock = Clock()
        agent = self._fleet.create()
        agent.ask(SHORT, clock.hear)
        agent.end()
        return clock.took_ms

    def crowd(self, count: int) -> float:
        """Return the ms until agents that are created together have all answered; keep them."""
        start = time.perf_counter()
        self._kept += self._fleet.crowd(count, SHORT)
        return (time.perf_counter() - start) * 1e3

    def hold(self) -> int:
        """Keep one agent that has answered; return its process."""
        agent = self._fleet.create()
        agent.ask(SHORT, Clock().hear)
        self._kept.append(agent)
        return agent.pid

    def answer(self, prompt: str) -> None:
        """Have the agent that was kept last answer."""
        self._kept[-1].ask(prompt, Clock().hear)

    def release(self) -> None:
        """End what is kept."""
        while self._kept:
            self._kept.pop().end()

    def crash(self) -> float | None:
        """Kill an agent that has a history; return the ms until it answers again, if it does.

        Where agents live in the script itself, nothing is returned any more.
        """
        agent = self._fleet.create()
        for _ in range(TURNS):
            agent.ask(SHORT, Clock().hear)
        killer = Killer(agent.pid)
        try:
            agent.ask(SLOW, killer.hear)
        except Gone:
            with contextlib.suppress(Enough, Gone):
                agent.go_on(SLOW, killer.hear_again)
        agent.end()
        return killer.took_ms

    def roots(self) -> list[int]:
        """Return the processes whose families are all that this peer runs."""
        return [os.getpid(), *self._fleet.roots()]


def main() -> None:
    """Be a user's script."""
    module, url, *flags = sys.argv[1:]
    output = _own_output()
    fleet: Fleet = importlib.import_module(module).open_fleet(url)
    script = Script(fleet)
    if flags:
        _cold(fleet, output)
    else:
        names = ("first", "crowd", "hold", "answer", "release", "crash", "roots")
        _serve({name: getattr(script, name) for name in names}, output)
        script.release()
    fleet.close()


def _own_output() -> TextIO:
    """Return what was standard output; what a peer prints goes to standard error."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return output


def _serve(orders: Mapping[str, Order], output: TextIO) -> None:
    """Carry out orders from stdin until it ends."""
    for line in sys.stdin.buffer:
        order, arguments = json.loads(line)
        _answer(output, orders[order](**arguments))


def _answer(output: TextIO, answer: object) -> None:
    output.write(json.dumps(answer) + "\n")
    output.flush()


def _cold(fleet: Fleet, output: TextIO) -> None:
    """Say when the first piece of the first answer has come."""
    heard: list[str] = []

    def hear(piece: str) -> None:
        if not heard:
            _answer(output, "heard")
        heard.append(piece)

    agent = fleet.create()
    agent.ask(SHORT, hear)
    agent.end()


if __name__ == "__main__":
    main()
