"""The supervision tree as callers see it, drawn from what the daemon knows."""

from collections import defaultdict

from cmdc_runtime.ids import SessionId
from cmdc_runtime.requests import DaemonFacts, TreeNode
from supervisor.core.household import AGENT, NURSERY, SESSIONS, SUBAGENTS, TOOL_HOST
from supervisor.core.tree.specs import Strategy
from supervisor.session import Session
from supervisor.sessions import Sessions


def tree_of(facts: DaemonFacts, sessions: Sessions) -> TreeNode:
    """Return the tree: root, nursery, and every session below its parent."""
    children: defaultdict[SessionId | None, list[Session]] = defaultdict(list)
    for session in sessions.live.values():
        parent = session.spec.parent_id
        children[parent if parent in sessions.live else None].append(session)
    nursery = TreeNode(
        id=NURSERY,
        kind="worker",
        restart="permanent",
        state=facts.nursery,
        pid=sessions.workforce.nursery.pid,
    )
    roots = TreeNode(
        id=SESSIONS,
        kind="supervisor",
        strategy=Strategy.DYNAMIC,
        restart="permanent",
        state="up",
        children=tuple(_node(session, children) for session in children[None]),
    )
    return TreeNode(
        id="root",
        kind="supervisor",
        strategy=Strategy.ONE_FOR_ONE,
        pid=facts.pid,
        state="up",
        children=(nursery, roots),
    )


def _node(session: Session, children: defaultdict[SessionId | None, list[Session]]) -> TreeNode:
    info = session.info()
    agent = TreeNode(
        id=AGENT,
        kind="worker",
        restart=session.spec.supervision.restart,
        pid=info.pid,
        state=info.phase,
        restarts=info.restarts,
    )
    below = tuple(_node(child, children) for child in children[session.id])
    subagents = TreeNode(
        id=SUBAGENTS, kind="supervisor", strategy=Strategy.DYNAMIC, state="up", children=below
    )
    hosts = () if session.worker is None else tuple(session.worker.hosts.all)
    host = tuple(
        TreeNode(id=TOOL_HOST, kind="worker", restart="temporary", pid=one.child.pid, state="up")
        for one in hosts
    )
    return TreeNode(
        id=session.path[-1],
        kind="supervisor",
        strategy=Strategy.REST_FOR_ONE,
        restart="temporary",
        state=info.phase,
        restarts=info.restarts,
        children=(agent, *host, subagents) if below else (agent, *host),
    )
