"""The contract of a checkpoint backend, tried on one of an application's own.

It is what the agent relies on: what was saved comes back as it was, the newest is known, sessions
know nothing of each other, and what is deleted is gone.
"""

import asyncio
import uuid
from collections.abc import Awaitable
from typing import TypeVar

from cmdc_runtime.checkpoints import Snapshot
from cmdc_runtime.extensions.checkpoint_backend import CheckpointBackend, Perhaps, check_is_backend
from cmdc_runtime.ids import SessionId

_Value = TypeVar("_Value")


def check_checkpoint_backend(backend: CheckpointBackend) -> None:
    """Save, load, list and delete checkpoints of two new sessions; it leaves none.

    Raises:
        AssertionError: the backend breaks a rule; the text says which.
        TypeError: it is none.
    """
    check_is_backend(backend)
    asyncio.run(_check(backend))


async def _check(backend: CheckpointBackend) -> None:
    mine, other = (SessionId(f"check-{uuid.uuid4().hex}") for _ in range(2))
    try:
        await _check_empty(backend, mine)
        await _check_kept(backend, mine, other)
        await _check_deleted(backend, mine, other)
    finally:
        for session_id in (mine, other):
            await _awaited(backend.delete(session_id, None))


async def _check_empty(backend: CheckpointBackend, mine: SessionId) -> None:
    for name in (None, "c-1"):
        found = await _awaited(backend.load(mine, name))
        _hold(found is None, f"load returns None for what is not there, not {found!r}")
    _hold(await _listed(backend, mine) == [], "list has nothing of a session without checkpoints")
    for name in (None, "c-1"):
        await _awaited(backend.delete(mine, name))


async def _check_kept(backend: CheckpointBackend, mine: SessionId, other: SessionId) -> None:
    first, second = _snapshot(mine, "c-1", 1), _snapshot(mine, "c-2", 2)
    bodies = {"c-1": bytes(range(256)), "c-2": b""}
    for one in (second, first):
        await _awaited(backend.save(one, bodies[one.checkpoint_id]))
    await _awaited(backend.save(_snapshot(other, "c-1", 3), b"other"))
    for one in (first, second):
        found = await _awaited(backend.load(mine, one.checkpoint_id))
        _hold(_is(found, one, bodies[one.checkpoint_id]), "load returns what save was given")
    newest = await _awaited(backend.load(mine, None))
    _hold(_is(newest, second, b""), "load(…, None) returns the newest by saved_at_ms")
    listed = await _listed(backend, mine)
    _hold(listed == [first, second], f"list has all of a session and no other: {listed!r}")
    changed = _snapshot(mine, "c-1", 1, label="again")
    await _awaited(backend.save(changed, b"again"))
    found = await _awaited(backend.load(mine, "c-1"))
    _hold(_is(found, changed, b"again"), "save takes the place of a checkpoint of the same id")
    listed = await _listed(backend, mine)
    _hold(listed == [changed, second], "a checkpoint that was saved again is listed once")


async def _check_deleted(backend: CheckpointBackend, mine: SessionId, other: SessionId) -> None:
    await _awaited(backend.delete(mine, "c-1"))
    _hold(await _awaited(backend.load(mine, "c-1")) is None, "delete takes one away")
    names = [one.checkpoint_id for one in await _listed(backend, mine)]
    _hold(names == ["c-2"], "delete of one leaves the others")
    await _awaited(backend.delete(mine, None))
    _hold(await _listed(backend, mine) == [], "delete(…, None) takes all of the session away")
    _hold(len(await _listed(backend, other)) == 1, "delete leaves the other sessions alone")


def _snapshot(
    session_id: SessionId, checkpoint_id: str, at_ms: int, *, label: str | None = None
) -> Snapshot:
    return Snapshot(
        checkpoint_id=checkpoint_id,
        session_id=session_id,
        label=label,
        saved_at_ms=at_ms,
        schema_version=1,
        metadata={"n": 1, "of": ["a", None, {"b": 2.5}], "raw": b"\x00\xff"},
        stripped_fields=("work",),
    )


async def _listed(backend: CheckpointBackend, session_id: SessionId) -> list[Snapshot]:
    found = await _awaited(backend.list(session_id))
    return sorted(found, key=lambda one: one.saved_at_ms)


async def _awaited(value: Perhaps[_Value]) -> _Value:
    return await value if isinstance(value, Awaitable) else value


def _is(found: object, snapshot: Snapshot, body: bytes) -> bool:
    return isinstance(found, tuple) and found == (snapshot, body)


def _hold(rule: bool, text: str) -> None:  # noqa: FBT001 - as assert
    if not rule:
        raise AssertionError(text)
