"""Our supervision tree: who is below whom, and how each is kept. Pure.

root                  one_for_one
|- zygote            permanent
|- mcp_servers       dynamic
|  `- @mcp-<key>     one for each server that sessions share, ends with its host
|     `- host        transient: it ends by itself when nobody uses it
`- sessions           dynamic
   `- session:<id>    rest_for_one, ends with its agent
      |- agent        permanent, transient or temporary, as its options say
      `- subagents    dynamic: a session for each, which ends with the agent's process
"""

from collections.abc import Mapping
from typing import Final

from cmdc_runtime.errors import InvalidOptions, TransientError
from cmdc_runtime.ids import SESSION_ID_RULE, Incarnation, SessionId, is_session_id
from cmdc_runtime.process import CODE_STAGE, FRAME_STAGE
from cmdc_runtime.reasons import AnyReason, StartFailed
from cmdc_runtime.requests import StartSession, Supervision
from supervisor.core.limits import (
    ACQUIRE_S_MAX,
    SERVER_RESTARTS_MAX,
    SERVER_START_S,
    SERVER_WINDOW_S,
    STOP_ALL_S,
)
from supervisor.core.session_phase import HAVING_CHILDREN, SHOWN, Phase
from supervisor.core.tree.messages import SupervisorPath
from supervisor.core.tree.specs import (
    AutoShutdown,
    ChildSpec,
    Flags,
    Strategy,
    SupervisorSpec,
    child_problems,
)

SESSIONS: Final = "sessions"
ZYGOTE: Final = "nursery"
"""Its id in the tree, on the wire and in recordings, is the word of earlier releases."""
FULL_ZYGOTE: Final = "nursery_litellm"
"""The zygote that has litellm, where it is shown: no child of the tree, for where it can't be had
only the sessions that need it fail."""
AGENT: Final = "agent"
SUBAGENTS: Final = "subagents"
TOOL_HOST: Final = "tool_host"
"""It is started by its agent's wish and ends with the agent's process: the agent's, not the tree's.
"""
SERVERS: Final = "mcp_servers"
SERVER_HOST: Final = "host"
_KEY_CHARS_SHOWN: Final = 16
ALL_SESSIONS: Final[SupervisorPath] = (SESSIONS,)

PARENT_ENDED: Final = "the parent's process ended"
"""The detail of the Shutdown that ends a child."""
HIBERNATE_GRACE_S: Final = 5.0
"""For an idle process to end when it is given up; it has nothing to do, so this is ample."""
ROOT_RESTARTS_MAX: Final = 20
ROOT_WINDOW_S: Final = 60.0
"""A zygote that can't be warmed is tried so often before the daemon gives up; with the back-off
below that takes some minutes. systemd starts a new daemon then, which may do better."""
SHOWN_CHARS_MAX: Final = 40
"""Of a session id that is none, in the error."""
ZYGOTE_DELAY_S: Final = (1.0, 30.0)
SERVER_DELAY_S: Final = (0.2, 5.0)
_PARKING: Final = frozenset({CODE_STAGE, FRAME_STAGE})
"""Stages of a start that fails the same way until somebody has mended what is there."""


def root_spec(zygote: object) -> SupervisorSpec:
    """Return the whole tree as the daemon starts it; ``zygote`` is its child handler.

    It resumes: what can't be started at once is tried again, and holds up nobody.
    """
    return SupervisorSpec(
        flags=Flags(max_restarts=ROOT_RESTARTS_MAX, max_seconds=ROOT_WINDOW_S, resumes=True),
        children=(
            ChildSpec(id=ZYGOTE, start=zygote, restart_delay=ZYGOTE_DELAY_S, shutdown=STOP_ALL_S),
            ChildSpec(
                id=SERVERS,
                start=SupervisorSpec(flags=Flags(strategy=Strategy.DYNAMIC)),
                shutdown=STOP_ALL_S,
            ),
            ChildSpec(
                id=SESSIONS,
                start=SupervisorSpec(flags=Flags(strategy=Strategy.DYNAMIC)),
                shutdown=None,
            ),
        ),
    )


def server_name(key: str) -> str:
    """Return what the host of a shared MCP server is called: as no session can be."""
    return f"@mcp-{key[:_KEY_CHARS_SHOWN]}"


def server_spec(key: str, host: object) -> ChildSpec:
    """Return one shared MCP server; ``host`` is its child handler."""
    flags = Flags(
        max_restarts=SERVER_RESTARTS_MAX,
        max_seconds=SERVER_WINDOW_S,
        auto_shutdown=AutoShutdown.ANY_SIGNIFICANT,
    )
    child = ChildSpec(
        id=SERVER_HOST,
        start=host,
        restart="transient",
        significant=True,
        restart_delay=SERVER_DELAY_S,
        start_timeout=SERVER_START_S,
    )
    start = SupervisorSpec(flags=flags, children=(child,))
    return ChildSpec(id=server_name(key), start=start, restart="temporary", shutdown=STOP_ALL_S)


def session_path(parent: SupervisorPath | None, session_id: SessionId) -> SupervisorPath:
    """Return where a session is: below ``parent``, the path of another one, or at the top."""
    above = ALL_SESSIONS if parent is None else (*parent, SUBAGENTS)
    return (*above, f"session:{session_id}")


def own_ancestors(parents: Mapping[SessionId, SessionId]) -> frozenset[SessionId]:
    """Return the sessions above themselves, by the parent of each; no daemon makes such."""
    found: set[SessionId] = set()
    looked_at: set[SessionId] = set()
    for first in parents:
        path: dict[SessionId, int] = {}
        one = first
        while one in parents and one not in looked_at:
            looked_at.add(one)
            path[one] = len(path)
            one = parents[one]
        if one in path:
            found.update(list(path)[path[one] :])
    return frozenset(found)


def session_spec(
    spec: StartSession,
    agent: object,
    *,
    incarnation: Incarnation,
    restarts: int,
    has_lived: bool | None = None,
) -> ChildSpec:
    """Return one session; ``agent`` is its child handler, the numbers are those of an earlier life.

    The first process gets the number behind ``incarnation``. ``has_lived``: nobody waits for its
    start, since it was up before; None is that it had a process.

    Its agent is significant: where the restart type leaves it down, the session is over. A session
    as a whole is never restarted: its budget is spent, or it was asked to end.
    """
    policy: Supervision = spec.supervision
    flags = Flags(
        strategy=Strategy.REST_FOR_ONE,
        max_restarts=policy.max_restarts,
        max_seconds=policy.max_seconds,
        auto_shutdown=(
            AutoShutdown.NEVER if policy.restart == "permanent" else AutoShutdown.ANY_SIGNIFICANT
        ),
        resumes=incarnation > 0 if has_lived is None else has_lived,
    )
    children = (
        ChildSpec(
            id=AGENT,
            start=agent,
            restart=policy.restart,
            shutdown=None,  # the session's own grace counts, for the whole of it
            significant=policy.restart != "permanent",
            restart_delay=policy.restart_delay,
            start_timeout=policy.start_timeout + ACQUIRE_S_MAX,
            generation=incarnation,
            restarts=restarts,
        ),
        ChildSpec(
            id=SUBAGENTS,
            start=SupervisorSpec(flags=Flags(strategy=Strategy.DYNAMIC, stop_reason=PARENT_ENDED)),
            shutdown=None,
        ),
    )
    return ChildSpec(
        id=session_path(None, spec.session_id)[-1],
        start=SupervisorSpec(flags=flags, children=children),
        restart="temporary",
        shutdown=_grace_s(policy, is_child=spec.parent_id is not None),
    )


def parks(reason: AnyReason | None) -> bool:
    """Say whether a session that ended for ``reason`` is only parked, until it is resumed."""
    return isinstance(reason, StartFailed) and reason.stage in _PARKING


def check_session(spec: StartSession) -> None:
    """Refuse options by which no session can be kept; our client has checked them.

    Raises:
        InvalidOptions: with one line for each problem.
    """
    problems = child_problems(session_spec(spec, None, incarnation=Incarnation(0), restarts=0))
    if not is_session_id(spec.session_id):
        problems.append(
            f"session_id: expected {SESSION_ID_RULE}, got {spec.session_id[:SHOWN_CHARS_MAX]!r}"
        )
    if problems:
        raise InvalidOptions(problems)


def check_parent(
    session_id: SessionId, phase: Phase, incarnation: Incarnation, asks: Incarnation
) -> None:
    """Refuse a child of a session that has no process now, or not the one that asks.

    Raises:
        TransientError: with how the session stands.
    """
    if phase not in HAVING_CHILDREN or asks != incarnation:
        raise TransientError(
            f"parent_id: session {session_id} is {SHOWN[phase]} as incarnation {incarnation}; "
            "start the child from there when it is up"
        )


def _grace_s(policy: Supervision, *, is_child: bool) -> float | None:
    """Return the grace of a session; a child that may take for ever would hold up its parent."""
    if not is_child:
        return policy.shutdown
    return STOP_ALL_S if policy.shutdown is None else min(policy.shutdown, STOP_ALL_S)
