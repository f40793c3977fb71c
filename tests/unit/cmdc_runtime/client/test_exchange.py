"""What a client makes of the daemon's own word about a session."""

import msgspec
import pytest

from cmdc_runtime.client.exchange import _silent
from cmdc_runtime.commands import Status
from cmdc_runtime.requests import SessionInfo
from cmdc_runtime.wire import codec


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


def test_session_that_sleeps_has_the_counters_that_it_left():
    """And the place in the world that the daemon knows of."""
    left = Status(state="idle", session_id="s1", incarnation=1, turns=7, pid=12, last_index=3)
    found = _silent(msgspec.structs.replace(info("hibernated"), asleep=codec.encode(left)))

    assert (found.state, found.turns, found.pid) == ("hibernated", 7, None)
    assert (found.incarnation, found.restarts, found.last_index) == (3, 2, 9)


@pytest.mark.parametrize("left", [b"\xc1", b"", b"\x90", codec.encode({"state": 1})])
def test_what_an_agent_left_may_be_no_status(left):
    """The daemon does not look at it, and a list is of others, too."""
    found = _silent(msgspec.structs.replace(info("hibernated"), asleep=left))

    assert (found.state, found.turns) == ("hibernated", 0)
