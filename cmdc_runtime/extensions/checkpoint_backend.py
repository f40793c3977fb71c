"""Checkpoint backends: where a session's checkpoints are kept, if not in the daemon's journal.

A session has one, ``Options.checkpoint_backend``. It runs in the session's own process, or in one
that reads for it while it sleeps or has ended, never in the daemon. A checkpoint counts as made
when ``save`` has returned: what it acknowledges has to be there after a power cut.

To write one: subclass ``CheckpointBackend``, and hold it to
``cmdc_runtime.testing.check_checkpoint_backend``.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable
from typing import TypeAlias, TypeVar

from cmdc_runtime.checkpoints import Snapshot
from cmdc_runtime.plain import short

_Value = TypeVar("_Value")
Perhaps: TypeAlias = _Value | Awaitable[_Value]
"""What a method returns that is plain or ``async``."""


class CheckpointBackend(ABC):
    """Keeps the checkpoints of sessions.

    A method is plain, and then runs in a thread where it may wait for a disk or a network, or
    ``async``. Several may run at a time, in several processes as well. Each has 30 seconds. What
    one raises is reported to who has asked, and ends nothing.

    A class is made without arguments, where it is first needed; an instance travels with its
    fields. ``body`` is opaque, of at most 64 MiB, and comes back as it was.
    """

    @abstractmethod
    def save(self, snapshot: Snapshot, body: bytes) -> Perhaps[None]:
        """Keep a checkpoint, in the place of one of the same session and id; durable on return.

        It is there as a whole or not at all. ``snapshot.state`` is None.
        """

    @abstractmethod
    def load(
        self, session_id: str, checkpoint_id: str | None
    ) -> Perhaps[tuple[Snapshot, bytes] | None]:
        """Return a checkpoint of the session, with None the newest; None where it is not there."""

    @abstractmethod
    def list(self, session_id: str) -> Perhaps[Iterable[Snapshot]]:
        """Return what ``save`` was given of all checkpoints of the session, in any order."""

    @abstractmethod
    def delete(self, session_id: str, checkpoint_id: str | None) -> Perhaps[None]:
        """Forget a checkpoint of the session, with None all; none to forget is no error."""


def is_checkpoint_backend(candidate: object) -> bool:
    """Say whether something is a backend, or the class of one that can be made."""
    if isinstance(candidate, type):
        return issubclass(candidate, CheckpointBackend) and not candidate.__abstractmethods__
    return isinstance(candidate, CheckpointBackend)


def check_is_backend(candidate: object) -> None:
    """Refuse what is no checkpoint backend.

    Raises:
        TypeError: it is none, or its class lacks methods; the text says which.
    """
    if is_checkpoint_backend(candidate):
        return
    lacking: frozenset[str] = getattr(candidate, "__abstractmethods__", frozenset())
    if isinstance(candidate, type) and issubclass(candidate, CheckpointBackend):
        raise TypeError(f"{short(candidate)} has no method {', '.join(sorted(lacking))}")
    raise TypeError(
        "expected a class or an object of cmdc.CheckpointBackend, or 'module:Class';"
        f" got {short(candidate)}"
    )
