"""The time between two daemons: the agent works on, and calls until the next one takes it over."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from cmdc_runtime.frames import Adrift
from cmdc_runtime.roll import Entry, sign
from workers.link import Link

log = structlog.get_logger()

CALL_S: Final = 0.5
"""Between two calls; the next daemon may die before it has heard one."""


def can_be_found(directory: Path, own: Entry) -> bool:
    """Sign the roll for the next daemon; an agent that can't has to end with the one it has."""
    try:
        sign(directory, own)
    except OSError as error:
        log.warning("agent.not_signed", problem=str(error))
        return False
    return True


class Drifting:
    """What is done while there is no daemon; nothing before ``begin`` and after ``end``."""

    def __init__(self, link: Link, word: Callable[[], Adrift], on_late: Callable[[], None]) -> None:
        """``word`` is what is called, ``on_late`` is told that the grace is over."""
        self._link, self._word, self._on_late = link, word, on_late
        self._call: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def is_on(self) -> bool:
        """Whether there is no daemon now."""
        return self._call is not None

    def begin(self, grace_s: float) -> None:
        """Give up the dead daemon, and call for the next one for ``grace_s`` seconds."""
        log.warning("daemon.lost", grace_s=grace_s)
        self._link.drift()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(grace_s, self._on_late)
        self._again()

    def end(self) -> None:
        """Stop calling. Idempotent."""
        for timer in (self._call, self._deadline):
            if timer is not None:
                timer.cancel()
        self._call = self._deadline = None

    def _again(self) -> None:
        self._link.call(self._word())
        self._call = asyncio.get_running_loop().call_later(CALL_S, self._again)
