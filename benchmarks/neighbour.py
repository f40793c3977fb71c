"""A client of its own for what one session, or one crowd of them, does to the others of a daemon.

``python -m benchmarks.neighbour RUNTIME_DIR`` connects and takes orders, so that who measures does
nothing else meanwhile.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.processes import serve
from benchmarks.wire import Wire
from cmdc_runtime.ids import SessionId

QUESTIONS: Final = 50
"""Within what a client may have open."""


class Neighbour:
    """One connection."""

    def __init__(self, wire: Wire) -> None:
        """Use a connection."""
        self._wire = wire
        self._made: list[SessionId] = []

    def flap(self, session_id: SessionId, seconds: float) -> int:
        """Kill a session's process as soon as it is back, for so long; return how often."""
        count = 0
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            os.kill(self._wire.status(session_id).pid, signal.SIGKILL)
            count += 1
        self._wire.status(session_id)
        return count

    def pile(self, session_id: SessionId, pid: int, seconds: float) -> bool:
        """Stop a session's process, with questions for it on their way, and let it go on."""
        os.kill(pid, signal.SIGSTOP)
        until_s = time.monotonic() + seconds
        try:
            asked = [self._wire.post_status(session_id) for _ in range(QUESTIONS)]
            time.sleep(max(0.0, until_s - time.monotonic()))
        finally:
            os.kill(pid, signal.SIGCONT)
        for id_ in asked:
            self._wire.answer(id_)
        return True

    def create(self, count: int) -> bool:
        """Start so many sessions, all asked for at once."""
        self._made += self._wire.crowd(count)
        return True

    def disband(self) -> bool:
        """Stop all that were started."""
        self._wire.disband(self._made)
        self._made.clear()
        return True


def main() -> None:
    """Connect and serve."""
    with Wire(Path(sys.argv[1])) as wire:
        one = Neighbour(wire)
        orders = (one.flap, one.pile, one.create, one.disband)
        serve({order.__name__: order for order in orders})


if __name__ == "__main__":
    main()
