"""The conversation as branches begin with it: kept once for all that start at a time.

A fork goes by the journal's means: the conversation is kept as a state of the session, each branch
is started from that, and the daemon copies it. It is not told to ``redact``: it stays in the
session's own tree, and is deleted as soon as the last of those branches has begun.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import structlog

from cmdc_runtime.errors import CmdcError
from cmdc_runtime.messages import Message
from cmdc_runtime.requests import Origin
from workers.core.conversation import place
from workers.core.snapshot import conversation_of
from workers.core.state import Memory
from workers.effects.checkpoints import Checkpoints

log = structlog.get_logger()

FORK: Final = "fork-"
"""What the ids of such states begin with."""


@dataclass(slots=True)
class _Fork:
    name: str
    messages: tuple[Message, ...]
    made: asyncio.Task[Origin]
    users: int = 0


class Forks:
    """The forks of one session."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        """Keep them by ``checkpoints``."""
        self._checkpoints = checkpoints
        self._forks: list[_Fork] = []

    @asynccontextmanager
    async def lent(self, memory: Memory) -> AsyncIterator[Origin]:
        """Lend what a branch of ``memory`` begins with, until it has begun.

        Raises:
            CmdcError: it could not be kept; the message says why.
        """
        fork = self._find(memory)
        fork.users += 1
        try:
            yield await asyncio.shield(fork.made)
        finally:
            fork.users -= 1
            if not fork.users:
                self._forks.remove(fork)
                await self._drop(fork)

    def sweep(self) -> asyncio.Task[None]:
        """Delete what a process that died has left."""
        return asyncio.create_task(self._sweep(), name="forks")

    async def _sweep(self) -> None:
        try:
            known = await self._checkpoints.known()
        except CmdcError as error:
            log.info("fork.not_deleted", problem=str(error))
            return
        for one in known:
            if one.checkpoint_id.startswith(FORK) and all(
                fork.name != one.checkpoint_id for fork in self._forks
            ):
                await self._delete(one.checkpoint_id)

    def _find(self, memory: Memory) -> _Fork:
        for fork in self._forks:
            if fork.messages is memory.messages:
                return fork
        name = f"{FORK}{place(memory)}"
        made = self._checkpoints.keep_state(name, conversation_of(memory))
        fork = _Fork(name, memory.messages, asyncio.create_task(made, name=name))
        self._forks.append(fork)
        return fork

    async def _drop(self, fork: _Fork) -> None:
        if not fork.made.done():  # the process ends
            fork.made.cancel()
        elif fork.made.exception() is None:
            await self._delete(str(fork.made.result().checkpoint_id))

    async def _delete(self, name: str) -> None:
        try:
            await self._checkpoints.delete(name)
        except CmdcError as error:
            log.info("fork.not_deleted", problem=str(error))
