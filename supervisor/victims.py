"""Whom the fault points of the daemon can kill, and by which pids."""

import os
from collections.abc import Callable
from typing import Final

from cmdc_runtime.faults import AGENT
from supervisor.adapters.nursery import Nursery
from supervisor.worker import Worker

DAEMON: Final = "daemon"
NURSERY: Final = "nursery"
HOST: Final = "host"
BOTH: Final = "both"
"""The agent, and then the daemon."""
VICTIMS: Final = (AGENT, HOST, NURSERY, DAEMON, BOTH)


def pids_of(victim: str, nursery: Nursery, worker: Callable[[], Worker | None]) -> tuple[int, ...]:
    """Return the processes that the name stands for now; ``worker`` is the session's."""
    if victim == DAEMON:
        return (os.getpid(),)
    if victim == NURSERY:
        return () if nursery.pid is None else (nursery.pid,)
    agent = worker()
    if agent is None or not agent.is_forked or agent.has_ended:
        return ()
    if victim == HOST:
        return tuple(host.child.pid for host in agent.hosts.all)
    return (agent.pid,) if victim == AGENT else (agent.pid, os.getpid())
