"""What a client makes of the daemon's own word about a session."""

import pytest

from cmdc_runtime.client.calls import _silent
from cmdc_runtime.requests import SessionInfo


def info(phase):
    return SessionInfo(
        session_id="s1",
        phase=phase,
        incarnation=3,
        restarts=2,
        pid=None,
        parent_id="p",
        group_id="g",
        last_index=9,
    )


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        ("starting", "starting"),
        ("up", "unresponsive"),
        ("restarting", "restarting"),
        ("stopping", "stopping"),
        ("hibernated", "hibernated"),
    ],
)
def test_session_that_does_not_answer_has_a_state(phase, state):
    """The state is the daemon's phase, and a process that is up and silent is unresponsive."""
    found = _silent(info(phase))

    assert found.state == state
    assert (found.incarnation, found.restarts, found.last_index) == (3, 2, 9)
    assert (found.parent_id, found.group_id, found.turns) == ("p", "g", 0)
