"""Keeps what the daemon's peers can make it remember within bounds: see ``core.unfinished``.

A thread looks, because one that floods the loop can hold it up while the memory grows. It cuts
connections and nothing else: an agent's is never cut, and a client connects again and asks again.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from supervisor.adapters.allocator import give_back, used_bytes
from supervisor.adapters.connections import cut
from supervisor.core.unfinished import LOOK_S, SETTLE_S, Growth, Heard, Whom

log = structlog.get_logger(__name__)

STOP_S: Final = 5.0
"""For the thread to end."""
PIDS_TOLD_MAX: Final = 20
"""Of one line in the log."""


@dataclass(frozen=True, slots=True)
class Place:
    """A listening socket whose peers are watched."""

    socket: str
    path: str
    heard: Heard
    spared: Callable[[], frozenset[int]] = frozenset
    """Returns the processes that are never cut; called in the thread."""

    def cut(self, whom: Whom, since_s: float) -> list[int]:
        """Cut the connections of these, and return the pid of each."""
        spared = self.spared()
        return cut(
            self.path,
            lambda pid, is_sending: (
                pid not in spared and self.heard.is_meant(pid, whom, since_s, is_sending=is_sending)
            ),
        )


class MemoryWatch:
    """A thread that looks ten times a second, or more often while the memory grows."""

    def __init__(self, places: Sequence[Place]) -> None:
        """Prepare; ``start`` begins to look."""
        self.cut = 0
        """How many connections were cut."""
        self._places = places
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; without one nothing."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    # Everything below runs on the thread.

    def _watch(self) -> None:
        growth = Growth(used_bytes(), calm_s=time.monotonic())
        wait_s = LOOK_S
        while not self._is_over.wait(wait_s):
            try:
                wait_s = self._look(growth)
            except Exception:
                log.exception("memory.not_watched")
                wait_s = LOOK_S

    def _look(self, growth: Growth) -> float:
        """Look, and cut who is to be cut; return how long to wait."""
        step = growth.look(used_bytes(), time.monotonic())
        if step.has_settled:
            give_back()
            log.info("memory.settled", used=growth.floor + growth.grown)
        is_any = step.cut is not None and self._cut(step.cut, growth)
        return SETTLE_S if is_any else step.again_s

    def _cut(self, whom: Whom, growth: Growth) -> bool:
        """Cut those that are meant; say whether there was one."""
        is_any = False
        for place in self._places:
            pids = place.cut(whom, growth.calm_s)
            if not pids:
                continue
            is_any = True
            self.cut += len(pids)
            log.warning(
                "connection.cut",
                socket=place.socket,
                whom=whom.name.lower(),
                connections=len(pids),
                pids=sorted(set(pids))[:PIDS_TOLD_MAX],
                grown=growth.grown,
            )
        return is_any
