"""What the daemon answers to each request: one table, request -> coroutine.

To add a request: its class in ``cmdc_runtime/requests.py`` and its row here.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cmdc_runtime import requests
from cmdc_runtime.errors import AccessDenied, UsageError
from cmdc_runtime.requests import DaemonFacts, Replayed, SessionInfo, TreeNode
from supervisor.adapters.hub import Hub
from supervisor.core.limits import STOP_TIMEOUT_S_MAX
from supervisor.sessions import Sessions
from supervisor.tree import tree_of
from supervisor.watchers import Watchers


@dataclass(frozen=True, slots=True)
class House:
    """What the handlers work with."""

    sessions: Sessions
    watchers: Watchers
    hub: Hub
    accepts_code: bool
    facts: Callable[[], DaemonFacts]


def check_code(house: House, *, carries_code: bool) -> None:
    """Refuse code by value where the daemon takes none.

    Raises:
        AccessDenied: it does not.
    """
    if carries_code and not house.accepts_code:
        raise AccessDenied(
            "this daemon takes no code by value (allow_code_by_value); install the tools where it "
            "runs and name them as 'module:name'"
        )


async def start_session(
    house: House, _client: bytes, request: requests.StartSession
) -> SessionInfo:
    """Start a session and answer when its agent is up."""
    check_code(house, carries_code=request.carries_code)
    session = await house.sessions.start(request)
    return session.info()


async def stop_session(house: House, _client: bytes, request: requests.StopSession) -> None:
    """End a session and its children, and answer when their processes are gone."""
    if not 0 <= request.timeout <= STOP_TIMEOUT_S_MAX:
        raise UsageError(f"timeout: expected 0 to {STOP_TIMEOUT_S_MAX:g} s, got {request.timeout}")
    await house.sessions.stop(request.session_id, request.reason, request.timeout)


async def find_session(house: House, _client: bytes, request: requests.FindSession) -> SessionInfo:
    """Answer what is known of a session."""
    return await house.sessions.look_up(request.session_id)


async def list_sessions(
    house: House, _client: bytes, request: requests.ListSessions
) -> tuple[SessionInfo, ...]:
    """Answer all live sessions, or those of one group."""
    infos = (session.info() for session in house.sessions.live.values())
    return tuple(
        info
        for info in infos
        if info.phase != "ended" and request.group_id in {None, info.group_id}
    )


async def get_tree(house: House, _client: bytes, _request: requests.GetTree) -> TreeNode:
    """Answer the supervision tree."""
    return tree_of(house.facts(), house.sessions)


async def get_facts(house: House, client: bytes, _request: requests.GetFacts) -> DaemonFacts:
    """Answer who the daemon is, and how many notices it has sent to who asks."""
    notices = house.watchers.notices(client)
    return msgspec.structs.replace(house.facts(), notices=notices)


async def monitor(house: House, client: bytes, request: requests.Monitor) -> requests.Monitored:
    """Set a monitor for this client."""
    return await house.watchers.set(request, client)


async def demonitor(house: House, _client: bytes, request: requests.Demonitor) -> None:
    """Forget a monitor."""
    house.watchers.demonitor(request.ref)


async def replay(house: House, _client: bytes, request: requests.Replay) -> Replayed:
    """Answer events again."""
    await house.sessions.look_up(request.session_id)
    return await house.hub.replay(request.session_id, request.after, request.through)


Handler = Callable[[House, bytes, Any], Awaitable[object]]  # Any: the request of its own row
# fmt: off
HANDLERS: Final[Mapping[type[requests.Request], Handler]] = {
    requests.StartSession: start_session,
    requests.StopSession:  stop_session,
    requests.FindSession:  find_session,
    requests.ListSessions: list_sessions,
    requests.GetTree:      get_tree,
    requests.GetFacts:     get_facts,
    requests.Monitor:      monitor,
    requests.Demonitor:    demonitor,
    requests.Replay:       replay,
}
# fmt: on
