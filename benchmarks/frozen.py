"""Baseline: a process that has litellm in memory, frozen, and forks echo processes on demand.

``python -m benchmarks.frozen MODULE`` imports the module, freezes, and takes orders. It is the
least that a fork of such a process can cost: no protocol, no identity, one socketpair, and a child
that can do nothing but send back what it gets. Times are taken in this process, from just before
the fork to the first answer, in milliseconds.
"""

import gc
import importlib
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import Final, NoReturn

from benchmarks.processes import serve

PING: Final = b"ping"
FDS_MAX: Final = 65_536
"""All that a child may have inherited from its siblings."""


@dataclass(frozen=True, slots=True)
class Fork:
    """One echo process."""

    pid: int
    fd: int

    @classmethod
    def start(cls) -> "Fork":
        """Fork one; it is pinged already, ``await_pong`` waits for the answer."""
        ours, theirs = socket.socketpair()
        fd = ours.detach()
        os.write(fd, PING)
        pid = os.fork()
        if pid == 0:
            _echo(theirs.fileno())
        theirs.close()
        return cls(pid, fd)

    def await_pong(self) -> None:
        """Return when it has answered."""
        if os.read(self.fd, len(PING)) != PING:
            raise RuntimeError(f"the fork {self.pid} gave no answer")

    def kill(self) -> None:
        """Kill and reap it."""
        os.kill(self.pid, signal.SIGKILL)
        self.reap()

    def reap(self) -> None:
        """Wait for the end of one that was killed."""
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def _echo(fd: int) -> NoReturn:
    os.dup2(fd, 0)
    os.dup2(fd, 1)
    os.closerange(3, FDS_MAX)
    while got := os.read(0, len(PING)):
        os.write(1, got)
    os._exit(0)


class Nest:
    """All forks that are alive."""

    def __init__(self) -> None:
        """Hold none."""
        self._held: list[Fork] = []

    def spawn(self) -> float:
        """Time one fork to its first answer; it is gone afterwards."""
        start = time.perf_counter()
        fork = Fork.start()
        fork.await_pong()
        took_ms = (time.perf_counter() - start) * 1e3
        fork.kill()
        return took_ms

    def restart(self) -> float:
        """Time kill, wait, fork and first answer of the newest held one."""
        fork = self._held.pop()
        start = time.perf_counter()
        fork.kill()
        fork = Fork.start()
        fork.await_pong()
        took_ms = (time.perf_counter() - start) * 1e3
        self._held.append(fork)
        return took_ms

    def hold(self, count: int) -> list[int]:
        """Fork ``count`` more that stay; return their pids."""
        self.crowd(count)
        return [fork.pid for fork in self._held[-count:]]

    def crowd(self, count: int) -> float:
        """Time ``count`` forks that stay: all are forked, then all answers are awaited."""
        start = time.perf_counter()
        forks = [Fork.start() for _ in range(count)]
        for fork in forks:
            fork.await_pong()
        took_ms = (time.perf_counter() - start) * 1e3
        self._held += forks
        return took_ms

    def reap(self) -> int:
        """Reap the newest held one, which somebody else has killed; return its pid."""
        fork = self._held.pop()
        fork.reap()
        return fork.pid

    def release(self) -> int:
        """End all that are held; return how many there were."""
        count = len(self._held)
        while self._held:
            self._held.pop().kill()
        return count


def main() -> None:
    """Import, freeze, serve."""
    gc.disable()
    importlib.import_module(sys.argv[1])
    gc.collect()
    gc.freeze()
    gc.enable()
    nest = Nest()
    orders = (nest.spawn, nest.restart, nest.hold, nest.crowd, nest.reap, nest.release)
    serve({order.__name__: order for order in orders})


if __name__ == "__main__":
    main()
