"""The calls about checkpoints: save, list, load, delete a state, and resume a session from one.

For each face a mixin of the client and one of the session, call by call the same.
"""

from typing import TYPE_CHECKING, Any

from cmdc_runtime.checkpoints import Snapshot
from cmdc_runtime.client import orders
from cmdc_runtime.client.calls import Calls
from cmdc_runtime.client.guidance import AsyncGuidance, Guidance
from cmdc_runtime.client.subjects import SessionLike, checked_id
from cmdc_runtime.requests import Origin

if TYPE_CHECKING:
    from cmdc_runtime.client.async_client import AsyncClient
    from cmdc_runtime.client.client import Client
    from cmdc_runtime.client.session import AsyncSession, Session


class Keeping(Guidance):
    """The calls of a client for threads."""

    def checkpoint(
        self,
        session: SessionLike,
        *,
        label: str | None = None,
        metadata: dict[str, Any] | None = None,  # Any: whatever MessagePack takes
    ) -> Snapshot:
        """Save the session's state under a name, also of a busy one, and return when it is durable.

        It is the state that the journal would give a new process: a running cycle is part of it.

        Raises:
            CheckpointFailed: the session's ``redact`` refused, or the state is too large.

        """
        command = orders.checkpoint(label, metadata)
        made: Snapshot = self._run(Calls.order, checked_id(session), command)
        return made

    def list_checkpoints(self, session: SessionLike) -> list[Snapshot]:
        """Return the session's checkpoints without their states, newest first."""
        return self._run(Calls.list_checkpoints, checked_id(session))

    def load_checkpoint(self, session: SessionLike, checkpoint_id: str | None = None) -> Snapshot:
        """Return a checkpoint with its state, or with None the newest.

        Raises:
            CheckpointNotFound: it is not there.

        """
        return self._run(Calls.load_checkpoint, checked_id(session), checkpoint_id)

    def delete_checkpoint(self, session: SessionLike, checkpoint_id: str | None = None) -> None:
        """Delete a checkpoint, or with None all of the session; none to delete is no error."""
        self._run(Calls.delete_checkpoint, checked_id(session), checkpoint_id)

    def _resume(
        self, session: SessionLike, checkpoint_id: str | None, new_id: str | None, given: Any
    ) -> Any:  # Any: both ways, see ``Options``
        origin = Origin(session_id=checked_id(session), checkpoint_id=checkpoint_id)
        return self._run(Calls.resume, origin, new_id, given)


class AsyncKeeping(AsyncGuidance):
    """The calls of a client for coroutines."""

    async def checkpoint(
        self,
        session: SessionLike,
        *,
        label: str | None = None,
        metadata: dict[str, Any] | None = None,  # Any: whatever MessagePack takes
    ) -> Snapshot:
        """Save the session's state under a name, also of a busy one, and return when it is durable.

        It is the state that the journal would give a new process: a running cycle is part of it.

        Raises:
            CheckpointFailed: the session's ``redact`` refused, or the state is too large.

        """
        command = orders.checkpoint(label, metadata)
        made: Snapshot = await self._calls.order(checked_id(session), command)
        return made

    async def list_checkpoints(self, session: SessionLike) -> list[Snapshot]:
        """Return the session's checkpoints without their states, newest first."""
        return await self._calls.list_checkpoints(checked_id(session))

    async def load_checkpoint(
        self, session: SessionLike, checkpoint_id: str | None = None
    ) -> Snapshot:
        """Return a checkpoint with its state, or with None the newest.

        Raises:
            CheckpointNotFound: it is not there.

        """
        return await self._calls.load_checkpoint(checked_id(session), checkpoint_id)

    async def delete_checkpoint(
        self, session: SessionLike, checkpoint_id: str | None = None
    ) -> None:
        """Delete a checkpoint, or with None all of the session; none to delete is no error."""
        await self._calls.delete_checkpoint(checked_id(session), checkpoint_id)

    async def _resume(
        self, session: SessionLike, checkpoint_id: str | None, new_id: str | None, given: Any
    ) -> Any:  # Any: both ways, see ``Options``
        origin = Origin(session_id=checked_id(session), checkpoint_id=checkpoint_id)
        return await self._calls.resume(origin, new_id, given)


class Kept:
    """The calls of a session for threads."""

    client: "Client"

    def checkpoint(
        self,
        *,
        label: str | None = None,
        metadata: dict[str, Any] | None = None,  # Any: whatever MessagePack takes
    ) -> Snapshot:
        """Save the session's state under a name, and return when it is durable."""
        return self.client.checkpoint(self._itself, label=label, metadata=metadata)

    def list_checkpoints(self) -> list[Snapshot]:
        """Return the session's checkpoints without their states, newest first."""
        return self.client.list_checkpoints(self._itself)

    def load_checkpoint(self, checkpoint_id: str | None = None) -> Snapshot:
        """Return a checkpoint with its state, or with None the newest."""
        return self.client.load_checkpoint(self._itself, checkpoint_id)

    def delete_checkpoint(self, checkpoint_id: str | None = None) -> None:
        """Delete a checkpoint, or with None all of the session."""
        self.client.delete_checkpoint(self._itself, checkpoint_id)

    def resume_session(
        self,
        /,
        *,
        checkpoint_id: str | None = None,
        new_id: str | None = None,
        **overrides: Any,  # Any: see ``Options``
    ) -> "Session":
        """Resume the session after its end, or with ``new_id`` fork it."""
        return self.client.resume_session(
            self._itself, checkpoint_id=checkpoint_id, new_id=new_id, **overrides
        )

    @property
    def _itself(self) -> Any:  # Any: the session that this class is a part of
        return self


class AsyncKept:
    """The calls of a session for coroutines."""

    client: "AsyncClient"

    async def checkpoint(
        self,
        *,
        label: str | None = None,
        metadata: dict[str, Any] | None = None,  # Any: whatever MessagePack takes
    ) -> Snapshot:
        """Save the session's state under a name, and return when it is durable."""
        return await self.client.checkpoint(self._itself, label=label, metadata=metadata)

    async def list_checkpoints(self) -> list[Snapshot]:
        """Return the session's checkpoints without their states, newest first."""
        return await self.client.list_checkpoints(self._itself)

    async def load_checkpoint(self, checkpoint_id: str | None = None) -> Snapshot:
        """Return a checkpoint with its state, or with None the newest."""
        return await self.client.load_checkpoint(self._itself, checkpoint_id)

    async def delete_checkpoint(self, checkpoint_id: str | None = None) -> None:
        """Delete a checkpoint, or with None all of the session."""
        await self.client.delete_checkpoint(self._itself, checkpoint_id)

    async def resume_session(
        self,
        /,
        *,
        checkpoint_id: str | None = None,
        new_id: str | None = None,
        **overrides: Any,  # Any: see ``Options``
    ) -> "AsyncSession":
        """Resume the session after its end, or with ``new_id`` fork it."""
        return await self.client.resume_session(
            self._itself, checkpoint_id=checkpoint_id, new_id=new_id, **overrides
        )

    @property
    def _itself(self) -> Any:  # Any: the session that this class is a part of
        return self
