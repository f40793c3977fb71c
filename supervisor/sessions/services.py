"""What a session needs of the rest of the daemon; it stands below the sessions, which make one."""

import asyncio
from typing import Any, Protocol

from cmdc_runtime.reasons import AnyReason
from cmdc_runtime.wire.frames import ToClient
from supervisor.adapters.hub import Hub
from supervisor.adapters.journal.store import Journal
from supervisor.adapters.self_check import FlushBarrier
from supervisor.core.exits import ExitRecord
from supervisor.core.tree.messages import Departed
from supervisor.processes.pool import WorkerPool
from supervisor.sessions.server_hosts import ServerHosts
from supervisor.sessions.tree_runtime import TreeRuntime


class Services(Protocol):
    """What a session needs of the rest of the daemon."""

    runtime: TreeRuntime
    pool: WorkerPool
    hub: Hub
    journal: Journal
    flush_barrier: FlushBarrier
    server_hosts: ServerHosts
    is_leaving: bool
    state_dir: str
    """The folder for what outlives the daemon."""
    readers: asyncio.Semaphore
    """Places for processes that answer for hibernated sessions."""

    def answer(self, client: bytes, frame: ToClient | bytes) -> None:
        """Send one frame to one client."""

    # Any: the session itself, which stands above this file.
    def notify(self, session: Any, departed: Departed, record: ExitRecord) -> None:
        """Notify the monitors that a process ended."""

    def record_hibernation(self, session: Any) -> None:
        """Record that a process ended and nobody is notified."""

    def forget(self, session: Any, reason: AnyReason) -> None:
        """Remove an ended session."""
