"""The supervision tree as callers see it, drawn from what the daemon knows."""

from collections import defaultdict

from cmdc_runtime.ids import SessionId
from cmdc_runtime.requests import DaemonFacts, TreeNode
from supervisor.session import Session
from supervisor.sessions import Sessions


def tree_of(facts: DaemonFacts, sessions: Sessions) -> TreeNode:
    """Return the tree: root, nursery, and every session below its parent."""
    children: defaultdict[SessionId | None, list[Session]] = defaultdict(list)
    for session in sessions.live.values():
        parent = session.spec.parent_id
        children[parent if parent in sessions.live else None].append(session)
    nursery = TreeNode(
        id="nursery",
        kind="worker",
        restart="permanent",
        state=facts.nursery,
        pid=sessions.workforce.nursery.pid,
    )
    roots = TreeNode(
        id="sessions",
        kind="supervisor",
        strategy="one_for_one",
        restart="permanent",
        state="up",
        children=tuple(_node(session, children) for session in children[None]),
    )
    return TreeNode(
        id="root",
        kind="supervisor",
        strategy="one_for_one",
        pid=facts.pid,
        state="up",
        children=(nursery, roots),
    )


def _node(session: Session, children: defaultdict[SessionId | None, list[Session]]) -> TreeNode:
    info = session.info()
    agent = TreeNode(
        id="agent",
        kind="worker",
        restart=session.spec.supervision.restart,
        pid=info.pid,
        state=info.phase,
        restarts=info.restarts,
    )
    below = tuple(_node(child, children) for child in children[session.id])
    subagents = TreeNode(
        id="subagents", kind="supervisor", strategy="one_for_one", state="up", children=below
    )
    return TreeNode(
        id=f"session:{session.id}",
        kind="supervisor",
        strategy="rest_for_one",
        restart="temporary",
        state=info.phase,
        restarts=info.restarts,
        children=(agent, subagents) if below else (agent,),
    )
