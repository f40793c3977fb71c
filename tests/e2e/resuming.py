"""What tests of checkpoints have in common: what a session has said, and its agent's death."""

import os
import signal


def said(session):
    return [(one.role, one.content) for one in session.messages() if one.role != "system"]


def kill(session, poll):
    """Kill the agent's process and return when the next one is up."""
    before = session.status()
    os.kill(before.pid, signal.SIGKILL)
    assert poll(lambda: session.status().incarnation > before.incarnation)
