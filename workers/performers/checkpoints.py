"""Saved states of a session: under a name for a command or plugin, and for branches to begin with.

The state is taken in the loop, between two steps, so it is always one that the journal could give.
``redact`` is somebody's code and has a thread; then the bytes go to the daemon, as a request of a
client of it, and are answered for when they are in the journal. A session with a checkpoint backend
of the application's own has them there, and nothing of them in the journal.

A fork goes the same way: the conversation is kept once for all branches that start at a time, each
is started from that state, and the daemon copies it. It is not passed to ``redact``: it stays in
the session's own tree, and is deleted as soon as the last of those branches has begun.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec
import structlog

from cmdc_runtime.checkpoints import (
    CHECKPOINT_BYTES_MAX,
    SCHEMA_VERSION,
    CheckpointFacts,
    Snapshot,
    encode_facts,
    listed_snapshot,
    plain_state,
    snapshot_of,
)
from cmdc_runtime.client.link import Link as DaemonLink
from cmdc_runtime.client.transfer import keep_checkpoint, new_facts
from cmdc_runtime.clock import now_ms
from cmdc_runtime.errors import CheckpointFailed, CheckpointUnreadable, CmdcError, ProtocolError
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.ids import SessionId, new_command_id
from cmdc_runtime.messages import Message
from cmdc_runtime.requests import DeleteCheckpoint, ListCheckpoints, Origin, Request
from cmdc_runtime.spec import AgentSpec
from cmdc_runtime.wire.codec import decode_as, encode
from workers.core.conversation import place
from workers.core.snapshot import STRIPPED, conversation_of, restore, saved
from workers.core.state import Memory
from workers.core.step import Answer, AskBackend, MakeCheckpoint, Refuse
from workers.performers.checkpoint_backend import OwnBackend
from workers.threads import Threads

# --- under a name ---------------------------------------------------------------------------------

REDACT_S: Final = 30.0
"""For ``redact``; its thread is left alone then, and no checkpoint is made."""
STRAYS_MAX: Final = 8
"""Runs of ``redact`` that were left alone and go on; with so many of them none is begun."""
SAVE_S: Final = 30.0
"""For the daemon's answer."""
AGENT: Final = "agent"
"""Key of the definition, beside the fields of the state, in what ``redact`` is given."""

Redact: TypeAlias = Callable[[dict[str, Any]], Any]  # Any: plain values, and whatever it returns


@dataclass(frozen=True, slots=True)
class Saved:
    """Whose states are saved, and what changes them before."""

    session_id: SessionId
    group_id: str | None
    spec: AgentSpec
    redact: Redact | None
    backend: OwnBackend | None = None
    """What keeps them in the place of the daemon's journal."""


class Checkpoints:
    """The checkpoints of one session, as its agent makes them."""

    def __init__(
        self,
        address: str,
        whose: Saved,
        memory: Callable[[], Memory],
        reply: Callable[[Answer | Refuse], None],
    ) -> None:
        """``address`` is the daemon's runtime directory; it is connected to at the first use."""
        self._backend = whose.backend
        self._daemon = DaemonLink(address, patience_s=SAVE_S)
        self._whose = whose
        self._memory = memory
        self._reply = reply
        self._threads = Threads("redact")

    def make(self, wanted: MakeCheckpoint, memory: Memory) -> asyncio.Task[None]:
        """Save ``memory`` for a command, and answer it; asked again it is the same checkpoint."""
        return asyncio.create_task(self._answer(wanted, memory), name=f"checkpoint-{wanted.id}")

    async def save(self, label: str | None, metadata: dict[str, Any]) -> Snapshot:
        """Save the state of now (Any: whatever MessagePack takes).

        Raises:
            CmdcError: it could not be saved; the message says why.
        """
        return await self._save(new_command_id(), label, metadata, self._memory())

    async def keep_state(self, name: str, memory: Memory) -> Origin:
        """Keep a state that a session below this one begins with, and return where it is.

        Raises:
            CmdcError: it could not be kept; the message says why.
        """
        body = encode(saved(memory))
        if len(body) > CHECKPOINT_BYTES_MAX:
            raise CheckpointFailed(f"the conversation takes {len(body):,} bytes: compact it first")
        session_id = self._whose.session_id
        facts = msgspec.structs.replace(new_facts(session_id, name), checkpoint_id=name)
        await keep_checkpoint(self.ask, facts, body)
        return Origin(session_id=session_id, checkpoint_id=name)

    def ask_backend(self, wanted: AskBackend) -> asyncio.Task[None]:
        """Ask the session's own backend for a command, and answer that."""
        return asyncio.create_task(self._ask_backend(wanted), name=f"checkpoints-{wanted.id}")

    async def _ask_backend(self, wanted: AskBackend) -> None:
        try:
            if self._backend is None:  # the session went on without, since the client looked
                raise CheckpointFailed("the session has no checkpoint backend of its own")
            answer = await self._backend.asked(wanted.command)
        except CmdcError as error:
            self._reply(Refuse(wanted.id, error))
        else:
            self._reply(Answer(wanted.id, answer))

    async def known(self) -> list[Snapshot]:
        """Return the checkpoints there are, newest first.

        Raises:
            CmdcError: the backend or the daemon did not answer; the message says why.
        """
        return await self.journaled() if self._backend is None else await self._backend.known()

    async def journaled(self) -> list[Snapshot]:
        """Return those that are in the daemon's journal, newest first.

        Raises:
            CmdcError: the daemon did not answer.
        """
        found = await self.ask(ListCheckpoints(session_id=self._whose.session_id))
        return [listed_snapshot(one) for one in found]

    async def delete(self, checkpoint_id: str) -> None:
        """Delete one; none of this id is no error.

        Raises:
            CmdcError: the backend or the daemon did not do it; the message says why.
        """
        if self._backend is None:
            await self.drop(checkpoint_id)
        else:
            await self._backend.delete(checkpoint_id)

    async def drop(self, checkpoint_id: str) -> None:
        """Delete one from the daemon's journal; none of this id is no error.

        Raises:
            CmdcError: the daemon did not do it.
        """
        await self.ask(
            DeleteCheckpoint(session_id=self._whose.session_id, checkpoint_id=checkpoint_id)
        )

    async def _answer(self, wanted: MakeCheckpoint, memory: Memory) -> None:
        try:
            made = await self._save(wanted.id, wanted.label, wanted.metadata, memory)
        except CmdcError as error:
            self._reply(Refuse(wanted.id, error))
        else:
            self._reply(Answer(wanted.id, made))

    async def _save(
        self, name: str, label: str | None, metadata: dict[str, Any], memory: Memory
    ) -> Snapshot:
        whose, saved_ms = self._whose, now_ms()
        state = msgspec.structs.replace(
            saved(memory), agent=encode(whose.spec), group_id=whose.group_id
        )
        if whose.redact is not None:
            state = await self._redacted(whose.redact, state)
        body = encode(state)
        if len(body) > CHECKPOINT_BYTES_MAX:
            raise CheckpointFailed(
                f"the state takes {len(body):,} bytes, and a checkpoint at most"
                f" {CHECKPOINT_BYTES_MAX:,}: compact the conversation, or attach smaller tools"
            )
        facts = CheckpointFacts(
            session_id=whose.session_id,
            checkpoint_id=name,
            label=label,
            saved_ms=saved_ms,
            schema_version=SCHEMA_VERSION,
            metadata=encode_facts(metadata, STRIPPED),
        )
        if self._backend is None:
            await keep_checkpoint(self.ask, facts, body)
            return snapshot_of(facts)
        made = snapshot_of(facts)
        await self._backend.save(made, body)
        return made

    async def _redacted(self, redact: Redact, state: Any) -> Any:  # Any: a SavedState
        if len(self._threads) >= STRAYS_MAX:
            raise CheckpointFailed(f"{STRAYS_MAX} earlier runs of redact have not returned yet")
        given = {**plain_state(state), AGENT: decode_as(dict[str, Any], state.agent)}
        try:
            async with asyncio.timeout(REDACT_S):
                returned: object = await self._threads.run(lambda: redact(given))
        except TimeoutError as error:
            raise CheckpointFailed(
                f"redact did not return within {REDACT_S:g} s; no checkpoint was made"
            ) from error
        except ForeignError as error:
            raise CheckpointFailed(f"redact raised {error}; no checkpoint was made") from error
        except RuntimeError as error:  # the system gives no more threads
            raise CheckpointFailed(f"redact could not run: {error}") from error
        return _checked(state, returned)

    async def ask(self, request: Request) -> Any:  # Any: what the request's ``answer`` says
        """Return the daemon's answer."""
        daemon = await self._daemon.connected()
        return await daemon.ask(request, timeout_s=SAVE_S)


def _checked(state: Any, returned: object) -> Any:  # Any: a SavedState
    """Return the state that ``redact`` returned.

    Raises:
        CheckpointFailed: it is none.
    """
    problem = f"redact must return the state, a dict, and returned {type(returned).__name__}"
    if isinstance(returned, dict):
        left = {key: value for key, value in returned.items() if key != AGENT}
        try:
            agent = encode(returned[AGENT])
            changed = msgspec.structs.replace(
                state, state=msgspec.Raw(msgspec.msgpack.encode(left)), agent=agent
            )
            restore(Memory(), encode(changed))
            decode_as(AgentSpec, agent)
        except KeyError:
            problem = f"what redact returned has no {AGENT!r}"
        except (CheckpointUnreadable, ProtocolError, TypeError, ValueError) as error:
            problem = f"what redact returned is no state: {error}"
        else:
            return changed
    raise CheckpointFailed(f"{problem}; no checkpoint was made")


# --- forks ----------------------------------------------------------------------------------------

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
            known = await self._checkpoints.journaled()
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
            await self._checkpoints.drop(name)
        except CmdcError as error:
            log.info("fork.not_deleted", problem=str(error))
