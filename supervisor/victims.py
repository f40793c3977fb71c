"""Whom the fault points of the daemon can kill, and by which pids.

Several die together by their names with a plus between them: all of them, or nobody where one of
them is not there.
"""

import os
from collections.abc import Callable, Iterable
from typing import Final

from cmdc_runtime.faults import AGENT
from supervisor.adapters.nursery import Nursery
from supervisor.worker import Worker

DAEMON: Final = "daemon"
NURSERY: Final = "nursery"
HOST: Final = "host"
CHILDREN: Final = "children"
"""The agents of the session's subagents."""
BRANCH: Final = "branch"
"""The oldest of them that lives."""
BOTH: Final = f"{AGENT}+{DAEMON}"
FAMILY: Final = f"{AGENT}+{CHILDREN}"
ALL: Final = f"{FAMILY}+{DAEMON}"
HOST_AND_DAEMON: Final = f"{HOST}+{DAEMON}"
CHILDREN_AND_DAEMON: Final = f"{CHILDREN}+{DAEMON}"
WITH_HOST: Final = f"{AGENT}+{HOST}"
WITH_NURSERY: Final = f"{AGENT}+{NURSERY}"
VICTIMS: Final = (
    *(AGENT, HOST, NURSERY, BRANCH, DAEMON),
    *(BOTH, FAMILY, ALL, WITH_HOST, WITH_NURSERY),
    *(HOST_AND_DAEMON, CHILDREN_AND_DAEMON),
)


def pids_of(
    victim: str, nursery: Nursery, family: Callable[[], Iterable[Worker | None]]
) -> tuple[int, ...]:
    """Return the processes that the name stands for now, the daemon last.

    ``family`` returns the worker of the session, then those of its subagents.
    """
    agent, *children = family() or (None,)
    is_up = agent is not None and agent.is_forked and not agent.has_ended
    below = tuple(one.pid for one in children if one and one.is_forked and not one.has_ended)
    there: dict[str, tuple[int, ...]] = {
        AGENT: (agent.pid,) if agent is not None and is_up else (),
        HOST: tuple(one.child.pid for one in agent.hosts.all) if agent and is_up else (),
        CHILDREN: below,
        BRANCH: below[:1],
        NURSERY: () if nursery.pid is None else (nursery.pid,),
        DAEMON: (os.getpid(),),
    }
    found = [there[name] for name in victim.split("+")]
    return tuple(pid for pids in found for pid in pids) if all(found) else ()
