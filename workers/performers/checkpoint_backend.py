"""The session's own checkpoint backend, asked as foreign code is: in its time, and in a thread.

A backend that raises, takes longer than ``BACKEND_S``, or answers with what is no checkpoint of the
session is an error of whoever asked. Plain methods have a thread of their own; ``async`` ones run
in the loop.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

from cmdc_runtime import foreign
from cmdc_runtime.checkpoints import (
    CHECKPOINT_BYTES_MAX,
    CHECKPOINT_ID,
    KeptCheckpoint,
    Snapshot,
    read_saved,
)
from cmdc_runtime.commands import DeleteOwnCheckpoint, ListOwnCheckpoints, OfBackend
from cmdc_runtime.errors import CheckpointFailed, CheckpointNotFound, CmdcError
from cmdc_runtime.extensions.checkpoint_backend import CheckpointBackend
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.ids import SessionId
from cmdc_runtime.plain import short, shown
from cmdc_runtime.wire.codec import decode_as, encode
from workers.threads import Threads

BACKEND_S: Final = 30.0
"""For one answer of a backend; its thread is left alone then."""
STRAYS_MAX: Final = 8
"""Calls of a backend that run at a time, those that were left alone among them."""
LISTED_MAX: Final = 10_000
"""Checkpoints of one session that a backend may list: they are held in memory, and answered."""
PROBLEM_CHARS_MAX: Final = 4_000
"""Of what a backend has raised, as it is reported."""

_BYTES: Final = (bytes, bytearray, memoryview)
_PAIR: Final = 2
_Value = TypeVar("_Value")


class OwnBackend:
    """What keeps the checkpoints of one session."""

    def __init__(
        self, thing: CheckpointBackend | type[CheckpointBackend], session_id: SessionId
    ) -> None:
        """Ask ``thing``; a class is made at the first use, so that no start waits for it."""
        self._thing = thing
        self._name = thing.__name__ if isinstance(thing, type) else type(thing).__name__
        self._session_id = session_id
        self._threads = Threads("checkpoint-backend")
        self._making = asyncio.Lock()

    async def asked(self, command: OfBackend) -> object:
        """Return the answer to a command.

        Raises:
            CmdcError: the backend failed, or has no such checkpoint.
        """
        if isinstance(command, ListOwnCheckpoints):
            return tuple(await self.known())
        if isinstance(command, DeleteOwnCheckpoint):
            await self.delete(command.checkpoint_id)
            return None
        return await self.load(command.checkpoint_id)

    async def save(self, snapshot: Snapshot, body: bytes) -> None:
        """Have it keep a checkpoint; return when it has acknowledged that.

        Raises:
            CheckpointFailed: it has not; the message says why.
        """
        await self._call("save", lambda backend: backend.save(snapshot, body), _as_it_is)

    async def load(self, checkpoint_id: str | None) -> KeptCheckpoint:
        """Return a checkpoint, with None the newest.

        Raises:
            CheckpointNotFound: it has none of this id.
            CheckpointUnreadable: its body is damaged, or of a newer program.
            CheckpointFailed: it failed, or answered with something else.
        """
        session_id = self._session_id
        found = await self._call(
            "load", lambda backend: backend.load(session_id, checkpoint_id), _as_it_is
        )
        if found is None:
            which = "no checkpoint" if checkpoint_id is None else f"no checkpoint {checkpoint_id!r}"
            raise CheckpointNotFound(f"{self._who} has {which} of session {session_id}")
        if not (isinstance(found, tuple) and len(found) == _PAIR and isinstance(found[1], _BYTES)):
            raise self._wrong("load", f"{short(found)}, and a (Snapshot, bytes) is wanted")
        snapshot, body = self._snapshot("load", found[0]), bytes(found[1])
        if checkpoint_id not in (None, snapshot.checkpoint_id):
            raise self._wrong("load", f"checkpoint {snapshot.checkpoint_id!r} for another one")
        if len(body) > CHECKPOINT_BYTES_MAX:
            raise self._wrong("load", f"{len(body):,} bytes: at most {CHECKPOINT_BYTES_MAX:,} fit")
        read_saved(body)
        return KeptCheckpoint(snapshot=snapshot, body=body)

    async def known(self) -> list[Snapshot]:
        """Return all of the session, newest first.

        Raises:
            CheckpointFailed: it failed, or answered with something else.
        """
        session_id = self._session_id
        found = await self._call("list", lambda backend: backend.list(session_id), _some)
        if not isinstance(found, list):
            raise self._wrong("list", f"{short(found)}, and Snapshots are wanted")
        if len(found) > LISTED_MAX:
            raise self._wrong("list", f"more than {LISTED_MAX:,}: delete some there")
        known = [self._snapshot("list", one) for one in found]
        return sorted(known, key=lambda one: one.saved_at_ms, reverse=True)

    async def delete(self, checkpoint_id: str | None) -> None:
        """Have it forget one, or with None all of the session.

        Raises:
            CheckpointFailed: it has not; the message says why.
        """
        session_id = self._session_id
        await self._call(
            "delete", lambda backend: backend.delete(session_id, checkpoint_id), _as_it_is
        )

    @property
    def _who(self) -> str:
        return f"checkpoint backend {self._name}"

    def _wrong(self, method: str, what: str) -> CheckpointFailed:
        return CheckpointFailed(f"{self._who}: {method} returned {what}")

    def _snapshot(self, method: str, given: object) -> Snapshot:
        """Return what a backend gave as a snapshot, as far as it is one of this session."""
        if not isinstance(given, Snapshot):
            raise self._wrong(method, f"{short(given)}, and a Snapshot is wanted")
        try:
            # Fields of a stranger may be anything; what comes back of bytes is what is travels.
            checked: Snapshot = decode_as(Snapshot, encode(given))
        except (CmdcError, TypeError, ValueError) as error:
            raise self._wrong(method, f"a Snapshot that is none: {error}") from error
        if checked.session_id != self._session_id:
            raise self._wrong(method, f"a checkpoint of session {short(checked.session_id)}")
        if not CHECKPOINT_ID.fullmatch(checked.checkpoint_id):
            raise self._wrong(method, f"a checkpoint of the id {short(checked.checkpoint_id)}")
        return checked

    async def _call(
        self,
        method: str,
        work: Callable[[CheckpointBackend], Any],  # Any: a value, or what is awaited for it
        read: Callable[[Any], _Value],
    ) -> _Value:
        """Return what a method of the backend returns, as ``read`` does in the same place.

        Raises:
            CheckpointFailed: it raised something, or took too long.
        """
        if len(self._threads) >= STRAYS_MAX:
            raise CheckpointFailed(
                f"{self._who} is busy: {STRAYS_MAX} calls of it have not returned yet"
            )
        try:
            async with asyncio.timeout(BACKEND_S):
                backend = await self._made()
                if inspect.iscoroutinefunction(getattr(backend, method)):
                    return await foreign.wait(lambda: _read(work(backend), read))
                found: Any = await self._threads.run(lambda: _read_or_awaited(work(backend), read))
                if isinstance(found, _Awaited):
                    return await foreign.wait(lambda: _read(found.value, read))
                value: _Value = found
                return value
        except TimeoutError as error:
            raise CheckpointFailed(
                f"{self._who}: {method} did not return within {BACKEND_S:g} s"
            ) from error
        except ForeignError as error:
            what = shown(foreign.summary_of(error), PROBLEM_CHARS_MAX)
            raise CheckpointFailed(f"{self._who}: {method} raised {what}") from error
        except RuntimeError as error:  # the system gives no more threads
            raise CheckpointFailed(f"{self._who}: {method} could not run: {error}") from error

    async def _made(self) -> CheckpointBackend:
        async with self._making:
            thing = self._thing
            if not isinstance(thing, type):
                return thing
            try:
                self._thing = made = await self._threads.run(thing)
            except ForeignError as error:
                what = shown(foreign.summary_of(error), PROBLEM_CHARS_MAX)
                raise CheckpointFailed(f"{self._who} cannot be made: {what}") from error
            return made


def _as_it_is(value: object) -> object:
    return value


def _some(value: Iterable[object]) -> list[object]:
    """Return no more than one can answer with, and one more."""
    return list(islice(value, LISTED_MAX + 1))


@dataclass(frozen=True, slots=True)
class _Awaited:
    value: Awaitable[Any]  # Any: foreign


def _read_or_awaited(
    value: Any,  # Any: foreign
    read: Callable[[Any], _Value],
) -> _Value | _Awaited:
    return _Awaited(value) if inspect.isawaitable(value) else read(value)


async def _read(value: Awaitable[Any], read: Callable[[Any], _Value]) -> _Value:  # Any: foreign
    return read(await value)
